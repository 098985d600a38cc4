"""DistilBERT: BERT's layers under other names, without token types and without a pooler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from torch import Tensor
from torch.nn.functional import relu
from transformers.models.distilbert.modeling_distilbert import Transformer

from ..errors import UnsupportedModelError
from .attention import check_implementation, read
from .bert import BertPyramidEncoder
from .family import How
from .halves import TwoHalves, Votes, checkpointed, fire_hooks
from .reading import SelfAttention


class DistilBertHalves(TwoHalves):
    """Runs the halves of a `TransformerBlock`."""

    def attend(
        self, layer: Any, hidden: Tensor, masks: Any, *, queries: int | None = None, votes: Votes | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """See `TwoHalves.attend`."""
        return checkpointed(layer, _attend, layer, hidden, masks, queries, votes)

    def feed_forward(self, layer: Any, hidden: Tensor) -> Tensor:
        """See `TwoHalves.feed_forward`."""
        return cast(Tensor, checkpointed(layer, _feed_forward, layer, hidden))


def _attend(
    layer: Any, hidden: Tensor, bias: Tensor | None, queries: int | None, votes: Votes | None
) -> tuple[Tensor, Tensor | None]:
    own = layer.attention
    check_implementation(own.config)  # it may have been changed since
    parts = SelfAttention(own, own.q_lin, own.k_lin, own.v_lin, own.n_heads, own.scaling, own.dropout.p)
    implementation = own.config._attn_implementation
    found = read(parts, hidden, bias, queries=queries, votes=votes, implementation=implementation)
    made, _ = fire_hooks(own, hidden, (own.out_lin(found.context), found.weights))
    return layer.sa_layer_norm(made + hidden[:, :queries]), found.received


def _feed_forward(layer: Any, hidden: Tensor) -> Tensor:
    return cast(Tensor, layer.output_layer_norm(layer.ffn(hidden) + hidden))


def check_distilbert(encoder: Any) -> None:
    """Raises unless `encoder` is a DistilBERT's that a pyramid can replace."""
    if not isinstance(encoder, Transformer):
        raise UnsupportedModelError(f"expected the Transformer of a DistilBERT, found {type(encoder).__name__}")
    for layer in encoder.layer:
        check_implementation(cast(Any, layer).attention.config)


def distilbert_logits(model: Any, head: Sequence[Any], hidden: Tensor, weights: Tensor | None) -> Tensor:
    """The logits (B, classes) for states (B, N, D); see `How.read`."""
    first, last = head
    return cast(Tensor, last(relu(first(hidden[:, 0]))))


DISTILBERT = How(
    halves=DistilBertHalves(),
    stand_in=BertPyramidEncoder,  # its model makes the same calls
    check=check_distilbert,
    read=distilbert_logits,
    reads_without_keys=True,
)
