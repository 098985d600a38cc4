"""A sheet of Pathfinder images: each as a model sees it, and below it with its paths."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ....errors import MissingExtraError, PyramidError
from ....files import check_writable_file, write_bytes

if TYPE_CHECKING:
    from .draw import Drawing, Point

_COLUMNS = 6
_SNAKES, _DISTRACTOR, _DISC = ("#56B4E9", "#E69F00"), "#7F7F7F", "#D55E00"


def save_drawings(drawings: Sequence[Drawing], out: Path) -> None:
    """Writes a picture of some images, in pairs of rows: above the image, below the same with its paths."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plot", "drawing images") from error
    if not drawings:
        raise PyramidError("no images to show; give at least one")
    check_writable_file(out)
    columns = min(_COLUMNS, len(drawings))
    rows = -(-len(drawings) // columns)
    figure = Figure(figsize=(2 * columns, 4.2 * rows), layout="constrained")
    panels = figure.subplots(2 * rows, columns, squeeze=False)
    for panel in panels.flat:
        panel.set_axis_off()
    for number, drawing in enumerate(drawings):
        row, column = divmod(number, columns)
        above, below = panels[2 * row, column], panels[2 * row + 1, column]
        above.set_title(f"{number}: {'joined (1)' if drawing.label else 'not joined (0)'}", fontsize=9)
        above.imshow(drawing.image, cmap="gray", vmin=0, vmax=255)
        below.imshow(drawing.image, cmap="gray", vmin=0, vmax=640)
        colours = (*[_DISTRACTOR] * len(drawing.distractors), *_SNAKES)
        for snake, colour in zip((*drawing.distractors, *drawing.snakes), colours, strict=True):
            ends = [(dash.tail, dash.head) for dash in snake.dashes]
            below.plot(*_lines([point for pair in ends for point in pair]), color=colour, linewidth=0.6)
            for pair in ends:
                below.plot(*_lines(pair), color=colour, linewidth=2)
        below.plot(*_lines(drawing.discs), "o", color=_DISC, markersize=6)
    file = io.BytesIO()
    try:
        figure.savefig(file, format=out.suffix.removeprefix(".") or "png", dpi=100)
    except ValueError as error:  # an unknown format
        raise PyramidError(f"cannot write {out}: {error}; name it .png, .svg or .pdf") from error
    write_bytes(out, file.getvalue())


def _lines(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    """The columns and rows of some points: x and y for matplotlib."""
    return [column for _, column in points], [row for row, _ in points]
