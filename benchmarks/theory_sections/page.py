"""What the sections share: where results are, and how tables are written."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def path_of(name: str) -> Path:
    """The file of a result."""
    return ROOT / "results" / f"theory-{name}.json"


def read(name: str) -> dict[str, Any] | None:
    """A result; None when it was not measured."""
    path = path_of(name)
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)
