"""MPNet: BERT's layers with a bias on attention scores that depends on the distance between two tokens.

The bias is that of the tokens' positions in the input: after a reduction it is gathered for the tokens that are left. A
token that others are merged into keeps its own position; the mean of a group has that of the group's first token.

transformers computes MPNet's attention step by step. Here it is torch's fused attention with the bias as its mask,
which gives the same numbers up to rounding and is faster, also when every token is kept.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import embedding
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

from ..core.encoder import PyramidEncoder
from ..core.tokens import Tokens
from ..errors import UnsupportedModelError
from .around import handing_over
from .attention import key_mask, read
from .family import How
from .halves import States, TwoHalves, Votes, fire_hooks
from .reading import SelfAttention

_PADDING = 1  # the position of padding, in every MPNet
_FARTHEST = 128  # more distant tokens have the bias of those that are this far apart
# The bucket of each distance. Not computed in a pass: logarithms of other runtimes round to other buckets.
_BUCKETS = MPNetEncoder.relative_position_bucket(torch.arange(-_FARTHEST, _FARTHEST + 1)).tolist()
# Where the attention maps of a call go, if it wants them.
_maps: ContextVar[list[Tensor] | None] = ContextVar("attention maps of a call", default=None)


class MPNetHalves(TwoHalves):
    """Runs the halves of an `MPNetLayer`."""

    def output(self, hidden: Tensor) -> Any:
        """See `TwoHalves.output`."""
        return (hidden,)

    def masks(self, tokens: Tokens) -> Tensor:
        """The bias (B or 1, H, N, N) of attention scores: that of distances, and that of keys."""
        relative = _relative_bias(tokens.owner, tokens.places())
        of_keys = tokens.key_bias()
        return relative if of_keys is None else relative + of_keys

    def attend(
        self, layer: Any, hidden: Tensor, masks: Any, *, queries: int | None = None, votes: Votes | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """See `TwoHalves.attend`."""
        own, maps = layer.attention.attn, _maps.get()
        heads, dropout = own.num_attention_heads, own.dropout.p
        parts = SelfAttention(own, own.q, own.k, own.v, heads, own.attention_head_size**-0.5, dropout)
        implementation = "sdpa" if maps is None else "eager"
        found = read(parts, hidden, masks, queries=queries, votes=votes, implementation=implementation)
        if maps is not None:
            assert found.weights is not None
            maps.append(found.weights)
        made, *_ = fire_hooks(own, hidden, (own.o(found.context),))
        block = layer.attention
        return block.LayerNorm(block.dropout(made) + hidden[:, :queries]), found.received

    def feed_forward(self, layer: Any, hidden: Tensor) -> Tensor:
        """See `TwoHalves.feed_forward`."""
        return cast(Tensor, layer.output(layer.intermediate(hidden), hidden))


def _relative_bias(base: Any, places: Tensor) -> Tensor:
    """The bias (B, H, N, N) of scores between tokens at `places` (B, N)."""
    table = base.encoder.relative_attention_bias(torch.tensor(_BUCKETS, device=places.device))  # (distances, H)
    apart = places[:, None, :] - places[:, :, None]  # (B, N, N): from each query to each key
    return embedding(apart.clamp(-_FARTHEST, _FARTHEST) + _FARTHEST, table).permute(0, 3, 1, 2)


class MPNetPyramidEncoder(PyramidEncoder):
    """Replaces `MPNetEncoder`, which returns hidden states and attention maps itself."""

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        output_attentions: bool = False,
        output_hidden_states: bool = False,
        return_dict: bool = False,
        **kwargs: Any,
    ) -> Any:
        """Runs the pyramid on what `MPNetModel` passes to its encoder."""
        states = States() if output_hidden_states else None
        maps: list[Tensor] | None = [] if output_attentions else None
        token = _maps.set(maps)
        try:
            hidden = self.run(hidden_states, key_mask(attention_mask), whole=output_hidden_states, also=states)
        finally:
            _maps.reset(token)
        all_states = None if states is None else tuple(states.found)
        all_maps = None if maps is None else tuple(maps)
        if not return_dict:
            return tuple(value for value in (hidden, all_states, all_maps) if value is not None)
        return BaseModelOutput(cast(Any, hidden), cast(Any, all_states), cast(Any, all_maps))


def check_mpnet(encoder: Any) -> None:
    """Raises unless `encoder` is an `MPNetEncoder`."""
    if not isinstance(encoder, MPNetEncoder):
        raise UnsupportedModelError(f"expected an MPNetEncoder, found {type(encoder).__name__}")


MPNET = How(
    halves=MPNetHalves(),
    stand_in=MPNetPyramidEncoder,
    check=check_mpnet,
    positions=lambda config: int(config.max_position_embeddings) - 1 - _PADDING,
    reads_without_keys=True,
    reads_positions=True,
    around=handing_over,
)
