"""Softmax attention of a layer's tokens: what the families that have it share.

A family says which modules project tokens (`SelfAttention`); `read` gives what its queries read, and the attention that
tokens receive if a selector asks for it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.models.bert.modeling_bert import eager_attention_forward

from ..errors import UnsupportedModelError
from .halves import Votes
from .reading import SelfAttention, can_read_without_keys, read_without_keys
from .received import received_attention

ATTENTION_IMPLEMENTATIONS = ("eager", "sdpa")


class Read(NamedTuple):
    """What attention gives.

    Attributes:
        context: (B, Q, D), before the projection of the output.
        weights: (B, H, Q, N); None unless attention runs as "eager".
        received: (B, N) the attention that each token received; None unless asked for.
    """

    context: Tensor
    weights: Tensor | None
    received: Tensor | None


def read(
    attention: SelfAttention,
    hidden: Tensor,
    bias: Tensor | None,
    *,
    queries: int | None,
    votes: Votes | None,
    implementation: str | None,
) -> Read:
    """What the first `queries` tokens, or all, read from `hidden` (B, N, D).

    Args:
        attention: The modules.
        hidden: All tokens.
        bias: (B or 1, H or 1, N or 1, N) added to the scores, or None.
        queries: Compute only this many tokens; None for all.
        votes: Whose attention counts as received; None if it is not needed.
        implementation: "sdpa" for torch's fused attention; any other computes the weights.
    """
    bias = None if bias is None else bias[:, :, :queries]
    if queries == 1 and votes is None and can_read_without_keys(attention, hidden):
        context, read = read_without_keys(attention, hidden, bias)
        return Read(context, None if implementation == "sdpa" else read, None)
    query, key, value = (
        project(x).unflatten(-1, (attention.heads, -1)).transpose(1, 2)  # (B, H, Q or N, D/H)
        for project, x in ((attention.query, hidden[:, :queries]), (attention.key, hidden), (attention.value, hidden))
    )
    bias = None if bias is None else bias.to(query.dtype)
    run = _sdpa if implementation == "sdpa" else eager_attention_forward
    module = attention.module
    dropout = attention.dropout if module.training else 0.0
    context, weights = run(module, query, key, value, bias, dropout=dropout, scaling=attention.scaling)
    received = None
    if votes is not None:
        voting = None if votes.mask is None else votes.mask.shape[1]
        asked = None if bias is None else bias[:, :, :voting]
        received = received_attention(query[:, :, :voting], key, asked, votes.mask, attention.scaling)
    return Read(context.flatten(2), weights, received)


def _sdpa(
    attention: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, *, dropout: float, scaling: float
) -> tuple[Tensor, None]:
    """As transformers does it for an encoder, without the reshaping for groups of queries, which graphs would keep."""
    context = scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout, scale=scaling)
    return context.transpose(1, 2).contiguous(), None


def check_implementation(config: Any) -> None:
    """Raises unless the attention implementation takes an additive mask of any shape."""
    if config._attn_implementation not in (*ATTENTION_IMPLEMENTATIONS, None):
        raise UnsupportedModelError(
            f"attention implementation {config._attn_implementation!r} is not supported; load the model with "
            f"attn_implementation one of {', '.join(ATTENTION_IMPLEMENTATIONS)}"
        )


def key_mask(mask: Tensor | None) -> Tensor | None:
    """The (B, N) bool mask of real tokens behind any mask form that transformers passes to an encoder.

    Takes None, (B, N), and (B, 1, 1 or N, N) in bool or additive float form. Raises for masks that differ between
    queries or add a bias to keys.
    """
    if mask is None:
        return None
    if not isinstance(mask, Tensor) or mask.dim() not in (2, 4):
        shape = tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
        raise UnsupportedModelError(
            f"attention masks of shape (B, N) or (B, 1, N, N) are supported, got {shape}; "
            f"load the model with attn_implementation one of {', '.join(ATTENTION_IMPLEMENTATIONS)}"
        )
    if mask.dim() == 4:
        per_query = mask.shape[1] > 1 or (mask.shape[2] > 1 and mask.stride(2) != 0)
        if per_query and not bool((mask == mask[:, :1, :1]).all()):
            raise UnsupportedModelError(
                "the attention mask differs between queries or heads; a pyramid takes a (B, N) mask"
            )
        mask = mask[:, 0, 0]
    if mask.dtype == torch.bool:
        return mask
    if not mask.is_floating_point():
        return mask != 0
    real = mask == 0
    if not bool((real | (mask <= torch.finfo(mask.dtype).min / 2)).all()):
        raise UnsupportedModelError(
            "the attention mask adds a bias to some keys; a pyramid takes a (B, N) mask of 0 and 1"
        )
    return real
