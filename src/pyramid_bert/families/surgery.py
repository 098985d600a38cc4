"""The operation itself: the encoder of a model is replaced by a pyramid, and nothing else.

A selection at the input also listens to the embeddings, which lose their dropout (`at_input`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..config import SENSITIVITY_RANK, PyramidConfig
from ..errors import CheckpointError, PyramidError, UnsupportedModelError
from .at_input import AtInput
from .table import base_model, encoder_of, family_of, has_head, pyramid_encoder

_SENSITIVITY = "sensitivity"  # the buffer under which a model keeps what `measure_sensitivity` found


def is_pyramid(model: Any) -> bool:
    """Whether `model` has a pyramid encoder."""
    return pyramid_encoder(model) is not None


def pyramid_settings(model: Any) -> PyramidConfig | None:
    """The settings of a pyramid, or None for a dense model."""
    return saved_settings(model.config) if is_pyramid(model) else None


def saved_settings(config: Any) -> PyramidConfig:
    """The pyramid settings inside a transformers config."""
    settings = getattr(config, "pyramid", None)
    if not isinstance(settings, dict):
        raise CheckpointError(
            f"the config of type {getattr(config, 'model_type', None)!r} holds no pyramid settings; "
            "load a dense model with the ordinary classes and call pyramidize(model, schedule)"
        )
    return PyramidConfig.from_dict(settings)


def fit_encoder(model: Any, config: PyramidConfig) -> None:
    """Replaces the encoder of `model` by a pyramid. Everything is checked before anything is changed."""
    family, base = family_of(model), base_model(model)
    bare = base is model
    if type(model).__name__.removeprefix("Pyramid") != family.classifier.__name__ and not (bare and family.model):
        verb = "gives" if bare else "reads"
        raise UnsupportedModelError(
            f"{type(model).__name__} {verb} more than the CLS vector, so no token can be dropped; "
            f"supported: {family.supported}"
        )
    encoder = encoder_of(model)
    family.check(encoder)
    layers = getattr(encoder, family.layers)
    config.check(len(layers))
    pyramid = family.stand_in(
        layers,
        family.halves,
        schedule=config.schedule,
        selector=config.selector,
        reduce=config.reduce or "drop",
        weighted=config.weighted,
        placement=config.placement or "middle",
        knobs={"centers_per_step": config.centers_per_step, "within": config.within},
        metric="cosine" if config.metric == "cosine" else "euclidean",
        by_sensitivity=_uses_sensitivity(base, config),
        # Users of the bare model may read any token of the last layer.
        cls_only=config.cls_only and has_head(model),
        rest_from=config.rest_from,
        seed=config.seed,
        owner=base,
        replaced=encoder,
    )
    pyramid.training = encoder.training  # not train(): that would set the mode of every layer as well
    if config.placement == "input":
        pyramid.at_input = AtInput(getattr(base, family.embeddings), family.watch(base))
    setattr(base, family.encoder, pyramid)
    if hasattr(base, _SENSITIVITY):  # saved with a pyramid that uses it, and with no other
        set_sensitivity(base, base.sensitivity)


def remove_encoder(model: Any) -> None:
    """Puts the encoder back that `fit_encoder` replaced."""
    pyramid = pyramid_encoder(model)
    assert pyramid is not None
    (encoder,) = pyramid.replaced
    encoder.training = pyramid.training
    if pyramid.at_input is not None:
        pyramid.at_input.remove()
    setattr(base_model(model), family_of(model).encoder, encoder)


# ---- sensitivity: one tensor (layers, D, R) beside the weights. It is not a parameter, and nothing trains it. ----


def set_sensitivity(base: Any, sensitivity: Tensor) -> None:
    """Gives the encoder model `base` a sensitivity (layers, D, R), in place of one that it may have."""
    persistent = getattr(encoder_of(base), "by_sensitivity", False)
    base.register_buffer(_SENSITIVITY, sensitivity, persistent=persistent)


def forget_sensitivity(base: Any) -> None:
    """Takes the sensitivity away, if there is one."""
    if hasattr(base, _SENSITIVITY):
        delattr(base, _SENSITIVITY)


def reserve_sensitivity(model: Any, settings: PyramidConfig) -> None:
    """Makes room for the sensitivity that a saved pyramid with these settings brings along."""
    if settings.metric == "sensitivity":
        config = model.config
        shape = config.num_hidden_layers, config.hidden_size, min(SENSITIVITY_RANK, config.hidden_size)
        set_sensitivity(base_model(model), torch.zeros(shape))


def _uses_sensitivity(base: Any, settings: PyramidConfig) -> bool:
    """Whether a pyramid with these settings measures distances by sensitivity; raises if none was measured."""
    wanted = settings.metric == "sensitivity"
    if wanted and not hasattr(base, _SENSITIVITY):
        raise PyramidError(
            "metric='sensitivity' needs to know what the answers of this model depend on, which has not been measured: "
            "call measure_sensitivity(model, items) before, or use metric='euclidean' or 'cosine'"
        )
    return wanted
