"""What the report is made of, read from a folder of results and one of experiments. Nothing is computed by a model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import PyramidError
from ..study.methods import DENSE
from ..study.runs import Run, load_runs
from ..study.store import SUFFIX, Store
from .ablations import IMPORTANCE, is_ablation

FIRST = "glue-lite"  # the study that leads the page


@dataclass(frozen=True)
class Results:
    """All that is in a folder of results.

    Attributes:
        folder: Its name, as commands name it.
        runs: The studies of which something is done, by name; ablations too.
        unknown: Studies with results whose experiment file was not found.
        files: Name of a measurement ("bench-base-512", "theory-bound-sst2-harsh") -> its record.
        experiments: The experiment files that there are, by the names of their studies.
    """

    folder: str
    runs: Mapping[str, Run]
    unknown: tuple[str, ...]
    files: Mapping[str, Any]
    experiments: frozenset[str]

    @property
    def studies(self) -> list[Run]:
        """The studies that are no ablation, the leading one first."""
        found = [run for name, run in self.runs.items() if not is_ablation(name)]
        return sorted(found, key=lambda run: (run.study.name != FIRST, run.study.name))

    def importance(self) -> list[tuple[str, dict[str, Any]]]:
        """The files of token importance, each with a `command` and its `rows`."""
        found = self.named(IMPORTANCE)
        for name, entry in found:
            if not {"command", "rows"} <= entry.keys():
                raise PyramidError(f"{name} in {self.folder} lacks command or rows; docs/report.md has its format")
        return found

    def named(self, prefix: str) -> list[tuple[str, Any]]:
        """The files whose names begin so, by name; lists are taken apart."""
        found: list[tuple[str, Any]] = []
        for name, data in sorted(self.files.items()):
            if name.startswith(prefix):
                found += [(name, entry) for entry in (data if isinstance(data, list) else [data])]
        return [(name, entry) for name, entry in found if isinstance(entry, dict)]


def collect_results(results: Path, experiments: Path) -> Results:
    """Reads what there is.

    Args:
        results: The folder with `<study>.jsonl`, `bench.jsonl`, `theory.jsonl`, and files such as `bench-mine.json`.
        experiments: The folder with the studies' TOML files, which say what their cells are.
    """
    if not results.is_dir():
        raise PyramidError(f"there is no folder {results}; `pyramid-bert study run` and `bench --json` make results")
    runs = {run.study.name: run for run in load_runs(experiments, results)}
    stems = frozenset(path.stem for path in experiments.glob("*.toml"))
    stores = {path.stem: Store(path).records for path in sorted(results.glob(f"*{SUFFIX}"))}
    studies = [name for name, records in stores.items() if any("status" in record for record in records.values())]
    measured = {
        f"{name}-{key}": record for name in stores if name not in studies for key, record in stores[name].items()
    }
    return Results(
        folder=str(results),
        runs=runs,
        unknown=tuple(name for name in studies if name not in runs and name not in stems),
        files={**measured, **{path.stem: _read(path) for path in sorted(results.glob("*.json"))}},
        experiments=stems,
    )


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise PyramidError(f"{path} is damaged ({error}); remove it or make it again") from error


def best_axis(run: Run) -> str:
    """The speed-ups over c to show: measured ones if all that is done was measured, else ideal ones."""
    if not run.measured:
        return "ideal-c"
    known = all(result.x is not None for result in run.results("measured-c") if result.method != DENSE)
    return "measured-c" if known else "ideal-c"


def axes_of(run: Run) -> list[str]:
    """The axes on which a study has places, the best one first."""
    axes = ["ideal-c", "ideal-a", "space", *(["measured-c", "measured-a"] if run.measured else [])]
    return sorted(axes, key=lambda axis: axis != best_axis(run))
