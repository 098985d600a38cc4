"""The tables of the report as data. The HTML page and docs/results.md print the same ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..study.methods import AXES, DENSE, in_order
from ..study.runs import Run, against_dense, points
from ..study.table import (
    MEAN,
    NOTHING,
    Estimate,
    Result,
    StudyTable,
    columns_of,
    mean_over_tasks,
    shown,
    tabulate,
    target_name,
)
from .charts import fits
from .collect import Entry, Results, best_axis
from .compare import HEAD, Finding, change, undefined

TARGETS = (1.5, 2.0, 3.0)
BY_TASK = 2.0  # the speed-up at which selection at inference only is shown task by task


@dataclass(frozen=True)
class Grid:
    """A table.

    Attributes:
        head: Titles of the columns.
        rows: The cells of each row.
        left: The number of columns aligned left; the others hold numbers.
        note: What it shows.
        title: Above it; empty for none.
    """

    head: tuple[str, ...]
    rows: list[list[str]]
    left: int = 1
    note: str = ""
    title: str = ""


def findings_grid(findings: Iterable[Finding]) -> Grid:
    """The comparisons behind findings."""
    return Grid(HEAD, [line.row() for finding in findings for line in finding.lines], 3)


# ---- one study ----


def configurations_grid(run: Run) -> Grid:
    """Each configuration with all methods, so that neighbouring rows differ only in the method."""
    results = run.results("ideal-c")
    whole = {(point.method, point.configuration): point for point in points(run)}
    axes = ["ideal-c", *(["measured-c"] if run.measured else [])]
    head = ("method", "configuration", *run.titles.values(), "against dense", *(_short(axis) for axis in axes))
    rows = [[DENSE, "", *_by_task(results, run, DENSE, ""), NOTHING, *("1.00x" for _ in axes)]]
    for configuration in _by_speed(results):
        for method in in_order(r.method for r in results if r.configuration == configuration):
            point = whole.get((method, configuration))
            speeds = [point.speed(axis) if point else None for axis in axes]
            lost = NOTHING if point is None else change(100 * point.change.mean)
            row = [method, configuration, *_by_task(results, run, method, configuration), lost, *map(times, speeds)]
            rows.append(row)
    note = (
        "Mean ± standard deviation over seeds, in per cent. Points against dense: mean over the tasks. Speed-ups over "
    )
    return Grid(head, rows, 2, note + "c: harmonic mean.")


def times(speed: float | None) -> str:
    """A speed-up."""
    return NOTHING if speed is None else f"{speed:.2f}x"


def _by_speed(results: Sequence[Result]) -> list[str]:
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


def speeds_grid(run: Run) -> Grid:
    """Every configuration of a study with its speed-up over c on each task."""
    axis = best_axis(run)
    found: dict[tuple[str, str], dict[str, float]] = {}
    for result in run.results(axis):
        if result.method != DENSE and result.x is not None:
            found.setdefault((result.method, result.configuration), {})[result.task] = result.x
    order = in_order(method for method, _ in found)
    pairs = sorted(found, key=lambda pair: order.index(pair[0]))
    rows = [[*pair, *(times(found[pair].get(task)) for task in run.titles)] for pair in pairs]
    return Grid(("method", "configuration", *run.titles.values()), rows, 2, title=AXES[axis][0])


def fits_grid(run: Run) -> Grid:
    """The lines through the cells of each kind of schedule."""
    axis = best_axis(run)
    head = ("task", "series", "cells", "speed-ups", "metric, %", "line at 2x", "for 1x more", "spread around the line")
    rows = []
    for title, name, line in fits(run, axis):
        height = line.at(2.0)
        spans = [f"{line.speeds[0]:.2f}x–{line.speeds[1]:.2f}x", f"{line.values[0]:.1f}–{line.values[1]:.1f}"]
        at_two = NOTHING if height is None else f"{height:.1f}"
        rows.append([title, name, f"{line.points}", *spans, at_two, change(line.slope), f"{line.spread:.2f}"])
    return Grid(head, rows, 2, f"Straight lines through all cells, one cell per seed; {AXES[axis][0]}.")


# ---- two studies ----


def inference_grids(trained: Run, untrained: Run) -> list[Grid]:
    """Points against dense, fine-tuned and at inference only, for the tasks and seeds that both studies have."""
    axis = "ideal-c"
    every = [against_dense(run.results(axis)) for run in (trained, untrained)]
    done = [{(r.task, r.seed) for r in results if r.method != DENSE} for results in every]
    shared = done[0] & done[1]
    titles = {task: title for task, title in trained.titles.items() if any(of == task for of, _ in shared)}
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


# ---- measurements ----


def importance_grid(entries: Iterable[Entry]) -> Grid:
    """Mutual information by rank, an encoder and method per row."""
    head = ("task", "encoder", "method", "texts", "information, first ranks", "last ranks", "Spearman's ρ")
    rows = []
    for entry in entries:
        of = f" of {entry['model']['layers']}" if "model" in entry else ""
        for row in entry["rows"]:
            information = row["mutual_information"]
            some = max(1, len(information) // 4)
            means = [f"{sum(part) / some:.3f}" for part in (information[:some], information[-some:])]
            texts = f"{row['texts']:,}" if "texts" in row else NOTHING
            rho = NOTHING if undefined(row["spearman"]) else f"{row['spearman']:.2f}"
            rows.append(
                [str(entry.get("task", entry["name"])), f"{row['layer']}{of}", row["method"], texts, *means, rho]
            )
    note = (
        "ρ is the correlation of a token's rank with the mutual information, in nats, of predictions with and without "
    )
    return Grid(head, rows, 3, note + "it. The means are over the first and the last quarter of the ranks.")


def speed_grids(results: Results) -> list[Grid]:
    """What was measured of speed: ledgers, throughput and training, each only if there is any."""
    ledgers = Grid(
        ("(last layer, keep)", "m", "N", "batch", "weights", "over a", "over b", "over c", "ideal", "realised"),
        [_ledger(entry) for entry in results.having("entries", "realised_over", "workload")],
        title="Dense and pyramid in one run, over all baselines",
    )
    head = (
        "task",
        "mean tokens",
        "best other, texts/s",
        "our dense",
        "our pyramid",
        "over the best other",
        "over our dense",
    )
    rates = Grid(
        head,
        [_throughput(entry) for entry in results.having("texts_per_second", "pyramid_over_best")],
        title="Texts per second, against common ways to run a model",
    )
    training = Grid(
        ("model", "N", "batch", "dense, steps/s", "pyramid, steps/s", "faster", "memory of dense's"),
        sorted(
            (_training(entry) for entry in results.having("steps_per_second", "peak_bytes")), key=lambda row: row[0]
        ),
        title="Training, forward and backward",
    )
    return [grid for grid in (ledgers, rates, training) if grid.rows]


def _ledger(entry: Entry) -> list[str]:
    pyramid, schedule = entry["entries"]["pyramid"], entry["settings"]["schedule"]
    over = [times(pyramid["speedup_over"][baseline]) for baseline in ("padded", "dynamic", "sorted")]
    return [
        f"({schedule.get('last_layer', NOTHING)}, {schedule.get('keep_ratio', NOTHING)})",
        *map(str, (entry["settings"]["centers_per_step"], entry["workload"]["padded_length"], entry["batch_size"])),
        entry["optimization"] or "as loaded",
        *over,
        times(pyramid["ideal_over"]["sorted"]),
        f"{entry['realised_over']['sorted']:.0%}",
    ]


def _throughput(entry: Entry) -> list[str]:
    rate, best = entry["texts_per_second"], entry["best_other"]
    rates = [f"{rate[best]:.1f} ({best})", f"{rate['dense']:.1f}", f"{rate['pyramid']:.1f}"]
    return [
        entry["task"], f"{entry['mean_length']:.0f}", *rates,
        times(entry["pyramid_over_best"]), times(entry["pyramid_over_dense"]),
    ]  # fmt: skip


def _training(entry: Entry) -> list[str]:
    steps, peak = entry["steps_per_second"], entry["peak_bytes"]
    model = f"{entry['backbone']} on {entry['task']}" if "backbone" in entry else "BERT"
    rates = [f"{steps[name]:.3f}" for name in ("dense", "pyramid")]
    share = f"{peak['pyramid'] / peak['dense']:.0%}"
    return [model, str(entry["n"]), str(entry["batch_size"]), *rates, times(entry["speedup"]), share]


def theory_grid(entries: Iterable[Entry]) -> Grid:
    """Both sides of Theorem 1."""
    head = (
        "(first layer, last layer, keep)", "change of the loss, mean", "bound as printed, mean", "times the change",
        "times the change, with measured movement",
    )  # fmt: skip
    rows = []
    for entry in entries:
        schedule, printed = entry["settings"]["schedule"], entry["bounds"]["printed"]
        shape = ", ".join(str(schedule.get(key, NOTHING)) for key in ("first_layer", "last_layer", "keep_ratio"))
        loose = [f"{bound['loose']:,.0f}x" for bound in (printed, entry["bounds"]["direct"])]
        rows.append([f"({shape})", f"{entry['observed']['mean']:.3g}", f"{printed['mean']:.3g}", *loose])
    return Grid(head, rows)
