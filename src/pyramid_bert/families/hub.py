"""The pyramid as a citizen of transformers: surgery in place, saving, loading through the Auto classes, pipelines.

A saved pyramid has a model type of its own ("pyramid-bert"), so the Auto classes refuse it unless this library is
imported. A plain `BertForSequenceClassification.from_pretrained` would look only at the weights, which are BERT's; so
the saved `hidden_act` names this library instead of the activation, and building a dense model from it fails by that
name.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, TypeVar

from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    BertTokenizer,
    BigBirdConfig,
    BigBirdForSequenceClassification,
)

from ..config import PyramidConfig
from ..errors import CheckpointError, PyramidError
from ..schedule.base import Schedule
from ..version import __version__
from . import adapter_for, base_model, fit_encoder, pyramid_encoder, remove_encoder
from .sensitivity import forget_sensitivity, reserve_sensitivity

_GUARD = " [a pyramid-bert model: install pyramid-bert and `import pyramid_bert` before loading it]"

AnyModel = TypeVar("AnyModel", bound=Any)


class _Guarded:
    """A config that is written so that no dense model can be built from it. Stands before transformers' own class."""

    architectures: list[str] | None

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)  # type: ignore[misc]  # of the config behind it
        if self.architectures:
            self.architectures = [name.removeprefix("Pyramid") for name in self.architectures]

    def to_dict(self) -> dict[str, Any]:
        """As transformers writes it, guarded against being run as a dense model."""
        data: dict[str, Any] = super().to_dict()  # type: ignore[misc]
        data["hidden_act"] = _plain_act(self) + _GUARD
        if self.architectures:
            data["architectures"] = ["Pyramid" + name.removeprefix("Pyramid") for name in self.architectures]
        return data


class PyramidBertConfig(_Guarded, BertConfig):
    """BERT's config with a `pyramid` entry, which holds a `PyramidConfig` as a dict."""

    model_type = "pyramid-bert"
    pyramid: dict[str, Any] | None = None


class PyramidBigBirdConfig(_Guarded, BigBirdConfig):
    """BigBird's config with a `pyramid` entry."""

    model_type = "pyramid-big-bird"
    pyramid: dict[str, Any] | None = None


def _plain_act(config: Any) -> str:
    """The name of the activation, without the guard that a saved config carries."""
    name: str = config.hidden_act
    return name.removesuffix(_GUARD)


class PyramidBertModel(BertModel):
    """`BertModel` with a pyramid encoder. Made by `AutoModel.from_pretrained` on a saved pyramid."""

    config_class = PyramidBertConfig

    def __init__(self, config: PyramidBertConfig, add_pooling_layer: bool = True) -> None:
        config.hidden_act = _plain_act(config)
        super().__init__(config, add_pooling_layer)
        _as_saved(self, config)


class PyramidBertForSequenceClassification(BertForSequenceClassification):
    """`BertForSequenceClassification` with a pyramid encoder. Made by the Auto class on a saved pyramid."""

    config_class = PyramidBertConfig

    def __init__(self, config: PyramidBertConfig) -> None:
        config.hidden_act = _plain_act(config)
        super().__init__(config)
        _as_saved(self, config)


class PyramidBigBirdForSequenceClassification(BigBirdForSequenceClassification):
    """`BigBirdForSequenceClassification` with a selection at its input."""

    config_class = PyramidBigBirdConfig

    def __init__(self, config: PyramidBigBirdConfig) -> None:
        config.hidden_act = _plain_act(config)
        super().__init__(config)
        _as_saved(self, config)


def _as_saved(model: Any, config: Any) -> None:
    """Makes a model that is being loaded the pyramid that its config describes."""
    settings = saved_settings(config)
    reserve_sensitivity(base_model(model), settings)
    fit_encoder(model, settings)


@dataclass(frozen=True)
class _Family:
    """The classes of a model family: configs, dense and as a pyramid, and the models, pyramid -> dense."""

    dense: type
    pyramid: Any
    models: dict[type, type]


_FAMILIES = [
    _Family(
        BertConfig,
        PyramidBertConfig,
        {PyramidBertModel: BertModel, PyramidBertForSequenceClassification: BertForSequenceClassification},
    ),
    _Family(
        BigBirdConfig,
        PyramidBigBirdConfig,
        {PyramidBigBirdForSequenceClassification: BigBirdForSequenceClassification},
    ),
]


def _family(model: Any) -> _Family:
    return next(family for family in _FAMILIES if isinstance(model.config, family.dense))


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
        model: A BERT, Performer or BigBird model or sequence classifier. One that is a pyramid already gets the new
            settings. BigBird takes `Schedule.input_only` alone.
        schedule: How many tokens each layer keeps.
        selector: Which tokens stay.
        config: Everything at once, instead of the other arguments.
        **settings: The further fields of `PyramidConfig`: reduce, weighted, placement, centers_per_step, metric,
            within, cls_only, rest_from, seed.

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
        config = PyramidConfig(schedule=schedule, selector=selector, **settings)
    elif schedule is not None or settings or selector != "coreset":
        raise PyramidError("give pyramidize either a config or single settings, not both")
    config = adapter_for(model).settings(config, model.config)
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
    model.config.__class__ = _family(model).pyramid
    model.config.pyramid = {**config.to_dict(), "library_version": __version__}
    return model


def restore(model: AnyModel) -> AnyModel:
    """Turns a pyramid back into the untouched transformers model, in place, and returns it. Weights stay as they are.

    A model that is no pyramid is returned as it is, without what `measure_sensitivity` may have left with it.
    """
    if any(isinstance(getattr(model, "config", None), family.dense) for family in _FAMILIES):
        forget_sensitivity(base_model(model))
    if not is_pyramid(model):
        return model
    remove_encoder(model)
    family = _family(model)
    model.config.__class__ = family.dense
    del model.config.pyramid
    model.__class__ = family.models.get(type(model), type(model))
    return model


def _own_config(model: Any) -> None:
    """Gives the model a config of its own: another model made from the same object must not change with it."""
    shared, own = model.config, copy.deepcopy(model.config)
    for module in [*model.modules(), *base_model(model).encoder.replaced]:
        if getattr(module, "config", None) is shared:
            module.config = own


def default_schedule(layers: int) -> Schedule:
    """The schedule for users who name none: the lowest layers whole, then down to a quarter of the tokens half-way up.

    Example:
        >>> default_schedule(12).lengths(32, 12)
        (32, 32, 32, 21, 13, 8, 8, 8, 8, 8, 8, 8)
    """
    first, last = layers // 3, layers // 2
    return Schedule.exponential(0.25, max(last, 1), first_layer=max(first, 1), min_tokens=4)


def apply_settings(model: Any, schedule: Schedule | None, settings: dict[str, Any]) -> None:
    """Makes `model` a pyramid with these settings; what is not named stays as a saved pyramid has it."""
    saved = pyramid_settings(model)
    if saved is None:
        pyramidize(model, schedule or default_schedule(model.config.num_hidden_layers), **settings)
    elif schedule is not None or settings:
        changes = settings if schedule is None else {**settings, "schedule": schedule}
        if settings.get("selector", saved.selector) != saved.selector:
            changes = {"within": None, **changes}  # which only clusters have
        pyramidize(model, config=saved.replace(**changes))


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


def register_family(family: _Family) -> None:
    """Makes the pyramids of a family known to transformers."""
    if family not in _FAMILIES:
        _FAMILIES.append(family)
    AutoConfig.register(family.pyramid.model_type, family.pyramid, exist_ok=True)
    for made in family.models:
        kind = AutoModelForSequenceClassification if made.__name__.endswith("Classification") else AutoModel
        kind.register(family.pyramid, made, exist_ok=True)


for _row in list(_FAMILIES):
    register_family(_row)
AutoTokenizer.register(PyramidBertConfig, BertTokenizer, exist_ok=True)
