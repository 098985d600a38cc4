"""Asks the table of families where the parts of a model are, and runs what stands around its layers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig

from ..config import PyramidConfig
from ..core.encoder import PyramidEncoder
from ..cost import Sizes
from ..errors import PyramidError, UnsupportedModelError
from .table import FAMILIES, family_of


def base_model(model: Any) -> Any:
    """The model without its head: `model.bert` of a BERT classifier, or the model itself."""
    return getattr(model, family_of(model).where.base, model)


def encoder_of(model: Any) -> Any:
    """The encoder inside a model: that of transformers, or the pyramid that replaced it."""
    return getattr(base_model(model), family_of(model).where.encoder)


def layers_of(model: Any) -> Sequence[nn.Module]:
    """The encoder layers of a model in the order in which they run. One module may stand at several places."""
    family, encoder = family_of(model), encoder_of(model)
    if isinstance(encoder, PyramidEncoder):
        return encoder.plan.layers
    layers = getattr(encoder, family.where.layers) if family.where.layers else encoder
    return family.how.by_number(layers, base_model(model).config)


def pyramid_encoder(model: Any) -> PyramidEncoder | None:
    """The pyramid encoder inside `model`, or None when it has none."""
    for family in FAMILIES:
        encoder = getattr(getattr(model, family.where.base, model), family.where.encoder, None)
        if isinstance(encoder, PyramidEncoder):
            return encoder
    return None


def embeddings_of(model: Any) -> Any:
    """The embeddings of a model."""
    return getattr(base_model(model), family_of(model).where.embeddings)


def embedded(model: Any, ids: Tensor, types: Tensor | None = None) -> Tensor:
    """The vectors (B, N, D) that the first layer is given for `ids` (B, N), and for token types (B, N) if there are."""
    kinds = {} if types is None or not reads_types(model) else {"token_type_ids": types}
    return family_of(model).how.enter(base_model(model), embeddings_of(model)(ids, **kinds))


def modules_before(model: Any) -> list[nn.Module]:
    """The modules of a model without its head that do not belong to its encoder: embeddings, projections."""
    encoder = encoder_of(model)
    return [part for part in base_model(model).children() if part is not encoder]


def modules_beside(model: Any) -> list[nn.Module]:
    """The modules of an encoder other than its layers: tables of relative positions, projections."""
    name = family_of(model).where.layers
    return [part for own, part in encoder_of(model).named_children() if name and own != name]


def reads_types(model: Any) -> bool:
    """Whether the embeddings of a model tell the two texts of a pair apart."""
    types = getattr(embeddings_of(model), "token_type_embeddings", None)
    return types is not None and types.num_embeddings > 1


def has_head(model: Any) -> bool:
    """Whether `model` is a classifier or a regressor."""
    return base_model(model) is not model


def logits_of_cls(model: Any, hidden: Tensor, weights: Tensor | None = None) -> Tensor:
    """The logits (B, classes) that the head of a classifier gives for the states (B, N, D) of the last layer.

    A head that reads the mean weighs tokens by `weights` (B, N).
    """
    if not has_head(model):
        raise PyramidError(f"a classifier is needed, got {type(model).__name__}")
    return family_of(model).how.read(model, head_modules(model), hidden, weights)


def head_modules(model: Any) -> list[nn.Module]:
    """The modules between the states of the last layer and the logits."""
    where = family_of(model).where
    return [model.get_submodule(path) for path in (where.norm, *where.head) if path]


def run_ends(model: Any, ids: Tensor, hidden: Tensor) -> None:
    """Runs the embeddings on `ids` (B, N) and the head, if there is one, on states (B, N, D)."""
    embedded(model, ids)
    if has_head(model):
        logits_of_cls(model, hidden)


def new_head(model: Any, outputs: int, seed: int) -> None:
    """Gives a classifier a new last layer with `outputs` outputs; its weights depend only on the seed."""
    path, _, name = family_of(model).where.output.rpartition(".")
    parent = model.get_submodule(path)
    generator = torch.Generator().manual_seed(seed)
    head = nn.Linear(getattr(parent, name).in_features, outputs)
    with torch.no_grad():
        head.weight.normal_(0, model.config.initializer_range, generator=generator)
        head.bias.zero_()
    setattr(parent, name, head.to(model.device, model.dtype))
    model.num_labels = model.config.num_labels = outputs


def settings_for(model: Any, settings: PyramidConfig) -> PyramidConfig | None:
    """The settings as a model, or a model with this config, runs them; None if its family cannot."""
    try:
        return family_of(model).how.settings(settings, getattr(model, "config", model))
    except UnsupportedModelError:
        return None


def positions_of(model: Any) -> int:
    """The largest number of tokens that a model, or a model with this config, can read."""
    return family_of(model).how.positions(getattr(model, "config", model))


def sizes_of(model: Any) -> Sizes:
    """The sizes of a model, or of a model with this config."""
    family, config = family_of(model), getattr(model, "config", model)
    heads = config.num_attention_heads if family.how.reads_without_keys else None
    inner = getattr(config, family.where.inner_size)
    # Costs are those of two matrices.
    inner = inner * 3 // 2 if family.how.gated else inner
    return Sizes(config.num_hidden_layers, config.hidden_size, inner, heads)


def saved_sizes(path: str | Path) -> Sizes:
    """The sizes of the model with this config.json."""
    return sizes_of(AutoConfig.from_pretrained(path))
