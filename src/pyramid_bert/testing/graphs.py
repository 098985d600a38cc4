"""A model cut into the stretches that export writes, run in torch: other runtimes get the same graphs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..families import family_of, positions_of, pyramid_encoder
from ..runtimes.graphs import Graph, Graphs, Place
from ..runtimes.stretches import Stretch, stretches_of


def run_as_stretches(pyramid: Any, batch: Mapping[str, Tensor]) -> Tensor:
    """The logits (B, C) of a pyramid whose stretches run one after the other."""
    encoder = pyramid_encoder(pyramid)
    assert encoder is not None
    stretches = stretches_of(pyramid, encoder.plan, positions_of(pyramid))
    ends: dict[Place, Graph] = {}
    for stretch in stretches:
        last = stretch.parts[-1]
        ends[last.number, last.half] = _graph(stretch)
    counts = batch["attention_mask"].sum(1).tolist()
    positions = family_of(pyramid).how.reads_positions
    graphs = Graphs(encoder.plan, encoder.reducer, ends, types=False, positions=positions)
    logits, _ = graphs(batch["input_ids"].numpy(), None, counts)
    return torch.from_numpy(logits)


def _graph(stretch: Stretch) -> Graph:
    @torch.no_grad()
    def run(given: dict[str, NDArray[Any]]) -> list[NDArray[Any]]:
        found = stretch.eval()(**{name: torch.from_numpy(np.array(value)) for name, value in given.items()})
        return [part.numpy() for part in found]

    return run
