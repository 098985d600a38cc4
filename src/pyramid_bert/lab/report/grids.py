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
from .charts import fits, varies_schedules
from .collect import Entry, Results, best_axis
from .compare import (
    HEAD,
    Finding,
    change,
    findings,
    importance_findings,
    inference_findings,
    is_ablation,
    twin,
    undefined,
)

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


def findings_grid(found: Iterable[Finding]) -> Grid:
    """The comparisons behind findings."""
    return Grid(HEAD, [line.row() for finding in found for line in finding.lines], 3)


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


def number(value: float | None, form: str, unit: str = "") -> str:
    """A number in a format of Python, with its unit; a dash for None.

    Example:
        >>> number(2.5, ".2f", "x"), number(None, ".2f", "x")
        ('2.50x', '–')
    """
    return NOTHING if value is None else format(value, form) + unit


def times(speed: float | None) -> str:
    """A speed-up."""
    return number(speed, ".2f", "x")


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


LEDGER = {
    "(last layer, keep)": "({schedule[last_layer]}, {schedule[keep_ratio]})",
    "m": "{settings[centers_per_step]}",
    "N": "{workload[padded_length]}",
    "batch": "{batch_size}",
    "weights": "{weights}",
    "over a": "{entries[pyramid][speedup_over][padded]:.2f}x",
    "over b": "{entries[pyramid][speedup_over][dynamic]:.2f}x",
    "over c": "{entries[pyramid][speedup_over][sorted]:.2f}x",
    "ideal": "{entries[pyramid][ideal_over][sorted]:.2f}x",
    "realised": "{realised_over[sorted]:.0%}",
}
THROUGHPUT = {
    "task": "{task}",
    "mean tokens": "{mean_length:.0f}",
    "best other, texts/s": "{best:.1f} ({best_other})",
    "our dense": "{texts_per_second[dense]:.1f}",
    "our pyramid": "{texts_per_second[pyramid]:.1f}",
    "over the best other": "{pyramid_over_best:.2f}x",
    "over our dense": "{pyramid_over_dense:.2f}x",
}
TRAINING = {
    "model": "{model}",
    "N": "{n}",
    "batch": "{batch_size}",
    "dense, steps/s": "{steps_per_second[dense]:.3f}",
    "pyramid, steps/s": "{steps_per_second[pyramid]:.3f}",
    "faster": "{speedup:.2f}x",
    "memory of dense's": "{share:.0%}",
}
BOUND = {
    "(first layer, last layer, keep)": "({schedule[first_layer]}, {schedule[last_layer]}, {schedule[keep_ratio]})",
    "change of the loss, mean": "{observed[mean]:.3g}",
    "bound as printed, mean": "{bounds[printed][mean]:.3g}",
    "times the change": "{bounds[printed][loose]:,.0f}x",
    "times the change, with measured movement": "{bounds[direct][loose]:,.0f}x",
}


def speed_grids(results: Results) -> list[Grid]:
    """What was measured of speed: ledgers, throughput and training, each only if there is any."""
    ledgers = [
        {**_with_schedule(entry), "weights": entry["optimization"] or "as loaded"}
        for entry in results.having("entries", "realised_over", "workload")
    ]
    rates = [
        {**entry, "best": entry["texts_per_second"][entry["best_other"]]}
        for entry in results.having("texts_per_second", "pyramid_over_best")
    ]
    training = [
        {
            **entry,
            "model": f"{entry['backbone']} on {entry['task']}" if "backbone" in entry else "BERT",
            "share": entry["peak_bytes"]["pyramid"] / entry["peak_bytes"]["dense"],
        }
        for entry in results.having("steps_per_second", "peak_bytes")
    ]
    grids = (
        _filled(LEDGER, ledgers, "Dense and pyramid in one run, over all baselines"),
        _filled(THROUGHPUT, rates, "Texts per second, against common ways to run a model"),
        _filled(TRAINING, sorted(training, key=lambda e: str(e["model"])), "Training, forward and backward"),
    )
    return [grid for grid in grids if grid.rows]


def theory_grid(entries: Iterable[Entry]) -> Grid:
    """Both sides of Theorem 1."""
    return _filled(BOUND, map(_with_schedule, entries))


def _filled(columns: dict[str, str], entries: Iterable[Entry], title: str = "") -> Grid:
    """A row per entry; a column is its title and a format that takes the entry's fields."""
    rows = [[form.format(**entry) for form in columns.values()] for entry in entries]
    return Grid(tuple(columns), rows, title=title)


def _with_schedule(entry: Entry) -> Entry:
    unknown = dict.fromkeys(("first_layer", "last_layer", "keep_ratio"), NOTHING)
    return {**entry, "schedule": {**unknown, **entry["settings"]["schedule"]}}


# ---- ablations ----

IMPORTANCE = (
    "Remove the k-th most important token at an encoder and measure the mutual information between predictions with "
    "and without it. If rank means importance, the information grows with k. ρ is Spearman's correlation of the two."
)


@dataclass(frozen=True)
class Ablation:
    """One question and its answer.

    Attributes:
        key: For links: the study's name, or "importance".
        title: The experiment file's `title`, or its name.
        question: What is compared, and why: the experiment file's `question`.
        findings: What the records say.
        grids: Its tables.
        commands: The commands that make its numbers again.
        runs: The studies behind it.
    """

    key: str
    title: str
    question: str
    findings: list[Finding]
    grids: list[Grid]
    commands: list[str]
    runs: tuple[Run, ...] = ()


def main_studies(results: Results) -> list[Run]:
    """The studies that compare methods, the largest first."""
    return [run for run in results.runs if not is_ablation(run) and twin(run, results.runs) is None]


def ablations(results: Results) -> list[Ablation]:
    """All ablations by name, and token importance after them."""
    made = []
    for run in sorted(results.runs, key=lambda run: run.study.name):
        words = (run.study.name, run.study.title or run.study.name, run.study.question)
        trained = twin(run, results.runs)
        if trained is not None:
            both = (trained, run)
            commands = [*map(run_command, both)]
            made.append(Ablation(*words, inference_findings(*both), inference_grids(*both), commands, both))
        elif is_ablation(run):
            commands = [run_command(run), *([f"{run_command(run)} --measure"] if run.measured else [])]
            grid = fits_grid(run) if varies_schedules(run) else configurations_grid(run)
            made.append(Ablation(*words, findings(run), [grid], commands, (run,)))
    if entries := results.importance():
        commands = list(dict.fromkeys(entry["command"] for entry in entries))
        words = ("importance", "Does rank mean importance?", IMPORTANCE)
        made.append(Ablation(*words, importance_findings(entries), [importance_grid(entries)], commands))
    return made


def run_command(run: Run) -> str:
    """The command that runs a study."""
    return f"pyramid-bert study run {run.file} --model DIR --data DIR"
