"""What the table of families gives to README.md and docs/families.md: `python -m pyramid_bert.lab.pages.families`."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...families import FAMILIES, Family, How, Where
from ..markdown import table

BLOCKS: Mapping[str, tuple[str, ...]] = {"README.md": ("supported",), "docs/families.md": ("families", "where", "how")}


def supported() -> str:
    """The families, in a sentence."""
    whole = [f"`{family.model_type}`" for family in _shipped() if _by_layer(family)]
    at_input = [f"`{family.model_type}`" for family in _shipped() if not _by_layer(family)]
    return (
        f"Sequence classifiers and encoder models of these {len(whole)} families (`config.model_type`): "
        f"{', '.join(whole)}; and {', '.join(at_input)} behind a selection at the input."
    )


def families() -> str:
    """The families, in a table."""
    rows = [
        [
            f"`{family.model_type}`",
            f"`{family.classifier.__name__}`",
            "in every layer" if _by_layer(family) else "at the input",
            "yes" if _by_layer(family) else "no",
            "yes" if family.how.reads_positions else "no",
        ]
        for family in _shipped()
    ]
    return table(["`config.model_type`", "classifier", "loses tokens", "export", "compares positions"], rows, left=5)


def where() -> str:
    """The names that a row gives."""
    return _attributes(Where)


def how() -> str:
    """The behaviour that a row gives."""
    return _attributes(How)


def filled(text: str, names: tuple[str, ...]) -> str:
    """A page with its blocks made anew."""
    for name in names:
        made = {"supported": supported, "families": families, "where": where, "how": how}[name]()
        begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        before, _, rest = text.partition(begin)
        text = f"{before}{begin}{made}\n{end}{rest.partition(end)[2]}"
    return text


def _shipped() -> list[Family]:
    """The families of the product: not those of the lab, nor those that others add."""
    return [family for family in FAMILIES if family.classifier.__module__.startswith("transformers.")]


def _by_layer(family: Family) -> bool:
    return family.how.halves.halves == ("attention", "feed_forward")


def _attributes(row: type[Any]) -> str:
    """What the docstring of a dataclass says of its attributes."""
    described = (row.__doc__ or "").partition("Attributes:\n")[2]
    found = re.findall(r"^ {8}(\w+): (.*(?:\n {12}.*)*)", described, flags=re.M)
    return table(["name", "what it is"], [[f"`{name}`", re.sub(r"\s+", " ", text)] for name, text in found], left=2)


def main(root: Path) -> None:
    """Writes the blocks of all pages."""
    for page, names in BLOCKS.items():
        path = root / page
        path.write_text(filled(path.read_text(encoding="utf-8"), names), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if sys.argv[1:] else "."))
