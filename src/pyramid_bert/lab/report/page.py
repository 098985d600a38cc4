"""The page: one HTML file that needs no network, from results and what a model shows."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from ...explain.html import part, script_safe
from ...version import __version__
from ..glue.tasks import TASKS
from ..study import plot
from ..study.axes import AXES
from ..study.render import target_name
from ..study.runs import Run
from ..study.table import MEAN
from . import figures
from .ablations import IMPORTANCE, kind_of
from .charts import cells_of
from .collect import Results, best_axis
from .figures import Picture, styled, svg_of
from .markup import Html, command, join, section, tag
from .measured import speed, theory
from .model import EPS, MIN_SAMPLES, ModelView
from .sections import ablations, studies
from .viewer import viewer, viewer_data

PARETO = "pareto-"  # files alone: the page has charts in their place
CHOSEN = 3  # sentences that are drawn as figures as well


@dataclass(frozen=True)
class Call:
    """How the report was asked for, which its commands repeat.

    Attributes:
        options: Option -> value, for those that differ from their defaults.

    Example:
        >>> Call({"--model": "my-model", "--texts": "my texts.txt"}).line()
        "pyramid-bert report --results results --model my-model --texts 'my texts.txt' --out report.html"
    """

    options: Mapping[str, str] = field(default_factory=dict)

    def line(self, *more: str) -> str:
        """The command line."""
        first, last = {"--results": "results", "--model": "DIR"}, {"--out": "report.html"}
        given = {**first, **{name: value for name, value in self.options.items() if name not in last}}
        given |= last | {name: value for name, value in self.options.items() if name in last}
        words = [word for pair in given.items() for word in pair]
        return shlex.join(["pyramid-bert", "report", *words, *more])


def pictures_of(results: Results, view: ModelView | None) -> list[Picture]:
    """All figures for which there is data."""
    with styled():
        return [*_model_pictures(view), *_result_pictures(results)]


def _model_pictures(view: ModelView | None) -> list[Picture]:
    if view is None:
        return []
    found: list[Picture] = []

    def add(key: str, title: str, caption: str, figure: Any) -> None:
        found.append(Picture(key, title, caption, figure))

    texts = f"{len(view.encoders[0].clusters)} texts, dense model"
    title = "How alike are CLS and the other tokens?"
    words = f"Cosine similarity of CLS with every other token after an encoder; the line is the mean. {texts}."
    add("cls-similarity", title, words, figures.cls_similarity(view.encoders))
    words = f"Clusters among the tokens of a text by DBSCAN (ε = {EPS:g}, min {MIN_SAMPLES}, cosine). {texts}."
    add("clusters", "How many different tokens are there?", words, figures.clusters(view.encoders))
    if view.lengths:
        words = (
            "Tokens of a text by task, as this model's tokenizer counts them. What is padded to N beyond that is waste."
        )
        add("lengths", "How long are the texts?", words, figures.length_distributions(view.lengths))
    if view.kept:
        words = "Tokens after each layer, for inputs of three lengths; orange where a layer drops some."
        add("schedule", "The pyramid", words, figures.schedule_pyramid(view.kept))
    if view.radius is not None and (view.radius > 0).any():
        words = "How far the farthest dropped token is from the kept one nearest to it, over the texts, by layer."
        add("radius", "Covering radius by layer", words, figures.radius_by_layer(view.radius))
    for number, one in enumerate(view.explanations[:CHOSEN], start=1):
        words = f"“{one.text}”: who is left after each layer; CLS is the first."
        add(f"tokens-{number}", "A token pyramid.", words, figures.token_pyramid_figure(one))
    return found


def _result_pictures(results: Results) -> list[Picture]:
    found = [
        _scatter(run)
        for run in results.runs.values()
        if any(not c.is_dense and c.key in run.records for c in run.cells)
    ]
    for name, entry in results.importance():
        title = f"Rank and importance: {entry.get('task', name)}"
        words = "Mutual information of predictions with and without the token of a rank."
        found.append(Picture(name, title, words, figures.importance(entry["rows"])))
    return found


def _scatter(run: Run) -> Picture:
    """A study's cells: with Pareto fronts, or with lines by kind of schedule where schedules are compared."""
    axis = best_axis(run)
    key, title = f"{PARETO}{run.study.name}", f"Metric against speed-up: {run.study.name}"
    if kind_of(run.study.name) == "fit":
        drawn = figures.fitted_lines(cells_of(run, axis), AXES[axis][0])
        return Picture(key, title, "Every cell, and a straight line through those of a kind of schedule.", drawn)
    metrics = {task: TASKS[task].metric for task in run.study.tasks}
    drawn = plot.figure(run.results(axis), axis, run.titles, metrics, run.study.name)
    return Picture(key, title, "Mean over seeds, with the Pareto front of each method; the star is dense.", drawn)


def report_html(results: Results, view: ModelView | None, pictures: Sequence[Picture], call: Call, made: str) -> str:
    """The whole page.

    Args:
        results: From `collect_results`.
        view: From `look_at`; None without a model.
        pictures: From `pictures_of`.
        call: What commands say.
        made: The date, as it is shown.
    """
    charts: dict[str, Any] = {}
    inline = {picture.key: _figure(picture) for picture in pictures if not picture.key.startswith(PARETO)}
    sections = [
        _tiles(results, view),
        viewer(view, call.line()),
        studies(results, charts),
        speed(results),
        ablations(results, charts, inline),
        _figures([picture for picture in pictures if not picture.key.startswith((IMPORTANCE, PARETO))], inline, call),
        theory(results),
    ]
    data = {"charts": charts, "examples": viewer_data(view)}
    script = _asset("report.js").replace("/* TOKEN PYRAMID */", part("token_pyramid.js"))
    parts = {
        "__STYLE__": _asset("report.css"),
        "__HEAD__": _head(view, made),
        "__MAIN__": join(sections),
        "__FOOT__": command(call.line(), "this page:"),
        "__DATA__": script_safe(data),
        "__SCRIPT__": script,
    }
    page = _asset("report.html")
    pieces = [page]
    for place, content in parts.items():  # what is put in is not searched for places again
        before, _, after = pieces.pop().partition(place)
        pieces += [before, content, after]
    return "".join(pieces)


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath("assets", name).read_text(encoding="utf-8")


def _head(view: ModelView | None, made: str) -> Html:
    words = f"made {made} by pyramid-bert {__version__}" + ("" if view is None else f", with the model {view.name}")
    return tag("p", words, class_="note")


def _figure(picture: Picture) -> Html:
    drawing = Html(svg_of(picture.figure, prefix=picture.key))
    wide = f"--inches: {picture.figure.get_figwidth():.1f}"
    inner = tag("div", drawing, class_="scroll picture", tabindex="0", role="img", aria_label=picture.title, style=wide)
    return tag("figure", tag("figcaption", tag("b", picture.title), " ", picture.caption), inner)


def _figures(pictures: Sequence[Picture], inline: dict[str, Html], call: Call) -> Html:
    if not pictures:
        return Html("")
    drawn = tag("div", *(inline[picture.key] for picture in pictures), class_="figures")
    return section("figures", "Figures", drawn, command(call.line("--figures", "figures"), "as PNG and SVG files:"))


# ---- at a glance ----


def _tiles(results: Results, view: ModelView | None) -> Html:
    tiles = [*_study_tiles(results), *_speed_tiles(results)]
    same = None if view is None else view.same_answers
    if view is not None and same is not None:
        tiles.append(
            (
                f"{same}/{len(view.explanations)}",
                f"examples on which {view.name} answers as a pyramid as it does dense",
                "viewer",
            )
        )
    made = [
        tag("a", tag("b", number), tag("span", words), href=f"#{where}", class_="tile")
        for number, words, where in tiles
    ]
    return tag("div", *made, class_="tiles") if made else Html("")


def _study_tiles(results: Results) -> list[tuple[str, str, str]]:
    tiles = []
    for run in results.studies[:1]:
        axis = best_axis(run)
        found = run.lost(axis, (2.0,))
        task = MEAN if len(found.tasks) > 1 else next(iter(found.tasks))
        known = [
            (entry.mean, method) for (_, method, of), entry in found.entries.items() if of == task and entry is not None
        ]
        if known:
            change, method = max(known)
            words = (
                f"points against dense at {target_name(axis, 2.0)} over c, the best method ({method}), {run.study.name}"
            )
            tiles.append((f"{100 * change:+.1f}".replace("-", "−"), words, "results"))
        tiles.append((f"{len(run.records)}", f"cells of {len(run.cells)} done in {run.study.name}", "results"))
    return tiles


def _speed_tiles(results: Results) -> list[tuple[str, str, str]]:
    tiles = []
    rates = [entry for _, entry in results.named("bench-throughput")]
    if rates:
        best = max(rates, key=lambda entry: entry["pyramid_over_best"])
        words = f"the texts a second of the best other way, {best['task']}, ideal {best['ideal']:.1f}x"
        tiles.append((f"{best['pyramid_over_best']:.1f}x", words, "speed"))
    steps = [entry for _, entry in results.named("bench-training") if "speedup" in entry]
    if steps:
        best = max(steps, key=lambda entry: entry["speedup"])
        tiles.append(
            (f"{best['speedup']:.1f}x", f"the training steps a second of dense, at {best['n']} tokens", "speed")
        )
    return tiles
