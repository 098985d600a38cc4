"""Theorem 1, measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...markdown import joined, table
from ..commands import Commands
from ..pictures import drawn
from . import pictures

_RUN = (
    "pyramid-bert theory $PYRAMID_MODEL --data $PYRAMID_DATA/glue/sst2/dev.tsv.gz --text-column sentence "
    "--label-column label --rows 64 --seed 0 --json"
)
COMMANDS = {
    "bound-sst2-gentle": f"{_RUN} --keep-ratio 0.5 --first-layer 4 --last-layer 5",
    "bound-sst2-default": f"{_RUN} --keep-ratio 0.25 --first-layer 2 --last-layer 3 --min-tokens 4",
    "bound-sst2-harsh": f"{_RUN} --keep-ratio 0.2 --last-layer 3",
    "bound-sst2-default-all": f"{_RUN} --keep-ratio 0.25 --first-layer 2 --last-layer 3 --min-tokens 4 "
    "--centers-per-step all",
}
_TEXT = """Theorem 1 bounds the change of an input's loss when every token that is not kept is replaced by its nearest
kept one (`reduce="replace"`, the same logits as `reduce="drop", weighted=True`): δ λ_C Σ_j (N − l_j) Π_{a ≥ j} λ_a,
with the covering radius δ and Lipschitz constants λ_a of the layers and λ_C of the head with its loss.

What is estimated: λ_j is the largest ratio, over all inputs of the sample, of the change of the state (all tokens, in
the Frobenius norm) where layer j + 1 replaces tokens to the change where layer j has replaced them. The changes are
those between the dense model and pyramid*, which the proof compares, and two random ones of the same size at each layer
of each input. λ_C is the same from the last CLS vector to the loss. "Direct" is one constant from layer j to the last
CLS vector, in place of the product. All are estimates from below: true constants are larger. Since they include the
proof's own pairs, the bound holds for every input of the sample; for other inputs that is not guaranteed."""
_NAMES = {
    "printed": "as printed",
    "layer_radii": "own δ_j",
    "moved": "what is moved",
    "direct": "and direct constants",
}


def section(found: Commands, docs: Path) -> str:
    """Both sides of the bound, and a table by layer for each run."""
    results = {_schedule(data): data for name in COMMANDS if (data := found.read(name)) is not None}
    if not results:
        return ""
    columns = ["(first layer, last layer, keep), m", "change of the loss: mean", "largest"]
    columns += [f"bound, {text}: mean (times the change)" for text in _NAMES.values()]
    rows = [
        [
            schedule,
            f"{data['observed']['mean']:.3g}",
            f"{data['observed']['max']:.3g}",
            *(f"{data['bounds'][name]['mean']:.3g} ({_times(data['bounds'][name]['loose'])}x)" for name in _NAMES),
        ]
        for schedule, data in results.items()
    ]
    first = next(iter(results.values()))
    about = f"MiniLM-L6 fine-tuned on SST-2, {first['inputs']} sentences of its dev data with "
    about += f"{first['mean_tokens']:.0f} tokens on average; {first['loss']}."
    picture = drawn(docs, "theory-bound", "Both sides of Theorem 1", lambda: pictures.bound(results, _NAMES))
    parts = ["## Theorem 1, measured", _TEXT, about, table(columns, rows), _reading(results), picture]
    return joined([*parts, *map(_layers, results.values())])


def _reading(results: dict[str, dict[str, Any]]) -> str:
    loose = [data["bounds"]["printed"]["loose"] for data in results.values()]
    direct = [data["bounds"]["direct"]["loose"] for data in results.values()]
    return (
        f"The bound as printed is {_times(min(loose))} to {_times(max(loose))} times the change of the loss; with what "
        f"is really moved, and constants that are not multiplied up, {_times(min(direct))} to {_times(max(direct))} "
        "times."
    )


def _layers(data: dict[str, Any]) -> str:
    columns = "layer|N − l_j: mean (max)|δ_j: mean (max)|moved: mean (max)|λ_j: pyramid* / random|product|direct: "
    columns += "pyramid* / random"
    rows = [
        [
            str(row["layer"]),
            *(f"{row[name]['mean']:.3g} ({row[name]['max']:.3g})" for name in ("replaced", "radius", "moved")),
            _pair(row, "layer"),
            _number(row["product_above"]),
            _pair(row, "direct"),
        ]
        for row in data["layers"]
    ]
    title = f"{_schedule(data)}; head and loss: {data['head_from_pyramid']:.3g} / {data['head_from_random']:.3g}"
    return joined([title, table(columns.split("|"), rows)])


def _times(factor: float) -> str:
    return f"{factor:,.0f}" if factor >= 10 else f"{factor:.1f}"


def _pair(row: dict[str, Any], what: str) -> str:
    return f"{_number(row[f'{what}_from_pyramid'])} / {_number(row[f'{what}_from_random'])}"


def _number(value: float) -> str:
    return f"{value:.3g}" if value else "–"


def _schedule(data: dict[str, Any]) -> str:
    schedule = data["settings"]["schedule"]
    shape = f"({schedule['first_layer']}, {schedule['last_layer']}, {schedule['keep_ratio']:g})"
    return f"{shape}, m = {data['settings']['centers_per_step']}"
