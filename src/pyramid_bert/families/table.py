"""The table of model families: a row says where the parts of a model are and how its layers run.

The rest of the package asks here and names neither a family nor an attribute of its models. To add a family:

1. Add a row at the end of this file: the classes of transformers, and the names that differ from BERT's. If the layers
   are like BERT's (RoBERTa, ELECTRA), `halves` and `stand_in` are BERT's too, and the row is all.
2. If the layers differ, write `families/<name>.py` with a subclass of `TwoHalves` (`attend` and `feed_forward`), a
   subclass of `PyramidEncoder` whose `forward` has the signature of the replaced encoder, and a `check`.
3. Add a saved model to tests/data/saved. The Auto classes and the classes of saved pyramids are made from the row
   (`saved`); tests run over all rows.
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
        model_type: `config.model_type` of dense models. That of saved pyramids starts with "pyramid-".
        config: The config class.
        classifier: The class of sequence classifiers.
        model: The class of the model without a head; None if it cannot be a pyramid.
        base: The attribute of a classifier that is the model without a head.
        encoder: The attribute of the model that is its encoder.
        layers: The attribute of the encoder that is the list of layers.
        embeddings: The attribute of the model that is its embeddings.
        pooler: The attribute of the model between the CLS vector and the head.
        head: The path in a classifier, with dots, of the linear layer that gives the logits.
        halves: How layers run.
        stand_in: The class of the pyramid encoder; its `forward` takes the calls that the model makes.
        check: Raises unless a pyramid can replace an encoder.
        positions: The largest number of tokens that a model with a config can read.
        inner_size: The attribute of the config that is the inner width of the feed-forward network.
        reads_without_keys: CLS needs no keys and values in layers that compute only CLS (families/reading.py).
        reads_positions: Attention depends on the positions of tokens, so exported graphs need them.
        settings: Adapts the pyramid's settings to a model's config; raises for settings that the family cannot run.
        watch: Adds further hooks to the model while a pyramid selects at its input.
        tokenizer: The tokenizer class of saved pyramids without one in their config.
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
    inner_size: str = "intermediate_size"
    reads_without_keys: bool = False
    reads_positions: bool = False
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
    """The family of a model or of its config; raises an error that lists the known families."""
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
    """The encoder inside a model: that of transformers, or the pyramid that replaced it."""
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
    """The logits (B, classes) that the head of a classifier gives for the states (B, N, D) of the last layer."""
    if not has_head(model):
        raise PyramidError(f"a classifier is needed, got {type(model).__name__}")
    family = family_of(model)
    whole, _, last = family.head.partition(".")  # a head of several layers reads the states itself
    pooler = getattr(base_model(model), family.pooler, None)
    logits: Tensor = model.get_submodule(whole)(hidden if last or pooler is None else pooler(hidden))
    return logits


def head_modules(model: Any) -> list[nn.Module]:
    """The modules between the states of the last layer and the logits."""
    family = family_of(model)
    pooler = getattr(base_model(model), family.pooler, None)
    head = model.get_submodule(family.head.partition(".")[0])
    return [head] if pooler is None else [pooler, head]


def run_ends(model: Any, ids: Tensor, hidden: Tensor) -> None:
    """Runs the embeddings on `ids` (B, N) and the pooler on states (B, N, D)."""
    embeddings_of(model)(input_ids=ids)
    pooler = getattr(base_model(model), family_of(model).pooler, None)
    if pooler is not None:
        pooler(hidden)


def new_head(model: Any, outputs: int, seed: int) -> None:
    """Gives a classifier a new last layer with `outputs` outputs; its weights depend only on the seed."""
    path, _, name = family_of(model).head.rpartition(".")
    parent = model.get_submodule(path)
    generator = torch.Generator().manual_seed(seed)
    head = nn.Linear(getattr(parent, name).in_features, outputs)
    with torch.no_grad():
        head.weight.normal_(0, model.config.initializer_range, generator=generator)
        head.bias.zero_()
    setattr(parent, name, head.to(model.device, model.dtype))
    model.num_labels = model.config.num_labels = outputs


def positions_of(model: Any) -> int:
    """The largest number of tokens that a model, or a model with this config, can read."""
    return family_of(model).positions(getattr(model, "config", model))


def sizes_of(model: Any) -> Sizes:
    """The sizes of a model, or of a model with this config."""
    family, config = family_of(model), getattr(model, "config", model)
    heads = config.num_attention_heads if family.reads_without_keys else None
    return Sizes(config.num_hidden_layers, config.hidden_size, getattr(config, family.inner_size), heads)


def saved_sizes(path: str | Path) -> Sizes:
    """The sizes of the model with this config.json."""
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
        head="classifier.out_proj",
        halves=BigBirdHalves(),
        stand_in=BigBirdPyramidEncoder,
        check=check_bigbird,
        settings=for_bigbird,
        watch=watch_bigbird,
    )
)
