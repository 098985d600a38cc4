"""The sections of the page that results fill: studies, speed, ablations, theory. Below each table is its command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..study.methods import AXES, METHODS
from ..study.runs import Run
from ..study.table import NOTHING, StudyTable, columns_of, shown, target_name
from .ablations import Ablation, ablations, main_studies, run_command
from .charts import chart, varies_schedules
from .collect import Results, best_axis
from .compare import RULE, Finding, change, findings
from .grids import TARGETS, Grid, findings_grid, speed_grids, speeds_grid, theory_grid
from .markup import Html, command, join, missing, scrolling, section, table, tag

Charts = dict[str, Any]  # id of a chart -> its data


# ---- studies ----


def studies_section(results: Results, charts: Charts) -> Html:
    """Each study that compares methods: the metric at given speed-ups over c, and Pareto fronts."""
    note = (
        "The metric at 1.5x, 2x and 3x over baseline c, the dense model on length-sorted batches. Read off Pareto "
        "fronts; mean ± standard deviation over seeds, in per cent. The small numbers are points gained or lost "
        "against dense."
    )
    parts: list[Html] = []
    for run in main_studies(results):
        parts += [tag("h3", run.study.title or run.study.name, id=f"study-{run.study.name}"), _progress(run)]
        parts += [tag("p", run.study.question, class_="note")] if run.study.question else []
        parts += [headline(run), _chart(run, charts), _findings(findings(run)), _speeds(run)]
    if not parts:
        line = "pyramid-bert study run EXPERIMENT.toml --model DIR --data DIR"
        parts.append(missing("No comparison of methods has results yet.", line))
    for name in results.unknown:
        parts.append(missing(f"{results.folder}/{name} holds results, but their experiment file was not found.", None))
    return section("results", "Quality at a speed", *parts, note=note)


def _progress(run: Run) -> Html:
    """How much of a study is done."""
    words = f"{run.study.name}: {len(run.records)} of {len(run.cells)} cells done, seeds "
    words += ", ".join(map(str, run.study.seeds))
    if run.measurements:
        measured = sum(record is not None for record in run.measurements.values())
        words += f"; {measured} of {len(run.measurements)} speeds measured"
    return tag("p", words + ".", class_="note")


def _chart(run: Run, charts: Charts) -> Html:
    """The place of a chart, whose data is added to `charts`; empty when no pyramid is done."""
    data = chart(run)
    if not data["panels"]:
        return Html("")
    key = f"chart-{len(charts)}"
    charts[key] = data
    line = f"pyramid-bert study plot {run.file} --axis {best_axis(run)} --out {run.study.name}.png"
    if varies_schedules(run):  # `study plot` does not draw fitted lines
        line = "pyramid-bert report --figures figures --out report.html"
    hint = (
        "Point at a mark, tap it, or move with the arrow keys to see its configuration. A click holds it and shows its "
    )
    hint += "command."
    place = tag("div", tag("noscript", "The chart is drawn by a script."), class_="chart", id=key, data_chart=key)
    return join([tag("p", hint, class_="note"), place, command(line)])


def _speeds(run: Run) -> Html:
    grid = speeds_grid(run)
    if not grid.rows:
        return Html("")
    again = [command(f"{run_command(run)} --measure")] if run.measured else []
    summary = tag("summary", f"The speed of each configuration: {grid.title}")
    return tag("details", summary, table(grid.head, grid.rows, left=grid.left), *again)


# ---- the headline table ----


def headline(run: Run) -> Html:
    """A study's table at the best axis that it has, with buttons to filter it and the command that prints it."""
    axis = best_axis(run)
    line = f"pyramid-bert study table {run.file} --axis {axis} --at {','.join(f'{at:g}' for at in TARGETS)}"
    found = scrolling(headline_table(run.table(axis, TARGETS)))
    note = tag("p", AXES[axis][0] + ".", class_="note")
    choices = {"all": "", **{target_name(axis, at): f"{at:g}" for at in TARGETS}}
    buttons = [
        tag("button", name, type="button", data_at=at, aria_pressed="false" if at else "true")
        for name, at in choices.items()
    ]
    filters = tag("div", *buttons, class_="choice", role="group", aria_label="Speed-up", hidden="")
    return tag("div", filters, found, note, command(line), class_="headline")


def headline_table(found: StudyTable) -> Html:
    """Dense, then a group of rows for each speed-up; the best of each column is bold."""
    columns = columns_of(found)
    heads = [tag("th", scope="col"), *(tag("th", found.tasks.get(c, c), scope="col", class_="number") for c in columns)]
    dense = [tag("td", shown(found.dense[task]), class_="number") for task in columns]
    bodies = [tag("tbody", tag("tr", tag("th", "Dense", scope="row"), *dense))]
    for at in found.targets:
        title = tag("th", f"at {target_name(found.axis, at)}", scope="rowgroup", colspan=len(columns) + 1)
        rows = [tag("tr", title, class_="group"), *_rows(found, at, columns)]
        bodies.append(tag("tbody", *rows, data_at=f"{at:g}"))
    return tag("table", tag("thead", tag("tr", *heads)), *bodies)


def _rows(found: StudyTable, at: float, columns: Sequence[str]) -> list[Html]:
    """The methods at one speed-up, or one row that says that none is as fast."""
    entries = {(method, task): found.entries[at, method, task] for method in found.methods for task in columns}
    if not any(entries.values()):
        return [tag("tr", tag("td", "Nothing this fast was observed.", colspan=len(columns) + 1, class_="none"))]
    best = {
        task: max((entry.mean for (_, of), entry in entries.items() if of == task and entry is not None), default=None)
        for task in columns
    }
    rows = []
    for method in found.methods:
        name = tag("th", method, scope="row", title=METHODS[method].summary if method in METHODS else None)
        rows.append(tag("tr", name, *(_cell(found, at, method, task, best[task]) for task in columns)))
    return rows


def _cell(found: StudyTable, at: float, method: str, task: str, best: float | None) -> Html:
    entry, dense = found.entries[at, method, task], found.dense[task]
    if entry is None:
        return tag("td", NOTHING, class_="number none")
    words: list[object] = [tag("b", shown(entry)) if entry.mean == best else shown(entry)]
    if dense is None:
        return tag("td", *words, class_="number")
    lost = 100 * (dense.mean - entry.mean)
    words.append(tag("small", change(-lost)))
    return tag("td", *words, class_="number", style=f"--lost: {min(max(lost, 0.0), 12.0):.1f}")


# ---- ablations ----


def ablations_section(results: Results, charts: Charts, pictures: Sequence[Html]) -> Html:
    """What each ablation finds, beside the paper's claim; then the studies that were not run.

    Args:
        results: All results.
        charts: The data of the ablations' charts is added to it.
        pictures: The figures of token importance.
    """
    parts: list[Html] = []
    for one in ablations(results):
        parts += [tag("h3", one.title, id=f"ablation-{one.key}"), tag("p", one.question, class_="note")]
        parts += [_ablation(one, charts), *(pictures if one.key == "importance" else ())]
    note = f"Pairs are cells with the same task, configuration and seed. {RULE}" if parts else ""
    if results.todo:
        lines = [
            tag("li", tag("b", run.study.title or run.study.name), command(run_command(run), "to run it:"))
            for run in results.todo
        ]
        parts += [tag("h3", "Not run yet"), tag("ul", *lines, class_="todo")]
    return section("ablations", "Ablations", *parts, note=note) if parts else Html("")


def _ablation(one: Ablation, charts: Charts) -> Html:
    parts = [*map(_progress, one.runs), _findings(one.findings)]
    if len(one.runs) == 1:
        parts.append(_chart(one.runs[0], charts))
    return join([*parts, *map(_grid, one.grids), *map(command, one.commands)])


def _findings(found: Sequence[Finding]) -> Html:
    """A box for each claim of the paper with the verdict, and one table of all comparisons."""
    boxes = [
        tag(
            "div",
            tag("span", one.verdict, class_="verdict"),
            tag("p", tag("b", "Paper: "), one.paper),
            class_="finding",
            data_verdict=one.outcome,
        )
        for one in found
        if one.paper
    ]
    return join([*boxes, _grid(findings_grid(found))]) if found else Html("")


def _grid(grid: Grid) -> Html:
    title = [tag("h3", grid.title)] if grid.title else []
    note = [tag("p", grid.note, class_="note")] if grid.note else []
    return join([*title, table(grid.head, grid.rows, left=grid.left), *note])


# ---- measurements ----


def speed_section(results: Results) -> Html:
    """What was measured of speed: ledgers, throughput and training."""
    grids = speed_grids(results)
    line = f"pyramid-bert bench --json > {results.folder}/bench-mine.json"
    last = command(line, "to add a row:") if grids else missing("No speed was measured yet.", line)
    note = (
        "Ratios within one interleaved run. Baselines: a is dense padded to N, b dense with dynamic padding, c dense "
    )
    return section("speed", "Speed", *map(_grid, grids), last, note=note + "dense on length-sorted batches.")


def theory_section(results: Results) -> Html:
    """Both sides of the paper's bound; empty when they were not measured."""
    found = results.having("bounds", "observed")
    if not found:
        return Html("")
    note = "Theorem 1 bounds the change of the loss when each dropped token is replaced by its nearest kept one."
    commands = [command(entry["command"]) for entry in found if "command" in entry]
    return section("theory", "The bound, measured", _grid(theory_grid(found)), *commands, note=note)
