"""DeBERTa-v2 and v3: attention in which what a token says and where it stands are kept apart.

A score is the sum of content with content, content with position and position with content. Positions are relative, so
they are looked up for each pair of kept tokens by where both stood in the input. Two things are faster than in
transformers, for dense models as well:

- in evaluation the projections of the relative positions are constants: they are computed once per layer, not in every
  call, and again when a weight has changed;
- only the distances that occur in a batch are multiplied, and a fused kernel takes the sum as its mask.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.deberta_v2.modeling_deberta_v2 import DebertaV2Encoder, make_log_bucket_position

from ..core.encoder import PyramidEncoder
from ..core.tokens import Tokens
from ..errors import UnsupportedModelError
from .around import handing_over
from .attention import key_mask
from .family import How
from .halves import States, TwoHalves, Votes, checkpointed, fire_hooks
from .received import received_attention


class Distances(NamedTuple):
    """What attention needs besides the tokens.

    Attributes:
        bias: (B, 1, 1, N) added to the scores of keys; None if there is none.
        rows: (1 or B, N, N) the row of `span` that belongs to each query and key; None without relative positions.
        span: The rows of the relative positions that occur.
        encoder: What has the vectors of relative positions.
    """

    bias: Tensor | None
    rows: Tensor | None
    span: slice
    encoder: Any


class DebertaHalves(TwoHalves):
    """Runs the halves of a `DebertaV2Layer`."""

    def __init__(self) -> None:
        # By attention module: the state of the weights, and what was computed from them.
        self._known: WeakKeyDictionary[Any, tuple[Any, tuple[Tensor | None, Tensor | None]]] = WeakKeyDictionary()

    def output(self, hidden: Tensor) -> Any:
        """See `TwoHalves.output`."""
        return hidden, None

    def masks(self, tokens: Tokens) -> Distances:
        """See `TwoHalves.masks`."""
        encoder, bias = tokens.owner.encoder, tokens.key_bias()
        config = tokens.owner.config
        if not config.relative_attention:
            return Distances(bias, None, slice(0), encoder)
        places = tokens.places()
        apart = places[:, :, None] - places[:, None, :]  # (1 or B, N, N)
        half = _half(config)
        index = (_bucket(apart, config) + half).clamp(0, 2 * half - 1)
        if _traced() or places.device.type != "cpu":  # a graph has to serve any length
            return Distances(bias, index, slice(0, 2 * half), encoder)
        reach = int(_bucket(places.max()[None], config))
        low, high = max(half - reach, 0), min(half + reach + 1, 2 * half)
        return Distances(bias, index - low, slice(low, high), encoder)

    def attend(
        self, layer: Any, hidden: Tensor, masks: Any, *, queries: int | None = None, votes: Votes | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """See `TwoHalves.attend`."""
        return checkpointed(layer, self._attend, layer, hidden, masks, queries, votes)

    def feed_forward(self, layer: Any, hidden: Tensor) -> Tensor:
        """See `TwoHalves.feed_forward`."""
        return cast(Tensor, checkpointed(layer, _feed_forward, layer, hidden))

    def _attend(
        self, layer: Any, hidden: Tensor, masks: Distances, queries: int | None, votes: Votes | None
    ) -> tuple[Tensor, Tensor | None]:
        attention, asking = layer.attention.self, hidden[:, :queries]  # (B, Q, D)
        query, key, value = (
            project(x).unflatten(-1, (attention.num_attention_heads, -1)).transpose(1, 2)  # (B, H, Q or N, D/H)
            for project, x in (
                (attention.query_proj, asking),
                (attention.key_proj, hidden),
                (attention.value_proj, hidden),
            )
        )
        scaling = _scaling(attention)
        bias = None if masks.bias is None else masks.bias.to(query.dtype)
        if masks.rows is not None:
            relative = self._by_position(attention, masks, query, key)
            bias = relative if bias is None else bias if relative is None else relative + bias
        dropout = attention.dropout.p if attention.training else 0.0
        context = scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout, scale=scaling)
        context, _ = fire_hooks(attention, hidden, (context.transpose(1, 2).flatten(2), None))
        received = None
        if votes is not None:
            voters = None if votes.mask is None else votes.mask.shape[1]
            of_voters = bias if bias is None or bias.shape[2] == 1 else bias[:, :, :voters]
            received = received_attention(query[:, :, :voters], key, of_voters, votes.mask, scaling)
        return layer.attention.output(context, asking), received

    def _by_position(self, attention: Any, masks: Distances, query: Tensor, key: Tensor) -> Tensor | None:
        """The scores (B, H, Q, N) of content with position and of position with content, scaled."""
        assert masks.rows is not None
        index = masks.rows[:, None, : query.shape[2]]  # (1 or B, 1, Q, N)
        shape = (*query.shape[:3], key.shape[2])
        pos_key, pos_query = self._projected(attention, masks)  # (H, R, D/H) each
        found = None
        if pos_key is not None:
            found = (query @ pos_key.transpose(1, 2)).gather(-1, index.expand(shape))
        if pos_query is not None:
            by_key = (key @ pos_query.transpose(1, 2)).gather(-1, index.expand(shape).transpose(2, 3))  # (B, H, N, Q)
            found = by_key.transpose(2, 3) if found is None else found + by_key.transpose(2, 3)
        return found

    def _projected(self, attention: Any, masks: Distances) -> tuple[Tensor | None, Tensor | None]:
        """The relative positions as keys and as queries, (H, R, D/H) each; None for what the model does not have."""
        parts = _projections(attention)
        if _learns(attention, masks.encoder, parts) or not _are_constant(masks.encoder, parts):
            return _project(attention, parts, masks.encoder, masks.span)
        state = _state(masks.encoder, parts)
        known = self._known.get(attention)
        if known is None or known[0] != state:
            with torch.inference_mode(False), torch.no_grad():
                known = state, _project(attention, parts, masks.encoder, slice(None))
            self._known[attention] = known
        pos_key, pos_query = (None if x is None else x[:, masks.span] for x in known[1])
        return pos_key, pos_query


class DebertaPyramidEncoder(PyramidEncoder):
    """Replaces `DebertaV2Encoder` and takes the calls that `DebertaV2Model` makes."""

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor,
        output_hidden_states: bool = True,
        output_attentions: bool = False,
        return_dict: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Runs the pyramid. `DebertaV2Model` reads the last of all states, whatever its caller asks for."""
        if output_attentions:
            raise UnsupportedModelError(
                "a pyramid of DeBERTa returns no attention matrices; call the dense model (restore) with "
                "output_attentions=True"
            )
        real = attention_mask != 0 if attention_mask.dim() == 2 else attention_mask
        states = States()
        hidden = self.run(hidden_states, key_mask(real), also=states)
        found = tuple(states.found)
        if not return_dict:
            return hidden, found
        return BaseModelOutput(last_hidden_state=cast(Any, hidden), hidden_states=cast(Any, found))


def check_deberta(encoder: Any) -> None:
    """Raises unless `encoder` is a `DebertaV2Encoder` that a pyramid can replace."""
    if not isinstance(encoder, DebertaV2Encoder):
        raise UnsupportedModelError(f"expected a DebertaV2Encoder, found {type(encoder).__name__}")
    if encoder.conv is not None:
        raise UnsupportedModelError(
            f"this DeBERTa has a convolution after its first layer (conv_kernel_size="
            f"{encoder.conv.config.conv_kernel_size}), which reads neighbours that a pyramid may drop; models "
            "without one are supported, as all of v3"
        )


def _half(config: Any) -> int:
    """How many relative positions there are on each side."""
    most = int(getattr(config, "max_relative_positions", -1))
    buckets = int(getattr(config, "position_buckets", -1))
    return buckets if buckets > 0 else most if most >= 1 else int(config.max_position_embeddings)


def _bucket(apart: Tensor, config: Any) -> Tensor:
    """The relative position of tokens this far apart; distant ones share one."""
    most = int(getattr(config, "max_relative_positions", -1))
    most = most if most >= 1 else int(config.max_position_embeddings)
    buckets = int(getattr(config, "position_buckets", -1))
    return make_log_bucket_position(apart, buckets, most).long() if buckets > 0 else apart


def _scaling(attention: Any) -> float:
    """What scores are multiplied by; the more sums they have, the less."""
    sums = 1 + sum(kind in attention.pos_att_type for kind in ("c2p", "p2c"))
    return 1 / math.sqrt(attention.attention_head_size * sums)


def _feed_forward(layer: Any, hidden: Tensor) -> Tensor:
    return cast(Tensor, layer.output(layer.intermediate(hidden), hidden))


def _projections(attention: Any) -> tuple[Any, Any]:
    """The layers that make keys and queries of relative positions; None for what the model does not have."""
    names = ("key_proj", "query_proj") if attention.share_att_key else ("pos_key_proj", "pos_query_proj")
    key, query = (
        getattr(attention, name) if kind in attention.pos_att_type else None
        for name, kind in zip(names, ("c2p", "p2c"), strict=True)
    )
    return key, query


def _project(attention: Any, parts: tuple[Any, Any], encoder: Any, span: slice) -> tuple[Tensor | None, Tensor | None]:
    vectors = encoder.rel_embeddings.weight
    norm = getattr(encoder, "LayerNorm", None)
    vectors = attention.pos_dropout((vectors if norm is None else norm(vectors))[span])  # (R, D)
    heads = attention.num_attention_heads
    scaling = _scaling(attention)
    key, query = (
        None if part is None else (part(vectors) * scaling).unflatten(-1, (heads, -1)).transpose(0, 1) for part in parts
    )
    return key, query


def _used(encoder: Any, parts: tuple[Any, Any]) -> list[nn.Module]:
    norm = getattr(encoder, "LayerNorm", None)
    return [part for part in (encoder.rel_embeddings, norm, *parts) if part is not None]


def _learns(attention: Any, encoder: Any, parts: tuple[Any, Any]) -> bool:
    """Whether the projections get gradients or dropout."""
    weights = (weight for part in _used(encoder, parts) for weight in part.parameters())
    return attention.training or (torch.is_grad_enabled() and any(weight.requires_grad for weight in weights))


def _are_constant(encoder: Any, parts: tuple[Any, Any]) -> bool:
    """Whether the projections can be kept: nothing but weights that count their changes decides what they are."""
    used = _used(encoder, parts)
    return not (
        _traced()
        or torch.is_autocast_enabled(encoder.rel_embeddings.weight.device.type)
        or any("forward" in part.__dict__ or part._forward_hooks or part._forward_pre_hooks for part in used)
        or any(part is not None and not isinstance(part, nn.Linear) for part in parts)
        or any(weight.is_inference() for part in used for weight in part.parameters())
    )


def _state(encoder: Any, parts: tuple[Any, Any]) -> list[Any]:
    """A value that changes when a weight is written to or replaced, or is multiplied in another way."""
    used = _used(encoder, parts)
    return [(type(part), weight.data_ptr(), weight._version) for part in used for weight in part.parameters()]


def _traced() -> bool:
    return torch._C._get_tracing_state() is not None or torch.compiler.is_exporting()


DEBERTA = How(
    halves=DebertaHalves(),
    stand_in=DebertaPyramidEncoder,
    check=check_deberta,
    reads_positions=True,
    around=handing_over,
)
