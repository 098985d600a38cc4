"""docs/lra-results.md: what its template computes from the records of studies."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from ..study.arena import STUDY_TASKS
from ..study.methods import DENSE, in_order
from ..study.spec import load_study
from ..study.store import Store
from ..study.table import NOTHING, Estimate, shown

PAPER: dict[str, Any] = tomllib.loads(Path(__file__).with_name("paper-lra.toml").read_text(encoding="utf-8"))
BESIDE = (DENSE, "Rand", "CS-k-1", "1st", "Merge")

Record = dict[str, Any]  # a cell that is done


def names(root: Path) -> dict[str, Any]:
    """What the template uses that depends on the repository."""

    def cells(experiment: str) -> list[Record]:
        study = load_study(root / "experiments" / f"{experiment}.toml")
        store = Store.of(root / "results", study.name)
        return [record for cell in study.cells(STUDY_TASKS) if (record := store.done(cell.key))]

    return {"cells": cells, "shown": shown}


def title(one: Record) -> str:
    """The backbone and task of a measurement."""
    return str(STUDY_TASKS[f"{one['backbone']}-{one['task']}"].title)


def seen(record: Record) -> float:
    """The rows that a cell has seen in training, counted once for each pass."""
    return float(record["rows"]["train"] * record["training"]["epochs"])


def paper_seen(preset: Record) -> float:
    """The same in the paper."""
    return float(PAPER["training_rows"][preset["task"]] * preset["epochs"])


def accuracy(records: Sequence[Record]) -> Estimate:
    """Mean and standard deviation over seeds."""
    return Estimate.of([record["value"] for record in records])


def by_task(done: Sequence[Record]) -> dict[str, list[Record]]:
    """Title of a backbone and task -> its records, in the order of `STUDY_TASKS`."""
    found = {
        task.title: [record for record in done if record["cell"]["task"] == name] for name, task in STUDY_TASKS.items()
    }
    return {title: records for title, records in found.items() if records}


def by_keep(done: Sequence[Record]) -> dict[float, list[Record]]:
    """Keep ratio -> its records and the dense ones."""
    ratios = sorted({_keep(record) for record in done} - {1.0})
    return {ratio: [record for record in done if _keep(record) in (ratio, 1.0)] for ratio in ratios}


def by_method(done: Sequence[Record]) -> dict[str, list[Record]]:
    """Method -> its records, dense first."""
    methods = [record["cell"]["method"] for record in done]
    order = [*([DENSE] if DENSE in methods else []), *in_order(methods)]
    return {method: [record for record in done if record["cell"]["method"] == method] for method in order}


def repeated(done: Sequence[Record], more: Sequence[Record]) -> list[Record]:
    """The records of `done` whose task, method, seed and keep ratio are in `more`."""

    def key(record: Record) -> tuple[Any, ...]:
        return (*(record["cell"][name] for name in ("task", "method", "seed")), _keep(record))

    keys = set(map(key, more))
    return [record for record in done if key(record) in keys]


def printed(records: Sequence[Record]) -> float | None:
    """The paper's figure for a method, at the 30 or 70 % that the space saved is nearest to; None if it has none."""
    method, preset = records[0]["cell"]["method"], records[0]["preset"]
    at = "70" if records[0]["space"]["printed"] > 0.5 else "30"
    row = PAPER["dense"] if method == DENSE else PAPER[at].get(method)
    return None if row is None else float(row[preset["backbone"]][preset["task"]])


def beside(chosen: Sequence[Record]) -> list[str]:
    """The best method, and by how many points CS-1 is above the methods of `BESIDE`, seed by seed.

    A star marks a mean difference of more than two sampling errors.
    """
    values = {
        method: {record["cell"]["seed"]: record["value"] for record in records}
        for method, records in by_method(chosen).items()
    }
    means = {method: fmean(by_seed.values()) for method, by_seed in values.items()}
    best = max(means, key=lambda method: means[method])
    cells, mine = [f"{best} {100 * means[best]:.1f}"], values.get("CS-1", {})
    for other in BESIDE:
        above = [mine[seed] - value for seed, value in values.get(other, {}).items() if seed in mine]
        if not above:
            cells.append(NOTHING)
            continue
        variance = sum(means[method] * (1 - means[method]) for method in ("CS-1", other))
        error = math.sqrt(variance / chosen[0]["rows"]["dev"] / len(above))
        clear = " *" if abs(fmean(above)) > 2 * error else ""
        cells.append(", ".join(f"{100 * one:+.1f}" for one in above) + clear)
    return cells


def _keep(record: Record) -> float:
    schedule = record["cell"]["schedule"]
    return 1.0 if schedule is None else float(schedule["keep_ratio"])
