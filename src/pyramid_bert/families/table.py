"""The table of model families: a row says where the parts of a model are and how its layers run.

Everything else asks here: no other file names a family, or an attribute of a family's models. A new family is one row,
and a small file where it differs. Auto classes and saved models are made from the row (`saved`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle
from transformers import (
    AutoConfig,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    BertTokenizer,
    BigBirdConfig,
    BigBirdForSequenceClassification,
)

from ..config import PyramidConfig
from ..core.encoder import PyramidEncoder
from ..core.loop import Halves
from ..cost import Sizes
from ..errors import PyramidError, UnsupportedModelError
from .bert import BertHalves, BertPyramidEncoder, check_bert
from .bigbird import BigBirdHalves, BigBirdPyramidEncoder, check_bigbird, for_bigbird, watch_bigbird


@dataclass(frozen=True, eq=False, kw_only=True)
class Family:
    """One model family.

    Attributes:
        model_type: `config.model_type` of its dense models. A saved pyramid has "pyramid-" before it.
        config: The config class.
        classifier: The class of its sequence classifiers.
        model: The class of the model without a head; None where that cannot be a pyramid.
        base: Under which name a classifier keeps that model.
        encoder: Under which name the model keeps its encoder.
        layers: Under which name the encoder keeps its layers.
        embeddings: Under which name the model keeps its embeddings.
        pooler: Under which name the model keeps what is between CLS and the head.
        head: Under which name a classifier keeps the linear layer that gives its outputs.
        halves: How layers run.
        stand_in: The pyramid encoder class, which answers the calls that the model makes.
        check: Raises when an encoder is not one that a pyramid can stand in for.
        positions: The most tokens that a model of a config reads.
        reads_without_keys: CLS needs no keys and values where only CLS is computed (families/reading.py).
        settings: The pyramid's settings for a model's config: raises for those that the family cannot run, and fits
            the others to it.
        watch: Further hooks on the model, for as long as a pyramid selects at its input.
        tokenizer: The tokenizer class of saved pyramids that name none.
    """

    model_type: str
    config: type[Any]
    classifier: type[Any]
    model: type[Any] | None
    base: str
    encoder: str = "encoder"
    layers: str = "layer"
    embeddings: str = "embeddings"
    pooler: str = "pooler"
    head: str = "classifier"
    halves: Halves
    stand_in: type[PyramidEncoder]
    check: Callable[[Any], None]
    positions: Callable[[Any], int] = lambda config: config.max_position_embeddings
    reads_without_keys: bool = False
    settings: Callable[[PyramidConfig, Any], PyramidConfig] = lambda settings, config: settings
    watch: Callable[[Any], Sequence[RemovableHandle]] = lambda model: ()
    tokenizer: type[Any] | None = None

    @property
    def pyramid_type(self) -> str:
        """`config.model_type` of saved pyramids."""
        return f"pyramid-{self.model_type.replace('_', '-')}"

    @property
    def supported(self) -> str:
        """The classes that can be pyramids, for messages."""
        names = f"{self.classifier.__name__}, Pyramid{self.classifier.__name__}"
        return names if self.model is None else f"{names} and the bare encoder model"


FAMILIES: list[Family] = []


def add_family(family: Family) -> None:
    """Adds a row to the table."""
    FAMILIES.append(family)


def family_of(model: Any) -> Family:
    """The family of a model or of its config, or an error that lists the families that there are."""
    config = getattr(model, "config", model)
    model_type = getattr(config, "model_type", type(model).__name__)
    for family in FAMILIES:
        if model_type in (family.model_type, family.pyramid_type):
            return family
    have = ", ".join(family.model_type for family in FAMILIES)
    raise UnsupportedModelError(f"no adapter for model family {model_type!r}; families that have one: {have}")


def base_model(model: Any) -> Any:
    """The model without its head: `model.bert` of a BERT classifier, or the model itself."""
    return getattr(model, family_of(model).base, model)


def encoder_of(model: Any) -> Any:
    """The encoder inside a model: transformers' own, or the pyramid that stands in for it."""
    return getattr(base_model(model), family_of(model).encoder)


def layers_of(model: Any) -> nn.ModuleList:
    """The encoder layers of a model."""
    layers: nn.ModuleList = getattr(encoder_of(model), family_of(model).layers)
    return layers


def pyramid_encoder(model: Any) -> PyramidEncoder | None:
    """The pyramid encoder inside `model`, or None when it has none."""
    for family in FAMILIES:
        encoder = getattr(getattr(model, family.base, model), family.encoder, None)
        if isinstance(encoder, PyramidEncoder):
            return encoder
    return None


def embeddings_of(model: Any) -> Any:
    """The embeddings of a model."""
    return getattr(base_model(model), family_of(model).embeddings)


def has_head(model: Any) -> bool:
    """Whether `model` is a classifier or a regressor."""
    return base_model(model) is not model


def logits_of_cls(model: Any, hidden: Tensor) -> Tensor:
    """What the head of a classifier makes of the last layer's states (B, N, D), of which it reads CLS: (B, classes)."""
    family = family_of(model)
    pooler = getattr(base_model(model), family.pooler, None)
    if not has_head(model) or pooler is None:
        raise PyramidError(f"a classifier with a pooler is needed, got {type(model).__name__}")
    logits: Tensor = getattr(model, family.head)(pooler(hidden))
    return logits


def run_ends(model: Any, ids: Tensor, hidden: Tensor) -> None:
    """Runs what comes before and after the layers: embeddings of `ids` (B, N), and the pooler on states (B, N, D)."""
    embeddings_of(model)(input_ids=ids)
    pooler = getattr(base_model(model), family_of(model).pooler, None)
    if pooler is not None:
        pooler(hidden)


def new_head(model: Any, outputs: int, seed: int) -> None:
    """Gives a classifier a fresh layer of so many outputs; its weights depend on the seed only."""
    name = family_of(model).head
    generator = torch.Generator().manual_seed(seed)
    head = nn.Linear(getattr(model, name).in_features, outputs)
    with torch.no_grad():
        head.weight.normal_(0, model.config.initializer_range, generator=generator)
        head.bias.zero_()
    setattr(model, name, head.to(model.device, model.dtype))
    model.num_labels = model.config.num_labels = outputs


def positions_of(model: Any) -> int:
    """The most tokens that a model (or a model of this config) reads."""
    return family_of(model).positions(getattr(model, "config", model))


def sizes_of(model: Any) -> Sizes:
    """The sizes of a model, or of a model of this config."""
    config = getattr(model, "config", model)
    heads = config.num_attention_heads if family_of(model).reads_without_keys else None
    return Sizes(config.num_hidden_layers, config.hidden_size, config.intermediate_size, heads)


def saved_sizes(path: str | Path) -> Sizes:
    """The sizes of the model whose config.json this is."""
    return sizes_of(AutoConfig.from_pretrained(path))


add_family(
    Family(
        model_type="bert",
        config=BertConfig,
        classifier=BertForSequenceClassification,
        model=BertModel,
        base="bert",
        halves=BertHalves(),
        stand_in=BertPyramidEncoder,
        check=check_bert,
        reads_without_keys=True,
        tokenizer=BertTokenizer,
    )
)
add_family(
    Family(
        model_type="big_bird",
        config=BigBirdConfig,
        classifier=BigBirdForSequenceClassification,
        model=None,  # transformers cuts its own padding off the end of what the encoder returns
        base="bert",
        halves=BigBirdHalves(),
        stand_in=BigBirdPyramidEncoder,
        check=check_bigbird,
        settings=for_bigbird,
        watch=watch_bigbird,
    )
)
