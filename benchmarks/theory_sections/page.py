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


def read_all(pattern: str) -> list[dict[str, Any]]:
    """The results that a pattern means, by name."""
    paths = sorted((ROOT / "results").glob(f"theory-{pattern}.json"))
    return [json.loads(path.read_text(encoding="utf-8")) for path in paths]


def source(result: dict[str, Any]) -> str:
    """The command of a result, where the model is one that was trained on its task."""
    seed = {**result.get("training", {}), **result}["seed"]
    return f"`{result['command']}`, seed {seed}."


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "".join("| " + " | ".join(cells) + " |\n" for cells in lines)
