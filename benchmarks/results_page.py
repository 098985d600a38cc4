"""The sections of docs/results.md, as Markdown. Numbers come from records; `make_results.py` has the words on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from results_data import Paper

from pyramid_bert.data.glue import TASKS
from pyramid_bert.study import Cell
from pyramid_bert.study.grid import schedule_name
from pyramid_bert.study.render import NOTHING, columns_of, markdown, shown, target_name
from pyramid_bert.study.runs import Point, Run, best_first, points
from pyramid_bert.study.table import Estimate, StudyTable

OVER_C, OVER_A, SPACES = (1.5, 2.0, 3.0), (1.5, 2.0, 3.0, 3.5), (0.3, 0.7)
WANTED_SPEED, ALLOWED_LOSS = 2.5, 1.0

# Hash of the pretrained weights (its beginning) -> what they are.
BACKBONES = {"113750a950ed": "all-MiniLM-L6-v2 (6 layers, hidden size 384)"}


# ---- words and numbers ----


def grid(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A Markdown table, its first columns to the left and the others to the right."""
    marks = "|" + "---|" * left + "---:|" * (len(head) - left)
    return "\n".join([_line(head), marks, *map(_line, rows)]) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def duration(seconds: float) -> str:
    """Seconds for people.

    Example:
        >>> duration(42), duration(600), duration(9000)
        ('42 s', '10 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def lost(change: Estimate | float | None) -> str:
    """Points lost, from an estimate of the metric less dense's, or from points.

    Example:
        >>> lost(Estimate(-0.0125, 0.002, 2)), lost(Estimate(0.0, None, 1)), lost(-0.04), lost(None)
        ('1.2 ± 0.2', '0.0', '0.0', '–')
    """
    if change is None:
        return NOTHING
    if isinstance(change, Estimate):
        return lost(-100 * change.mean) + ("" if change.std is None else f" ± {100 * change.std:.1f}")
    return f"{round(change, 1) + 0.0:.1f}"


def listed(values: Iterable[object]) -> str:
    """Different values with commas, in the order in which they come."""
    return ", ".join(dict.fromkeys(map(str, values)))


def command(text: str) -> str:
    """A command on a line of its own."""
    return f"```sh\n{text}\n```\n"


# ---- what was run ----


def overview(runs: Sequence[Run]) -> str:
    """How much of each study is done, and the time it took."""
    rows = []
    for run in runs:
        seconds = [record["seconds"]["total"] for record in run.records.values()]
        speeds = run.measurements.values()
        rows.append(
            [
                f"[{run.study.name}](#{_anchor(run)})",
                f"{len(run.records)} of {len(run.cells)}" + (f" ({run.failed} failed)" if run.failed else ""),
                f"{sum(record is not None for record in speeds)} of {len(speeds)}" if speeds else NOTHING,
                duration(sum(seconds)),
                duration(median(seconds)),
            ]
        )
    return grid(["study", "cells done", "speeds measured", "all cells took", "median cell"], rows)


def _anchor(run: Run) -> str:
    return run.study.name.replace(".", "").lower()


def machines(runs: Sequence[Run]) -> str:
    """Where and by what the records were made."""
    records = [record for run in runs for record in [*run.records.values(), *filter(None, run.measurements.values())]]
    found = [record["machine"] for record in records]

    def each(key: str) -> str:
        return listed(sorted({str(machine[key]) for machine in found}))

    commits = listed(sorted({(record["commit"] or "unknown")[:10] for record in records}))
    return (
        f"{each('cpu')} ({each('capability')}), {each('cores')} cores, threads a cell: {each('threads')}; "
        f"Python {each('python')}, torch {each('torch')}, transformers {each('transformers')}, "
        f"pyramid-bert {each('pyramid_bert')} at {commits}.\n"
    )


def setup(run: Run) -> str:
    """Model, training, methods and configurations, as the experiment says."""
    study = run.study
    weights = listed(sorted({record["weights"] for record in run.records.values()}))
    backbone = BACKBONES.get(weights[:12], f"the one with weights {weights[:12]}")
    pyramids = [cell for cell in run.cells if not cell.is_dense]
    lines = [
        f"- Pretrained model: {backbone}. Seeds: {listed(study.seeds)}.",
        f"- Dense: {training([cell for cell in run.cells if cell.is_dense])}.",
    ]
    if study.selection == "inference":
        lines.append("- Pyramids: the weights of the dense classifier of the same seed, untrained.")
    else:
        start = {"dense": "the dense classifier of the same seed", "pretrained": "the pretrained model"}[study.start]
        lines.append(f"- Pyramids, from {start}: {training(pyramids)}.")
    for kind in dict.fromkeys(method.kind for method in study.methods.values()):
        names = listed(name for name, method in study.methods.items() if method.kind == kind)
        schedules = listed(schedule_name(schedule) for schedule in study.configurations[kind])
        lines.append(f"- {names}: {schedules}.")
    return "\n".join(lines) + "\n"


def training(cells: Sequence[Cell]) -> str:
    """How cells are trained; said by task and method where it differs."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(_settings(cell.training or {}), []).append(cell)
    if len(groups) == 1:
        return next(iter(groups))
    parts = []
    for words, group in groups.items():
        names = [_some([by(cell) for cell in group], [by(cell) for cell in cells]) for by in (_method, _title)]
        parts.append(f"{' on '.join(filter(None, names))}: {words}")
    return "; ".join(parts)


def _method(cell: Cell) -> str:
    return cell.method


def _title(cell: Cell) -> str:
    return TASKS[cell.task].title


def _some(names: Sequence[str], everyone: Sequence[str]) -> str:
    """Names, if they are not all that there are."""
    return "" if set(names) == set(everyone) else listed(names)


def _settings(fields: Mapping[str, Any]) -> str:
    known = {"epochs", "batch_size", "learning_rate", "bf16"}
    epochs = fields["epochs"]
    words = [
        f"{epochs:g} epoch{'' if epochs == 1 else 's'}",
        f"batches of {fields['batch_size']}",
        f"learning rate {fields['learning_rate']:g}",
        "mixed precision (bf16)" if fields.get("bf16") else "fp32",
        *(f"{key.replace('_', ' ')} {value:g}" for key, value in fields.items() if key not in known),
    ]
    return ", ".join(words)


def tasks(run: Run) -> str:
    """A row a task: its metric, its rows, dense's result, and the cells that are done by seed."""
    seeds = run.study.seeds
    table = run.table("ideal-c", [1.0])
    rows = []
    for task, title in run.titles.items():
        cells = [cell for cell in run.cells if cell.task == task]
        done = [run.records[cell.key] for cell in cells if cell.key in run.records]
        over_a = [record["ideal"]["over_a"] for record in done if record["cell"]["method"] == "Dense"]
        counts = []
        for seed in seeds:
            mine = [cell for cell in cells if cell.seed == seed]
            counts.append(f"{sum(cell.key in run.records for cell in mine)} of {len(mine)}")
        facts = [NOTHING, NOTHING, NOTHING]
        if done:
            facts = [f"{done[0]['rows'][split]:,}" for split in ("train", "dev")] + [f"{done[0]['mean_length']:.0f}"]
        padding = f"{over_a[0]:.2f}x" if over_a else NOTHING
        rows.append(
            [title, TASKS[task].metric, *facts, f"{cells[0].max_length}", padding, shown(table.dense[task]), *counts]
        )
    head = ["task", "metric", "training rows", "dev rows", "mean tokens", "N", "dense over a", "dense"]
    return grid([*head, *(f"done, seed {seed}" for seed in seeds)], rows, left=2)


# ---- tables ----


def table(run: Run, axis: str, targets: Sequence[float]) -> str:
    """The study's table at an axis, and the command that prints it."""
    at = ",".join(f"{target:g}" for target in targets)
    text = f"pyramid-bert study table {run.file} --axis {axis} --at {at} --markdown"
    return f"{markdown(run.study.name, run.table(axis, targets))}\n\n{command(text)}"


def tables(run: Run) -> str:
    """All tables of a study: over c, over a, and by space."""
    kinds = ("measured", "ideal") if run.measured else ("ideal",)
    parts = ["### Over c, dense on length-sorted batches\n"]
    parts += [table(run, f"{kind}-c", OVER_C) for kind in kinds]
    parts.append("### Over a, dense padded to N, as papers count\n")
    parts += [table(run, f"{kind}-a", OVER_A) for kind in kinds]
    parts += ["### By space saved\n", table(run, "space", SPACES)]
    return "\n".join(parts)


def beside(run: Run, paper: Paper) -> str:
    """Points lost against dense, the paper's and ours, at the same speed-up and the same space saved."""
    over_a, over_c = run.lost("ideal-a", OVER_A), run.lost("ideal-c", OVER_A)
    space = run.lost("space", SPACES)
    parts = [_beside(paper, "a", at, {"ours over a": over_a, "ours over c": over_c}) for at in OVER_A]
    return "\n".join([*parts, *(_beside(paper, "space", at, {"ours": space}) for at in SPACES)])


def _beside(paper: Paper, axis: str, at: float, ours: Mapping[str, StudyTable]) -> str:
    first = next(iter(ours.values()))
    columns = columns_of(first)
    rows = []
    for method in first.methods:
        theirs = paper.lost(axis, at, method, list(first.tasks))
        if theirs is not None:
            rows.append([method, "paper", *map(lost, theirs[: len(columns)])])
        for whose, found in ours.items():
            rows.append([method, whose, *(lost(found.entries[at, method, task]) for task in columns)])
    source = f"paper's Table {paper.tables[axis, at]}"
    titles = [first.tasks.get(task, task) for task in columns]
    return grid([f"at {target_name(first.axis, at)}", source, *titles], rows, left=2)


def commands(run: Run) -> str:
    """How to run one cell again, from its record, and one measurement."""
    chosen = [next(iter(run.records.values())), *list(filter(None, run.measurements.values()))[:1]]
    return command("\n".join(record["command"] for record in chosen))


# ---- the prize ----


def prize(run: Run) -> str:
    """Every configuration that is done on all tasks: what it loses and how fast it is, best first."""
    found = points(run)
    axis = "measured-c" if run.measured else "ideal-c"
    rows = []
    for point in best_first(found, axis, WANTED_SPEED):
        speeds = [_speed(point, name) for name in ("measured-c", "ideal-c")]
        rows.append([point.method, point.configuration, lost(point.change), *speeds])
    left = len({(cell.method, cell.configuration) for cell in run.cells if not cell.is_dense}) - len(found)
    head = ["method", "configuration", "points lost", "measured over c", "ideal over c"]
    table = grid(head, rows, left=2) if rows else ""
    return table + (f"\nNot done on all tasks, and not shown: {left} configurations of methods.\n" if left else "")


def _speed(point: Point, axis: str) -> str:
    speed = point.speed(axis)
    return NOTHING if speed is None else f"{speed:.2f}x ({min(point.speeds[axis]):.2f}x)"


def closeness(found: Sequence[Point], axis: str) -> str:
    """How close configurations come to the prize, by ideal or measured speed-up; empty when none has a place there."""
    placed = [(speed, point) for point in found if (speed := point.speed(axis)) is not None]
    if not placed:
        return ""
    fast = [point for speed, point in placed if speed >= WANTED_SPEED]
    good = [(speed, point) for speed, point in placed if point.lost <= ALLOWED_LOSS]
    words = f"{axis.partition('-')[0].capitalize()}: "
    if fast:
        best = min(fast, key=lambda point: point.lost)
        short = best.lost - ALLOWED_LOSS
        words += f"at {WANTED_SPEED:g}x or faster the least lost is {best.lost:.2f} points ({_name(best, axis)}): "
        words += "won. " if short <= 0 else f"missed by {short:.2f}. "
    else:
        words += f"nothing is as fast as {WANTED_SPEED:g}x. "
    if good:
        _, best = max(good, key=lambda pair: (pair[0], -pair[1].lost))
        words += f"The fastest that loses at most {ALLOWED_LOSS:g} is {_name(best, axis)}: {best.lost:.2f} lost."
    else:
        words += f"Everything loses more than {ALLOWED_LOSS:g}."
    return f"- {words}\n"


def _name(point: Point, axis: str) -> str:
    return f"{point.method} {point.configuration}, {point.speed(axis):.2f}x"
