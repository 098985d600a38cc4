"""Surgery: replaces the encoder of a model by a pyramid, and puts it back.

A selection at the input also puts a hook on the embeddings and takes their dropout out (`at_input`).
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from ..config import SENSITIVITY_RANK, PyramidConfig
from ..core.loop import Plan
from ..errors import CheckpointError, PyramidError, UnsupportedModelError
from ..planning import plan_and_reducer
from .at_input import AtInput
from .parts import base_model, embeddings_of, encoder_of, has_head, layers_of, pyramid_encoder
from .protecting import protecting
from .table import family_of

_READ_CLS = ("ForMultipleChoice", "ForNextSentencePrediction")  # heads on CLS that are not served
_SENSITIVITY = "sensitivity"  # the buffer (layers, D, R) that `measure_sensitivity` adds to a model


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
        reads_cls = not bare and type(model).__name__.endswith(_READ_CLS)
        verb = "gives" if bare else "reads"
        why = (
            "reads only the CLS vector, but has no class under which its pyramid could be saved and loaded"
            if reads_cls
            else f"{verb} more than the CLS vector, so no token can be dropped"
        )
        raise UnsupportedModelError(f"{type(model).__name__} {why}; supported: {family.supported}")
    if config.spread and not bare:
        raise UnsupportedModelError(
            f"spread=True is for models without a head, and {type(model).__name__} reads only CLS; leave it out"
        )
    if bare and not config.spread:
        warnings.warn(
            f"a pyramid of {type(model).__name__} returns only the tokens that are left: read its CLS vector, or give "
            "spread=True for a mean over tokens, as in sentence-transformers",
            stacklevel=3,
        )
    encoder = encoder_of(model)
    family.how.check(encoder)
    layers = layers_of(model)
    config.check(len(layers))
    if config.metric == "sensitivity" and not hasattr(base, _SENSITIVITY):
        raise PyramidError(
            "metric='sensitivity' needs to know what the answers of this model depend on, which has not been measured: "
            "call measure_sensitivity(model, items) before, or use metric='euclidean' or 'cosine'"
        )
    # Users of the bare model may read any token of the last layer.
    plan, reducer = plan_and_reducer(
        config, layers, family.how.halves.halves, base, cls_only=config.cls_only and has_head(model)
    )
    replaces = config.reduce == "replace"
    pyramid = family.how.stand_in(
        family.how.halves,
        plan,
        reducer,
        replaces=replaces,
        spreads=config.spread,
        seed=config.seed,
        owner=base,
        replaced=encoder,
    )
    pyramid.training = encoder.training  # not train(): that would set the mode of every layer as well
    if config.placement == "input":
        pyramid.at_input = AtInput(embeddings_of(model), family.how.watch(base))
    setattr(base, family.where.encoder, pyramid)
    pyramid.hooks = (*family.how.around(model, base), *protecting(base, config.protection))
    if hasattr(base, _SENSITIVITY):  # only a pyramid that uses it saves it
        set_sensitivity(base, base.sensitivity)


def plan_of(model: Any, config: PyramidConfig) -> Plan:
    """The steps that a pyramid would take with other settings of the same selection, for `Pass(plan=...)`."""
    encoder, own = pyramid_encoder(model), pyramid_settings(model)
    if encoder is None or own is None:
        raise PyramidError("a dense model has no plan; call pyramidize(model, schedule) first")
    same = config.replace(schedule=own.schedule, rest_from=own.rest_from, skip=own.skip, cls_only=own.cls_only)
    if same != own:
        raise PyramidError(f"pyramids that share a model must choose tokens in the same way, got {config} and {own}")
    layers = encoder.plan.layers
    config.check(len(layers))
    config = family_of(model).how.settings(config, model.config)
    cls_only = config.cls_only and has_head(model)
    return plan_and_reducer(config, layers, encoder.family.halves, base_model(model), cls_only=cls_only)[0]


def remove_encoder(model: Any) -> None:
    """Puts back the encoder that `fit_encoder` replaced."""
    pyramid = pyramid_encoder(model)
    assert pyramid is not None
    (encoder,) = pyramid.replaced
    encoder.training = pyramid.training
    if pyramid.at_input is not None:
        pyramid.at_input.remove()
    for hook in pyramid.hooks:
        hook.remove()
    setattr(base_model(model), family_of(model).where.encoder, encoder)


def set_sensitivity(base: Any, sensitivity: Tensor) -> None:
    """Gives the encoder model `base` a sensitivity (layers, D, R), a buffer that is not trained."""
    persistent = getattr(encoder_of(base), "by_sensitivity", False)
    base.register_buffer(_SENSITIVITY, sensitivity, persistent=persistent)


def forget_sensitivity(base: Any) -> None:
    """Removes the sensitivity, if there is one."""
    if hasattr(base, _SENSITIVITY):
        delattr(base, _SENSITIVITY)


def reserve_sensitivity(model: Any, settings: PyramidConfig) -> None:
    """Registers an empty sensitivity buffer, so that a saved pyramid with these settings can load its own."""
    if settings.metric == "sensitivity":
        config = model.config
        shape = config.num_hidden_layers, config.hidden_size, min(SENSITIVITY_RANK, config.hidden_size)
        set_sensitivity(base_model(model), torch.zeros(shape))
