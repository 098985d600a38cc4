"""Hooks around models whose own code does not fit a pyramid as it is: on its options, its last norm, its pooling."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cache
from inspect import signature
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from ..core.encoder import HANDED_OVER
from ..core.loop import Pass
from ..core.tokens import Tokens
from ..errors import UnsupportedModelError

OPTION = "pyramid_pass"


# ---- models that pass on no keywords ----


def handing_over(model: Any, base: Any) -> list[RemovableHandle]:
    """Hooks that hand `pyramid_pass` to the encoder, for models whose classifier or base takes no further keywords."""
    handles: list[RemovableHandle] = []
    for outer in (base,) if base is model else (model, base):
        handles.append(outer.register_forward_pre_hook(_take, prepend=True, with_kwargs=True))
        handles.append(outer.register_forward_hook(_give_back, always_call=True))
    return handles


@torch.compiler.disable
def _take(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    rest, handed = dict(kwargs), HANDED_OVER.get()
    this = rest.pop(OPTION, None)
    if this is None:
        this = handed[-1][1] if handed else Pass()
    if kwargs.get("output_hidden_states") or module.config.output_hidden_states:
        this.whole = True
    HANDED_OVER.set((*handed, (id(module), this)))
    return args, rest


@torch.compiler.disable
def _give_back(module: Any, args: Any, output: Any) -> None:
    """Also called when the model raises."""
    handed = HANDED_OVER.get()
    if handed and handed[-1][0] == id(module):
        HANDED_OVER.set(handed[:-1])


# ---- models that run their layers in their own forward ----


def with_places_in_order(model: Any, base: Any) -> list[RemovableHandle]:
    """A hook that refuses positions other than 0 to N - 1: the encoder counts them itself."""
    return [base.register_forward_pre_hook(_check_positions, with_kwargs=True)]


def around_layers(model: Any, base: Any) -> list[RemovableHandle]:
    """Hooks on a model with a norm after its layers.

    They refuse positions as `with_places_in_order` does, take the CLS vectors of a call after the norm, and give a head
    that reads the mean over tokens the mean that is weighted by size.
    """
    pooled = base is not model and reads_mean(model.config)
    return [
        *with_places_in_order(model, base),
        base.register_forward_pre_hook(_begin, with_kwargs=True),
        base.register_forward_hook(_end_with_mean if pooled else _end, with_kwargs=True),
    ]


def reads_mean(config: Any) -> bool:
    """Whether the head of a model with this config reads the mean over its tokens, not CLS."""
    return getattr(config, "classifier_pooling", None) == "mean"


def mean_of(hidden: Tensor, weights: Tensor | None) -> Tensor:
    """The mean (B, D) of tokens (B, N, D) by weights (B, N), or by equal ones."""
    if weights is None:
        return hidden.mean(dim=1)
    share = weights / weights.sum(dim=1, keepdim=True)  # (B, N), in fp32
    return (hidden * share.to(hidden.dtype)[:, :, None]).sum(dim=1)


def weights_of(tokens: Tokens) -> Tensor:
    """How many input tokens stand behind each of the tokens (B, N) after a pass: 0 for pads."""
    bias = tokens.key_bias()
    if bias is None:
        return tokens.hidden.new_ones(tokens.hidden.shape[:2], dtype=torch.float32)
    found: Tensor = bias[:, 0, 0].float()
    return torch.where(found > torch.finfo(tokens.hidden.dtype).min / 2, found.exp(), 0)


@cache
def arguments_of(kind: Hashable) -> tuple[str, ...]:
    """The arguments of a model's forward."""
    return tuple(signature(cast(Any, kind).forward).parameters)[1:]


def _check_positions(base: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    given = {**dict(zip(arguments_of(cast(Hashable, type(base))), args, strict=False)), **kwargs}
    positions = given.get("position_ids")
    if positions is not None and not bool((positions == torch.arange(positions.shape[-1]).to(positions)).all()):
        raise UnsupportedModelError(
            "a pyramid numbers the tokens of a text itself, and other position_ids were given; leave them out, pad on "
            "the right"
        )


def _begin(base: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Makes sure that a call has its options, in which the encoder leaves its tokens for `_end`."""
    return args, {**kwargs, OPTION: Pass() if kwargs.get(OPTION) is None else kwargs[OPTION]}


def _end(base: Any, args: Any, kwargs: dict[str, Any], output: Any) -> None:
    kwargs[OPTION].cls = output[0][:, 0]


def _end_with_mean(base: Any, args: Any, kwargs: dict[str, Any], output: Any) -> Any:
    this, hidden = kwargs[OPTION], output[0]
    this.cls = hidden[:, 0]
    mean = mean_of(hidden, weights_of(this.tokens))[:, None]  # (B, 1, D): every mean over it is itself
    if isinstance(output, tuple):
        return (mean, *output[1:])
    output["last_hidden_state"] = mean
    return output


def read_after_norm(model: Any, head: Sequence[Any], hidden: Tensor, weights: Tensor | None) -> Tensor:
    """The logits of a head whose first module is the norm after the layers; see `How.read`."""
    norm, *others = head
    normed = norm(hidden)
    vector: Tensor = mean_of(normed, weights) if reads_mean(model.config) else normed[:, 0]
    for part in others:
        vector = part(vector)
    return vector
