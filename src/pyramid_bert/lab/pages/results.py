"""docs/results.md: what its template computes from the records of studies, and its pictures.

Nothing is trained here: `pyramid-bert study run` does that. A study with no result is counted, and has no section.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from ...cost import Cost
from ..glue.tasks import TASKS
from ..markdown import joined, listed, table
from ..report import compare, grids
from ..report.collect import best_axis, collect_results
from ..report.figures import importance, study_figure, styled
from ..report.grids import ablations, number
from ..study.grid import Cell, schedule_name
from ..study.lost import lost_table, markdown_lost
from ..study.methods import DENSE
from ..study.runs import Point, Run, points
from ..study.table import NOTHING, Estimate, StudyTable, columns_of, duration, markdown, target_name
from ..study.table import shown as estimate
from .elsewhere import torch_against_torch
from .pictures import shown

MAKE = "python -m pyramid_bert.lab.pages results"
OVER_C, SPACES = (1.5, 2.0, 2.5, 3.0), (0.3, 0.7)
OVER_A = (1.5, 2.0, 3.0, 3.5)  # the paper's
WANTED_SPEED, ALLOWED_LOSS = 2.5, 1.0  # of the prize
PAPER: dict[str, Any] = tomllib.loads(Path(__file__).with_name("paper-glue.toml").read_text(encoding="utf-8"))
PAPER_TABLES = {(found["axis"], found["at"]): found for found in PAPER["tables"]}


def names(root: Path) -> dict[str, Any]:
    """What the template uses that depends on the repository."""
    results = collect_results(root / "results", root / "experiments")
    runs = sorted([*results.runs, *results.todo], key=lambda run: run.study.name)
    picture = partial(shown, root / "docs")
    return {
        "grids": grids,
        "compare": compare,
        "runs": runs,
        "every_ablation": ablations(results),
        "todo": results.todo,
        "torch_against_torch": partial(torch_against_torch, root),
        "importance_pictures": lambda: [
            picture(entry["name"], f"{entry['name']}: mutual information by rank", partial(_importance, entry))
            for entry in results.importance()
        ],
        "picture": lambda run: picture(
            run.study.name, f"{run.study.name}: metric against speed-up", partial(study_picture, run)
        ),
    }


def _importance(entry: Mapping[str, Any]) -> Any:
    with styled():
        return importance(entry["rows"])


def study_picture(run: Run) -> Any:
    """The figure of a study; None for a study without a finished pyramid."""
    if any(result.x is not None and result.method != DENSE for result in run.results(best_axis(run))):
        return study_figure(run)
    return None


def lost(change: Estimate | float | None) -> str:
    """Points lost, from an estimate of the metric less dense's, or from points.

    Example:
        >>> lost(Estimate(-0.0125, 0.002, 2)), lost(Estimate(0.02, None, 1)), lost(-0.04), lost(None)
        ('1.2 ± 0.2', '-2.0', '0.0', '–')
    """
    if isinstance(change, Estimate):
        return lost(-100 * change.mean) + ("" if change.std is None else f" ± {100 * change.std:.1f}")
    return NOTHING if change is None else f"{round(change, 1) + 0.0:.1f}"


# ---- what was run ----


def overview(runs: Sequence[Run]) -> str:
    """How much of each study is done, and the time it took, without what it took over from another study."""
    rows = []
    for run in runs:
        name, own = run.study.name, _own_records(run)
        seconds = [record["seconds"]["total"] for record in own]
        speeds = run.measurements.values()
        numbers = {"failed": run.failed, "taken over": len(run.records) - len(own)}
        notes = ", ".join(f"{count} {what}" for what, count in numbers.items() if count)
        rows.append(
            [
                f"[{name}](#{name.replace('.', '').lower()})" if run.records else name,
                f"{len(run.records)} of {len(run.cells)}" + (f" ({notes})" if notes else ""),
                f"{sum(record is not None for record in speeds)} of {len(speeds)}" if speeds else NOTHING,
                *([duration(sum(seconds)), duration(median(seconds))] if seconds else [NOTHING, NOTHING]),
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


def machines(runs: Sequence[Run]) -> str:
    """Where and by what the records were made."""
    cells = [record for run in runs for record in run.records.values()]
    speeds = [record for run in runs for record in run.measurements.values() if record]

    def each(key: str) -> str:
        return listed(sorted({str(record["machine"][key]) for record in [*cells, *speeds]}))

    commits = listed(sorted({(record["commit"] or "unknown")[:10] for record in [*cells, *speeds]}))
    threads = f"cells run with {_threads(cells)}" + (f", speeds measured with {_threads(speeds)}" if speeds else "")
    return (
        f"{each('cpu')} ({each('capability')}), {each('cores')} cores; {threads}; "
        f"Python {each('python')}, torch {each('torch')}, transformers {each('transformers')}, "
        f"pyramid-bert {each('pyramid_bert')} at {commits}."
    )


def _threads(records: Iterable[Mapping[str, Any]]) -> str:
    counts = sorted({int(record["machine"]["threads"]) for record in records})
    return f"{' or '.join(map(str, counts))} thread{'' if counts == [1] else 's'}"


# ---- one study ----


def backbone_name(run: Run) -> str:
    """The pretrained model for people: its name and sizes, or the beginning of the hash of its weights."""
    model = run.model
    if model is None:
        return f"weights {next(iter(run.records.values()))['weights'][:12]}"
    return f"{model['name']} ({model['layers']} layers, hidden size {model['hidden_size']})"


def schedules(run: Run) -> dict[str, str]:
    """Names of methods -> names of their schedules, or the speed-ups that they find pyramids for."""
    users: dict[tuple[str, ...], list[str]] = {}
    for name, method in run.study.methods.items():
        finds = method.kind == "speed"
        made = run.study.speedups if finds else map(schedule_name, run.study.schedules(method))
        users.setdefault(tuple(f"{one:g}x" if finds else str(one) for one in made), []).append(name)
    return {listed(names): listed(made) for made, names in users.items()}


def keeping_all(run: Run) -> str:
    """The ideal speed-ups over c of a pyramid that drops nothing, at the mean lengths; empty if sizes are not known."""
    model = run.model
    if model is None:
        return ""
    lengths = {record["cell"]["task"]: round(record["mean_length"]) for record in run.records.values()}
    sizes = model["hidden_size"], model["intermediate_size"]
    costs = [Cost.of((n,) * model["layers"], n, *sizes, cls_layers=1) for n in lengths.values()]
    speeds = sorted(f"{cost.ideal_speedup:.2f}x" for cost in costs)
    return " to ".join(dict.fromkeys((speeds[0], speeds[-1])))


def measuring(run: Run) -> str:
    """The threads with which speeds were measured; empty if none was."""
    return _threads(records) if (records := [record for record in run.measurements.values() if record]) else ""


def training(cells: Sequence[Cell]) -> str:
    """How cells are trained, by task and method where it differs."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(_settings(cell.training or {}), []).append(cell)
    if len(groups) == 1:
        return next(iter(groups))
    everyone = _who(cells)
    parts = []
    for words, group in groups.items():
        who = [listed(mine) for mine, every in zip(_who(group), everyone, strict=True) if set(mine) != set(every)]
        parts.append(f"{' on '.join(who)}: {words}")
    return "; ".join(parts)


def _who(cells: Sequence[Cell]) -> tuple[list[str], list[str]]:
    return [cell.method for cell in cells], [TASKS[cell.task].title for cell in cells]


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
    """A row per task: its metric, its rows, dense's result, and the number of cells done by seed."""
    found = run.table("ideal-c", [1.0])
    rows = []
    for task, title in run.titles.items():
        cells = [cell for cell in run.cells if cell.task == task]
        done = [run.records[cell.key] for cell in cells if cell.key in run.records]
        over_a = next((record["ideal"]["over_a"] for record in done if record["cell"]["method"] == DENSE), None)
        facts = [NOTHING] * 3
        if done:
            facts = [f"{done[0]['rows'][split]:,}" for split in ("train", "dev")] + [f"{done[0]['mean_length']:.0f}"]
        by_seed = [[cell.key in run.records for cell in cells if cell.seed == seed] for seed in run.study.seeds]
        counts = [f"{sum(mine)} of {len(mine)}" for mine in by_seed]
        dense = [number(over_a, ".2f", "x"), estimate(found.dense[task])]
        rows.append([title, TASKS[task].metric, *facts, f"{cells[0].max_length}", *dense, *counts])
    head = ["task", "metric", "training rows", "dev rows", "mean tokens", "N", "dense over a", "dense"]
    return table([*head, *(f"done, seed {seed}" for seed in run.study.seeds)], rows, left=2)


def telling(run: Run, axis: str, wanted: Sequence[float]) -> list[float]:
    """The targets to show: some method reaches them, and dense, without dropping anything, not on every task."""
    found = run.table(axis, wanted)
    dense = min((r.x for r in run.results(axis) if r.method == DENSE and r.x is not None), default=0.0)
    reached = {at for (at, _, _), entry in found.entries.items() if entry is not None}
    return [at for at in wanted if at in reached and at > dense]


def study_tables(run: Run) -> str:
    """All tables of a study, over c, over a and by space, each with the command that prints it."""
    kinds = ("measured", "ideal") if run.measured else ("ideal",)
    parts = []
    for title, axes, wanted in (
        ("Over c, dense on length-sorted batches", [f"{kind}-c" for kind in kinds], OVER_C),
        ("Over a, dense padded to N, as papers count", [f"{kind}-a" for kind in kinds], OVER_A),
        ("By space saved", ["space"], SPACES),
    ):
        found = {axis: targets for axis in axes if (targets := telling(run, axis, wanted))}
        parts += [f"### {title}"] if found else []
        for axis, targets in found.items():
            at = ",".join(f"{target:g}" for target in targets)
            command = f"pyramid-bert study table {run.file} --axis {axis} --at {at} --markdown"
            parts += [markdown(run.study.name, run.table(axis, targets)), f"```sh\n{command}\n```"]
    return joined(parts)


def commands(run: Run) -> str:
    """How to run one cell of the study's own again, from its record, and one measurement."""
    pyramids = [run.records[cell.key] for cell in run.cells if not cell.is_dense and cell.key in run.records]
    chosen = [*(pyramids or run.records.values())][:1] + list(filter(None, run.measurements.values()))[:1]
    return "\n".join(record["command"] for record in chosen)


# ---- beside the paper ----


def paper_lost(axis: str, at: float, method: str, tasks: Sequence[str]) -> list[float | None] | None:
    """Points that the paper loses against dense by task, and their mean last; None for what it does not have."""
    scores = PAPER_TABLES.get((axis, at), {"scores": {}})["scores"]
    if method not in scores:
        return None
    row, dense = scores[method], scores[DENSE]
    found = [dense[task] - row[task] if task in row else None for task in tasks]
    known = [value for value in found if value is not None]
    return [*found, sum(known) / len(known) if len(known) == len(found) else None]


def beside_kind(run: Run) -> str:
    """Which speed-ups of ours stand beside the paper's: measured ones if every pyramid was measured, or ideal ones."""
    return best_axis(run).removesuffix("-c")


def beside(run: Run) -> str:
    """Points lost against dense, the paper's and ours, at the same speed-up and the same space saved."""
    parts = []
    for axis, wanted, axes in (
        ("a", OVER_A, {f"ours over {over}": f"{beside_kind(run)}-{over}" for over in "ac"}),
        ("space", SPACES, {"ours": "space"}),
    ):
        told = {name: telling(run, ours, wanted) for name, ours in axes.items()}
        changes = {name: run.lost(ours, wanted) for name, ours in axes.items()}
        found = {at: {name: changes[name] for name in axes if at in told[name]} for at in wanted}
        parts += [_beside(axis, at, ours) for at, ours in found.items() if ours]
    return joined(parts)


def _beside(axis: str, at: float, ours: Mapping[str, StudyTable]) -> str:
    first = next(iter(ours.values()))
    columns = columns_of(first)
    rows = []
    for method in first.methods:
        theirs = paper_lost(axis, at, method, list(first.tasks))
        if theirs is not None:
            rows.append([method, "paper", *map(lost, theirs[: len(columns)])])
        for whose, found in ours.items():
            rows.append([method, whose, *(lost(found.entries[at, method, task]) for task in columns)])
    source = f"paper's Table {PAPER_TABLES[axis, at]['table']}"
    titles = [first.tasks.get(task, task) for task in columns]
    observed = [row for row in rows if set(row[2:]) != {NOTHING}]
    return table([f"at {target_name(first.axis, at)}", source, *titles], observed, left=2)


# ---- the prize ----


def prize(run: Run) -> str:
    """Every configuration that is done on all tasks: what it loses and how fast it is, the best first."""
    found, axis = points(run), best_axis(run)
    rows = []
    for point in sorted(found, key=lambda point: ((point.speed(axis) or 0.0) < WANTED_SPEED, point.lost)):
        speeds = [
            NOTHING if (speed := point.speed(name)) is None else f"{speed:.2f}x ({min(point.speeds[name]):.2f}x)"
            for name in ("measured-c", "ideal-c")
        ]
        rows.append([point.method, point.configuration, lost(point.change), *speeds])
    left = len({(cell.method, cell.configuration) for cell in run.cells if not cell.is_dense}) - len(found)
    head = ["method", "configuration", "points lost", "measured over c", "ideal over c"]
    words = f"{left} configurations are not done on all tasks, and not shown." if left else ""
    return joined([table(head, rows, left=2) if rows else "", words])


def wanted(run: Run) -> str:
    """Points lost at the speed-ups that a study asks pyramids for, done or not; empty for studies that ask for none."""
    if not run.study.speedups:
        return ""
    command = f"pyramid-bert study table {run.file} --lost --markdown"
    return joined([markdown_lost(lost_table(run, "ideal-c")), f"```sh\n{command}\n```"])


def closeness(runs: Sequence[Run]) -> str:
    """How close the configurations of each study come to the prize, by measured and by ideal speed-ups."""
    rows = [
        [f"{run.study.name} with {backbone_name(run)}", axis.removesuffix("-c"), *found]
        for run in runs
        for axis in ("measured-c", "ideal-c")
        if (found := closest(points(run), axis))
    ]
    head = ["study", "speeds", f"least lost at {WANTED_SPEED:g}x or faster", "too many points lost"]
    return table([*head, f"fastest that loses at most {ALLOWED_LOSS:g}"], rows, left=2)


def closest(found: Sequence[Point], axis: str) -> list[str]:
    """The least lost at the wanted speed, the points beyond what is allowed, and the fastest that loses no more."""
    placed = [(speed, point) for point in found if (speed := point.speed(axis)) is not None]
    if not placed:
        return []
    fast = min((point for speed, point in placed if speed >= WANTED_SPEED), key=lambda p: p.lost, default=None)
    allowed = [(speed, -point.lost, point) for speed, point in placed if point.lost <= ALLOWED_LOSS]
    good = max(allowed, key=lambda entry: entry[:2])[2] if allowed else None

    def name(point: Point | None) -> str:
        if point is None:
            return NOTHING
        seeds = f"{point.change.seeds} seed{'' if point.change.seeds == 1 else 's'}"
        return f"{point.lost:.2f} ({point.method} {point.configuration}, {point.speed(axis):.2f}x, {seeds})"

    short = number(None if fast is None else max(0.0, fast.lost - ALLOWED_LOSS), ".2f")
    return [name(fast), short, name(good)]
