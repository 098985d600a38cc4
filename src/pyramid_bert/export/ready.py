"""A model in the places where it can run, ready to be timed: in torch, and as graphs in a scratch folder."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..bench.timing import SelectingClock
from ..bench.workload import Workload, forward_all
from ..runtimes.packed import optimize
from ..runtimes.places import TORCH, Place
from ..runtimes.registry import Runtime, get_runtime
from ..text.batches import padded
from .classifier import GraphFolder
from .record import Export
from .writing import graphs_to_write

PERCENTILES = (50, 95, 99)
# Writes a model's graphs to a folder, for a runtime, in a precision that is stored.
Writer = Callable[[Path, Runtime, str], Export]


class BatchRunner:
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


def everywhere(
    model: Any, places: Sequence[Place], folder: Path, write: Writer, threads: int | None = None
) -> Iterator[tuple[Place, Any]]:
    """Each place with the model there: one in torch, or a `GraphFolder`. bf16 runs the graphs of fp32.

    Args:
        model: A transformers model, on the CPU in fp32; it is copied where its weights change.
        places: Where it is to run; this machine has them all.
        folder: Where graphs go, in a folder for each runtime and precision that is stored.
        write: Writes them.
        threads: Of the runtimes; None for all cores.
    """
    made: dict[Place, Export] = {}
    for name, precision in places:
        if name == TORCH:
            how: Any = precision
            yield (name, precision), model if precision == "fp32" else optimize(copy.deepcopy(model), how)
            continue
        stored = stored_in((name, precision))
        into = folder.joinpath(*stored)
        if stored not in made:
            into.mkdir(parents=True)
            made[stored] = write(into, get_runtime(name), stored[1])
        yield (name, precision), GraphFolder(into, replace(made[stored], precision=precision), threads)


def graphs_everywhere(model: Any, places: Sequence[Place]) -> int:
    """How many graphs `everywhere` writes, for a progress bar; see `graphs_to_write`."""
    stored = {stored_in(place) for place in places if place[0] != TORCH}
    return sum(graphs_to_write(model, precision) for _, precision in stored)


def stored_in(place: Place) -> Place:
    """Runtime and precision of the graphs that a model runs in a place: for bf16 those of fp32.

    Example:
        >>> stored_in(("openvino", "bf16")), stored_in(("openvino", "int8"))
        (('openvino', 'fp32'), ('openvino', 'int8'))
    """
    return place[0], "int8" if place[1] == "int8" else "fp32"


def runner(made: Any, workload: Workload, batch_size: int) -> BatchRunner:
    """What runs a model in torch, or the graphs of a `GraphFolder`, over the workload in its batches."""
    batches = workload.as_served(batch_size)
    if not isinstance(made, GraphFolder):
        return BatchRunner(
            lambda batch, record: forward_all(made, [batch], record), [(batch,) for batch in workload.tensors(batches)]
        )
    given = []
    for rows in batches:
        some = [workload.items[i] for i in rows]
        arrays = padded(some, workload.pad_id)
        given.append((arrays["input_ids"], arrays.get("token_type_ids"), [len(item) for item in some]))
    return BatchRunner(made.graphs(made.export.ways[0]), given)
