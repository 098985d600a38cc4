"""Dense model and pyramid in every runtime and precision of this machine, timed in turn: baseline d, and what beats it.

Baseline d is the fastest dense model of all: what a good engineer has before dropping a single token.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ..bench.ideal import ideal_speedup, kept_lengths
from ..bench.machine import describe_machine
from ..bench.timing import SelectingClock, Timing, share_selecting, time_interleaved
from ..bench.workload import Workload, forward_all
from ..counting import steps_shown
from ..errors import PyramidError
from ..families import pyramid_settings
from ..runtimes.packed import OPTIMIZATIONS, optimize
from ..runtimes.registry import RUNTIMES, Runtime
from ..text.batches import padded
from .classifier import GraphFolder
from .record import Export
from .writing import write_graphs

SIDES = ("dense", "pyramid")
PERCENTILES = (50, 95, 99)
_CALIBRATED_ON = 128
Name = tuple[str, str, str]  # runtime, precision, side


class Run:
    """Runs a model over batches, and notes how long each batch took.

    Args:
        call: Runs one batch, with a recorder or None.
        batches: What it takes before the recorder, one a batch.

    Attributes:
        seconds: Of every batch that ran without a recorder, in order.
    """

    def __init__(self, call: Callable[..., object], batches: Sequence[tuple[Any, ...]]) -> None:
        self._call, self._batches = call, batches
        self.seconds: list[float] = []

    def __call__(self, record: SelectingClock | None = None) -> None:
        """Runs all batches."""
        for batch in self._batches:
            start = time.perf_counter()
            self._call(*batch, record)
            if record is None:
                self.seconds.append(time.perf_counter() - start)

    def latency(self) -> dict[str, float]:
        """Percentiles of the seconds of a batch, without those of the first round, which warms up."""
        found = np.percentile(self.seconds[len(self._batches) :], PERCENTILES)
        return {f"p{percent}": float(value) for percent, value in zip(PERCENTILES, found, strict=True)}


@dataclass(frozen=True)
class Timed:
    """One side in one runtime and precision.

    Attributes:
        runtime: "torch", or a runtime that models are exported to.
        precision: Its precision; in torch also "packed", see `optimize`.
        side: "dense" or "pyramid".
        seconds: Median of the rounds.
        over_c: How many times faster than the dense model in torch (fp32, length-sorted batches).
        over_d: The same over the fastest dense model of all.
        over_own: The same over the dense model in the same runtime and precision.
        selecting: The share of its time that choosing and moving tokens takes; None for a dense model.
        latency: "p50", "p95" and "p99" of the seconds of a text; None in larger batches.
    """

    runtime: str
    precision: str
    side: str
    seconds: float
    over_c: float
    over_d: float
    over_own: float
    selecting: float | None
    latency: dict[str, float] | None = None


@dataclass(frozen=True)
class RuntimeLedger:
    """What was measured, on what.

    Attributes:
        entries: All that ran.
        fastest: Runtime and precision of baseline d.
        ideal: The ideal speed-up of the pyramid: multiply-accumulates over true lengths.
        workload: What ran.
        batch_size: Rows a batch.
        rounds: How many times each was timed.
        machine: Where, with the versions of the runtimes.
        settings: Of the pyramid.
        seconds: All times, by the name of what ran.
    """

    entries: tuple[Timed, ...]
    fastest: tuple[str, str]
    ideal: float
    workload: dict[str, Any]
    batch_size: int
    rounds: int
    machine: dict[str, Any]
    settings: dict[str, Any]
    seconds: dict[str, list[float]]

    def best(self, side: str) -> Timed:
        """What was fastest of a side; of "dense" it is baseline d."""
        return min((entry for entry in self.entries if entry.side == side), key=lambda entry: entry.seconds)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dict."""
        return asdict(self)


def measure_runtimes(
    dense: Any,
    pyramid: Any,
    workload: Workload,
    *,
    batch_size: int,
    rounds: int = 5,
    threads: int | None = None,
    progress: bool = False,
) -> RuntimeLedger:
    """Times both models in all runtimes and precisions that are installed and that this processor has, in turn.

    Args:
        dense: The untouched transformers model, on the CPU in fp32.
        pyramid: The same model as a pyramid.
        workload: The rows; int8 takes its scales from some of them.
        batch_size: Rows a batch.
        rounds: How many times each is timed.
        threads: Of the runtimes; None for all cores.
        progress: Show progress bars.
    """
    settings = pyramid_settings(pyramid)
    if settings is None or pyramid_settings(dense) is not None:
        raise PyramidError("measure_runtimes takes a dense model and a pyramid, in this order")
    models = dict(zip(SIDES, (dense, pyramid), strict=True))
    runs: dict[Name, Run] = {}
    with TemporaryDirectory() as scratch:
        for side, model in models.items():
            for how, one in in_torch(model).items():
                runs["torch", how, side] = torch_over(one, workload, batch_size)
            for runtime in installed():
                write = _writer(model, runtime, workload, progress=progress)
                made = written(Path(scratch) / runtime.name / side, precisions(runtime), write, threads)
                for how, graphs in made.items():
                    runs[runtime.name, how, side] = graphs_over(graphs, workload, batch_size)
        named = {" ".join(name): run for name, run in runs.items()}
        with steps_shown("measuring, in turn", (rounds + 1) * len(named), shown=progress) as step:
            timing = time_interleaved(named, rounds=rounds, after_each=step)
        d = min((name for name in runs if name[2] == "dense"), key=lambda name: timing.median(" ".join(name)))
        entries = tuple(_timed(name, run, timing, d, alone=batch_size == 1) for name, run in runs.items())
    kept = kept_lengths(pyramid, workload.items, workload.pad_id, batch_size=batch_size)
    rows = len(workload.items)
    return RuntimeLedger(
        entries=entries,
        fastest=d[:2],
        ideal=ideal_speedup(pyramid, workload.items, kept),
        workload={"source": workload.source, "rows": rows, "mean_length": sum(workload.lengths) / rows},
        batch_size=batch_size,
        rounds=rounds,
        machine={**describe_machine(), "runtimes": {runtime.name: runtime.version for runtime in installed()}},
        settings=settings.to_dict(),
        seconds=timing.seconds,
    )


def _timed(name: Name, run: Run, timing: Timing, d: Name, *, alone: bool) -> Timed:
    key = " ".join(name)
    return Timed(
        *name,
        seconds=timing.median(key),
        over_c=timing.speedup(key, over="torch fp32 dense"),
        over_d=timing.speedup(key, over=" ".join(d)),
        over_own=timing.speedup(key, over=" ".join((*name[:2], "dense"))),
        selecting=share_selecting(run) if name[2] == "pyramid" else None,
        latency=run.latency() if alone else None,
    )


def installed() -> list[Runtime]:
    """The runtimes of the table whose packages are installed."""
    found = []
    for runtime in RUNTIMES.values():
        with suppress(ImportError):
            runtime.check_writing("fp32")
            found.append(runtime)
    return found


def precisions(runtime: Runtime) -> list[str]:
    """The precisions of a runtime that this machine can write and run."""
    found = []
    for precision in runtime.precisions:
        with suppress(PyramidError):
            runtime.check_writing(precision)
            found.append(precision)
    return found


def in_torch(model: Any, wanted: Sequence[str] = ("fp32", *OPTIMIZATIONS)) -> dict[str, Any]:
    """The model in torch by precision: as it is, and copies with each optimization that this machine has."""
    models = {"fp32": model} if "fp32" in wanted else {}
    for how in OPTIMIZATIONS:
        if how in wanted:
            with suppress(PyramidError):
                models[how] = optimize(copy.deepcopy(model), how)  # type: ignore[arg-type]
    return models


def stored_as(precision: str) -> str:
    """The precision of the graphs that a model in a precision runs: bf16 runs those of fp32.

    Example:
        >>> stored_as("bf16"), stored_as("int8")
        ('fp32', 'int8')
    """
    return "int8" if precision == "int8" else "fp32"


def written(
    folder: Path, wanted: Sequence[str], write: Callable[[Path, str], Export], threads: int | None = None
) -> dict[str, GraphFolder]:
    """An exported model by precision.

    Args:
        folder: Where the graphs go, in a folder for each precision that is stored.
        wanted: The precisions.
        write: Writes a model to a folder in a precision that is stored.
        threads: Of the runtime; None for all cores.
    """
    made: dict[str, Export] = {}
    found: dict[str, GraphFolder] = {}
    for precision in wanted:
        stored = stored_as(precision)
        if stored not in made:
            (folder / stored).mkdir(parents=True)
            made[stored] = write(folder / stored, stored)
        found[precision] = GraphFolder(folder / stored, replace(made[stored], precision=precision), threads)
    return found


def _writer(model: Any, runtime: Runtime, workload: Workload, *, progress: bool) -> Callable[[Path, str], Export]:
    """What writes the graphs of a model in a precision."""
    how: dict[str, Any] = {"pad_id": workload.pad_id, "types": workload.items[0].token_type_ids is not None}
    some = workload.items[:_CALIBRATED_ON]
    return lambda folder, stored: write_graphs(model, folder, runtime, stored, some, **how, progress=progress)


def torch_over(model: Any, workload: Workload, batch_size: int) -> Run:
    """What runs a model in torch over the workload, in its batches."""
    batches = workload.tensors(workload.as_served(batch_size))
    return Run(lambda batch, record: forward_all(model, [batch], record), [(batch,) for batch in batches])


def graphs_over(made: GraphFolder, workload: Workload, batch_size: int) -> Run:
    """What runs an exported model over the workload, in its batches."""
    batches = []
    for rows in workload.as_served(batch_size):
        some = [workload.items[i] for i in rows]
        arrays = padded(some, workload.pad_id)
        batches.append((arrays["input_ids"], arrays.get("token_type_ids"), [len(item) for item in some]))
    return Run(made.graphs(made.export.ways[0]), batches)
