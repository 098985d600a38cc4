"""BERT and what is built like it: RoBERTa, XLM-RoBERTa, CamemBERT, ELECTRA, ERNIE, data2vec.

A family is BERT-like by the modules of its layers, not by its classes (`check_bert_like`). What differs from their
encoders: layers run in two halves with a reduction between them, the last layer may compute only
CLS, and the mask is rebuilt for the tokens that are left. Layers, parameters and state-dict keys are the same objects.
Forward hooks on a layer and on its self-attention fire as before; hooks on the `BertAttention` between them and all
pre-hooks do not, since these modules are not called as a whole.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers.models.bert.modeling_bert import eager_attention_forward
from transformers.utils.generic import ModelOutput

from ..core.encoder import PyramidEncoder
from ..core.loop import Pass
from ..errors import UnsupportedModelError
from .family import How
from .halves import TwoHalves, Votes, checkpointed, fire_hooks, run_encoder
from .reading import can_read_without_keys, read_without_keys
from .received import received_attention

ATTENTION_IMPLEMENTATIONS = ("eager", "sdpa")
# What the halves use of a layer.
_PARTS = (
    *(f"attention.self.{name}" for name in ("query", "key", "value", "dropout", "attention_head_size", "scaling")),
    "attention.output",
    "feed_forward_chunk",
)


class BertHalves(TwoHalves):
    """Runs the halves of a layer like `BertLayer`."""

    def attend(
        self, layer: Any, hidden: Tensor, masks: Any, *, queries: int | None = None, votes: Votes | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """See `TwoHalves.attend`."""
        return checkpointed(layer, _attend, layer, hidden, masks, queries, votes)

    def feed_forward(self, layer: Any, hidden: Tensor) -> Tensor:
        """See `TwoHalves.feed_forward`."""
        return cast(Tensor, checkpointed(layer, layer.feed_forward_chunk, hidden))


class BertPyramidEncoder(PyramidEncoder):
    """Replaces an encoder like `BertEncoder` and takes the calls that models like `BertModel` make."""

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        past_key_values: Any = None,
        pyramid_pass: Pass | None = None,
        **kwargs: Any,
    ) -> ModelOutput:
        """Runs the pyramid on what the model passes to its encoder."""
        if encoder_hidden_states is not None or past_key_values is not None:
            raise UnsupportedModelError("a pyramid is an encoder; cross-attention and caches of decoders do not apply")
        return run_encoder(self, hidden_states, key_mask(attention_mask), pyramid_pass, kwargs)


def check_bert_like(encoder: Any) -> None:
    """Raises unless `encoder` is one whose layers have the modules of a `BertLayer`."""
    for layer in getattr(encoder, "layer", ()) or (None,):
        lacking = [path for path in _PARTS if not _has(layer, path)]
        if lacking:
            raise UnsupportedModelError(
                f"expected layers like BERT's in a {type(encoder).__name__}, found {type(layer).__name__} without "
                f"{lacking[0]}"
            )
    config = encoder.config
    if getattr(config, "is_decoder", False):
        raise UnsupportedModelError(
            f"this {config.model_type} is a decoder (is_decoder=True); a pyramid needs bidirectional attention"
        )
    check_implementation(config)


def _has(layer: Any, path: str) -> bool:
    """Whether a layer has the attribute at a path."""
    for name in path.split("."):
        layer = getattr(layer, name, None)
    return layer is not None


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


def _attend(
    layer: Any,
    hidden: Tensor,
    bias: Tensor | None,
    queries: int | None,
    votes: Votes | None,
) -> tuple[Tensor, Tensor | None]:
    attention = layer.attention.self
    implementation = attention.config._attn_implementation
    check_implementation(attention.config)  # it may have been changed since
    asking = hidden[:, :queries]  # (B, Q, D)
    if queries == 1 and votes is None and can_read_without_keys(attention, hidden):
        context, read = read_without_keys(attention, hidden, bias)
        context, _ = fire_hooks(attention, hidden, (context, read if implementation == "eager" else None))
        return layer.attention.output(context, asking), None
    query, key, value = (
        project(x).unflatten(-1, (-1, attention.attention_head_size)).transpose(1, 2)  # (B, H, Q or N, D/H)
        for project, x in ((attention.query, asking), (attention.key, hidden), (attention.value, hidden))
    )
    bias = None if bias is None else bias.to(query.dtype)
    run = _sdpa if implementation == "sdpa" else eager_attention_forward
    dropout = attention.dropout.p if attention.training else 0.0
    context, weights = run(attention, query, key, value, bias, dropout=dropout, scaling=attention.scaling)
    context = context.flatten(2)  # (B, Q, D)
    context, weights = fire_hooks(attention, hidden, (context, weights))
    received = None
    if votes is not None:
        voting = query if votes.mask is None else query[:, :, : votes.mask.shape[1]]
        received = received_attention(voting, key, bias, votes.mask, attention.scaling)
    return layer.attention.output(context, asking), received


def _sdpa(
    attention: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, *, dropout: float, scaling: float
) -> tuple[Tensor, None]:
    """As transformers does it for an encoder, without the reshaping for groups of queries, which graphs would keep."""
    context = scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout, scale=scaling)
    return context.transpose(1, 2).contiguous(), None


def positions_after_padding(config: Any) -> int:
    """The tokens that a model can read whose first token has the position after that of padding, as in RoBERTa."""
    return int(config.max_position_embeddings) - 1 - int(config.pad_token_id or 0)


def projected(base: Any, embedded: Tensor) -> Tensor:
    """What ELECTRA's first layer is given: embeddings may be narrower than the layers."""
    project = getattr(base, "embeddings_project", None)
    return embedded if project is None else cast(Tensor, project(embedded))


BERT_LIKE = How(halves=BertHalves(), stand_in=BertPyramidEncoder, check=check_bert_like, reads_without_keys=True)
ROBERTA_LIKE = replace(BERT_LIKE, positions=positions_after_padding)
