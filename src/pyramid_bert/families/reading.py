"""Attention of one query without computing keys and values.

The score of token x is q·(W_K x) = (W_Kᵀ q)·x, and the mean of the values is W_V times the mean of the tokens. With CLS
as the only query, weights are multiplied by one vector per head instead of by every token: 4d² + 2nHd
multiply-accumulates instead of 2(n + 1)d² + 2nd. The key's bias adds the same to every score, so softmax removes it.
The value's is added once, as the weights sum to 1. Exact up to rounding (docs/design/0017-reading-without-keys.md).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class SelfAttention(NamedTuple):
    """The modules of a layer's attention.

    Attributes:
        module: The one that contains them; it says whether the layer trains.
        query: Projects the tokens that ask.
        key: Projects those that are asked.
        value: Projects what is read from them.
        heads: Into how many heads the projections are cut.
        scaling: What scores are multiplied by.
        dropout: The probability that a weight is dropped in training.
    """

    module: Any
    query: Any
    key: Any
    value: Any
    heads: int
    scaling: float
    dropout: float


def can_read_without_keys(attention: SelfAttention, hidden: Tensor) -> bool:
    """Whether attention may run like this: without gradients, and without hooks on keys and values.

    Training computes keys and values, so that its results stay the same to the last digit. So do layers that do not
    simply multiply by their weights: bf16 and 8-bit layers, adapters, weights that are loaded for a call.
    """
    projections = (attention.key, attention.value)
    if not all(map(is_plain, projections)):
        return False
    learns = hidden.requires_grad or any(weight.requires_grad for part in projections for weight in part.parameters())
    return not attention.module.training and not (torch.is_grad_enabled() and learns)


def read_without_keys(attention: SelfAttention, hidden: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """The context (B, 1, D) of CLS, and its attention weights (B, H, 1, N).

    Args:
        attention: The modules.
        hidden: (B, N, D), CLS first.
        bias: (B or 1, H or 1, 1, N) added to the scores, or None.
    """
    heads = attention.heads
    query = attention.query(hidden[:, :1]).unflatten(-1, (heads, -1)).movedim(2, 0).flatten(1, 2)  # (H, B, D/H)
    key, value = (part.weight.unflatten(0, (heads, -1)) for part in (attention.key, attention.value))  # (H, D/H, D)
    asking = (query @ key).transpose(0, 1)  # (B, H, D)
    scores = asking @ hidden.transpose(1, 2) * attention.scaling  # (B, H, N)
    if bias is not None:
        scores = scores + bias[:, :, 0]
    weights = scores.softmax(dim=-1).to(hidden.dtype)
    mixed = (weights @ hidden).transpose(0, 1)  # (H, B, D)
    context = (mixed @ value.transpose(1, 2)).transpose(0, 1).flatten(1)  # (B, D)
    if attention.value.bias is not None:
        context = context + attention.value.bias
    return context[:, None], weights[:, :, None]


def is_plain(part: Any) -> bool:
    """Whether a layer only multiplies by its weights, and has no hooks."""
    replaced = "forward" in part.__dict__  # accelerate does this to load weights
    listens = part._forward_hooks or part._forward_pre_hooks
    return (
        (_is_linear(part) or getattr(part, "multiplies_exactly", False))
        and (type(part.weight) is nn.Parameter or torch.compiler.is_compiling())  # which trace with stand-ins
        and not (replaced or listens)
    )


def _is_linear(part: Any) -> bool:
    """Whether it is torch's linear layer, or that layer wrapped by a tracer; not one that computes otherwise."""
    return isinstance(part, nn.Linear) and type(part).forward is nn.Linear.forward
