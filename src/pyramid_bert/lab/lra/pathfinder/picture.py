"""A sheet of Pathfinder images: each as a model sees it, and below it with its paths."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ....errors import MissingExtraError, PyramidError
from ....files import check_writable_file, write_bytes

if TYPE_CHECKING:
    from .draw import Drawing, Snake

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
        _draw_paths(below, drawing)
    file = io.BytesIO()
    try:
        figure.savefig(file, format=out.suffix.removeprefix(".") or "png", dpi=100)
    except ValueError as error:  # an unknown format
        raise PyramidError(f"cannot write {out}: {error}; name it .png, .svg or .pdf") from error
    write_bytes(out, file.getvalue())


def _draw_paths(panel: Any, drawing: Drawing) -> None:
    panel.imshow(drawing.image, cmap="gray", vmin=0, vmax=640)
    for snake in drawing.distractors:
        _draw_snake(panel, snake, _DISTRACTOR)
    for snake, colour in zip(drawing.snakes, _SNAKES, strict=True):
        _draw_snake(panel, snake, colour)
    for row, column in drawing.discs:
        panel.plot(column, row, "o", color=_DISC, markersize=6)


def _draw_snake(panel: Any, snake: Snake, colour: str) -> None:
    ends = [point for dash in snake.dashes for point in (dash.tail, dash.head)]
    panel.plot([column for _, column in ends], [row for row, _ in ends], color=colour, linewidth=0.6)
    for dash in snake.dashes:
        panel.plot([dash.tail[1], dash.head[1]], [dash.tail[0], dash.head[0]], color=colour, linewidth=2)
