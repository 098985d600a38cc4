"""A model cut into stretches: between two reductions it is an ordinary graph, which any runtime can take.

The first stretch begins with the embeddings and ends with the half layer after which tokens may be reduced, the next
one goes on from there, and the last one ends with the logits. A model that never reduces is one stretch, also when its
tokens rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..core.loop import Half, Plan, Step
from ..core.selectors import Voters
from ..core.tokens import Tokens
from ..families import (
    base_model,
    embedded,
    family_of,
    head_modules,
    layers_of,
    logits_of_cls,
    modules_before,
    modules_beside,
    weights_of,
)
from ..schedule import AdaptiveSchedule


@dataclass(frozen=True)
class Part:
    """One half layer of a stretch: `core.loop.Step` without what depends on the texts."""

    number: int
    half: Half
    cls_only: bool = False
    final: bool = False
    voters: Voters | None = None


def cut(plan: Plan, longest: int) -> list[tuple[Part, ...]]:
    """The stretches of a plan for texts of up to `longest` tokens.

    Every place where some text loses tokens ends a stretch.
    """
    reducing = _reducing(plan, longest)
    found: list[tuple[Part, ...]] = []
    parts: list[Part] = []
    for step in plan.steps([longest]):
        ends = step.number in reducing and _is_where_it_reduces(plan, step) and not step.cls_only
        parts.append(Part(step.number, step.half, step.cls_only, step.final, plan.voters if ends else None))
        if ends:
            found.append(tuple(parts))
            parts = []
    return [*found, tuple(parts)]


def _reducing(plan: Plan, longest: int) -> set[int]:
    """The layers at which some text of up to `longest` tokens may be reduced; 0 is the input."""
    layers, schedule = len(plan.layers), plan.schedule
    if plan.placement == "input":
        return {0}
    if isinstance(schedule, AdaptiveSchedule):
        return {number for number in range(1, layers + 1) if schedule.options(longest, number)[0] < longest}
    found = set()
    for n in range(2, longest + 1):
        lengths = (n, *schedule.lengths(n, layers))
        found |= {number for number in range(1, layers + 1) if lengths[number] < lengths[number - 1]}
    left_out = {number: next((n for n in range(number, layers + 1) if n not in plan.skip), layers) for number in found}
    return set(left_out.values())  # a layer that is left out leaves its reduction to the next one


def _is_where_it_reduces(plan: Plan, step: Step) -> bool:
    return step.half == {"middle": plan.halves[0], "end": plan.halves[-1], "input": "input"}[plan.placement]


class Stretch(nn.Module):
    """One stretch of a model as a module that can be traced.

    Args:
        model: The classifier, whose modules are shared.
        parts: The half layers; see `cut`.
        first: It begins with the embeddings.
        last: It ends with the logits.
    """

    def __init__(self, model: Any, parts: Sequence[Part], *, first: bool, last: bool) -> None:
        super().__init__()
        self.parts, self.first, self.last = tuple(parts), first, last
        self._model = (model,)  # in a tuple: tracing takes the longer, the more modules are registered
        layers = layers_of(model)
        used = [layers[number - 1] for number in dict.fromkeys(part.number for part in parts) if number]
        used += [
            *modules_beside(model),
            *(modules_before(model) if first else []),
            *(head_modules(model) if last else []),
        ]
        self.used = nn.ModuleList(used)

    def forward(
        self, given: Tensor, bias: Tensor, types: Tensor | None = None, positions: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """What follows from the tokens.

        Args:
            given: (B, N) ids for the first stretch, (B, N, D) states for the others.
            bias: (B, N) added to the scores of keys.
            types: (B, N) token types, for the first stretch of models that have them.
            positions: (B, N) of the input, for models that read them; the first stretch has all tokens in order.

        Returns:
            For the last stretch the logits (B, C) and the CLS vectors (B, D); for the others the states (B, N, D), the
            attention (B, N) that each token received if the selection needs it, and the vectors (B, N, D) that
            selectors compare if they are others.
        """
        hidden = embedded(self._model[0], given, types) if self.first else given
        real = bias > torch.finfo(bias.dtype).min / 2
        how: dict[str, Any] = {"bias": bias[:, None, None, :], "owner": base_model(self._model[0])}
        tokens = Tokens(hidden, [], real, positions=positions, **how)
        halves: Any = family_of(self._model[0]).how.halves
        for step in self._steps():
            tokens = halves.run(step, tokens)
        if self.last:  # a plan for classifiers has a last layer that computes only CLS, or every token
            return logits_of_cls(self._model[0], tokens.hidden, weights_of(tokens)), tokens.hidden[:, 0]
        end = self.parts[-1]
        in_the_middle = end.half == "attention"
        layer = layers_of(self._model[0])[end.number - 1] if in_the_middle else None
        compared = halves.compared(layer, tokens.hidden) if in_the_middle else None
        return tuple(x for x in (tokens.hidden, tokens.received, compared) if x is not None)

    def _steps(self) -> Iterator[Step]:
        layers = layers_of(self._model[0])
        for part in self.parts:
            layer = None if part.half == "input" else layers[part.number - 1]
            how: dict[str, Any] = {"cls_only": part.cls_only, "final": part.final, "voters": part.voters}
            yield Step(part.number, part.half, layer, **how)


def stretches_of(model: Any, plan: Plan, longest: int) -> list[Stretch]:
    """The stretches of a classifier, in order."""
    parts = cut(plan, longest)
    return [Stretch(model, some, first=number == 0, last=number == len(parts) - 1) for number, some in enumerate(parts)]


def example(stretch: Stretch, width: int, *, types: bool, positions: bool) -> dict[str, Tensor]:
    """Inputs of any shape, to trace a stretch with.

    Args:
        stretch: The stretch.
        width: D.
        types: Whether the model reads token types.
        positions: Whether its layers read the positions of tokens.
    """
    rows, n = 2, 5
    given = torch.ones(rows, n, dtype=torch.long) if stretch.first else torch.zeros(rows, n, width)
    found = {"given": given, "bias": torch.zeros(rows, n)}
    more = ("types" if types else None) if stretch.first else ("positions" if positions else None)
    return found | ({} if more is None else {more: torch.zeros(rows, n, dtype=torch.long)})
