"""The Performer as a transformers model, and its row in the table of families.

Its layers are BERT's (post-LayerNorm) with FAVOR+ instead of softmax attention. Other differences from BERT: queries,
keys and values may be narrower than the model (`qkv_size`), there are no token types, and the head is BigBird's, which
reads CLS. There is no attention matrix, so a pyramid cannot rank tokens by attention.

Random features are buffers, saved with the weights. In training they are redrawn every `redraw_every` forward passes,
from `feature_seed` and the number of the pass.
"""

from __future__ import annotations

from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification, PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutput, SequenceClassifierOutput
from transformers.models.big_bird.modeling_big_bird import BigBirdClassificationHead
from transformers.utils.generic import ModelOutput, can_return_tuple, merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from ...checks import check_choice, check_int
from ...config import PyramidConfig
from ...core.encoder import PyramidEncoder
from ...core.loop import Pass
from ...core.selectors import get_selector
from ...errors import PyramidError, UnsupportedModelError
from ...families import Family, How, Where, register_family
from ...families.halves import TwoHalves, Votes, checkpointed, run_encoder
from .favor import KERNELS, favor_attention, orthogonal_features


class PerformerConfig(PreTrainedConfig):
    """The sizes of a Performer.

    Attributes:
        qkv_size: Width of queries, keys and values over all heads; `hidden_size` if None.
        kernel: "softmax" (FAVOR+) or "relu" (the generalised kernel, the default of Long Range Arena).
        num_features: Random features per head; 0 (only with "relu") uses queries and keys directly.
        redraw_every: Forward passes in training between two draws of the features; 0 for never.
        feature_seed: Seed of the features.

    Example:
        >>> PerformerConfig(hidden_size=8, num_attention_heads=2).head_size
        4
    """

    model_type = "performer"

    vocab_size: int = 258
    hidden_size: int = 128
    qkv_size: int | None = None
    num_hidden_layers: int = 1
    num_attention_heads: int = 8
    intermediate_size: int = 128
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    classifier_dropout: float | None = None
    max_position_embeddings: int = 1025
    layer_norm_eps: float = 1e-12
    initializer_range: float = 0.02
    pad_token_id: int | None = 0
    kernel: str = "softmax"
    num_features: int = 256
    redraw_every: int = 1000
    feature_seed: int = 0

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        check_choice("kernel", self.kernel, KERNELS)
        layers = ("num_hidden_layers", "num_attention_heads", "hidden_size", "intermediate_size")
        for name in (*layers, "vocab_size", "max_position_embeddings"):
            check_int(name, getattr(self, name), 1, f"the default is {getattr(PerformerConfig, name)}")
        check_int("num_features", self.num_features, int(self.kernel == "softmax"), "0 only with kernel='relu'")
        check_int("redraw_every", self.redraw_every, 0, "0 never redraws")
        if self.qkv_size is not None:
            check_int("qkv_size", self.qkv_size, 1, "None takes hidden_size")
        if self.projected_size % self.num_attention_heads:
            raise PyramidError(
                f"the width of queries and keys must be a multiple of the {self.num_attention_heads} heads, "
                f"got {self.projected_size}; change qkv_size or num_attention_heads"
            )

    @property
    def projected_size(self) -> int:
        """The width of queries, keys and values over all heads."""
        return self.hidden_size if self.qkv_size is None else self.qkv_size

    @property
    def head_size(self) -> int:
        """The width of one head's queries."""
        return self.projected_size // self.num_attention_heads


class PerformerEmbeddings(nn.Module):
    """Token and position, LayerNorm, dropout."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        self.position_embeddings = nn.Embedding(config.max_position_embeddings, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, input_ids: Any, inputs_embeds: Any = None, position_ids: Any = None) -> Tensor:
        """(B, N, D)."""
        tokens = self.word_embeddings(input_ids) if inputs_embeds is None else inputs_embeds
        positions = self._positions(position_ids, tokens.shape[1]).to(tokens.device)
        return self.dropout(self.LayerNorm(tokens + self.position_embeddings(positions)))

    def _positions(self, given: Tensor | None, n: int) -> Tensor:
        """The positions of `n` tokens, counted from 0 unless `given`; raises for those that the model lacks."""
        limit = self.position_embeddings.num_embeddings
        if given is None:
            if n > limit:
                raise PyramidError(
                    f"the input has {n} tokens and the model {limit} positions; cut it, or build the model with "
                    f"max_position_embeddings={n}"
                )
            return torch.arange(n)[None]
        if given.shape[-1] != n:
            raise PyramidError(
                f"position_ids must name {n} positions a row, got shape {tuple(given.shape)}; leave them out to count "
                "from 0"
            )
        least, largest = (int(x) for x in given.aminmax())
        if least < 0 or largest >= limit:
            raise PyramidError(
                f"position_ids must be from 0 to {limit - 1}, got {least} to {largest}; leave them out to count from "
                f"0, or build the model with max_position_embeddings={max(largest + 1, limit)}"
            )
        return given


class PerformerSelfAttention(nn.Module):
    """FAVOR+ over several heads, with the random features of one layer."""

    projection: Tensor | None

    def __init__(self, config: Any, layer_number: int) -> None:
        super().__init__()
        self.config, self.layer_number = config, layer_number
        self.query, self.key, self.value = (nn.Linear(config.hidden_size, config.projected_size) for _ in range(3))
        features = torch.zeros(config.num_features, config.head_size) if config.num_features else None
        self.register_buffer("projection", features)

    def draw(self, step: int) -> Tensor:
        """The features from training step `step` on: the same in every process and after a resume."""
        seed = (self.config.feature_seed * 1_000_003 + self.layer_number) * 1_000_003 + step
        generator = torch.Generator().manual_seed(seed % 2**63)
        return orthogonal_features(self.config.num_features, self.config.head_size, generator)

    def forward(self, hidden: Tensor, bias: Tensor | None = None, queries: int | None = None) -> Tensor:
        """(B, Q, qkv): what the first `queries` tokens read from all; see `favor_attention` for `bias`."""
        query, key, value = (
            project(x).unflatten(-1, (-1, self.config.head_size)).transpose(1, 2)  # (B, H, Q or N, D/H)
            for project, x in ((self.query, hidden[:, :queries]), (self.key, hidden), (self.value, hidden))
        )
        context = favor_attention(query, key, value, bias, self.projection, kernel=self.config.kernel)
        return context.transpose(1, 2).flatten(2)


class PerformerLayer(GradientCheckpointingLayer):
    """Attention and feed-forward network, each with Add & LayerNorm."""

    def __init__(self, config: Any, layer_number: int) -> None:
        super().__init__()
        self.attention = PerformerSelfAttention(config, layer_number)
        self.attention_output = nn.Linear(config.projected_size, config.hidden_size)
        self.attention_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.intermediate = nn.Linear(config.hidden_size, config.intermediate_size)
        self.output = nn.Linear(config.intermediate_size, config.hidden_size)
        self.output_norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        check_choice("hidden_act", config.hidden_act, ACT2FN)
        self.activation = ACT2FN[config.hidden_act]
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def attend(self, hidden: Tensor, bias: Tensor | None = None, queries: int | None = None) -> Tensor:
        """The first half of the layer, for the first `queries` tokens."""
        read = self.dropout(self.attention_output(self.attention(hidden, bias, queries)))
        return cast(Tensor, self.attention_norm(hidden[:, :queries] + read))

    def feed_forward(self, hidden: Tensor) -> Tensor:
        """The second half."""
        made = self.dropout(self.output(self.activation(self.intermediate(hidden))))
        return cast(Tensor, self.output_norm(hidden + made))

    def forward(self, hidden: Tensor, bias: Tensor | None = None) -> Tensor:
        """(B, N, D)."""
        return self.feed_forward(self.attend(hidden, bias))


class PerformerEncoder(nn.Module):
    """The stack of layers."""

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.config = config
        self.layer = nn.ModuleList(PerformerLayer(config, number) for number in range(config.num_hidden_layers))

    def forward(self, hidden: Tensor, mask: Tensor | None = None, **kwargs: Any) -> BaseModelOutput:
        """Runs all layers; `mask` (B, N) is True for real tokens."""
        bias = None
        if mask is not None:
            lowest = torch.finfo(torch.float32).min
            bias = torch.zeros(mask.shape, device=hidden.device).masked_fill(~mask, lowest)[:, None, None]
        for layer in self.layer:
            hidden = layer(hidden, bias)
        return BaseModelOutput(last_hidden_state=cast(torch.FloatTensor, hidden))


class PerformerPreTrainedModel(PreTrainedModel):
    """How Performers are initialised, saved and loaded."""

    config: PerformerConfig
    config_class = PerformerConfig
    base_model_prefix = "performer"
    _input_embed_layer = "word_embeddings"
    supports_gradient_checkpointing = True
    _can_record_outputs = {"hidden_states": PerformerLayer}  # noqa: RUF012  transformers declares it so

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, PerformerSelfAttention) and module.projection is not None:
            init.copy_(module.projection, module.draw(0))
        elif isinstance(module, PerformerModel):
            init.zeros_(module.steps)


class PerformerModel(PerformerPreTrainedModel):
    """The bare encoder.

    Example:
        >>> model = PerformerModel(PerformerConfig(hidden_size=8, num_attention_heads=2, num_features=16)).eval()
        >>> model(input_ids=torch.tensor([[1, 5, 9]])).last_hidden_state.shape
        torch.Size([1, 3, 8])
    """

    steps: Tensor  # forward passes in training, so far

    def __init__(self, config: PerformerConfig) -> None:
        super().__init__(config)
        self.embeddings = PerformerEmbeddings(config)
        self.encoder = PerformerEncoder(config)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **kwargs: Any,
    ) -> BaseModelOutput:
        """The last layer's vectors (B, N, D); `attention_mask` (B, N) is 1 for real tokens."""
        _check_input(input_ids, inputs_embeds, attention_mask)
        hidden = self.embeddings(input_ids, inputs_embeds, position_ids)
        if self.training:
            self._count_step()
        mask = None if attention_mask is None else attention_mask != 0
        return cast(BaseModelOutput, self.encoder(hidden, mask, **kwargs))

    @torch.no_grad()
    def _count_step(self) -> None:
        """Counts a pass and redraws features when due; outside the layers, because checkpointing runs those twice."""
        every = self.config.redraw_every
        if not every or not self.config.num_features:
            return
        step = int(self.steps)
        if step and step % every == 0:
            for layer in self.encoder.layer:
                attention = cast(PerformerSelfAttention, layer.attention)
                # Replaced, not overwritten: an earlier pass may still need the old features for its gradients.
                attention.projection = attention.draw(step).to(cast(Tensor, attention.projection))
        self.steps += 1


def _check_input(input_ids: Tensor | None, inputs_embeds: Tensor | None, mask: Tensor | None) -> None:
    """Raises unless there is exactly one input, with a token in every row, and a mask of its shape."""
    given = input_ids if inputs_embeds is None else inputs_embeds
    if given is None or (input_ids is not None and inputs_embeds is not None):
        raise PyramidError("give a Performer either input_ids or inputs_embeds")
    name, form, dims = ("input_ids", "", 2) if inputs_embeds is None else ("inputs_embeds", ", width", 3)
    if given.dim() != dims or not given.shape[1]:
        raise PyramidError(
            f"{name} must be (rows, tokens{form}) with at least one token a row, got shape {tuple(given.shape)}; "
            "begin every row with CLS"
        )
    if mask is not None and mask.shape != given.shape[:2]:
        shapes = f"the input's shape {tuple(given.shape[:2])}, got {tuple(mask.shape)}"
        raise PyramidError(f"attention_mask must be of {shapes}; give 1 for every real token and 0 for padding")


class PerformerForSequenceClassification(PerformerPreTrainedModel):
    """A Performer with a classifier on its CLS token.

    Example:
        >>> config = PerformerConfig(hidden_size=8, num_attention_heads=2, num_features=16, num_labels=3)
        >>> PerformerForSequenceClassification(config).eval()(input_ids=torch.tensor([[1, 5, 9]])).logits.shape
        torch.Size([1, 3])
    """

    def __init__(self, config: PerformerConfig) -> None:
        super().__init__(config)
        self.performer = PerformerModel(config)
        self.classifier = BigBirdClassificationHead(config)
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> SequenceClassifierOutput:
        """Logits (B, classes), and the loss if `labels` (B,) are given: class numbers, or floats for one output."""
        outputs = self.performer(
            input_ids, attention_mask, position_ids, inputs_embeds=inputs_embeds, return_dict=True, **kwargs
        )
        logits = self.classifier(outputs.last_hidden_state)
        loss = None
        if labels is not None:
            one = self.config.num_labels == 1
            loss = F.mse_loss(logits[:, 0], labels.to(logits.dtype)) if one else F.cross_entropy(logits, labels)
        return SequenceClassifierOutput(loss=cast(Any, loss), logits=logits, hidden_states=outputs.get("hidden_states"))


# ---- as a pyramid ----


class PerformerHalves(TwoHalves):
    """Runs the halves of a `PerformerLayer`."""

    def attend(
        self, layer: Any, hidden: Tensor, masks: Any, *, queries: int | None = None, votes: Votes | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """See `TwoHalves.attend`."""
        return checkpointed(layer, layer.attend, hidden, masks, queries), None

    def feed_forward(self, layer: Any, hidden: Tensor) -> Tensor:
        """See `TwoHalves.feed_forward`."""
        return cast(Tensor, checkpointed(layer, layer.feed_forward, hidden))


class PerformerPyramidEncoder(PyramidEncoder):
    """Replaces `PerformerEncoder`."""

    def forward(
        self, hidden: Tensor, mask: Tensor | None = None, pyramid_pass: Pass | None = None, **kwargs: Any
    ) -> ModelOutput:
        """Runs the pyramid on what `PerformerModel` passes to its encoder."""
        return run_encoder(self, hidden, mask, pyramid_pass, kwargs)


def _check(encoder: Any) -> None:
    if not isinstance(encoder, PerformerEncoder):
        raise UnsupportedModelError(f"expected a PerformerEncoder, found {type(encoder).__name__}")


def _settings(settings: PyramidConfig, config: Any) -> PyramidConfig:
    """The settings unchanged; raises for a selector that needs an attention matrix."""
    if get_selector(settings.selector).voters is not None:
        raise UnsupportedModelError(
            f"the selector {settings.selector!r} ranks tokens by an attention matrix, and a Performer makes none; "
            "use 'coreset', 'first' or 'random'"
        )
    return settings


AutoConfig.register("performer", PerformerConfig, exist_ok=True)
AutoModel.register(PerformerConfig, PerformerModel, exist_ok=True)
AutoModelForSequenceClassification.register(PerformerConfig, PerformerForSequenceClassification, exist_ok=True)
PERFORMER = Family(
    model_type="performer",
    config=PerformerConfig,
    classifier=PerformerForSequenceClassification,
    model=PerformerModel,
    where=Where(base="performer"),
    how=How(halves=PerformerHalves(), stand_in=PerformerPyramidEncoder, check=_check, settings=_settings),
)
register_family(PERFORMER)
