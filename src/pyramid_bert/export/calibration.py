"""What reaches a graph of an exported model when it runs on texts. No torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..runtimes.graphs import Graph
from ..text.batches import Encoded
from .classifier import GraphFolder
from .record import Export

Given = dict[str, NDArray[Any]]


def arrivals(folder: Path, export: Export, file: str, items: Sequence[Encoded]) -> list[Given]:
    """The inputs of the graph in `file`, text by text: without padding, as a runtime would count pads as well.

    One graph at a time, because the inputs of all graphs together would fill the memory.
    """
    way = next(way for way in export.ways if any(name == file for *_, name in way.stretches))
    graphs = GraphFolder(folder, export).graphs(way)
    place: Any = next((layer, half) for layer, half, name in way.stretches if name == file)
    seen: list[Given] = []
    watched = replace(graphs, stretches={**graphs.stretches, place: _watched(graphs.stretches[place], seen)})
    for item in items:
        ids = np.array([item.input_ids])
        types = np.array([item.token_type_ids]) if export.types and item.token_type_ids is not None else None
        watched(ids, types, [len(item)], seed=0 if way.pyramid is None else way.pyramid.seed)
    return seen


def _watched(graph: Graph, seen: list[Given]) -> Graph:
    def run(given: Given) -> Any:
        seen.append({name: value.copy() for name, value in given.items()})
        return graph(given)

    return run
