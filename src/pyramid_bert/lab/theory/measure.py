"""The quantities of Theorem 1, measured on a model: one text at a time, in double precision, without padding.

Pyramid* runs unchanged (`reduce="replace"`), with a recorder around its layers. The dense run, the runs that stop
replacing at some layer, and those with random changes go through the same half layers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ... import families
from ...core.encoder import PyramidEncoder
from ...core.loop import Pass, Recorder, Step, run
from ...core.record import Trace
from ...core.reducer import Decision
from ...core.selectors import Grouper, get_selector
from ...core.tokens import Tokens
from ...errors import PyramidError
from ...families import has_head, logits_of_cls, pyramid_encoder, pyramid_settings, pyramidize
from ...text.batches import Encoded
from ...text.inference import collate
from .bound import Constants, Measured, TheoremReport

_NOTHING = 1e-9  # a relative change below this is rounding


def measure_theorem(
    model: Any,
    items: Sequence[Encoded],
    targets: Sequence[float | int] | None = None,
    *,
    directions: int = 2,
    seed: int = 0,
    after_each: Callable[[], object] | None = None,
) -> TheoremReport:
    """Both sides of Theorem 1 on some texts.

    Args:
        model: A pyramid classifier; `reduce`, `weighted` and `rest_from` are ignored. It is not changed.
        items: The texts.
        targets: Each text's class index (or a float, for a regressor); None for the dense model's predictions.
            The loss is cross-entropy, or the squared error of a regressor.
        directions: Random changes to try at each layer of each text.
        seed: Of the random changes.
        after_each: Called after each text, for a progress bar.
    """
    settings = pyramid_settings(model)
    _check(model, settings, items, targets, directions)
    assert settings is not None
    settings = settings.replace(reduce="replace", weighted=False, rest_from=None)
    star = copy.deepcopy(model).eval().double()
    pyramidize(star, config=settings)
    encoder = pyramid_encoder(star)
    assert encoder is not None
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for number, item in enumerate(items):
        with torch.no_grad():
            hidden = embedded(star, collate([item], 0))  # (1, N, D)
        loss = _loss_of(star, None if targets is None else targets[number])
        rows.append(measure_input(encoder, hidden, loss, directions=directions, generator=generator))
        if after_each is not None:
            after_each()
    kind = "squared error" if star.config.num_labels == 1 else "cross-entropy"
    of = "the dense model's own predictions" if targets is None else "the labels"
    return TheoremReport(
        rows=tuple(rows),
        constants=Constants.seen(rows),
        loss=f"{kind} on {of}",
        settings=settings.to_dict(),
        directions=directions,
        seed=seed,
    )


def _check(model: Any, settings: Any, items: Sequence[Encoded], targets: Any, directions: int) -> None:
    if settings is None:
        raise PyramidError("the theorem is about a pyramid; use pyramidize(model, schedule) first")
    if not has_head(model):
        raise PyramidError(f"the theorem needs a classifier and its loss; {type(model).__name__} has none")
    if isinstance(get_selector(settings.selector), Grouper):
        raise PyramidError(
            f"the selector {settings.selector!r} averages tokens and keeps none, so the theorem does not apply; "
            "measure a core-set with the same schedule instead: `pyramid-bert theory --selector coreset`, or "
            "pyramidize(model, schedule, 'coreset')"
        )
    if not items:
        raise PyramidError("no texts given; at least one is needed")
    if targets is not None and len(targets) != len(items):
        raise PyramidError(f"{len(targets)} targets for {len(items)} texts; give one per text")
    if directions < 1:
        raise PyramidError(f"directions must be at least 1, got {directions}")
    layers = model.config.num_hidden_layers
    if settings.schedule.is_adaptive:
        return  # what it keeps is known when texts have run
    if all(settings.schedule.lengths(len(item), layers)[-1] == len(item) for item in items):
        longest = max(map(len, items))
        raise PyramidError(
            f"this schedule keeps every token of the {len(items)} texts (of up to {longest} tokens), so there is "
            "nothing to measure; take a smaller keep_ratio, or longer texts"
        )


@torch.no_grad()
def measure_input(
    encoder: PyramidEncoder,
    hidden: Tensor,
    loss: Callable[[Tensor], float],
    *,
    directions: int = 2,
    generator: torch.Generator | None = None,
) -> Measured:
    """What one input shows; see `Measured`.

    Args:
        encoder: With reduce="replace", in evaluation mode.
        hidden: (1, N, D) what its first layer is given.
        loss: The loss of a last CLS vector (1, D).
        directions: Random changes to try at each layer.
        generator: Of these.
    """
    steps = HalfSteps(encoder)
    first = {"input": 0, "middle": 1, "end": 2}[encoder.plan.placement]
    places = range(first, first + steps.last, 2)  # after how many halves each layer replaces tokens
    dense = steps.states(hidden)
    star = _Star(hidden)
    encoder.run(hidden, None, Pass(star, whole=True))
    cls = [dense[steps.last][:, 0]]  # of the dense model, then with the replacements of layers 1..j
    by_layer = []
    for place, stop in zip(places, [*places[1:], steps.last], strict=True):
        after = star.after[place]
        change, difference = after - star.before[place], dense[place] - after
        cls.append(steps.run(after, place, steps.last)[:, 0] if change.any() else cls[-1])
        came_out = dense[stop] - (star.before[stop] if stop > place else after)
        size = float(difference.norm())
        tried = [_random_ratios(steps, dense, place, stop, size, generator) for _ in range(directions)]
        by_layer.append(
            {
                "radius": float(change.norm(dim=2).max()),
                "moved": float(change.norm()),
                "layer": _ratio(came_out, difference, after),
                "layer_random": max(layer for layer, _ in tried),
                "above": _ratio(cls[-1] - cls[-2], change, cls[-1]),
                "above_random": max(above for _, above in tried),
            }
        )
    losses = [loss(vector) for vector in cls]
    pairs = [(0, len(places)), *((j, j + 1) for j in range(len(places)))]
    heads = [_ratio(losses[i] - losses[j], cls[i] - cls[j], cls[0]) for i, j in pairs]
    size = float((cls[0] - cls[-1]).norm())
    noises = [_noise(cls[0], size, generator) for _ in range(directions)] if size else []
    head_random = [_ratio(loss(cls[0] + noise) - losses[0], noise, cls[0]) for noise in noises]
    columns: dict[str, Any] = {name: tuple(found[name] for found in by_layer) for name in by_layer[0]}
    return Measured(
        n=hidden.shape[1],
        lengths=star.lengths,
        **columns,
        head=max(heads),
        head_random=max(head_random, default=0.0),
        loss=losses[0],
        loss_change=abs(losses[-1] - losses[0]),
    )


class HalfSteps:
    """The layers of a pyramid encoder as 2L halves, attention and feed-forward network in turn, all tokens at each."""

    def __init__(self, encoder: PyramidEncoder) -> None:
        self.encoder = encoder
        self.last = 2 * len(encoder.plan.layers)

    def run(self, hidden: Tensor, start: int, stop: int, bias: Tensor | None = None) -> Tensor:
        """The state (B, N, D) after `stop` halves, given that after `start`; `bias` (B, 1, 1, N) hides keys."""
        rows, n, _ = hidden.shape
        steps = [
            step
            for step in self.encoder.plan.steps([n] * rows, dense=True, whole=True)
            if step.half in ("attention", "feed_forward")
        ]
        tokens = Tokens(hidden, [n] * rows, bias=bias, owner=self.encoder.owner[0])
        return run(tokens, steps[start:stop], self.encoder.family, self.encoder.reducer, Recorder()).hidden

    def states(self, hidden: Tensor, bias: Tensor | None = None) -> list[Tensor]:
        """The states (B, N, D) of the dense model after 0, 1, .. 2L halves."""
        found = [hidden]
        for step in range(self.last):
            found.append(self.run(found[-1], step, step + 1, bias))
        return found


class _Star(Trace):
    """The states of a run of pyramid*: what each half of a layer gives (`before` a replacement), and `after` it."""

    def __init__(self, hidden: Tensor) -> None:
        super().__init__()
        self.before, self.after = [hidden], [hidden]

    def ran(self, step: Step, tokens: Tokens) -> None:
        if step.half in ("attention", "feed_forward"):
            self.before.append(tokens.hidden)
            self.after.append(tokens.hidden)

    def reduced(self, step: Step, decision: Decision, tokens: Tokens) -> None:
        super().reduced(step, decision, tokens)
        self.after[-1] = tokens.hidden

    @property
    def lengths(self) -> tuple[int, ...]:
        """The different tokens after each layer."""
        left, found = self.before[0].shape[1], []
        entries = {entry.layer: int((entry.kept[0] >= 0).sum()) for entry in self.layers}
        for layer in range(1, (len(self.before) - 1) // 2 + 1):
            left = entries.get(layer, min(left, entries.get(0, left)))
            found.append(left)
        return tuple(found)


def _random_ratios(
    steps: HalfSteps, dense: list[Tensor], place: int, stop: int, size: float, generator: torch.Generator | None
) -> tuple[float, float]:
    """What a random change of this size at `place` does to the state at `stop` and to the last CLS vector."""
    if not size:
        return 0.0, 0.0
    noise = _noise(dense[place], size, generator)
    changed = steps.run(dense[place] + noise, place, stop)
    last = steps.run(changed, stop, steps.last)
    to_cls = _ratio(last[:, 0] - dense[steps.last][:, 0], noise, dense[place])
    return _ratio(changed - dense[stop], noise, dense[place]), to_cls


def _noise(like: Tensor, size: float, generator: torch.Generator | None) -> Tensor:
    """A random direction of norm `size`, shaped as `like`."""
    noise = torch.randn(like.shape, generator=generator, dtype=like.dtype).to(like.device)
    scaled: Tensor = noise * (size / noise.norm())
    return scaled


def _ratio(out: Tensor | float, given: Tensor, scale: Tensor) -> float:
    size = float(given.norm())
    return float(torch.as_tensor(out).norm()) / size if size > _NOTHING * float(scale.norm()) else 0.0


def embedded(model: Any, batch: dict[str, Tensor]) -> Tensor:
    """The states (B, N, D) before the first layer."""
    ids, types = (batch[name].to(model.device) if name in batch else None for name in ("input_ids", "token_type_ids"))
    assert ids is not None
    return families.embedded(model, ids, types)


def key_bias(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """What is added to the logits of keys, (B, 1, 1, N), to hide those where `mask` (B, N) is False."""
    bias = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, torch.finfo(dtype).min)
    return bias[:, None, None]


def _loss_of(model: Any, target: float | int | None) -> Callable[[Tensor], float]:
    """The loss as a function of the last CLS vector (1, D); without a target, the first call's prediction is it."""
    known: list[Any] = [] if target is None else [target]

    def loss(cls: Tensor) -> float:
        logits = logits_of_cls(model, cls[:, None])  # (1, classes)
        regression = logits.shape[1] == 1
        if not known:
            known.append(float(logits[0, 0]) if regression else int(logits.argmax()))
        if regression:
            return float((logits[0, 0] - known[0]) ** 2)
        return float(F.cross_entropy(logits, torch.tensor([known[0]], device=logits.device)))

    return loss
