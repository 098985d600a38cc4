"""Dense model and pyramid in every runtime and precision of this machine, timed in turn: baseline d, and what beats it.

Baseline d is the fastest dense model of all: what a good engineer has before dropping a single token.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..bench.ideal import ideal_speedup, kept_lengths
from ..bench.machine import describe_machine
from ..bench.timing import Timing, share_selecting, time_interleaved
from ..bench.workload import Workload
from ..counting import steps_shown
from ..errors import PyramidError
from ..families import pyramid_settings
from ..runtimes.places import TORCH, places_of
from ..runtimes.registry import Runtime, get_runtime
from .ready import BatchRunner, everywhere, graphs_everywhere, runner
from .record import Export
from .writing import write_graphs

SIDES = ("dense", "pyramid")
_CALIBRATED_ON = 128
Name = tuple[str, str, str]  # runtime, precision, side


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
    places = places_of()
    runs: dict[Name, BatchRunner] = {}
    graphs = sum(graphs_everywhere(model, places) for model in models.values())
    with TemporaryDirectory() as scratch:
        with steps_shown("writing graphs", graphs, shown=progress) as step:
            for side, model in models.items():

                def write(folder: Path, runtime: Runtime, precision: str, model: Any = model) -> Export:
                    how: dict[str, Any] = {"pad_id": workload.pad_id, "after_each": step}
                    how["types"] = workload.items[0].token_type_ids is not None
                    return write_graphs(model, folder, runtime, precision, workload.items[:_CALIBRATED_ON], **how)

                for place, made in everywhere(model, places, Path(scratch) / side, write, threads):
                    runs[*place, side] = runner(made, workload, batch_size)
        named = {" ".join(name): run for name, run in runs.items()}
        with steps_shown("measuring, in turn", (rounds + 1) * len(named), shown=progress) as step:
            timing = time_interleaved(named, rounds=rounds, after_each=step)
        d = min((name for name in runs if name[2] == "dense"), key=lambda name: timing.median(" ".join(name)))
        entries = tuple(_timed(name, run, timing, d, alone=batch_size == 1) for name, run in runs.items())
    kept = kept_lengths(pyramid, workload.items, workload.pad_id, batch_size=batch_size)
    rows, runtimes = len(workload.items), dict.fromkeys(name for name, _ in places if name != TORCH)
    return RuntimeLedger(
        entries=entries,
        fastest=d[:2],
        ideal=ideal_speedup(pyramid, workload.items, kept),
        workload={"source": workload.source, "rows": rows, "mean_length": sum(workload.lengths) / rows},
        batch_size=batch_size,
        rounds=rounds,
        machine={**describe_machine(), "runtimes": {name: get_runtime(name).version for name in runtimes}},
        settings=settings.to_dict(),
        seconds=timing.seconds,
    )


def _timed(name: Name, run: BatchRunner, timing: Timing, d: Name, *, alone: bool) -> Timed:
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
