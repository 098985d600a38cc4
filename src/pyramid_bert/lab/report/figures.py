"""The figures of the report: functions from data to matplotlib figures, written as SVG and PNG.

Text and axes have one colour, `INK`, which the page replaces by its own, so figures work on light and on dark. The
other colours are safe for colour-blind readers and for both backgrounds.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from ...errors import MissingExtraError
from ...explain.explanation import Explanation
from ...explain.pieces import pieces
from ...explain.terminal import stages
from ...files import check_writable, write_bytes
from ..glue.tasks import TASKS
from ..study import plot
from ..study.methods import AXES
from ..study.runs import Run
from .charts import cells_of, fit_line, varies_schedules
from .collect import best_axis
from .compare import undefined
from .model import EncoderView

if TYPE_CHECKING:
    from matplotlib.figure import Figure

INK = "#1d2025"
BLUE, ORANGE, GREEN, PINK, GREY = "#2f86c8", "#d55e00", "#0f9d76", "#c86a9c", "#8a9099"
MAX_TOKENS = 40  # wider token pyramids are unreadable
STYLE: Any = {  # matplotlib's type for it is the list of all keys
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.spines.top": False,
    "axes.spines.right": False,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    "grid.color": INK,
    "grid.alpha": 0.14,
    "svg.fonttype": "none",  # keep text as text: smaller, searchable, in the page's font
    "svg.hashsalt": "pyramid-bert",
}
BOXES: Any = {
    "patch_artist": True,
    "medianprops": {"color": ORANGE, "linewidth": 2},
    "whiskerprops": {"color": INK},
    "capprops": {"color": INK},
    "flierprops": {"marker": ".", "markersize": 3, "markeredgecolor": GREY, "alpha": 0.5},
}


@dataclass(frozen=True)
class Picture:
    """A figure with its words.

    Attributes:
        key: For file names and links.
        title: What it shows.
        caption: How to read it.
        figure: The figure itself.
        of: What it shows. Pictures of a study are only written as files: the page has a chart in their place.
    """

    key: str
    title: str
    caption: str
    figure: Figure
    of: Literal["model", "study", "importance"] = "model"


@contextmanager
def styled() -> Iterator[None]:
    """The report's style, for figures made or written inside the block."""
    try:
        import matplotlib
    except ImportError as error:
        raise MissingExtraError("matplotlib", "report", "drawing figures") from error
    with matplotlib.rc_context(STYLE):
        yield


def _panels(count: int, width: float, height: float, **options: Any) -> tuple[Figure, list[Any]]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(1, count, **options)).ravel())


# ---- figures of the paper ----


def cls_similarity(views: Sequence[EncoderView]) -> Figure:
    """Histograms of the cosine similarity between CLS and each other token, a panel per encoder."""
    low = min(0.0, *(float(view.similarity.min()) for view in views))
    values = {view.layer: view.similarity for view in views}
    return _histograms(values, np.linspace(low, 1, 41), ".2f", "tokens", "cosine similarity with CLS", color=BLUE)


def clusters(views: Sequence[EncoderView]) -> Figure:
    """Histograms of the number of DBSCAN clusters that the tokens of a text form, a panel per encoder."""
    most = max(int(view.clusters.max()) for view in views)
    step = max(1, -(-most // 30))
    edges = np.arange(1, most + step + 1, step) - 0.5
    values = {view.layer: view.clusters for view in views}
    figure = _histograms(values, edges, ".1f", "texts", "clusters in a text", color=GREEN, rwidth=0.9)
    for panel in figure.axes:
        locator: Any = panel.xaxis.get_major_locator()
        locator.set_params(integer=True)
    return figure


def _histograms(
    values: Mapping[int, NDArray[Any]], edges: NDArray[Any], form: str, of: str, across: str, **look: Any
) -> Figure:
    """A panel per encoder, in per cent, with a line at the mean."""
    figure, panels = _panels(len(values), 2.5 * len(values), 2.4, sharey=True)
    for panel, (layer, found) in zip(panels, values.items(), strict=True):
        panel.hist(found, bins=edges.tolist(), weights=np.full(len(found), 100 / len(found)), **look)
        mean = float(found.mean())
        panel.axvline(mean, color=ORANGE, linewidth=1.5)
        panel.set(title=f"encoder {layer}: mean {mean:{form}}", xlabel=across)
        panel.grid(axis="y")
    panels[0].set_ylabel(f"% of {of}")
    return figure


def length_distributions(lengths: Mapping[str, Sequence[int]]) -> Figure:
    """A box plot of the tokens per text, a row per task, with mean and median."""
    names = list(lengths)
    figure, (panel,) = _panels(1, 7.5, 1.0 + 0.42 * len(names))
    rows = range(len(names), 0, -1)
    panel.boxplot(
        [list(lengths[name]) for name in names],
        positions=list(rows),
        orientation="horizontal",
        widths=0.55,
        showmeans=True,
        boxprops={"facecolor": BLUE, "alpha": 0.35, "edgecolor": INK},
        meanprops={"marker": "D", "markerfacecolor": GREEN, "markeredgecolor": GREEN, "markersize": 6},
        **BOXES,
    )
    panel.set_yticks(list(rows), names)
    for row, name in zip(rows, names, strict=True):
        mean, middle = np.mean(lengths[name]), np.median(lengths[name])
        words = f"mean {mean:.0f}, median {middle:.0f}"
        panel.annotate(words, (1.01, row), xycoords=("axes fraction", "data"), va="center", fontsize=9)
    panel.set_xlabel("tokens of a text (box: quartiles; line: median; diamond: mean)")
    panel.grid(axis="x")
    return figure


def fitted_lines(cells: Sequence[tuple[str, str, Sequence[tuple[float, float]]]], against: str) -> Figure:
    """Metric against speed-up of every cell with a straight line through each series, a panel per task.

    Args:
        cells: (task's title, series, speed-up and metric of each cell).
        against: The name of the axis of speed-ups.
    """
    titles, names = (list(dict.fromkeys(cell[place] for cell in cells)) for place in (0, 1))
    figure, panels = _panels(len(titles), max(3.6 * len(titles), 5), 3.1)
    for panel, title in zip(panels, titles, strict=True):
        for _, name, points in (cell for cell in cells if cell[0] == title and cell[2]):
            number = names.index(name) % 4
            colour, line = (BLUE, ORANGE, GREEN, PINK)[number], fit_line(points)
            panel.plot(*zip(*points, strict=True), "osD^"[number], color=colour, markersize=5, alpha=0.75, label=name)
            if line is not None:
                panel.plot(*zip(*line.ends, strict=True), color=colour, linewidth=1.5)
        panel.set(title=title, xlabel=against)
        panel.legend(frameon=False, fontsize=8)
        panel.grid()
    panels[0].set_ylabel("metric, %")
    return figure


def study_figure(run: Run) -> Figure:
    """A study's cells, with Pareto fronts, or with fitted lines where kinds of schedules are compared."""
    axis = best_axis(run)
    if varies_schedules(run):
        with styled():
            return fitted_lines(cells_of(run, axis), AXES[axis][0])
    metrics = {task: TASKS[task].metric for task in run.study.tasks}
    return plot.figure(run.results(axis), axis, run.titles, metrics, run.study.name)


def importance(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Mutual information between predictions with and without the k-th token, by encoder and method."""
    layers = list(dict.fromkeys(int(row["layer"]) for row in rows))
    methods = list(dict.fromkeys(str(row["method"]) for row in rows))
    figure, panels = _panels(len(layers), max(3.1 * len(layers), 5), 2.9, sharey=True)
    for panel, layer in zip(panels, layers, strict=True):
        for row in rows:
            if row["layer"] == layer:
                colour = (BLUE, ORANGE, GREEN, PINK)[methods.index(row["method"]) % 4]
                label = row["method"] + ("" if undefined(row["spearman"]) else f" (ρ = {row['spearman']:.2f})")
                panel.plot(row["ranks"], row["mutual_information"], ".-", color=colour, label=label)
        panel.set(title=f"encoder {layer}", xlabel="rank of the token removed")
        panel.legend(frameon=False, fontsize=8)
        panel.grid()
    panels[0].set_ylabel("mutual information")
    return figure


# ---- figures of a pyramid ----


def schedule_pyramid(lengths: Mapping[int, Sequence[int]]) -> Figure:
    """Tokens after each layer as bars, the first layer at the bottom, a panel per input length."""
    figure, panels = _panels(len(lengths), 2.5 * len(lengths), 0.9 + 0.26 * (len(next(iter(lengths.values()))) + 1))
    for panel, (n, kept) in zip(panels, lengths.items(), strict=True):
        rows = [n, *kept]
        colours = [GREY, *(BLUE if now == before else ORANGE for before, now in zip(rows, kept, strict=False))]
        panel.barh(range(len(rows)), rows, left=[-count / 2 for count in rows], height=0.84, color=colours)
        for row, count in enumerate(rows):
            panel.annotate(f"{count}", (count / 2, row), xytext=(4, 0), textcoords="offset points", va="center", size=8)
        panel.set_yticks(range(len(rows)), ["input", *(str(layer) for layer in range(1, len(rows)))], fontsize=8)
        panel.set(title=f"{n} tokens", xlim=(-n * 0.52, n * 0.68), xticks=[])
        panel.spines[["left", "bottom"]].set_visible(False)
        panel.tick_params(length=0)
    panels[0].set_ylabel("layer")
    return figure


def radius_by_layer(radius: NDArray[Any]) -> Figure:
    """A box plot of the covering radius (texts, layers) by layer, empty where nothing is dropped."""
    layers = radius.shape[1]
    figure, (panel,) = _panels(1, 7.5, 2.8)
    values = [radius[:, layer][radius[:, layer] > 0] for layer in range(layers)]
    panel.boxplot(
        values,
        positions=list(range(1, layers + 1)),
        widths=0.6,
        boxprops={"facecolor": PINK, "alpha": 0.4, "edgecolor": INK},
        **BOXES,
    )
    for layer, found in enumerate(values, start=1):
        if not len(found):
            panel.annotate("drops\nnothing", (layer, 0), ha="center", va="bottom", fontsize=7, alpha=0.7)
    panel.set(xlabel="layer", ylabel="covering radius", ylim=(0, None))
    panel.grid(axis="y")
    return figure


def token_pyramid_figure(explanation: Explanation) -> Figure:
    """One text's pyramid: the first tokens from left to right, layers from the bottom up, a cell where one is left."""
    shown, found = pieces(explanation.tokens)[:MAX_TOKENS], stages(explanation)
    figure, (panel,) = _panels(1, max(4.0, 0.34 * len(shown) + 1.4), 1.3 + 0.3 * len(found))
    for row, stage in enumerate(found):
        kept = set(stage.kept)
        for position in range(len(shown)):
            here = position in kept
            colour = PINK if position == 0 else BLUE
            panel.barh(
                row, 0.88, left=position - 0.44, height=0.8, color=colour if here else GREY, alpha=1 if here else 0.12
            )
    for position, piece in enumerate(shown):
        name = ("…" if piece.attached else "") + piece.text
        panel.text(position, -0.7, name[:18], rotation=60, ha="right", va="top", fontsize=8, parse_math=False)
    panel.set_yticks(range(len(found)), [f"{stage.label} ({len(stage.kept)})" for stage in found], fontsize=8)
    panel.set(xticks=[], xlim=(-0.7, len(shown) - 0.3), ylim=(-0.6, len(found) - 0.4))
    panel.spines[["left", "bottom"]].set_visible(False)
    panel.tick_params(length=0)
    return figure


# ---- files ----


def svg_of(figure: Figure, *, prefix: str | None = None) -> str:
    """A figure as an SVG file, or, with a prefix for its ids, as a part of a page in the page's colour."""
    out = io.StringIO()
    with styled(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # missing glyphs: the browser has other fonts
        figure.savefig(out, format="svg", transparent=prefix is not None, metadata={"Date": None, "Creator": None})
    text = out.getvalue()
    if prefix is None:
        return text
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'\b(id=")', rf"\1{prefix}-", text)
    text = re.sub(r'(url\(#|href="#)', rf"\1{prefix}-", text)
    return re.sub(rf"{INK}|#000000", "currentColor", text)


def write_pictures(pictures: Sequence[Picture], folder: Path) -> list[Path]:
    """Writes each picture as PNG and SVG, and returns the files."""
    check_writable(folder)
    files = []
    for picture in pictures:
        png = io.BytesIO()
        with styled(), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            picture.figure.savefig(png, format="png", dpi=150)
        for suffix, data in ((".png", png.getvalue()), (".svg", svg_of(picture.figure).encode())):
            write_bytes(folder / f"{picture.key}{suffix}", data)
            files.append(folder / f"{picture.key}{suffix}")
    return files
