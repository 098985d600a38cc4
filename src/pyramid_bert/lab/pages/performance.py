"""docs/performance.md: what its template computes from the measurements."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from ...bench.timing import Timing

# The last words of a measurement's name -> what they say.
TEXTS = {"sst2": "e5-small, SST-2", "imdb": "e5-small, IMDB", "base": "BERT-base, random"}
RESTING, MERGING = "tokens rest from layer 6", "{} at layer 2, merged to 45 %"
PYRAMIDS = {
    "coreset": MERGING.format("core-set"),
    "cluster": MERGING.format("clusters"),
    "base": "core-set, dropped, (3, 0.25)",
}

__all__ = ["fastest", "median", "own", "place", "pyramid", "sides", "texts"]  # the template uses them

Measurement = Mapping[str, Any]  # one of `bench --runtimes`
Entry = Mapping[str, Any]


def names(root: Path) -> dict[str, Any]:
    """What the template uses that depends on the repository: nothing."""
    return {}


def texts(one: Measurement) -> str:
    """The model and what it ran on."""
    return f"{_word(one, TEXTS)}, {one['workload']['mean_length']:.0f} tokens"


def pyramid(one: Measurement) -> str:
    """The pyramid in words."""
    return _word(one, PYRAMIDS) or RESTING


def sides(one: Measurement) -> Iterator[tuple[str, Entry, Entry]]:
    """Runtime and precision, and the dense model and the pyramid there."""
    for entry in one["entries"]:
        if entry["side"] == "dense":
            yield place(entry), entry, _beside(one, entry, "pyramid")


def fastest(one: Measurement, side: str) -> Entry:
    """Where a side was fastest; of "dense" it is baseline d."""
    return min((entry for entry in one["entries"] if entry["side"] == side), key=lambda entry: float(entry["seconds"]))


def place(entry: Entry) -> str:
    """Runtime and precision, like "openvino int8"."""
    return f"{entry['runtime']} {entry['precision']}"


def own(one: Measurement, where: str) -> float:
    """How many times faster the pyramid is than the dense model in the same runtime and precision."""
    return Timing(one["seconds"]).speedup(f"{where} pyramid", over=f"{where} dense")


def _word(one: Measurement, words: Mapping[str, str]) -> str:
    return next((words[part] for part in reversed(one["name"].split("-")) if part in words), "")


def _beside(one: Measurement, entry: Entry, side: str) -> Entry:
    """The other side in the same runtime and precision."""
    return next(found for found in one["entries"] if found["side"] == side and place(found) == place(entry))
