"""The compiled greedy loop against the torch one, on the same Gram matrices. Prints JSON.

python benchmarks/greedy.py
"""

import torch
from common import show

from pyramid_bert.bench.timing import time_interleaved
from pyramid_bert.core import compiled
from pyramid_bert.core.coreset import _one_at_a_time
from pyramid_bert.core.distances import Geometry

SHAPES = ((1, 128, 80), (1, 512, 322), (32, 128, 80), (32, 512, 322))


def _measure(b: int, n: int, k: int) -> dict:
    hidden = torch.randn(b, n, 768, generator=torch.Generator().manual_seed(0))
    geometry = Geometry.of(hidden)
    distances = geometry.distances

    def start() -> torch.Tensor:
        uncovered = geometry.to_cls
        uncovered[:, 0] = -torch.inf
        return uncovered

    with torch.inference_mode():
        runs = {
            "torch": lambda: _one_at_a_time(distances, start(), [k] * b),
            "compiled": lambda: compiled.greedy(geometry, start(), [k] * b, [1] * b),
            "gram": lambda: Geometry.of(hidden),
        }
        same = torch.equal(runs["torch"]()[0], runs["compiled"]()[0])
        timing = time_interleaved(runs, rounds=9)
    milliseconds = {f"{name}_ms": timing.median(name) * 1e3 for name in runs}
    faster = timing.speedup("compiled", over="torch")
    return {"b": b, "n": n, "k": k, "same_indices": same, **milliseconds, "faster": faster}


if __name__ == "__main__":
    show({"shapes": [_measure(*shape) for shape in SHAPES]})
