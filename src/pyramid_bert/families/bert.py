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

from torch import Tensor
from transformers.utils.generic import ModelOutput

from ..core.encoder import PyramidEncoder
from ..core.loop import Pass
from ..errors import UnsupportedModelError
from .attention import check_implementation, key_mask, read
from .family import How
from .halves import TwoHalves, Votes, checkpointed, fire_hooks, run_encoder
from .reading import SelfAttention

# What the halves use of a layer.
_PARTS = (
    *(f"attention.self.{name}" for name in ("query", "key", "value", "dropout", "num_attention_heads", "scaling")),
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


def _attend(
    layer: Any, hidden: Tensor, bias: Tensor | None, queries: int | None, votes: Votes | None
) -> tuple[Tensor, Tensor | None]:
    own = layer.attention.self
    implementation = own.config._attn_implementation
    check_implementation(own.config)  # it may have been changed since
    parts = SelfAttention(own, own.query, own.key, own.value, own.num_attention_heads, own.scaling, own.dropout.p)
    found = read(parts, hidden, bias, queries=queries, votes=votes, implementation=implementation)
    context, _ = fire_hooks(own, hidden, (found.context, found.weights))
    return layer.attention.output(context, hidden[:, :queries]), found.received


def positions_after_padding(config: Any) -> int:
    """The tokens that a model can read whose first token has the position after that of padding, as in RoBERTa."""
    return int(config.max_position_embeddings) - 1 - int(config.pad_token_id or 0)


def projected(base: Any, embedded: Tensor) -> Tensor:
    """What ELECTRA's first layer is given: embeddings may be narrower than the layers."""
    project = getattr(base, "embeddings_project", None)
    return embedded if project is None else cast(Tensor, project(embedded))


BERT_LIKE = How(halves=BertHalves(), stand_in=BertPyramidEncoder, check=check_bert_like, reads_without_keys=True)
ROBERTA_LIKE = replace(BERT_LIKE, positions=positions_after_padding)
