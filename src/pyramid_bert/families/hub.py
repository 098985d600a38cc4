"""Turning models into pyramids and back, in place."""

from __future__ import annotations

import copy
from dataclasses import fields
from typing import Any, TypeVar

from ..checks import check_choice, check_kind
from ..config import PyramidConfig
from ..core.selectors import selector_names
from ..errors import PyramidError
from ..schedule import Schedule
from ..version import __version__
from .cross_encoder import inside
from .parts import base_model, pyramid_encoder
from .protecting import with_separator
from .saved import dense_class, pyramid_config_class
from .surgery import (
    fit_encoder,
    forget_sensitivity,
    is_pyramid,
    pyramid_settings,
    remove_encoder,
    saved_settings,
    set_sensitivity,
)
from .table import FAMILIES, family_of

AnyModel = TypeVar("AnyModel", bound=Any)


def pyramidize(
    model: AnyModel,
    schedule: Schedule | None = None,
    selector: str = "coreset",
    *,
    config: PyramidConfig | None = None,
    **settings: Any,
) -> AnyModel:
    """Turns a transformers model into a pyramid, in place, and returns it. Adds no parameter; `restore` undoes it.

    Args:
        model: A BERT or BigBird model or sequence classifier, or a CrossEncoder of sentence-transformers that holds
            one. A pyramid gets the new settings. BigBird takes only `Schedule.input_only`.
        schedule: How many tokens each layer keeps.
        selector: Which tokens stay.
        config: Everything at once, instead of the other arguments.
        **settings: The further fields of `PyramidConfig`: reduce, weighted, placement, centers_per_step, metric,
            within, cls_only, rest_from, skip, spread, protect, separator, seed.

    Example:
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> tiny = BertConfig(hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16)
        >>> model = pyramidize(BertForSequenceClassification(tiny), Schedule.exponential(0.5, last_layer=2))
        >>> is_pyramid(model), is_pyramid(restore(model))
        (True, False)
    """
    if config is None:
        if schedule is None:
            raise PyramidError("pyramidize needs a schedule, for example Schedule.exponential(0.25, 3)")
        for name in settings:
            check_choice("setting", name, [field.name for field in fields(PyramidConfig)])
        config = PyramidConfig(schedule=schedule, selector=selector, **settings)
    elif schedule is not None or settings or selector != "coreset":
        raise PyramidError("give pyramidize either a config or single settings, not both")
    check_kind("config", config, PyramidConfig, "or give a schedule and single settings")
    whole, (model, reads_mean) = model, inside(model)
    config = config.replace(spread=True) if reads_mean else config
    family = family_of(model)
    config = with_separator(family.how.settings(config, model.config), model.config)
    old = pyramid_settings(model)
    if old is not None:
        remove_encoder(model)
    try:
        fit_encoder(model, config)
    except Exception:
        if old is not None:  # a refused change leaves the model as it was
            fit_encoder(model, old)
        raise
    if old is None:
        _own_config(model)
    model.config.__class__ = pyramid_config_class(family)
    model.config.pyramid = {**config.to_dict(), "library_version": __version__}
    return whole


def restore(model: AnyModel) -> AnyModel:
    """Turns a pyramid back into the transformers model, in place, and returns it. Weights stay as they are.

    Also removes the result of `measure_sensitivity`, from a dense model too.
    """
    whole, (model, _) = model, inside(model)
    config_type = getattr(getattr(model, "config", None), "model_type", None)
    if any(config_type in (family.model_type, family.pyramid_type) for family in FAMILIES):
        forget_sensitivity(base_model(model))
    if not is_pyramid(model):
        return whole
    family = family_of(model)
    remove_encoder(model)
    model.config.__class__ = family.config
    del model.config.pyramid
    model.__class__ = dense_class(family, type(model))
    return whole


def _own_config(model: Any) -> None:
    """Copies the model's config, because other models may share the object and must not change."""
    shared, own = model.config, copy.deepcopy(model.config)
    pyramid = pyramid_encoder(model)
    assert pyramid is not None
    for module in [*model.modules(), *pyramid.replaced]:
        if getattr(module, "config", None) is shared:
            module.config = own


def default_schedule(layers: int) -> Schedule:
    """The default schedule: all tokens in the lowest third, then down to a quarter of them at half of the layers.

    Example:
        >>> default_schedule(12).lengths(32, 12)
        (32, 32, 32, 21, 13, 8, 8, 8, 8, 8, 8, 8)
    """
    first, last = layers // 3, layers // 2
    return Schedule.exponential(0.25, max(last, 1), first_layer=max(first, 1), min_tokens=4)


def apply_settings(model: Any, schedule: Schedule | None, settings: dict[str, Any]) -> None:
    """Makes `model` a pyramid with these settings; a pyramid keeps its other settings."""
    saved = pyramid_settings(model)
    if saved is None:
        pyramidize(
            model, default_schedule(model.config.num_hidden_layers) if schedule is None else schedule, **settings
        )
    elif schedule is not None or settings:
        changes = settings if schedule is None else {**settings, "schedule": schedule}
        check_choice("selector", settings.get("selector", saved.selector), selector_names())
        if settings.get("selector", saved.selector) != saved.selector:
            changes = {"within": None, **changes}  # only clusters have it
        pyramidize(model, config=saved.replace(**changes))


__all__ = [
    "apply_settings",
    "default_schedule",
    "is_pyramid",
    "pyramid_settings",
    "pyramidize",
    "restore",
    "saved_settings",
    "set_sensitivity",
]
