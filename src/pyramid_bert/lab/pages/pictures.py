"""What the pictures of the pages share."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..markdown import shown_picture


def shrink(file: Path) -> None:
    """Makes a picture of few colours a small file."""
    from PIL import Image  # comes with matplotlib

    with Image.open(file) as image:
        small = image.convert("RGB").quantize(128)
    small.save(file, optimize=True)


def panels(rows: int, columns: int, width: float = 4.6, height: float = 3.4) -> tuple[Any, list[Any]]:
    """An empty figure and its panels, row by row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).ravel())


def save(figure: Any, file: Path) -> None:
    """Writes a figure as a small PNG."""
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=100)
    shrink(file)


def drawn(docs: Path, name: str, about: str, draw: Callable[[], Any]) -> str:
    """Draws a picture into docs/images if matplotlib is installed, and returns the line that shows it."""
    if find_spec("matplotlib"):
        save(draw(), docs / "images" / f"{name}.png")
    return shown_picture(name, docs, about)
