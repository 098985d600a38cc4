"""The price of parallelism."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...markdown import joined, table
from ..commands import Commands
from ..pictures import drawn
from . import pictures

COMMANDS = {
    "radius-sst2": "python benchmarks/theory_radius.py $PYRAMID_ENCODER sst2 $PYRAMID_DATA/glue --rows 16 --seed 0"
}
_TEXT = """How far the greedy choice is from the best cover, and what taking m centres at a time costs: the radius of
greedy over the least radius that any k tokens with CLS among them have (exhaustive search), mean and (worst). With
m = 1 it is proved to be at most 2. A share of 0.1 is one centre a step for k up to 10, so m = 0.1 differs from m = 1
for larger k only. "Keeping CLS" is the best radius with CLS over the best without that condition."""


def section(found: Commands, docs: Path) -> str:
    """Ratios to the optimum, by kind of points and m."""
    data = found.read("radius-sst2")
    if data is None:
        return ""
    steps = list(data["results"][0]["over_optimum"])
    columns = ["points", "k/n", "sets", *(f"m = {m}" for m in steps), "keeping CLS"]
    rows = [
        [
            result["points"],
            f"{result['share']:g}",
            f"{result['sets']}",
            *(_pair(result["over_optimum"][m]) for m in steps),
            _pair(result["keeping_cls"]),
        ]
        for result in data["results"]
    ]
    picture = drawn(docs, "theory-radius", "Greedy covers beside the best ones", lambda: pictures.parallelism(data))
    low, high = data["tokens"]
    about = f"Sets of {low} to {high} tokens: {data['texts']} texts of SST-2 after the attention of each of the "
    about += f"{data['layers']} layers of a pretrained encoder (hidden size {data['hidden_size']}), and random points."
    return joined(["## The price of parallelism", _TEXT, about, table(columns, rows), _reading(data), picture])


def _reading(data: dict[str, Any]) -> str:
    """What each m costs on the tokens of real texts."""
    real = [result["over_optimum"] for result in data["results"] if result["points"] == "hidden states"]
    more = {m: sorted(100 * (result[m]["mean"] - 1) for result in real) for m in real[0]}
    said = ", ".join(f"{values[0]:.0f} to {values[-1]:.0f} % (m = {m})" for m, values in more.items())
    return f"On hidden states the radius is larger than the best one, on average, by {said}."


def _pair(found: dict[str, Any]) -> str:
    return f"{found['mean']:.2f} ({found['worst']:.2f})"
