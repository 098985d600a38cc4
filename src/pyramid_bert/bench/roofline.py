"""The roofline of a workload: weights have to be read, and products have to be made.

At batch 1 the upper layers of a pyramid hold so few tokens that reading the weights takes about as long as multiplying
with them. A processor that does both at once needs the longer of the two times (the roofline); one that waits for its
weights needs their sum. Reading does not shrink with the tokens, so at batch 1 the ratio of
multiply-accumulates is out of reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..cost import tokens_seen
from ..families import layers_of, sizes_of
from ..runtimes.devices import wait_for
from ..runtimes.packed import optimization_of
from .timing import time_interleaved

_TOKENS, _ROUNDS = 2048, 7
_ROUNDED = {"bf16": 2, "int8": 1}  # bytes per weight; layers with rounded weights always compute keys and values


@dataclass(frozen=True)
class Roofline:
    """What the machine can do at best, with the weights in the form in which a model holds them.

    Attributes:
        bytes_per_second: Reading the weights of all layers, one token passing through.
        macs_per_second: Multiply-accumulates of a large linear layer of the model.
        bytes_per_weight: 4, 2 for bf16, or 1 for 8-bit weights.
        hidden_size: Of the model.
        intermediate_size: Of the model.
        heads: Of a model whose CLS reads without keys and values where only CLS is computed; else None.
    """

    bytes_per_second: float
    macs_per_second: float
    bytes_per_weight: int
    hidden_size: int
    intermediate_size: int
    heads: int | None = None

    def seconds(
        self, lengths: Sequence[int], n: int, rows: int, *, placement: Any, cls_layers: int, overlap: bool = True
    ) -> float:
        """The least time for `rows` rows of `n` tokens when layers keep `lengths`, the last `cls_layers` only CLS.

        With `overlap`, reading and multiplying go on at once; else one after the other.
        """
        attends, feeds = tokens_seen(lengths, n, placement)
        d, f = self.hidden_size, self.intermediate_size
        total = 0.0
        for layer, (keys, fed) in enumerate(zip(attends, feeds, strict=True)):
            only_cls = layer >= len(lengths) - cls_layers
            queries, fed = (1, 1) if only_cls else (keys, fed)
            projected, mixed = (1, self.heads) if only_cls and self.heads is not None else (keys, queries)
            total += self._product(2 * d * d, rows * queries, overlap)
            total += self._product(2 * d * d, rows * projected, overlap)
            total += self._product(2 * d * f, rows * fed, overlap)
            total += rows * 2 * mixed * keys * d / self.macs_per_second
        return total

    def _product(self, weights: int, tokens: int, overlap: bool) -> float:
        reading = weights * self.bytes_per_weight / self.bytes_per_second
        multiplying = weights * tokens / self.macs_per_second
        return max(reading, multiplying) if overlap else reading + multiplying


def measure_roofline(model: Any) -> Roofline:
    """Measures this machine for `model`."""
    linear = [part for part in nn.ModuleList(layers_of(model)).modules() if isinstance(part, nn.Linear)]
    largest = max(linear, key=lambda part: part.weight.numel())
    weights = sum(part.weight.numel() for part in linear)
    form = optimization_of(model) or "fp32"
    size = _ROUNDED.get(form, 4)
    how: dict[str, Any] = {"device": model.device, "dtype": model.dtype}
    one = {part.in_features: torch.randn(1, part.in_features, **how) for part in linear}
    many = torch.randn(_TOKENS, largest.in_features, **how)

    @torch.inference_mode()
    def read() -> None:
        for part in linear:
            part(one[part.in_features])
        wait_for(model.device)

    @torch.inference_mode()
    def multiply() -> None:
        largest(many)
        wait_for(model.device)

    seconds = time_interleaved({"read": read, "multiply": multiply}, rounds=_ROUNDS).seconds
    sizes = sizes_of(model)
    return Roofline(
        bytes_per_second=weights * size / min(seconds["read"]),
        macs_per_second=_TOKENS * largest.weight.numel() / min(seconds["multiply"]),
        bytes_per_weight=size,
        hidden_size=sizes.hidden_size,
        intermediate_size=sizes.intermediate_size,
        heads=None if form in _ROUNDED else sizes.heads,
    )
