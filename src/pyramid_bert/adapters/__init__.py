"""Where the pipe is fitted: one small file a model family. The encoder of a model is replaced, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from ..config import PyramidConfig
from ..encoder import PyramidEncoder
from ..errors import UnsupportedModelError
from .bert import BertBackbone, BertPyramidEncoder, check_bert


@dataclass(frozen=True)
class Adapter:
    """How to find and replace the encoder of one model family.

    Attributes:
        model_types: Values of `config.model_type` that it serves.
        base: Attribute under which heads keep the encoder model.
        heads: Classes that read CLS alone, by name; the base model itself is always allowed.
        check: Raises when the encoder found is not the expected one.
        make: The pyramid encoder class.
        backbone: The object that runs its layers.
    """

    model_types: tuple[str, ...]
    base: str
    heads: tuple[str, ...]
    check: Callable[[nn.Module], None]
    make: type[BertPyramidEncoder]
    backbone: BertBackbone


ADAPTERS: tuple[Adapter, ...] = (
    Adapter(
        model_types=("bert", "pyramid-bert"),
        base="bert",
        heads=("BertForSequenceClassification", "PyramidBertForSequenceClassification"),
        check=check_bert,
        make=BertPyramidEncoder,
        backbone=BertBackbone(),
    ),
)


def adapter_for(model: nn.Module) -> Adapter:
    """The adapter of the model's family, or an error that lists the families that have one."""
    model_type = getattr(getattr(model, "config", None), "model_type", type(model).__name__)
    for adapter in ADAPTERS:
        if model_type in adapter.model_types:
            return adapter
    have = ", ".join(adapter.model_types[0] for adapter in ADAPTERS)
    raise UnsupportedModelError(f"no adapter for model family {model_type!r}; families that have one: {have}")


def base_model(model: Any) -> Any:
    """The encoder model inside `model`: `model.bert` of a classifier, or the model itself."""
    return getattr(model, adapter_for(model).base, model)


def fit_encoder(model: nn.Module, config: PyramidConfig) -> None:
    """Replaces the encoder of `model` by a pyramid. Everything is checked before anything is changed."""
    adapter = adapter_for(model)
    base = base_model(model)
    if base is not model and type(model).__name__ not in adapter.heads:
        raise UnsupportedModelError(
            f"{type(model).__name__} reads more than the CLS vector, so no token can be dropped; "
            f"supported: {', '.join(adapter.heads)} and the bare encoder model"
        )
    encoder = base.encoder
    adapter.check(encoder)
    pyramid = adapter.make(
        encoder.layer,
        adapter.backbone,
        schedule=config.schedule,
        selector=config.selector,
        reduce=config.reduce or "drop",
        weighted=config.weighted,
        placement=config.placement or "middle",
        centers_per_step=config.centers_per_step,
        metric=config.metric,
        within=config.within,
        # Users of the bare model may read any token of the last layer.
        cls_only=config.cls_only and base is not model,
        seed=config.seed,
    )
    pyramid.config = encoder.config
    pyramid.replaced = (encoder,)
    pyramid.training = encoder.training  # not train(): that would set the mode of every layer as well
    base.encoder = pyramid


def remove_encoder(model: nn.Module) -> None:
    """Puts the encoder back that `fit_encoder` replaced."""
    base = base_model(model)
    assert isinstance(base.encoder, BertPyramidEncoder)
    (encoder,) = base.encoder.replaced
    encoder.training = base.encoder.training
    base.encoder = encoder


def pyramid_encoder(model: Any) -> PyramidEncoder | None:
    """The pyramid encoder inside `model`, or None when it has none."""
    for adapter in ADAPTERS:
        encoder = getattr(getattr(model, adapter.base, model), "encoder", None)
        if isinstance(encoder, PyramidEncoder):
            return encoder
    return None


__all__ = ["ADAPTERS", "Adapter", "adapter_for", "base_model", "fit_encoder", "pyramid_encoder", "remove_encoder"]
