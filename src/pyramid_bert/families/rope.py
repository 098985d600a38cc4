"""Families with rotary positions (RoPE), whose model runs its layers in its own forward: what they share.

Such a model has no encoder module to replace. Its list of layers is replaced by `LayersInOne`, which holds the same
layers under the same names, but yields one module when the model iterates over it: itself. The model's embeddings,
masks, last norm and pooling run unchanged around it.

Rotations and the masks of local layers follow from the positions that tokens had in the input, so a kept token attends
as it would in the dense model, however many tokens between it and another one are gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from ..config import PyramidConfig
from ..core.encoder import PyramidEncoder
from ..core.loop import Pass
from ..core.tokens import Tokens
from ..errors import UnsupportedModelError
from .around import around_layers, read_after_norm, reads_mean, with_places_in_order
from .attention import check_implementation, key_mask
from .family import How
from .halves import TwoHalves, Votes, checkpointed, fire_hooks
from .received import received_attention

# Their frequencies depend on the length of the text, which is another one after each reduction.
_CHANGING = ("dynamic", "longrope")
SLIDING, FULL = "sliding_attention", "full_attention"

Rotation = tuple[Tensor, Tensor]


class RopeMasks(NamedTuple):
    """What attention needs besides the tokens.

    Attributes:
        bias: (B, 1, 1, N) added to the scores of keys; None if there is none.
        local: (B, 1, N, N) the same in local layers, where distant tokens do not see each other.
        rotations: The cosines and sines (1 or B, N, D/H) of each type of layer; a single type is None.
    """

    bias: Tensor | None
    local: Tensor | None
    rotations: dict[str | None, Rotation]


class RopeHalves(TwoHalves):
    """Runs the halves of a layer with rotary positions.

    A family says how its layer is built: `attention`, `before`, `projected`, `after` and `feed_forward_of`.
    """

    def masks(self, tokens: Tokens) -> RopeMasks:
        """See `TwoHalves.masks`."""
        model, bias, places = tokens.owner, tokens.key_bias(), tokens.places()
        kinds = sorted(set(getattr(model.config, "layer_types", None) or ())) or [None]
        rotations = {
            kind: cast(Rotation, model.rotary_emb(tokens.hidden, places, *(() if kind is None else (kind,))))
            for kind in kinds
        }
        local = _local_bias(tokens, bias, places, model.config.sliding_window) if SLIDING in kinds else bias
        return RopeMasks(bias, local, rotations)

    def attend(
        self, layer: Any, hidden: Tensor, masks: Any, *, queries: int | None = None, votes: Votes | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """See `TwoHalves.attend`."""
        return checkpointed(layer, self._attend, layer, hidden, masks, queries, votes)

    def feed_forward(self, layer: Any, hidden: Tensor) -> Tensor:
        """See `TwoHalves.feed_forward`."""
        return cast(Tensor, checkpointed(layer, self.feed_forward_of, layer, hidden))

    def attention(self, layer: Any) -> Any:
        """The attention module of a layer."""
        return layer.self_attn

    def before(self, layer: Any, hidden: Tensor) -> Tensor:
        """What attention of `layer` is given."""
        return hidden

    def projected(self, attention: Any, given: Tensor, queries: int | None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (B, Q, D), keys and values (B, N, D) of what attention is given."""
        return attention.q_proj(given[:, :queries]), attention.k_proj(given), attention.v_proj(given)

    def mixed(self, attention: Any, context: Tensor) -> Tensor:
        """The output of attention from its heads (B, Q, D)."""
        return cast(Tensor, attention.o_proj(context))

    def after(self, layer: Any, asking: Tensor, found: Tensor) -> Tensor:
        """The tokens (B, Q, D) after attention, from those before and from what attention found."""
        return asking + found

    def feed_forward_of(self, layer: Any, hidden: Tensor) -> Tensor:
        """The rest of `layer`."""
        raise NotImplementedError

    def _attend(
        self, layer: Any, hidden: Tensor, masks: RopeMasks, queries: int | None, votes: Votes | None
    ) -> tuple[Tensor, Tensor | None]:
        attention, asking = self.attention(layer), hidden[:, :queries]  # (B, Q, D)
        check_implementation(attention.config)  # it may have been changed since
        kind = getattr(layer, "attention_type", None)
        given, rotation = self.before(layer, hidden), masks.rotations[kind]
        query, key, value = (
            x.unflatten(-1, (-1, attention.head_dim)).transpose(1, 2)  # (B, H, Q or N, D/H)
            for x in self.projected(attention, given, queries)
        )
        query, key = _rotated(query, rotation), _rotated(key, rotation)
        if (groups := query.shape[1] // key.shape[1]) > 1:  # several queries share a key
            key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
        bias = masks.local if kind == SLIDING else masks.bias
        bias = None if bias is None else bias.to(query.dtype)
        context, weights = _weighed(attention, query, key, value, _for_queries(bias, queries))
        found = self.mixed(attention, context.transpose(1, 2).flatten(2))  # (B, Q, D)
        found, _ = fire_hooks(attention, given, (found, weights))
        received = None
        if votes is not None:
            voters = None if votes.mask is None else votes.mask.shape[1]
            scaling, of_voters = attention.head_dim**-0.5, _for_queries(bias, voters)
            received = received_attention(query[:, :, :voters], key, of_voters, votes.mask, scaling)
        return self.after(layer, asking, found), received


class PostNormHalves(RopeHalves):
    """Layers of `nomic_bert`, `gte` and `jina_embeddings_v3`: a norm after each half, as in BERT."""

    def after(self, layer: Any, asking: Tensor, found: Tensor) -> Tensor:
        """See `RopeHalves.after`."""
        return cast(Tensor, layer.post_attention_layernorm(asking + layer.post_attention_dropout(found)))

    def feed_forward_of(self, layer: Any, hidden: Tensor) -> Tensor:
        """See `RopeHalves.feed_forward_of`."""
        return cast(Tensor, layer.post_mlp_layernorm(hidden + layer.post_mlp_dropout(layer.mlp(hidden))))


class EuroBertHalves(RopeHalves):
    """Layers of `eurobert`: a norm before each half."""

    @torch.no_grad()
    def compared(self, layer: Any, hidden: Tensor) -> Tensor:
        """See `TwoHalves.compared`: a few directions dominate distances in the residual stream, which has no norm."""
        return cast(Tensor, layer.post_attention_layernorm(hidden.detach()))

    def before(self, layer: Any, hidden: Tensor) -> Tensor:
        """See `RopeHalves.before`."""
        return cast(Tensor, layer.input_layernorm(hidden))

    def feed_forward_of(self, layer: Any, hidden: Tensor) -> Tensor:
        """See `RopeHalves.feed_forward_of`."""
        return cast(Tensor, hidden + layer.mlp(layer.post_attention_layernorm(hidden)))


class LayersInOne(PyramidEncoder):
    """Replaces the list of layers of a model that runs them in its own forward.

    `for layer in layers` and slices give this module itself, once; `layers[0]` and `len(layers)` are those of the list.
    """

    attention_type = FULL  # of the mask that ModernBERT passes

    def __iter__(self) -> Iterator[nn.Module]:
        """This module alone."""
        return iter((self,))

    def __len__(self) -> int:
        """The number of layers."""
        return len(self.replaced[0])

    def __getitem__(self, which: int | slice) -> Any:
        """A layer, or this module for a slice."""
        return (self,) if isinstance(which, slice) else self.replaced[0][which]

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        pyramid_pass: Pass | None = None,
        output_hidden_states: Any = None,
        **kwargs: Any,
    ) -> Tensor:
        """Runs the pyramid on what the model passes to its first layer."""
        wants_all = output_hidden_states or self.owner[0].config.output_hidden_states
        return self.run(hidden_states, key_mask(attention_mask), pyramid_pass, whole=bool(wants_all))


def check_layers(layers: Any) -> None:
    """Raises unless `layers` is a list of layers that a pyramid can run."""
    if not isinstance(layers, nn.ModuleList) or not len(layers):
        raise UnsupportedModelError(f"expected a list of layers, found {type(layers).__name__}")
    first: Any = layers[0]
    config = (first.attn if hasattr(first, "attn") else first.self_attn).config
    check_implementation(config)
    ropes = config.rope_parameters
    for rope in ropes.values() if "rope_type" not in ropes else (ropes,):
        if rope is not None and rope["rope_type"] in _CHANGING:
            raise UnsupportedModelError(
                f"rotary positions of type {rope['rope_type']!r} depend on the length of the text, so a pyramid cannot "
                f"keep them; supported are all types but {', '.join(_CHANGING)}"
            )
    kinds = getattr(config, "layer_types", None)
    if kinds is not None and (FULL not in kinds or not {*kinds} <= {FULL, SLIDING}):
        raise UnsupportedModelError(
            f"layer_types must be {FULL} and {SLIDING}, with one layer of {FULL} at least, got {', '.join(set(kinds))}"
        )


def for_pooling(settings: PyramidConfig, config: Any) -> PyramidConfig:
    """The settings for a head that reads CLS, or the mean over tokens; raises for any other, and for what needs CLS."""
    pooling = getattr(config, "classifier_pooling", "cls")
    if pooling not in ("cls", "bos", "mean"):
        raise UnsupportedModelError(
            f"classifier_pooling must be 'cls', 'bos' or 'mean', got {pooling!r}, which reads tokens one by one, "
            "so none can be dropped"
        )
    if not reads_mean(config):
        return settings
    if settings.rest_from is not None:
        raise UnsupportedModelError(
            f"classifier_pooling='mean' reads every token of the last layer, so tokens cannot rest, got rest_from="
            f"{settings.rest_from}; leave it out, or train a model with classifier_pooling='cls'"
        )
    return settings.replace(cls_only=False)


def _local_bias(tokens: Tokens, bias: Tensor | None, places: Tensor, window: int) -> Tensor | None:
    """(B, 1, N, N): the bias of keys, and a large negative number for tokens more than `window` apart in the input."""
    traced = torch._C._get_tracing_state() is not None or torch.compiler.is_exporting()
    if not traced and places.device.type == "cpu" and int(places.max()) <= window:  # a graph has to serve any length
        return bias
    near = (places[:, None, :] - places[:, :, None]).abs() <= window  # (1 or B, N, N)
    if bias is None:
        bias = tokens.hidden.new_zeros(1, 1, 1, 1)
    return torch.where(near[:, None], bias, torch.finfo(bias.dtype).min)


def _for_queries(bias: Tensor | None, queries: int | None) -> Tensor | None:
    """The part of a bias (B, 1, 1 or N, N) that belongs to the first queries."""
    return bias if bias is None or bias.shape[2] == 1 else bias[:, :, :queries]


def _rotated(x: Tensor, rotation: Rotation) -> Tensor:
    """`x` (B, H, N, D/H) with its halves turned by the angles of the first tokens, in at least fp32."""
    cos, sin = (part[:, None, : x.shape[2]] for part in rotation)  # (1 or B, 1, N, D/H)
    full = x.to(torch.promote_types(x.dtype, torch.float32))
    first, second = full.chunk(2, dim=-1)
    return (full * cos + torch.cat((-second, first), dim=-1) * sin).to(x.dtype)


def _weighed(
    attention: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """What the queries (B, H, Q, D/H) find, and the weights (B, H, Q, N) of eager attention."""
    dropout, scaling = attention.attention_dropout if attention.training else 0.0, attention.head_dim**-0.5
    if attention.config._attn_implementation == "sdpa":
        found = scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout, scale=scaling)
        return found, None
    scores = query @ key.transpose(2, 3) * scaling
    scores = scores if bias is None else scores + bias
    weights = scores.softmax(dim=-1, dtype=torch.promote_types(query.dtype, torch.float32)).to(query.dtype)
    weights = nn.functional.dropout(weights, p=dropout, training=attention.training)
    return weights @ value, weights


POST_NORM = How(
    halves=PostNormHalves(), stand_in=LayersInOne, check=check_layers, reads_positions=True, around=with_places_in_order
)
EURO_BERT = How(
    halves=EuroBertHalves(),
    stand_in=LayersInOne,
    check=check_layers,
    read=read_after_norm,
    reads_positions=True,
    gated=True,
    settings=for_pooling,
    around=around_layers,
)
