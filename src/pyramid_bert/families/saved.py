"""Saved pyramids: configs and classes made from the table of families, known to transformers' Auto classes.

A saved pyramid has its own model type, so the Auto classes refuse it unless this library is imported, and quote the
type: what is saved is "pyramid-bert" and what to do, as 0.1.0 saved "pyramid-bert". Both are known to the Auto classes.
`BertForSequenceClassification.from_pretrained` does not look at the type. To make it fail too, the saved `hidden_act`
says the same after the activation, and transformers raises an error that quotes it.
"""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar, cast

from transformers import CONFIG_MAPPING, AutoConfig, AutoModel, AutoModelForSequenceClassification, AutoTokenizer
from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING

from ..checks import check_kind
from .family import Family
from .surgery import fit_encoder, reserve_sensitivity, saved_settings
from .table import FAMILIES, add_family

_GUARD = " [a pyramid-bert model: install pyramid-bert and `import pyramid_bert` before loading it]"


class _Guarded:
    """Mixin for configs: what is saved cannot be loaded as a dense model."""

    architectures: list[str] | None
    model_type: ClassVar[str]
    activation_key: ClassVar[str]  # the attribute that names the activation

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)  # type: ignore[misc]  # of the config behind it
        self.__dict__.pop("model_type", None)  # as it was saved; the class has the plain one
        if self.architectures:
            self.architectures = [name.removeprefix("Pyramid") for name in self.architectures]

    def to_dict(self) -> dict[str, Any]:
        """The config as transformers writes it, with the guard."""
        data: dict[str, Any] = super().to_dict()  # type: ignore[misc]
        data[self.activation_key] = _plain_activation(self) + _GUARD
        data["model_type"] = type(self).model_type + _GUARD
        if self.architectures:
            data["architectures"] = ["Pyramid" + name.removeprefix("Pyramid") for name in self.architectures]
        return data

    @classmethod
    def get_config_dict(cls, *args: Any, **kwargs: Any) -> Any:
        """What a saved config holds, with the plain model type: transformers warns of any other."""
        data, rest = super().get_config_dict(*args, **kwargs)  # type: ignore[misc]
        if isinstance(data.get("model_type"), str):
            data["model_type"] = data["model_type"].removesuffix(_GUARD)
        return data, rest


def _plain_activation(config: Any) -> str:
    """The name of the activation, without the guard that a saved config carries."""
    name: str = getattr(config, config.activation_key)
    return name.removesuffix(_GUARD)


@cache
def pyramid_config_class(family: Family) -> type[Any]:
    """The family's config with a `pyramid` entry, which holds a `PyramidConfig` as a dict."""
    fields = {
        "__doc__": f"`{family.config.__name__}` with a `pyramid` entry.",
        "__module__": __name__,
        "__annotations__": {"pyramid": dict[str, Any] | None, "activation_key": ClassVar[str]},
        "model_type": family.pyramid_type,
        "activation_key": family.where.activation,
        "pyramid": None,
    }
    return _known(type(f"Pyramid{family.config.__name__}", (_Guarded, family.config), fields))


def pyramid_class(family: Family, dense: type[Any]) -> type[Any]:
    """A model class of the family whose models are pyramids as soon as they are built."""
    name = f"Pyramid{dense.__name__}"
    if name in globals():
        return cast(type[Any], globals()[name])

    def build(self: Any, config: Any, *args: Any, **kwargs: Any) -> None:
        setattr(config, config.activation_key, _plain_activation(config))
        dense.__init__(self, config, *args, **kwargs)
        settings = saved_settings(config)
        reserve_sensitivity(self, settings)
        fit_encoder(self, settings)

    fields = {
        "__doc__": f"`{dense.__name__}` with a pyramid encoder. Made by the Auto classes on a saved pyramid.",
        "__module__": __name__,
        "__init__": build,
        "config_class": pyramid_config_class(family),
    }
    return _known(type(name, (dense,), fields))


def dense_class(family: Family, made: type[Any]) -> type[Any]:
    """The dense class of a pyramid's class; any other class is returned as it is."""
    for dense in (family.model, family.classifier):
        if dense is not None and made is pyramid_class(family, dense):
            return dense
    return made


def _known(made: type[Any]) -> type[Any]:
    """Adds a class to this module, where pickle and transformers look for it."""
    globals()[made.__name__] = made
    return made


def announce(family: Family) -> None:
    """Makes the pyramids of a family known to transformers."""
    config = pyramid_config_class(family)
    AutoConfig.register(family.pyramid_type, config, exist_ok=True)
    CONFIG_MAPPING.register(family.pyramid_type + _GUARD, config, exist_ok=True)
    AutoModelForSequenceClassification.register(config, pyramid_class(family, family.classifier), exist_ok=True)
    if family.model is not None:
        AutoModel.register(config, pyramid_class(family, family.model), exist_ok=True)
    if family.config in TOKENIZER_MAPPING:
        AutoTokenizer.register(config, TOKENIZER_MAPPING[family.config], exist_ok=True)


def register_family(family: Family) -> None:
    """Adds a model family: its classifiers can then be pyramids, saved and loaded. See docs/families.md.

    Args:
        family: The row. `pyramid_bert.testing.check_family(family)` tells whether it is right.
    """
    check_kind("family", family, Family, "docs/families.md says how to write one")
    add_family(family)
    announce(family)


for _family in FAMILIES:
    announce(_family)
