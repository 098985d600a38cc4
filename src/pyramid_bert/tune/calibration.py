"""What the parts of a model cost on this machine: attention, choosing and feed-forward, timed at a few lengths.

The time of any schedule is then a sum of such parts, read off on straight lines between the timed lengths.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..bench.timing import time_interleaved
from ..core.loop import Exactly, Half, Step
from ..core.tokens import Tokens
from ..cost import tokens_seen
from ..errors import PyramidError
from ..families import pyramid_encoder, pyramid_settings, run_ends
from ..runtimes.devices import wait_for
from ..schedule.base import Schedule

PARTS = ("attention", "attention_masked", "attention_ranked", "feed_forward", "choosing", "cls_attention", "rest")
_OF_THE_SELECTOR = ("choosing", "attention", "attention_ranked")  # ranking costs what it adds to attention
_POINTS = 6
_LARGE, _FEW_LAYERS = 2048, 3  # from 2,048 tokens a batch on, reading weights costs little: three layers are timed


@dataclass(frozen=True)
class Calibration:
    """Seconds of each part for a batch, by length.

    Attributes:
        lengths: The lengths that were timed, ascending.
        seconds: Part -> seconds at each of them, of one layer where the part belongs to a layer.
        batch_size: Rows of the batch.
        layers: Layers of the model.
        weighted: Whether the pyramid's attention takes a bias, as it does where tokens are merged.
        placement: Where the pyramid reduces.
        cls_layers: How many of its last layers compute only CLS.
    """

    lengths: tuple[int, ...]
    seconds: dict[str, tuple[float, ...]]
    batch_size: int
    layers: int
    weighted: bool
    placement: Any
    cls_layers: int

    def part(self, name: str, n: int) -> float:
        """The seconds of a part at `n` tokens."""
        return self._tables[name][n]

    @cached_property
    def _tables(self) -> dict[str, list[float]]:
        """Part -> seconds at 0, 1, 2, … tokens."""
        every = np.arange(self.lengths[-1] + 1)
        return {name: np.interp(every, self.lengths, seconds).tolist() for name, seconds in self.seconds.items()}

    def dense(self, n: int, *, masked: bool) -> float:
        """The predicted seconds of the dense model on a batch of width `n`; `masked` if some rows are shorter."""
        attention = self.part("attention_masked" if masked else "attention", n)
        return self.layers * (attention + self.part("feed_forward", n)) + self.part("rest", n)

    def pyramid(self, schedule: Schedule, n: int, *, masked: bool) -> float:
        """The predicted seconds of the pyramid on such a batch."""
        kept = schedule.lengths(n, self.layers)
        attends, feeds = tokens_seen(kept, n, self.placement)
        total, before = self.part("rest", n), n
        for layer in range(self.layers):
            name = "attention_masked" if masked or (self.weighted and before < n) else "attention"
            if layer >= self.layers - self.cls_layers:
                total += self.part("cls_attention", attends[layer]) + self.part("feed_forward", 1)
                continue
            shrinks = kept[layer] < before
            total += self.part(name, attends[layer]) + self.part("feed_forward", feeds[layer])
            if shrinks:  # the selector may want to know the attention that tokens receive
                ranking = self.part("attention_ranked", attends[layer]) - self.part("attention", attends[layer])
                total += self.part("choosing", before) + max(ranking, 0.0)
            before = kept[layer]
        return total


def calibrate(
    pyramid: Any,
    longest: int,
    *,
    batch_size: int,
    rounds: int = 3,
    known: Calibration | None = None,
    after_each: Callable[[], object] | None = None,
) -> Calibration:
    """Times the parts of `pyramid` on random batches of up to `longest` tokens.

    Args:
        pyramid: A pyramid in evaluation mode; what it keeps does not matter.
        longest: The longest length to be asked for.
        batch_size: Rows a batch.
        rounds: How many times each is timed; medians count.
        known: A calibration of the same weights with another selector or reduction: only choosing is timed again, and
            what it asks of attention.
        after_each: Called after each single run, for a progress bar.
    """
    settings, encoder = pyramid_settings(pyramid), pyramid_encoder(pyramid)
    if settings is None or encoder is None:
        raise PyramidError("calibrate takes a pyramid; use pyramidize(model, schedule) first")
    settings.check_saves()
    grid = lengths_to_time(longest)
    runs = {}
    for n in grid:
        hidden = torch.randn(batch_size, n, pyramid.config.hidden_size).to(pyramid.device, pyramid.dtype)
        parts = _parts(pyramid, encoder, hidden)
        runs.update({(part, n): run for part, run in parts.items() if known is None or part in _OF_THE_SELECTOR})
    timing = time_interleaved(
        {f"{part} {n}": run for (part, n), run in runs.items()}, rounds=rounds, after_each=after_each
    )

    def seconds(part: str, n: int) -> float:
        layers = 1 if part in ("rest", "choosing") else len(_layers_to_time(encoder, batch_size * n))
        return timing.median(f"{part} {n}") / layers

    timed = {part: tuple(seconds(part, n) for n in grid) for part in PARTS if (part, grid[0]) in runs}
    return Calibration(
        lengths=tuple(grid),
        seconds=timed if known is None else {**known.seconds, **timed},
        batch_size=batch_size,
        layers=len(encoder.layer),
        weighted=encoder.weighted,
        placement=encoder.plan.placement,
        cls_layers=settings.replace(cls_only=encoder.plan.cls_only).cls_layers(len(encoder.layer)),
    )


def runs_of_calibration(longest: int, rounds: int = 3) -> int:
    """How often `calibrate` calls `after_each`."""
    return len(lengths_to_time(longest)) * len(PARTS) * (rounds + 1)


def lengths_to_time(longest: int) -> list[int]:
    """A few lengths from 1 to `longest`, closer together where they are short.

    Example:
        >>> lengths_to_time(128)
        [1, 8, 26, 53, 87, 128]
    """
    return sorted({max(1, math.ceil(longest * (i / (_POINTS - 1)) ** 1.75)) for i in range(_POINTS)})


def _layers_to_time(encoder: Any, tokens: int) -> list[Any]:
    """All layers for small batches, where weights have to come from memory; a few for large ones."""
    return list(encoder.layer)[: None if tokens < _LARGE else _FEW_LAYERS]


def _parts(pyramid: Any, encoder: Any, hidden: Tensor) -> dict[str, Callable[[], None]]:
    """What is timed at one length. Parts of a layer run through several layers."""
    rows, n, _ = hidden.shape
    plain = Tokens(hidden, [n] * rows)
    masked = Tokens(hidden, [n] * rows, masks=(hidden.new_zeros(rows, 1, 1, n),))
    family = encoder.family
    ids = torch.zeros(rows, n, dtype=torch.long, device=hidden.device)
    voters = encoder.selector.voters
    layers = _layers_to_time(encoder, rows * n)

    def through(half: Half, tokens: Tokens, *, cls_only: bool = False, ranked: bool = False) -> Callable[[], None]:
        steps = [
            Step(1, half, layer, cls_only=cls_only, final=True, voters=voters if ranked else None) for layer in layers
        ]

        def run() -> None:
            with torch.inference_mode():
                for step in steps:
                    family.run(step, tokens)
            wait_for(hidden.device)

        return run

    def choose() -> None:
        if n > 1 and encoder.selector.name != "pool":
            received = hidden.new_ones(rows, n, dtype=torch.float32) if voters else None
            tokens = Tokens(hidden, [n] * rows, received=received)
            with torch.inference_mode():
                decision = encoder.reducer(tokens, Step(1, "attention", keep=Exactly((max(1, n // 2),) * rows)))
                tokens.reduced(decision)
            wait_for(hidden.device)

    def rest() -> None:
        with torch.inference_mode():
            run_ends(pyramid, ids, hidden)
        wait_for(hidden.device)

    return {
        "attention": through("attention", plain),
        "attention_masked": through("attention", masked),
        "attention_ranked": through("attention", plain, ranked=True),
        "feed_forward": through("feed_forward", plain),
        "choosing": choose,
        "cls_attention": through("attention", masked, cls_only=True),
        "rest": rest,
    }


def batch_shapes(lengths: Sequence[int], batch_size: int) -> dict[tuple[int, bool], float]:
    """(width, whether some rows are shorter) -> how many batches of it there are when rows are sorted by length.

    Example:
        >>> batch_shapes([5, 9, 9, 4, 5], batch_size=2)
        {(9, False): 1.0, (5, False): 1.0, (4, False): 0.5}
    """
    longest_first = sorted(lengths, reverse=True)
    shapes: dict[tuple[int, bool], float] = {}
    for start in range(0, len(longest_first), batch_size):
        batch = longest_first[start : start + batch_size]
        shape = batch[0], batch[-1] < batch[0]
        shapes[shape] = shapes.get(shape, 0.0) + len(batch) / batch_size
    return shapes
