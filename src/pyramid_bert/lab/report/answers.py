"""The tables that answer the ablations, as data: the report and docs/results.md print the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..study.axes import AXES
from ..study.methods import DENSE, in_order
from ..study.render import NOTHING, columns_of, shown, target_name
from ..study.runs import Run, against_dense, points
from ..study.table import MEAN, Estimate, Result, StudyTable, mean_over_tasks, tabulate
from .ablations import Ablation
from .charts import fits
from .collect import Results, best_axis
from .findings import undefined
from .headline import TARGETS, change

BY_TASK = 2.0  # the speed-up at which selection at inference only is told task by task


@dataclass(frozen=True)
class Grid:
    """A table.

    Attributes:
        head: Titles of its columns.
        rows: As many cells each.
        left: So many columns are words.
        note: What it shows.
    """

    head: tuple[str, ...]
    rows: list[list[str]]
    left: int
    note: str


def answers(ablation: Ablation, results: Results) -> list[Grid]:
    """The tables of an ablation whose results are all there."""
    if ablation.kind == "importance":
        return [_importance(results)]
    runs = [results.runs[name] for name in ablation.studies]
    if ablation.kind == "beside":
        return _beside(runs)
    if ablation.kind == "fit":
        return [_fits(runs[0])]
    return [_configurations(runs[0])]


def commands(ablation: Ablation, results: Results) -> list[str]:
    """The commands that make an ablation's numbers again."""
    if ablation.kind == "importance":
        return list(dict.fromkeys(entry["command"] for _, entry in results.importance()))
    lines: list[str] = []
    for run in (results.runs[name] for name in ablation.studies):
        line = f"pyramid-bert study run {run.file} --model DIR --data DIR"
        lines += [line, *([f"{line} --measure"] if run.measured and ablation.kind != "beside" else [])]
    return lines


# ---- cell by cell ----


def _configurations(run: Run) -> Grid:
    """Each configuration with all methods, so that what stands together differs in the method alone."""
    results = run.results("ideal-c")
    whole = {(point.method, point.configuration): point for point in points(run)}
    axes = ["ideal-c", *(["measured-c"] if run.measured else [])]
    head = ["method", "configuration", *run.titles.values(), "against dense", *(_short(axis) for axis in axes)]
    rows = [[DENSE, "", *_by_task(results, run, DENSE, ""), NOTHING, *("1.00x" for _ in axes)]]
    for configuration in _in_speed(results):
        for method in in_order(r.method for r in results if r.configuration == configuration):
            point = whole.get((method, configuration))
            speeds = [point.speed(axis) if point else None for axis in axes]
            rows.append(
                [
                    method,
                    configuration,
                    *_by_task(results, run, method, configuration),
                    NOTHING if point is None else change(100 * point.change.mean),
                    *(NOTHING if speed is None else f"{speed:.2f}x" for speed in speeds),
                ]
            )
    note = (
        "Mean ± standard deviation over seeds, in per cent. Points against dense are means over the tasks, speed-ups "
    )
    return Grid(tuple(head), rows, 2, note + "over c harmonic means.")


def _in_speed(results: Sequence[Result]) -> list[str]:
    """The configurations, slow ones first."""
    speeds: dict[str, float] = {}
    for result in results:
        if result.method != DENSE:
            speeds.setdefault(result.configuration, result.x or 0.0)
    return sorted(speeds, key=lambda configuration: speeds[configuration])


def _by_task(results: Sequence[Result], run: Run, method: str, configuration: str) -> list[str]:
    mine = [r for r in results if (r.method, r.configuration) == (method, configuration)]
    return [shown(mean_over_tasks([{r.seed: r.value for r in mine if r.task == task}])) for task in run.titles]


def _short(axis: str) -> str:
    return f"{axis.partition('-')[0]} over c"


# ---- two studies ----


def _beside(runs: Sequence[Run]) -> list[Grid]:
    """Points against dense, fine-tuned and at inference only, of the tasks and seeds that both studies have."""
    axis = "ideal-c"
    every = [against_dense(run.results(axis)) for run in runs]
    done = [{(r.task, r.seed) for r in results if r.method != DENSE} for results in every]
    shared = done[0] & done[1]
    titles = {task: title for task, title in runs[0].titles.items() if any(of == task for of, _ in shared)}
    tables = [tabulate([r for r in rs if (r.task, r.seed) in shared], axis, titles, TARGETS) for rs in every]
    methods = [method for method in tables[0].methods if method in tables[1].methods]
    words = ("fine-tuned", "inference only")
    head = ("method", *(f"{target_name(axis, at)}, {word}" for at in TARGETS for word in words))
    rows = [[method, *(_points(found, at, method) for at in TARGETS for found in tables)] for method in methods]
    seeds = ", ".join(str(seed) for seed in sorted({seed for _, seed in shared}))
    over = f"mean over {', '.join(titles.values())}; seeds {seeds}; {AXES[axis][0]}"
    made = [Grid(head, rows, 1, f"Points against dense, {over}.")]
    if len(titles) > 1:
        columns = columns_of(tables[0])
        rows = [
            [method, word, *(_signed(found.entries[BY_TASK, method, task]) for task in columns)]
            for method in methods
            for word, found in zip(words, tables, strict=True)
        ]
        note = f"The same at {target_name(axis, BY_TASK)}, task by task."
        made.append(Grid(("method", "", *(titles.get(task, task) for task in columns)), rows, 2, note))
    return made


def _points(found: StudyTable, at: float, method: str) -> str:
    return _signed(found.entries[at, method, MEAN if len(found.tasks) > 1 else next(iter(found.tasks))])


def _signed(entry: Estimate | None) -> str:
    return NOTHING if entry is None else change(100 * entry.mean)


# ---- lines and ranks ----


def _fits(run: Run) -> Grid:
    axis = best_axis(run)
    head = ("task", "series", "cells", "speed-ups", "metric, %", "line at 2x", "for 1x more", "spread around the line")
    rows: list[list[str]] = []
    for title, name, line in fits(run, axis):
        height = line.at(2.0)
        rows.append(
            [
                title,
                name,
                f"{line.points}",
                f"{line.speeds[0]:.2f}x–{line.speeds[1]:.2f}x",
                f"{line.values[0]:.1f}–{line.values[1]:.1f}",
                NOTHING if height is None else f"{height:.1f}",
                change(line.slope),
                f"{line.spread:.2f}",
            ]
        )
    return Grid(head, rows, 2, f"Straight lines through all cells, one a seed; {AXES[axis][0]}.")


def _importance(results: Results) -> Grid:
    head = ("task", "encoder", "method", "texts", "information, first ranks", "last ranks", "Spearman's ρ")
    rows: list[list[str]] = []
    for name, entry in results.importance():
        for row in entry["rows"]:
            information = row["mutual_information"]
            some = max(1, len(information) // 4)
            ends = (information[:some], information[-some:])
            rows.append(
                [
                    str(entry.get("task", name)),
                    f"{row['layer']} of {entry['model']['layers']}" if "model" in entry else str(row["layer"]),
                    row["method"],
                    f"{row['texts']:,}" if "texts" in row else NOTHING,
                    *(f"{sum(values) / some:.3f}" for values in ends),
                    NOTHING if undefined(row["spearman"]) else f"{row['spearman']:.2f}",
                ]
            )
    note = "ρ of a token's rank and the mutual information, in nats, of predictions with and without it; the means are "
    return Grid(head, rows, 3, note + "over the first and the last quarter of the ranks.")
