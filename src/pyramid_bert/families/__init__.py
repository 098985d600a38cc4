"""Where the pipe is fitted: one small file a model family. The encoder of a model is replaced, and nothing else.

A selection at the input also listens to the embeddings, which lose their dropout (`at_input`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from ..config import PyramidConfig
from ..core.backbone import Backbone
from ..core.encoder import PyramidEncoder
from ..errors import UnsupportedModelError
from .at_input import AtInput
from .bert import BertBackbone, BertPyramidEncoder, check_bert
from .bigbird import BigBirdPyramidEncoder, check_bigbird, for_bigbird, watch_bigbird
from .sensitivity import forget_sensitivity, goes_by_sensitivity, keep_sensitivity, reserve_sensitivity, set_sensitivity


@dataclass(frozen=True)
class Adapter:
    """How to find and replace the encoder of one model family.

    Attributes:
        model_types: Values of `config.model_type` that it serves.
        base: Attribute under which heads keep the encoder model.
        heads: Classes that read CLS alone, by name; the base model itself is always allowed.
        check: Raises when the encoder found is not the expected one.
        make: The pyramid encoder class.
        backbone: The object that runs the halves of its layers; None where layers run whole.
        settings: The pyramid's settings for a model's config: raises for those that the family cannot run, and fits
            the others to it.
        watch: Further hooks on the base model, for as long as a pyramid selects at its input.
        bare: Whether the base model may be a pyramid without a head.
    """

    model_types: tuple[str, ...]
    base: str
    heads: tuple[str, ...]
    check: Callable[[nn.Module], None]
    make: Callable[..., PyramidEncoder]
    backbone: Backbone | None
    settings: Callable[[PyramidConfig, Any], PyramidConfig] = lambda config, model: config
    watch: Callable[[Any], Sequence[RemovableHandle]] = lambda base: ()
    bare: bool = True


ADAPTERS: list[Adapter] = [
    Adapter(
        model_types=("bert", "pyramid-bert"),
        base="bert",
        heads=("BertForSequenceClassification", "PyramidBertForSequenceClassification"),
        check=check_bert,
        make=BertPyramidEncoder,
        backbone=BertBackbone(),
    ),
    Adapter(
        model_types=("big_bird", "pyramid-big-bird"),
        base="bert",
        heads=("BigBirdForSequenceClassification", "PyramidBigBirdForSequenceClassification"),
        check=check_bigbird,
        make=BigBirdPyramidEncoder,
        backbone=None,
        settings=for_bigbird,
        watch=watch_bigbird,
        bare=False,  # transformers cuts its own padding off the end of what the encoder returns
    ),
]


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
    if type(model).__name__ not in adapter.heads and not (base is model and adapter.bare):
        verb, bare = "gives" if base is model else "reads", " and the bare encoder model" if adapter.bare else ""
        raise UnsupportedModelError(
            f"{type(model).__name__} {verb} more than the CLS vector, so no token can be dropped; "
            f"supported: {', '.join(adapter.heads)}{bare}"
        )
    encoder = base.encoder
    adapter.check(encoder)
    config.check(len(encoder.layer))
    by_sensitivity = goes_by_sensitivity(base, config)
    pyramid = adapter.make(
        encoder.layer,
        adapter.backbone,
        schedule=config.schedule,
        selector=config.selector,
        reduce=config.reduce or "drop",
        weighted=config.weighted,
        placement=config.placement or "middle",
        centers_per_step=config.centers_per_step,
        metric="euclidean" if by_sensitivity else config.metric,
        by_sensitivity=by_sensitivity,
        within=config.within,
        # Users of the bare model may read any token of the last layer.
        cls_only=config.cls_only and base is not model,
        rest_from=config.rest_from,
        seed=config.seed,
    )
    pyramid.config = encoder.config
    pyramid.replaced = (encoder,)
    pyramid.owner = (base,)
    pyramid.training = encoder.training  # not train(): that would set the mode of every layer as well
    if config.placement == "input":
        pyramid.at_input = AtInput(base, *adapter.watch(base))
    base.encoder = pyramid
    keep_sensitivity(base)


def remove_encoder(model: nn.Module) -> None:
    """Puts the encoder back that `fit_encoder` replaced."""
    base = base_model(model)
    assert isinstance(base.encoder, PyramidEncoder)
    (encoder,) = base.encoder.replaced
    encoder.training = base.encoder.training
    if base.encoder.at_input is not None:
        base.encoder.at_input.remove()
    base.encoder = encoder


def pyramid_encoder(model: Any) -> PyramidEncoder | None:
    """The pyramid encoder inside `model`, or None when it has none."""
    for adapter in ADAPTERS:
        encoder = getattr(getattr(model, adapter.base, model), "encoder", None)
        if isinstance(encoder, PyramidEncoder):
            return encoder
    return None


__all__ = [
    "ADAPTERS",
    "Adapter",
    "adapter_for",
    "base_model",
    "fit_encoder",
    "forget_sensitivity",
    "pyramid_encoder",
    "remove_encoder",
    "reserve_sensitivity",
    "set_sensitivity",
]
