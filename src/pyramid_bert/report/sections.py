"""The sections that studies fill: the headline, charts and ablations, and under each the command behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..study.axes import AXES
from ..study.methods import DENSE, in_order
from ..study.render import NOTHING, target_name
from ..study.runs import Run
from ..study.table import MEAN, Estimate, StudyTable
from .ablations import IMPORTANCE, Ablation, all_ablations
from .charts import chart, fits
from .collect import Results, best_axis
from .headline import TARGETS, change, headline
from .markup import Html, command, join, missing, section, table, tag

Charts = dict[str, Any]  # id of a chart -> its data


# ---- studies ----


def studies(results: Results, charts: Charts) -> Html:
    """The headline: each study's metric at given speed-ups over c, and its Pareto fronts."""
    note = (
        "The metric that is left at 1.5x, 2x and 3x over baseline c: the dense model on length-sorted batches, which "
        "costs nothing to have. Read off Pareto fronts, mean ± standard deviation over seeds, in per cent; the small "
        "numbers are points gained or lost against dense."
    )
    if not results.studies:
        line = "pyramid-bert study run experiments/glue-lite.toml --model DIR --data DIR"
        return section("results", "Quality at a speed", missing("No study is done yet.", line))
    parts: list[Html] = []
    for run in results.studies:
        parts += [tag("h3", run.study.name, id=f"study-{run.study.name}"), progress(run), headline(run)]
        parts += [pareto(run, charts), speeds(run)]
    for name in results.unknown:
        parts.append(missing(f"{results.folder}/{name} holds results, but there is no experiment file for them.", None))
    return section("results", "Quality at a speed", *parts, note=note)


def progress(run: Run) -> Html:
    """How much of a study there is."""
    words = f"{len(run.records)} of {len(run.cells)} cells done, seeds {', '.join(map(str, run.study.seeds))}"
    measured = sum(record is not None for record in run.measurements.values())
    if run.measurements:
        words += f"; {measured} of {len(run.measurements)} speeds measured"
    return tag("p", words + ".", class_="note")


def pareto(run: Run, charts: Charts, *, fit: bool = False) -> Html:
    """The place of a chart, whose data goes to `charts`; empty when no pyramid is done."""
    data = chart(run, fit=fit)
    if not data["panels"]:
        return Html("")
    key = f"chart-{len(charts)}"
    charts[key] = data
    line = f"pyramid-bert study plot {run.file} --axis {best_axis(run)} --out {run.study.name}.png"
    hint = "Point at a mark, tap it, or move with the arrow keys to see its configuration; a click holds it, with its "
    hint += "command."
    place = tag("div", tag("noscript", "The chart is drawn by a script."), class_="chart", id=key, data_chart=key)
    return join([tag("p", hint, class_="note"), place, command(line)])


def speeds(run: Run) -> Html:
    """Every configuration of a study with its speed-up over c on each task."""
    axis = best_axis(run)
    found: dict[tuple[str, str], dict[str, float]] = {}
    for result in run.results(axis):
        if result.method != DENSE and result.x is not None:
            found.setdefault((result.method, result.configuration), {})[result.task] = result.x
    order = in_order(method for method, _ in found)
    pairs = sorted(found, key=lambda pair: order.index(pair[0]))
    rows = [
        [*pair, *(f"{found[pair][task]:.2f}x" if task in found[pair] else NOTHING for task in run.titles)]
        for pair in pairs
    ]
    if not rows:
        return Html("")
    summary = tag("summary", f"The speed of each configuration: {AXES[axis][0]}")
    line = f"pyramid-bert study run {run.file} --measure --model DIR --data DIR"
    again = [command(line)] if run.measured else []
    return tag("details", summary, table(["method", "configuration", *run.titles.values()], rows, left=2), *again)


# ---- ablations ----


def ablations(results: Results, charts: Charts, pictures: dict[str, Html]) -> Html:
    """All ablations: those whose results are there, and a line on each of the others."""
    parts: list[Html] = []
    todo: list[Html] = []
    for ablation in all_ablations(list(results.runs)):
        lacking = _lacking(ablation, results)
        if lacking:
            words = [tag("b", ablation.title), tag("span", ablation.question, class_="note"), *lacking]
            todo.append(tag("li", *words, id=f"ablation-{ablation.key}"))
            continue
        parts.append(tag("h3", ablation.title, id=f"ablation-{ablation.key}"))
        parts.append(tag("p", ablation.question, class_="note"))
        parts.append(_ablation(ablation, results, charts, pictures))
    if todo:
        parts += [tag("h3", "Not run yet"), tag("ul", *todo, class_="todo")]
    return section("ablations", "Ablations", *parts)


def _lacking(ablation: Ablation, results: Results) -> list[Html]:
    """A line on each result that is not there."""
    if ablation.kind == "importance":
        words = f"There is no {results.folder}/{IMPORTANCE}*.json; docs/report.md has its format."
        return [] if results.importance() else [missing(words, None)]
    return [_not_run(name, results) for name in ablation.studies if name not in results.runs]


def _ablation(ablation: Ablation, results: Results, charts: Charts, pictures: dict[str, Html]) -> Html:
    if ablation.kind == "importance":
        return _importance(results, pictures)
    runs = [results.runs[name] for name in ablation.studies]
    again = f"pyramid-bert report --results {results.folder} --out report.html"
    if ablation.kind == "beside":
        return _beside(runs, again)
    if ablation.kind == "fit":
        return join([pareto(runs[0], charts, fit=True), _fits(runs[0], again)])
    return join([progress(runs[0]), headline(runs[0]), pareto(runs[0], charts)])


def _not_run(name: str, results: Results) -> Html:
    if name not in results.experiments:
        return missing(f"There is no experiment {name}.toml yet; docs/studies.md says how to write one.", None)
    return missing(
        f"Nothing of {name} is done.", f"pyramid-bert study run experiments/{name}.toml --model DIR --data DIR"
    )


def _beside(runs: Sequence[Run], again: str) -> Html:
    """Points lost of the same cells in two studies, mean over tasks."""
    axis = "ideal-c"
    tables = [run.lost(axis, TARGETS) for run in runs]
    methods = [method for method in tables[0].methods if method in tables[1].methods]
    head: list[object] = ["method"]
    head += [f"{target_name(axis, at)}, {word}" for at in TARGETS for word in ("fine-tuned", "inference only")]
    rows = [[method, *(_points(found, at, method) for at in TARGETS for found in tables)] for method in methods]
    return join([table(head, rows), tag("p", AXES[axis][0] + ".", class_="note"), command(again)])


def _points(found: StudyTable, at: float, method: str) -> str:
    task = MEAN if len(found.tasks) > 1 else next(iter(found.tasks))
    entry: Estimate | None = found.entries[at, method, task]
    return NOTHING if entry is None else change(100 * entry.mean)


def _fits(run: Run, again: str) -> Html:
    axis = best_axis(run)
    head = ["task", "series", "cells", "at 2x, %", "points for 1x more", "spread around the line"]
    rows = [
        [title, name, line.points, f"{line.at_two:.1f}", f"{line.slope:+.1f}".replace("-", "−"), f"{line.spread:.2f}"]
        for title, name, line in fits(run, axis)
    ]
    return join([table(head, rows, left=2), command(again)])


def _importance(results: Results, pictures: dict[str, Html]) -> Html:
    parts: list[Html] = []
    for name, entry in results.importance():
        rows = [[row["layer"], row["method"], f"{row['spearman']:.2f}"] for row in entry["rows"]]
        head = ["encoder", "method", "Spearman's ρ of rank and mutual information"]
        parts += [
            tag("h4", entry.get("task", name)),
            pictures.get(name, Html("")),
            table(head, rows, left=2),
            command(entry["command"]),
        ]
    return join(parts)
