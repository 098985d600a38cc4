"""What the sections share: where results are, and how tables are written."""

import json
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from measuring import ROOT
from pictures import save


def path_of(name: str) -> Path:
    """The file of a result."""
    return ROOT / "results" / f"theory-{name}.json"


def read(name: str) -> dict[str, Any] | None:
    """A result; None when it was not measured."""
    path = path_of(name)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def read_all(pattern: str) -> list[dict[str, Any]]:
    """The results that a pattern means, by name."""
    paths = sorted((ROOT / "results").glob(f"theory-{pattern}.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def source(result: dict[str, Any]) -> str:
    """The command of a result, where the model is one that was trained on its task."""
    seed = {**result.get("training", {}), **result}["seed"]
    return f"`{result['command']}`, seed {seed}."


def picture(name: str, about: str, draw: Callable[[], Any]) -> str:
    """Draws a picture, and returns the line that shows it; without matplotlib the one that is there is shown."""
    file = ROOT / "docs" / "images" / f"theory-{name}.png"
    if find_spec("matplotlib"):
        save(draw(), file)
    return f"![{about}](images/{file.name})\n" if file.exists() else ""


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)
