"""Reads a folder of results and one of experiments. Nothing is computed by a model, and no study is known by name."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import PyramidError
from ..study.methods import DENSE
from ..study.runs import Run, all_runs
from ..study.store import SUFFIX, Store

Entry = dict[str, Any]  # one measurement; its `name` is that of the file it was read from


@dataclass(frozen=True)
class Results:
    """Everything in a folder of results.

    Attributes:
        folder: Its name, as commands give it.
        runs: Studies with at least one finished cell, the one with the most finished cells first.
        todo: Studies without a finished cell.
        unknown: Results whose experiment file was not found.
        entries: The measurements of all JSON files.
    """

    folder: str
    runs: tuple[Run, ...]
    todo: tuple[Run, ...]
    unknown: tuple[str, ...]
    entries: tuple[Entry, ...]

    def having(self, *keys: str) -> list[Entry]:
        """The measurements with all of these keys: what a measurement holds says what it is."""
        return [entry for entry in self.entries if all(key in entry for key in keys)]

    def importance(self) -> list[Entry]:
        """Measurements of token importance: entries whose rows give mutual information by rank."""
        found = [e for e in self.having("rows") if isinstance(e["rows"], list) and _is_importance(e["rows"])]
        for entry in found:
            if "command" not in entry:
                raise PyramidError(f"{entry['name']} in {self.folder} lacks command; see docs/report.md")
        return found


def _is_importance(rows: list[Any]) -> bool:
    return bool(rows) and all(isinstance(row, dict) and "mutual_information" in row for row in rows)


def collect_results(results: Path, experiments: Path) -> Results:
    """Reads what there is.

    Args:
        results: Folder with the results of studies (`<study>.jsonl`) and measurements (`bench.jsonl`, `bench-x.json`).
        experiments: Folder with the TOML files of the studies, which define their cells.
    """
    if not results.is_dir():
        raise PyramidError(f"there is no folder {results}; `pyramid-bert study run` and `bench --json` make results")
    runs = all_runs(experiments, results)
    done = sorted((run for run in runs if run.records), key=lambda run: (-len(run.records), run.study.name))
    known = {run.study.name for run in runs} | {path.stem for path in experiments.glob("*.toml")}
    stores = {path.stem: Store(path).records for path in sorted(results.glob(f"*{SUFFIX}"))}
    studies = [name for name, records in stores.items() if any("status" in record for record in records.values())]
    others = {name: records for name, records in stores.items() if name not in studies}
    measured = [{**record, "name": f"{name}-{key}"} for name, found in others.items() for key, record in found.items()]
    return Results(
        folder=str(results),
        runs=tuple(done),
        todo=tuple(run for run in runs if not run.records),
        unknown=tuple(name for name in studies if name not in known),
        entries=(*measured, *(entry for path in sorted(results.glob("*.json")) for entry in _entries(path))),
    )


def _entries(path: Path) -> list[Entry]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise PyramidError(f"{path} is damaged ({error}); remove it or make it again") from error
    found = data if isinstance(data, list) else [data]
    return [{**entry, "name": path.stem} for entry in found if isinstance(entry, dict)]


def best_axis(run: Run) -> str:
    """The speed-ups over c to show: measured ones if every finished cell was measured, else ideal ones."""
    known = run.measured and all(r.x is not None for r in run.results("measured-c") if r.method != DENSE)
    return "measured-c" if known else "ideal-c"


def axes_of(run: Run) -> list[str]:
    """The axes of a study's charts, the best one first."""
    axes = ["ideal-c", "ideal-a", "space", *(["measured-c", "measured-a"] if run.measured else [])]
    return sorted(axes, key=lambda axis: axis != best_axis(run))
