"""What reaches the graphs of an exported model when it runs on texts. No torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..runtimes.graphs import End, Graph
from ..text.batches import Encoded
from .classifier import GraphFolder
from .record import Export, Way

Given = dict[str, NDArray[Any]]
_BYTES_AT_ONCE = 1 << 29  # of inputs that are held in memory: graphs whose inputs fit share a run over the texts


def arrivals(
    folder: Path, export: Export, items: Sequence[Encoded], width: int, bytes_at_once: int = _BYTES_AT_ONCE
) -> Iterator[tuple[str, list[Given]]]:
    """The file of each graph, and its inputs text by text: without padding, as a runtime would count pads as well.

    Args:
        folder: Where the graphs are, in fp32.
        export: How they belong together.
        items: The texts.
        width: How many numbers a token vector has.
        bytes_at_once: How much to hold in memory, but one graph's inputs at least.
    """
    at_once = max(1, bytes_at_once // (4 * width * sum(map(len, items))))
    found = set[str]()
    for way in export.ways:
        ends: dict[str, End] = {file: (layer, half) for layer, half, file in way.stretches if file not in found}  # type: ignore[misc]
        found |= set(ends)
        files = list(ends)
        for start in range(0, len(files), at_once):
            some = {file: ends[file] for file in files[start : start + at_once]}
            yield from _seen(folder, export, way, some, items)


def _seen(
    folder: Path, export: Export, way: Way, ends: dict[str, End], items: Sequence[Encoded]
) -> Iterator[tuple[str, list[Given]]]:
    graphs = GraphFolder(folder, export).graphs(way)
    seen: dict[str, list[Given]] = {file: [] for file in ends}
    watched = {end: _watched(graphs.stretches[end], seen[file]) for file, end in ends.items()}
    watching = replace(graphs, stretches={**graphs.stretches, **watched})
    for item in items:
        ids = np.array([item.input_ids])
        types = np.array([item.token_type_ids]) if export.types and item.token_type_ids is not None else None
        watching(ids, types, [len(item)], seed=0 if way.pyramid is None else way.pyramid.seed)
    del graphs, watched, watching  # they hold what was seen
    for file in ends:
        yield file, seen.pop(file)


def _watched(graph: Graph, seen: list[Given]) -> Graph:
    def run(given: Given) -> Any:
        seen.append({name: value.copy() for name, value in given.items()})
        return graph(given)

    return run
