"""Pictures of the pages, as small PNG files in docs/images."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ...files import replacing_file


def panels(rows: int, columns: int, width: float = 4.6, height: float = 3.4) -> tuple[Any, list[Any]]:
    """An empty figure and its panels, row by row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).ravel())


def save(figure: Any, file: Path) -> None:
    """Writes a figure as a PNG with few colours, which makes a small file."""
    from PIL import Image  # comes with matplotlib

    with replacing_file(file) as scratch:
        figure.savefig(scratch, format="png", dpi=100)
        with Image.open(scratch) as image:
            small = image.convert("RGB").quantize(128)
        small.save(scratch, format="png", optimize=True)


def shown(docs: Path, name: str, about: str, draw: Callable[[], Any] = lambda: None) -> str:
    """The line that shows a picture; empty if there is none.

    Args:
        docs: The folder of the page.
        name: The picture's name, without its suffix.
        about: What it shows.
        draw: Makes the figure, or None; called if matplotlib is installed.
    """
    file = docs / "images" / f"{name}.png"
    if find_spec("matplotlib") and (figure := draw()) is not None:
        save(figure, file)
    return f"![{about}](images/{name}.png)" if file.exists() else ""
