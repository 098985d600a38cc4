"""The page: one HTML file without network access, from results and what a model shows."""

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
from ..study.methods import AXES
from ..study.runs import Run
from ..study.table import MEAN, target_name
from . import figures
from .ablations import main_studies
from .charts import cells_of, varies_schedules
from .collect import Results, best_axis
from .compare import change
from .figures import Picture, styled, svg_of
from .markup import Html, command, join, section, tag
from .model import EPS, MIN_SAMPLES, ModelView
from .sections import ablations_section, speed_section, studies_section, theory_section
from .viewer import viewer, viewer_data

CHOSEN = 3  # sentences that are also drawn as figures


@dataclass(frozen=True)
class Call:
    """The command that makes the page, which the page repeats.

    Attributes:
        options: Option -> value, for those that differ from their defaults.

    Example:
        >>> Call({"--model": "my-model", "--texts": "my texts.txt"}).line()
        "pyramid-bert report --results results --model my-model --out report.html --texts 'my texts.txt'"
    """

    options: Mapping[str, str] = field(default_factory=dict)

    def line(self, *more: str) -> str:
        """The command line."""
        given = {"--results": "results", "--model": "DIR", "--out": "report.html", **self.options}
        return shlex.join(["pyramid-bert", "report", *(word for pair in given.items() for word in pair), *more])


def pictures_of(results: Results, view: ModelView | None) -> list[Picture]:
    """All figures for which there is data."""
    with styled():
        return [*_model_pictures(view), *_result_pictures(results)]


def _model_pictures(view: ModelView | None) -> list[Picture]:
    if view is None:
        return []
    texts = f"{len(view.encoders[0].clusters)} texts, dense model"
    title = "How alike are CLS and the other tokens?"
    words = f"Cosine similarity of CLS with every other token after an encoder; the line is the mean. {texts}."
    found = [Picture("cls-similarity", title, words, figures.cls_similarity(view.encoders))]
    words = f"Clusters among the tokens of a text by DBSCAN (ε = {EPS:g}, min {MIN_SAMPLES}, cosine). {texts}."
    found.append(Picture("clusters", "How many different tokens are there?", words, figures.clusters(view.encoders)))
    if view.lengths:
        words = "Tokens per text by task, counted by this model's tokenizer. Padding beyond them is wasted work."
        drawn = figures.length_distributions(view.lengths)
        found.append(Picture("lengths", "How long are the texts?", words, drawn))
    if view.kept:
        words = "Tokens after each layer, for inputs of three lengths. Orange layers drop tokens."
        found.append(Picture("schedule", "The pyramid", words, figures.schedule_pyramid(view.kept)))
    if view.radius is not None and (view.radius > 0).any():
        words = "The largest distance from a dropped token to its nearest kept one, by layer, over the texts."
        found.append(Picture("radius", "Covering radius by layer", words, figures.radius_by_layer(view.radius)))
    for number, one in enumerate(view.explanations[:CHOSEN], start=1):
        words = f"“{one.text}”: the tokens left after each layer. CLS is the first."
        found.append(Picture(f"tokens-{number}", "A token pyramid", words, figures.token_pyramid_figure(one)))
    return found


def _result_pictures(results: Results) -> list[Picture]:
    found = [_scatter(run) for run in results.runs if any(not c.is_dense and c.key in run.records for c in run.cells)]
    for number, entry in enumerate(results.importance(), start=1):
        title = f"Rank and importance: {entry.get('task', entry['name'])}"
        words = "Mutual information of predictions with and without the token of a rank."
        drawn = figures.importance(entry["rows"])
        found.append(Picture(f"importance-{number}", title, words, drawn, "importance"))
    return found


def _scatter(run: Run) -> Picture:
    """A study's cells, with Pareto fronts, or with fitted lines where kinds of schedules are compared."""
    axis = best_axis(run)
    key, title = f"pareto-{run.study.name}", f"Metric against speed-up: {run.study.name}"
    if varies_schedules(run):
        words = "Every cell, and a straight line through those of each kind of schedule."
        drawn = figures.fitted_lines(cells_of(run, axis), AXES[axis][0])
    else:
        words = "Mean over seeds, with the Pareto front of each method; the star is dense."
        metrics = {task: TASKS[task].metric for task in run.study.tasks}
        drawn = plot.figure(run.results(axis), axis, run.titles, metrics, run.study.name)
    return Picture(key, title, words, drawn, "study")


def report_html(results: Results, view: ModelView | None, pictures: Sequence[Picture], call: Call, made: str) -> str:
    """The whole page.

    Args:
        results: From `collect_results`.
        view: From `look_at`; None without a model.
        pictures: From `pictures_of`.
        call: The command that makes the page.
        made: The date to show.
    """
    charts: dict[str, Any] = {}
    inline = {of: [_figure(picture) for picture in pictures if picture.of == of] for of in ("model", "importance")}
    sections = [
        _tiles(results, view),
        viewer(view, call.line()),
        studies_section(results, charts),
        speed_section(results),
        ablations_section(results, charts, inline["importance"]),
        _figures(inline["model"], call),
        theory_section(results),
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
    for place, content in parts.items():  # inserted text is not searched for further placeholders
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


def _figures(inline: Sequence[Html], call: Call) -> Html:
    if not inline:
        return Html("")
    again = command(call.line("--figures", "figures"), "as PNG and SVG files:")
    return section("figures", "Figures", tag("div", *inline, class_="figures"), again)


# ---- at a glance ----


def _tiles(results: Results, view: ModelView | None) -> Html:
    tiles = [*_study_tiles(results), *_speed_tiles(results)]
    if view is not None and view.same_answers is not None:
        number = f"{view.same_answers}/{len(view.explanations)}"
        tiles.append((number, f"examples to which {view.name} gives the dense model's answer", "viewer"))
    made = [
        tag("a", tag("b", number), tag("span", words), href=f"#{where}", class_="tile")
        for number, words, where in tiles
    ]
    return tag("div", *made, class_="tiles") if made else Html("")


def _study_tiles(results: Results) -> list[tuple[str, str, str]]:
    """The largest study: the least loss at 2x, and how much of it is done."""
    tiles = []
    for run in main_studies(results)[:1]:
        axis = best_axis(run)
        found = run.lost(axis, (2.0,))
        task = MEAN if len(found.tasks) > 1 else next(iter(found.tasks))
        known = [(entry.mean, method) for (_, method, of), entry in found.entries.items() if of == task and entry]
        if known:
            best, method = max(known)
            words = f"points against dense at {target_name(axis, 2.0)} over c, best method ({method}), {run.study.name}"
            tiles.append((change(100 * best), words, "results"))
        tiles.append((f"{len(run.records)}", f"cells of {len(run.cells)} done in {run.study.name}", "results"))
    return tiles


def _speed_tiles(results: Results) -> list[tuple[str, str, str]]:
    tiles = []
    if rates := results.having("texts_per_second", "pyramid_over_best"):
        best = max(rates, key=lambda entry: entry["pyramid_over_best"])
        words = f"the texts per second of the best other way, {best['task']}, ideal {best['ideal']:.1f}x"
        tiles.append((f"{best['pyramid_over_best']:.1f}x", words, "speed"))
    if steps := [entry for entry in results.having("steps_per_second", "speedup") if "backbone" not in entry]:
        best = max(steps, key=lambda entry: entry["speedup"])
        words = f"the training steps per second of dense, at {best['n']} tokens"
        tiles.append((f"{best['speedup']:.1f}x", words, "speed"))
    return tiles
