"""What limits a pyramid that answers one text at a time in OpenVINO int8? A random BERT-base, 128 tokens, (3, 0.25).

python benchmarks/one_text.py

Times the dense model on texts of fewer tokens, down to one, and the graphs of the pyramid apart from what runs
between them. If the graphs alone are below the wanted speed-up, no faster way to choose tokens can reach it. Also how
long reading the weights once takes, at the speed of a sum over memory that no cache holds. Prints JSON.
"""

import time
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from common import bytes_per_second, show

from pyramid_bert import Schedule
from pyramid_bert.bench.ideal import ideal_speedup, kept_lengths
from pyramid_bert.bench.models import model_pair
from pyramid_bert.bench.timing import time_interleaved
from pyramid_bert.bench.workload import Workload
from pyramid_bert.export.classifier import GraphFolder
from pyramid_bert.export.record import Export
from pyramid_bert.export.writing import write_graphs
from pyramid_bert.runtimes.graphs import Graphs
from pyramid_bert.runtimes.registry import get_runtime

TOKENS, ROUNDS, WARMUP, CALIBRATED_ON = 128, 200, 20, 64


def main() -> None:
    """Measures and prints."""
    schedule = Schedule.exponential(0.25, last_layer=3, rounding="floor")
    dense, pyramid, _ = model_pair(None, "base", schedule, {"reduce": "drop"}, "cpu", texts=False)
    work = Workload.synthetic([TOKENS] * CALIBRATED_ON)
    ideal = ideal_speedup(pyramid, work.items, kept_lengths(pyramid, work.items))
    with TemporaryDirectory() as scratch:
        exported = {}
        for side, model in {"dense": dense, "pyramid": pyramid}.items():
            folder = Path(scratch) / side
            folder.mkdir()
            made = write_graphs(model, folder, get_runtime("openvino"), "int8", work.items, pad_id=0, types=False)
            exported[side] = folder, made
        kept = [TOKENS, *schedule.lengths(TOKENS, layers=len(dense.bert.encoder.layer))]
        widths = sorted({1, 8, 16, 64, *kept})
        # Each length has graphs of its own: in OpenVINO a change of shape takes time.
        runs = {f"dense {n}": _one(_loaded(*exported["dense"]), work, n) for n in widths}
        pyramid_graphs = _loaded(*exported["pyramid"])
    clocks = [_Clock(graph) for graph in pyramid_graphs.stretches.values()]
    pyramid_graphs.stretches.update(zip(pyramid_graphs.stretches, clocks, strict=True))
    runs["pyramid"] = _one(pyramid_graphs, work, TOKENS)
    timing = time_interleaved(runs, rounds=ROUNDS, warmup=WARMUP)
    ms = {name: 1e3 * timing.median(name) for name in timing.seconds}
    by_tokens = {n: ms[f"dense {n}"] for n in widths}
    stretches = [1e3 * median(clock.seconds[WARMUP:]) for clock in clocks]
    speedups = {
        "measured": timing.speedup("pyramid", over=f"dense {TOKENS}"),
        "graphs alone": by_tokens[TOKENS] / sum(stretches),
    }
    layers = sum(weight.numel() for weight in dense.bert.encoder.parameters())  # one byte each
    reading = {"weights_mb": layers / 1e6, "reading_ms": 1e3 * layers / bytes_per_second()}
    result = {"tokens": TOKENS, "kept": kept, "ideal": ideal, "dense_ms": by_tokens, "pyramid_ms": ms["pyramid"]}
    show({**result, **reading, "stretches_ms": stretches, "speedups": speedups, "rounds": ROUNDS})


class _Clock:
    """A graph that notes how long each call took."""

    def __init__(self, graph: Any) -> None:
        self._graph, self.seconds = graph, list[float]()

    def __call__(self, given: dict[str, Any]) -> Any:
        start = time.perf_counter()
        found = self._graph(given)
        self.seconds.append(time.perf_counter() - start)
        return found


def _loaded(folder: Path, made: Export) -> Graphs:
    return GraphFolder(folder, made).graphs(made.ways[0])


def _one(graphs: Graphs, work: Workload, n: int) -> Any:
    """Runs one text of n tokens."""
    ids = np.array([work.items[0].input_ids[:n]])
    return partial(graphs, ids, None, [n])


if __name__ == "__main__":
    main()
