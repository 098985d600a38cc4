"""The sections that studies fill: the headline, charts and ablations, and under each the command behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..study.axes import AXES
from ..study.methods import DENSE, in_order
from ..study.render import NOTHING
from ..study.runs import Run
from .ablations import IMPORTANCE, Ablation, all_ablations
from .answers import answers, commands
from .charts import chart
from .collect import Results, best_axis
from .findings import RULE, Finding, findings
from .headline import headline
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
    seeds = ", ".join(map(str, run.study.seeds))
    words = f"{run.study.name}: {len(run.records)} of {len(run.cells)} cells done, seeds {seeds}"
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
    if fit:  # which `study plot` does not draw
        line = "pyramid-bert report --figures figures --out report.html"
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
    """All ablations: those whose results are there, beside what the paper found, and a line on each of the others."""
    parts: list[Html] = []
    todo: list[Html] = []
    for ablation in all_ablations(list(results.runs)):
        lacking = _lacking(ablation, results)
        if lacking:
            words = [tag("b", ablation.heading), tag("span", ablation.question, class_="note"), *lacking]
            todo.append(tag("li", *words, id=f"ablation-{ablation.key}"))
            continue
        parts.append(tag("h3", ablation.heading, id=f"ablation-{ablation.key}"))
        parts.append(tag("p", ablation.question, class_="note"))
        parts.append(_ablation(ablation, results, charts, pictures))
    note = f"The paper's findings beside ours. {RULE}" if parts else ""
    if todo:
        parts += [tag("h3", "Not run yet"), tag("ul", *todo, class_="todo")]
    return section("ablations", "Ablations", *parts, note=note)


def _lacking(ablation: Ablation, results: Results) -> list[Html]:
    """A line on each result that is not there."""
    if ablation.kind == "importance":
        line = f"python benchmarks/importance.py MODEL sst2 DATA > {results.folder}/{IMPORTANCE}-sst2.json"
        return [] if results.importance() else [missing(f"There is no {results.folder}/{IMPORTANCE}*.json.", line)]
    return [_not_run(name, results) for name in ablation.studies if name not in results.runs]


def _ablation(ablation: Ablation, results: Results, charts: Charts, pictures: dict[str, Html]) -> Html:
    """What the paper and we found, the picture, the tables, and the commands behind them."""
    runs = [results.runs[name] for name in ablation.studies]
    parts = [_findings(findings(ablation, results)), *map(progress, runs)]
    if ablation.kind == "importance":
        parts += [pictures[name] for name, _ in results.importance() if name in pictures]
    elif ablation.kind != "beside":
        parts.append(pareto(runs[0], charts, fit=ablation.kind == "fit"))
    for grid in answers(ablation, results):
        parts += [table(grid.head, grid.rows, left=grid.left), tag("p", grid.note, class_="note")]
    parts += [command(line) for line in commands(ablation, results)]
    return join(parts)


def _findings(found: Sequence[Finding]) -> Html:
    """A box a finding: the verdict, the paper's words and ours."""
    boxes = []
    for one in found:
        agrees = "agrees" if set(one.signs) == {1} and one.paper else "differs" if -1 in one.signs else None
        words = [("Paper", one.paper)] if one.paper else []
        lines = [tag("p", tag("b", f"{whose}: "), said) for whose, said in (*words, ("Here", one.here))]
        boxes.append(
            tag("div", tag("span", one.verdict, class_="verdict"), *lines, class_="finding", data_verdict=agrees)
        )
    return join(boxes)


def _not_run(name: str, results: Results) -> Html:
    if name not in results.experiments:
        return missing(f"There is no experiment {name}.toml yet; docs/studies.md says how to write one.", None)
    return missing(
        f"Nothing of {name} is done.", f"pyramid-bert study run experiments/{name}.toml --model DIR --data DIR"
    )
