"""The page: one HTML file without network access, from results and what a model shows."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from ...explain.html import part, payload, script_safe
from ...version import __version__
from ..study.methods import AXES, METHODS
from ..study.runs import Run
from ..study.table import MEAN, columns_of, shown, target_name
from . import compare, figures, grids
from .charts import chart, varies_schedules
from .collect import Results, best_axis
from .compare import change
from .figures import Picture, styled, svg_of
from .grids import TARGETS, ablations, main_studies
from .model import EPS, MIN_SAMPLES, ModelView

EXAMPLES = Path(__file__).with_name("assets") / "examples.txt"  # the texts without --texts
CHOSEN = 3  # sentences that are also drawn as figures


@dataclass(frozen=True)
class Call:
    """The command that makes the page; the page shows it.

    Attributes:
        options: Option -> value, for those that differ from their defaults.

    Example:
        >>> Call({"--out": "r.html", "--texts": "my texts.txt"}).line("--figures", "f")
        "pyramid-bert report --results results --model DIR --out r.html --texts 'my texts.txt' --figures f"
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
    found = []
    for run in results.runs:
        if any(not cell.is_dense and cell.key in run.records for cell in run.cells):
            title = f"Metric against speed-up: {run.study.name}"
            words = "Mean over seeds, with the Pareto front of each method; the star is dense."
            if varies_schedules(run):
                words = "Every cell, and a straight line through those of each kind of schedule."
            found.append(Picture(f"pareto-{run.study.name}", title, words, figures.study_figure(run), "study"))
    for number, entry in enumerate(results.importance(), start=1):
        title = f"Rank and importance: {entry.get('task', entry['name'])}"
        words = "Mutual information of predictions with and without the token of a rank."
        drawn = figures.importance(entry["rows"])
        found.append(Picture(f"importance-{number}", title, words, drawn, "importance"))
    return found


def report_html(results: Results, view: ModelView | None, pictures: Sequence[Picture], call: Call, made: str) -> str:
    """The whole page.

    Args:
        results: From `collect_results`.
        view: From `look_at`; None without a model.
        pictures: From `pictures_of`.
        call: The command that makes the page.
        made: The date to show.
    """
    examples = [] if view is None else [payload(explanation) for explanation in view.explanations]
    studies, asked = main_studies(results), ablations(results)
    alone = [one.runs[0] for one in asked if len(one.runs) == 1]
    drawn = [(run, data) for run in [*studies, *alone] if (data := chart(run))["panels"]]
    charts = {f"chart-{number}": data for number, (_, data) in enumerate(drawn)}
    options: Any = {"undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    environment = Environment(loader=PackageLoader(__package__, "assets"), autoescape=True, **options)
    return environment.get_template("report.html").render(
        page=sys.modules[__name__],  # the template calls functions of this module and of two others
        grids=grids,
        compare=compare,
        results=results,
        view=view,
        call=call,
        made=f"{made} by pyramid-bert {__version__}",
        tiles=_tiles(results, studies, view),
        examples=examples,
        studies=studies,
        ablations=asked,
        charts={run.study.name: key for (run, _), key in zip(drawn, charts, strict=True)},
        pictures={of: [one for one in pictures if one.of == of] for of in ("model", "importance")},
        data=Markup(script_safe({"charts": charts, "examples": examples})),
        bounds=results.having("bounds", "observed"),
    )


def asset(name: str) -> Markup:
    """A file of the page, as it is."""
    return Markup(EXAMPLES.with_name(name).read_text(encoding="utf-8"))


def token_pyramid(suffix: str) -> Markup:
    """The viewer's template ("html") or script ("js")."""
    return Markup(part(f"token_pyramid.{suffix}"))


def svg(picture: Picture) -> Markup:
    """A figure as a part of the page."""
    return Markup(svg_of(picture.figure, prefix=picture.key))


def progress(run: Run) -> str:
    """How much of a study is done."""
    words = f"{run.study.name}: {len(run.records)} of {len(run.cells)} cells done, seeds "
    words += ", ".join(map(str, run.study.seeds))
    if run.measurements:
        measured = sum(record is not None for record in run.measurements.values())
        words += f"; {measured} of {len(run.measurements)} speeds measured"
    return words + "."


def headline(run: Run, targets: Sequence[float] = TARGETS) -> dict[str, Any]:
    """A study's table at the best axis that it has.

    Returns:
        `axis`, its `title`, `at` (the targets, as the command takes them), `columns` (titles), `dense` (cells) and
        `groups`: for each target its value, its name and its rows, none if no method is that fast. A row is a method,
        its summary and its cells; a cell is None or its text, whether it is the best of its column, and points lost
        against dense.
    """
    axis = best_axis(run)
    found = run.table(axis, targets)
    columns = columns_of(found)
    groups = []
    for at in found.targets:
        means = {task: [e.mean for m in found.methods if (e := found.entries[at, m, task])] for task in columns}
        rows = []
        for method in found.methods if any(means.values()) else ():
            cells = []
            for task in columns:
                entry, dense = found.entries[at, method, task], found.dense[task]
                lost = 100 * (dense.mean - entry.mean) if entry and dense else None
                cells.append(entry and (shown(entry), entry.mean == max(means[task]), lost))
            rows.append((method, METHODS[method].summary if method in METHODS else "", cells))
        groups.append((f"{at:g}", target_name(axis, at), rows))
    return {
        "axis": axis,
        "title": AXES[axis][0],
        "at": ",".join(f"{at:g}" for at in targets),
        "columns": [found.tasks.get(task, task) for task in columns],
        "dense": [shown(found.dense[task]) for task in columns],
        "groups": groups,
    }


def _tiles(results: Results, studies: Sequence[Run], view: ModelView | None) -> list[tuple[str, str, str]]:
    """At a glance: (number, what it is, the section to go to)."""
    tiles = []
    for run in studies[:1]:  # the largest
        axis = best_axis(run)
        found = run.lost(axis, (2.0,))
        task = MEAN if len(found.tasks) > 1 else next(iter(found.tasks))
        known = [(entry.mean, method) for (_, method, of), entry in found.entries.items() if of == task and entry]
        if known:
            best, method = max(known)
            words = f"points against dense at {target_name(axis, 2.0)} over c, best method ({method}), {run.study.name}"
            tiles.append((change(100 * best), words, "results"))
        tiles.append((f"{len(run.records)}", f"cells of {len(run.cells)} done in {run.study.name}", "results"))
    if rates := results.having("texts_per_second", "pyramid_over_best"):
        top = max(rates, key=lambda entry: entry["pyramid_over_best"])
        words = f"the texts per second of the best other way, {top['task']}, ideal {top['ideal']:.1f}x"
        tiles.append((f"{top['pyramid_over_best']:.1f}x", words, "speed"))
    if steps := [entry for entry in results.having("steps_per_second", "speedup") if "backbone" not in entry]:
        top = max(steps, key=lambda entry: entry["speedup"])
        tiles.append(
            (f"{top['speedup']:.1f}x", f"the training steps per second of dense, at {top['n']} tokens", "speed")
        )
    if view is not None and view.same_answers is not None:
        number = f"{view.same_answers}/{len(view.explanations)}"
        tiles.append((number, f"examples to which {view.name} gives the dense model's answer", "viewer"))
    return tiles
