"""The sections of docs/results.md that are made from records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from ....cost import Cost
from ...glue.tasks import TASKS
from ...markdown import command, joined, listed, shown_picture, table
from ...report.collect import best_axis
from ...study.grid import Cell, schedule_name
from ...study.methods import DENSE
from ...study.runs import Run
from ...study.table import NOTHING, Estimate, StudyTable, columns_of, duration, markdown, shown, target_name
from .paper import Paper

MAKE = "python -m pyramid_bert.lab.pages results"
OVER_C, SPACES = (1.5, 2.0, 2.5, 3.0), (0.3, 0.7)
OVER_A = (1.5, 2.0, 3.0, 3.5)  # the paper's


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


# ---- what was run ----


def overview(runs: Sequence[Run]) -> str:
    """How much of each study is done, and the time it took, without what it took over from another study."""
    rows = []
    for run in runs:
        own = _own_records(run)
        seconds = [record["seconds"]["total"] for record in own]
        speeds = run.measurements.values()
        numbers = {"failed": run.failed, "taken over": len(run.records) - len(own)}
        notes = ", ".join(f"{number} {what}" for what, number in numbers.items() if number)
        rows.append(
            [
                f"[{run.study.name}](#{_anchor(run)})" if run.records else run.study.name,
                f"{len(run.records)} of {len(run.cells)}" + (f" ({notes})" if notes else ""),
                f"{sum(record is not None for record in speeds)} of {len(speeds)}" if speeds else NOTHING,
                duration(sum(seconds)) if seconds else NOTHING,
                duration(median(seconds)) if seconds else NOTHING,
            ]
        )
    return table(["study", "cells done", "speeds measured", "all cells took", "median cell"], rows)


def _own_records(run: Run) -> list[Mapping[str, Any]]:
    """The records without those of dense cells that another study trained: their commands name its file."""
    name = Path(run.file).name
    done = [(cell, run.records[cell.key]) for cell in run.cells if cell.key in run.records]
    return [
        record
        for cell, record in done
        if not cell.is_dense or any(Path(word).name == name for word in record["command"].split())
    ]


def _anchor(run: Run) -> str:
    return run.study.name.replace(".", "").lower()


def machines(runs: Sequence[Run]) -> str:
    """Where and by what the records were made."""
    cells = [record for run in runs for record in run.records.values()]
    speeds = [record for run in runs for record in run.measurements.values() if record]
    found = [record["machine"] for record in [*cells, *speeds]]

    def each(key: str) -> str:
        return listed(sorted({str(machine[key]) for machine in found}))

    commits = listed(sorted({(record["commit"] or "unknown")[:10] for record in [*cells, *speeds]}))
    threads = f"cells run with {_threads(cells)}" + (f", speeds measured with {_threads(speeds)}" if speeds else "")
    return (
        f"{each('cpu')} ({each('capability')}), {each('cores')} cores; {threads}; "
        f"Python {each('python')}, torch {each('torch')}, transformers {each('transformers')}, "
        f"pyramid-bert {each('pyramid_bert')} at {commits}.\n"
    )


def _threads(records: Iterable[Mapping[str, Any]]) -> str:
    numbers = sorted({int(record["machine"]["threads"]) for record in records})
    return f"{' or '.join(map(str, numbers))} thread{'' if numbers == [1] else 's'}"


def backbone_name(run: Run) -> str:
    """The pretrained model for people: its name and sizes, or the beginning of the hash of its weights."""
    model = run.model
    if model is None:
        return f"weights {next(iter(run.records.values()))['weights'][:12]}"
    return f"{model['name']} ({model['layers']} layers, hidden size {model['hidden_size']})"


def about(run: Run, docs: Path) -> str:
    """How a study was run, its tasks, and its picture."""
    name = run.study.name
    return joined([setup(run), tasks(run), shown_picture(name, docs, f"{name}: metric against speed-up")])


def setup(run: Run) -> str:
    """Model, training, methods and configurations, as the experiment says, and what is behind its speeds."""
    study = run.study
    pyramids = [cell for cell in run.cells if not cell.is_dense]
    lines = [
        f"- Pretrained model: {backbone_name(run)}. Seeds: {listed(study.seeds)}.",
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
    lines += [f"- {words}" for words in (keeping_all(run), measuring(run)) if words]
    return "\n".join(lines)


def keeping_all(run: Run) -> str:
    """What a pyramid that drops nothing has over c, at the mean length of each task; empty if sizes are not known."""
    model = run.model
    if model is None:
        return ""
    lengths = {record["cell"]["task"]: round(record["mean_length"]) for record in run.records.values()}
    sizes = model["hidden_size"], model["intermediate_size"]
    costs = [Cost.of((n,) * model["layers"], n, *sizes, cls_layers=1) for n in lengths.values()]
    speeds = sorted(f"{cost.ideal_speedup:.2f}x" for cost in costs)
    span = speeds[0] if speeds[0] == speeds[-1] else f"{speeds[0]} to {speeds[-1]}"
    return (
        f"A pyramid that drops nothing has {span} over c already (ideal, at the mean length of a task): of its last "
        "layer it computes only CLS."
    )


def measuring(run: Run) -> str:
    """How speeds were measured, if they were."""
    plan, records = run.study.measure, [record for record in run.measurements.values() if record]
    if not plan or not records:
        return "Speeds are ideal; none was measured."
    return (
        f"Speeds were measured on {plan['rows']} rows of each dev set (all, if it has fewer), in batches of "
        f"{plan['batch_size']}, fp32, with {_threads(records)}, dense and pyramid in turn: the median of "
        f"{plan['rounds']} rounds."
    )


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
    found = run.table("ideal-c", [1.0])
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
            [title, TASKS[task].metric, *facts, f"{cells[0].max_length}", padding, shown(found.dense[task]), *counts]
        )
    head = ["task", "metric", "training rows", "dev rows", "mean tokens", "N", "dense over a", "dense"]
    return table([*head, *(f"done, seed {seed}" for seed in seeds)], rows, left=2)


# ---- tables ----


def telling(run: Run, axis: str, wanted: Sequence[float]) -> list[float]:
    """The places at which to read: somebody reaches them, and dense, without dropping anything, not on every task."""
    found = run.table(axis, wanted)
    dense = min((r.x for r in run.results(axis) if r.method == DENSE and r.x is not None), default=0.0)
    reached = {at for (at, _, _), entry in found.entries.items() if entry is not None}
    return [at for at in wanted if at in reached and at > dense]


def _study_table(run: Run, axis: str, targets: Sequence[float]) -> str:
    """The study's table at an axis, and the command that prints it."""
    at = ",".join(f"{target:g}" for target in targets)
    text = f"pyramid-bert study table {run.file} --axis {axis} --at {at} --markdown"
    return joined([markdown(run.study.name, run.table(axis, targets)), command(text)])


def tables(run: Run) -> str:
    """All tables of a study: over c, over a, and by space."""
    kinds = ("measured", "ideal") if run.measured else ("ideal",)
    parts = []
    for title, axes, wanted in (
        ("Over c, dense on length-sorted batches", [f"{kind}-c" for kind in kinds], OVER_C),
        ("Over a, dense padded to N, as papers count", [f"{kind}-a" for kind in kinds], OVER_A),
        ("By space saved", ["space"], SPACES),
    ):
        made = [_study_table(run, axis, targets) for axis in axes if (targets := telling(run, axis, wanted))]
        parts += [f"### {title}", *made] if made else []
    return joined(parts)


def beside_kind(run: Run) -> str:
    """Which speed-ups of ours stand beside the paper's: measured ones if every pyramid was measured, or ideal ones."""
    return best_axis(run).removesuffix("-c")


def beside(run: Run, paper: Paper) -> str:
    """Points lost against dense, the paper's and ours, at the same speed-up and the same space saved."""
    speeds = {f"ours over {over}": f"{beside_kind(run)}-{over}" for over in "ac"}
    parts = [_beside(paper, "a", at, found) for at, found in _ours(run, speeds, OVER_A).items()]
    parts += [_beside(paper, "space", at, found) for at, found in _ours(run, {"ours": "space"}, SPACES).items()]
    return joined(parts)


def _ours(run: Run, axes: Mapping[str, str], wanted: Sequence[float]) -> dict[float, dict[str, StudyTable]]:
    """Target -> name of an axis -> points lost, without targets that tell nothing."""
    told = {name: telling(run, axis, wanted) for name, axis in axes.items()}
    changes = {name: run.lost(axis, wanted) for name, axis in axes.items()}
    found = {at: {name: changes[name] for name in axes if at in told[name]} for at in wanted}
    return {at: ours for at, ours in found.items() if ours}


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
    observed = [row for row in rows if set(row[2:]) != {NOTHING}]
    return table([f"at {target_name(first.axis, at)}", source, *titles], observed, left=2)


def commands(run: Run) -> str:
    """How to run one cell of the study's own again, from its record, and one measurement."""
    pyramids = [run.records[cell.key] for cell in run.cells if not cell.is_dense and cell.key in run.records]
    chosen = [*(pyramids or run.records.values())][:1] + list(filter(None, run.measurements.values()))[:1]
    return command("\n".join(record["command"] for record in chosen))
