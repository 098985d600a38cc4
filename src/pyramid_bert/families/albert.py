"""ALBERT: one layer's module serves many layers, and embeddings are narrower than the layers.

Schedules count layers by number, so the plan names the same module several times. What is put on a module (hooks,
other linear layers) serves all its layers, as in the dense model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from torch import Tensor, nn
from transformers.models.albert.modeling_albert import AlbertTransformer
from transformers.utils.generic import ModelOutput

from ..errors import UnsupportedModelError
from .attention import check_implementation, read
from .bert import BertPyramidEncoder
from .family import How
from .halves import TwoHalves, Votes, checkpointed, fire_hooks
from .reading import SelfAttention


class AlbertHalves(TwoHalves):
    """Runs the halves of an `AlbertLayer`."""

    def attend(
        self, layer: Any, hidden: Tensor, masks: Any, *, queries: int | None = None, votes: Votes | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """See `TwoHalves.attend`."""
        return checkpointed(layer, _attend, layer, hidden, masks, queries, votes)

    def feed_forward(self, layer: Any, hidden: Tensor) -> Tensor:
        """See `TwoHalves.feed_forward`."""
        return cast(Tensor, checkpointed(layer, _feed_forward, layer, hidden))


class AlbertPyramidEncoder(BertPyramidEncoder):
    """Replaces `AlbertTransformer`, which first widens the embeddings."""

    embedding_hidden_mapping_in: nn.Linear

    def forward(self, hidden_states: Tensor, *args: Any, **kwargs: Any) -> ModelOutput:
        """Runs the pyramid on what `AlbertModel` passes to its encoder."""
        return super().forward(self.embedding_hidden_mapping_in(hidden_states), *args, **kwargs)


def _attend(
    layer: Any, hidden: Tensor, bias: Tensor | None, queries: int | None, votes: Votes | None
) -> tuple[Tensor, Tensor | None]:
    own = layer.attention
    check_implementation(own.config)  # it may have been changed since
    dropout = own.attention_dropout.p
    parts = SelfAttention(own, own.query, own.key, own.value, own.num_attention_heads, own.scaling, dropout)
    implementation = own.config._attn_implementation
    found = read(parts, hidden, bias, queries=queries, votes=votes, implementation=implementation)
    made = own.LayerNorm(hidden[:, :queries] + own.output_dropout(own.dense(found.context)))
    made, _ = fire_hooks(own, hidden, (made, found.weights))
    return made, found.received


def _feed_forward(layer: Any, hidden: Tensor) -> Tensor:
    return cast(Tensor, layer.full_layer_layer_norm(layer.ff_chunk(hidden) + hidden))


def check_albert(encoder: Any) -> None:
    """Raises unless `encoder` is an `AlbertTransformer` that a pyramid can replace."""
    if not isinstance(encoder, AlbertTransformer):
        raise UnsupportedModelError(f"expected an AlbertTransformer, found {type(encoder).__name__}")
    if encoder.config.inner_group_num != 1:
        raise UnsupportedModelError(
            f"an ALBERT whose layers hold {encoder.config.inner_group_num} layers each (inner_group_num) is not "
            "supported; published ones have 1"
        )
    check_implementation(encoder.config)


def layers_by_number(groups: Any, config: Any) -> list[nn.Module]:
    """The module of each layer. The layers of a group share it."""
    layers_of_a_group = config.num_hidden_layers / config.num_hidden_groups
    return [groups[int(i / layers_of_a_group)].albert_layers[0] for i in range(config.num_hidden_layers)]


def albert_logits(model: Any, head: Sequence[Any], hidden: Tensor, weights: Tensor | None) -> Tensor:
    """The logits (B, classes) for states (B, N, D); see `How.read`."""
    pooler, last = head
    return cast(Tensor, last(model.albert.pooler_activation(pooler(hidden[:, 0]))))


ALBERT = How(
    halves=AlbertHalves(),
    stand_in=AlbertPyramidEncoder,
    check=check_albert,
    by_number=layers_by_number,
    stored=lambda config: int(config.num_hidden_groups),
    enter=lambda base, embedded: cast(Tensor, base.encoder.embedding_hidden_mapping_in(embedded)),
    read=albert_logits,
    reads_without_keys=True,
)
