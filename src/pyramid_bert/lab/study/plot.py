"""Scatter and Pareto curves of a study, one panel per task, as PNG and SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import MissingExtraError, PyramidError
from ...files import check_writable_file, replacing_file
from .methods import AXES, CORESETS, DENSE, METHODS, in_order
from .table import XY, Result, pareto_front

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Distinct for colour-blind readers too (after Okabe and Ito); where colours repeat, markers differ.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#8B5A2B", "#6A3D9A", "#9C9C00")
MARKERS = "osD^vPX<>"
# A method looks the same in every picture. Core-sets with other m than 1 and k - 1 are rare, and come last.
_BETWEEN = [name for name in CORESETS if name not in ("CS-1", "CS-k-1")]
STYLED = [*(name for name in METHODS if name not in _BETWEEN), *_BETWEEN]


def draw(
    results: Sequence[Result],
    axis: str,
    titles: Mapping[str, str],
    metrics: Mapping[str, str],
    out: Path,
    name: str,
    suffixes: Sequence[str] = (".png", ".svg"),
) -> list[Path]:
    """Draws `results`, from `table.collect`, and returns the files written: `out` with each of the suffixes.

    Args:
        results: Finished cells with places on `axis`.
        axis: A key of `AXES`.
        titles: Task -> title of its panel.
        metrics: Task -> name of its metric.
        out: The picture to write; its suffix is replaced.
        name: The study's name, for the title.
        suffixes: The formats wanted.
    """
    picture = figure(results, axis, titles, metrics, name)
    files = [out.with_suffix(suffix) for suffix in suffixes]
    for file in files:
        check_writable_file(file)
    for file in files:
        with replacing_file(file) as scratch:
            picture.savefig(scratch, format=file.suffix.removeprefix("."), dpi=100)
    return files


def figure(
    results: Sequence[Result], axis: str, titles: Mapping[str, str], metrics: Mapping[str, str], name: str
) -> Figure:
    """The picture that `draw` writes; the arguments are the same."""
    try:
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine
    except ImportError as error:
        raise MissingExtraError("matplotlib", "plot", "drawing a study") from error
    tasks = [task for task in titles if any(r.task == task and r.x is not None and r.method != DENSE for r in results)]
    if not tasks:
        raise PyramidError(f"nothing to draw: no cell has both a result and a place on the axis {axis}")
    methods = in_order(r.method for r in results)
    columns = min(3, len(tasks))
    rows = -(-len(tasks) // columns)
    picture = Figure(figsize=(6.2 * columns, 4.4 * rows), layout=ConstrainedLayoutEngine(h_pad=0.1))
    picture.suptitle(f"{name}: mean over seeds, Pareto fronts")
    panels = np.atleast_1d(picture.subplots(rows, columns, squeeze=False)).ravel()
    for panel, task in zip(panels, tasks, strict=False):
        _panel(panel, [r for r in results if r.task == task and r.x is not None], methods)
        panel.set(title=titles[task], ylabel=f"{metrics[task]}, %", xlabel=AXES[axis][0])
    for panel in panels[len(tasks) :]:
        panel.set_axis_off()
    return picture


def means(results: Sequence[Result], method: str) -> list[XY]:
    """The points of a method, each the mean over seeds, in per cent."""
    groups: dict[str, list[Result]] = {}
    for result in results:
        if result.method == method:
            groups.setdefault(result.configuration, []).append(result)
    return [
        (float(np.mean([r.x for r in group if r.x is not None])), 100 * float(np.mean([r.value for r in group])))
        for group in groups.values()
    ]


def _panel(panel: Any, results: Sequence[Result], methods: Sequence[str]) -> None:
    dense = means(results, DENSE)
    for point in dense:
        panel.axhline(point[1], color="black", linewidth=0.8, linestyle=":", zorder=1)
        panel.plot(*point, "*", color="black", markersize=11, zorder=4)
        panel.annotate("dense", point, xytext=(6, 5), textcoords="offset points", fontsize=9)
    styled = [*STYLED, *(method for method in methods if method not in STYLED)]
    ends = []
    for method in methods:
        points = means(results, method)
        if not points:
            continue
        number = styled.index(method)
        colour, marker = COLOURS[number % len(COLOURS)], MARKERS[number % len(MARKERS)]
        panel.plot(*zip(*points, strict=True), marker, color=colour, markersize=5, alpha=0.85, zorder=3)
        front = pareto_front([*dense, *points])
        panel.plot(*zip(*front, strict=True), color=colour, linewidth=1.4, alpha=0.9, zorder=2)
        ends.append((*front[-1], method, colour))
    panel.grid(alpha=0.25)
    panel.spines[["top", "right"]].set_visible(False)
    _label(panel, ends)


def _label(panel: Any, ends: list[tuple[float, float, str, str]]) -> None:
    """Names each curve right of the panel, at the height where it ends; names that would overlap are moved apart."""
    low, high = panel.get_ylim()
    gap, right = 0.052 * (high - low), 1.02
    heights: list[float] = []
    ends = sorted(ends, key=lambda end: end[1])
    for _, height, _, _ in ends:
        heights.append(max(height, heights[-1] + gap) if heights else height)
    surplus = max(0.0, heights[-1] - high) if heights else 0.0
    for (x, y, name, colour), height in zip(ends, heights, strict=True):
        panel.annotate(
            name,
            xy=(x, y),
            xytext=(right, height - surplus),
            textcoords=("axes fraction", "data"),
            color=colour,
            fontsize=9,
            va="center",
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.5, "alpha": 0.5},
            annotation_clip=False,
        )
