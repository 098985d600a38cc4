"""ModernBERT (also Ettin): rotary positions, global and local layers, norms before each half, gated feed-forward."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import linear

from .reading import is_plain
from .rope import EURO_BERT, RopeHalves


class ModernBertHalves(RopeHalves):
    """Runs the halves of a `ModernBertEncoderLayer`."""

    def attention(self, layer: Any) -> Any:
        """See `RopeHalves.attention`."""
        return layer.attn

    def before(self, layer: Any, hidden: Tensor) -> Tensor:
        """See `RopeHalves.before`."""
        return cast(Tensor, layer.attn_norm(hidden))

    def projected(self, attention: Any, given: Tensor, queries: int | None) -> tuple[Tensor, Tensor, Tensor]:
        """See `RopeHalves.projected`. One layer gives all three; a few queries need only a part of its weights."""
        joint, width = attention.Wqkv, given.shape[-1]
        if queries is None or not is_plain(joint):
            query, key, value = joint(given).chunk(3, dim=-1)
            return query[:, :queries], key, value
        bias = joint.bias
        query = linear(given[:, :queries], joint.weight[:width], None if bias is None else bias[:width])
        both = linear(given, joint.weight[width:], None if bias is None else bias[width:])
        key, value = both.chunk(2, dim=-1)
        return query, key, value

    @torch.no_grad()
    def compared(self, layer: Any, hidden: Tensor) -> Tensor:
        """See `EuroBertHalves.compared`."""
        return cast(Tensor, layer.mlp_norm(hidden.detach()))

    def mixed(self, attention: Any, context: Tensor) -> Tensor:
        """See `RopeHalves.mixed`."""
        return cast(Tensor, attention.out_drop(attention.Wo(context)))

    def feed_forward_of(self, layer: Any, hidden: Tensor) -> Tensor:
        """See `RopeHalves.feed_forward_of`."""
        return cast(Tensor, hidden + layer.mlp(layer.mlp_norm(hidden)))


MODERN_BERT = replace(EURO_BERT, halves=ModernBertHalves())
