"""scikit-learn's protocol of parameters, for a class that loads a model when it is first used."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any, ClassVar, Self

from .checks import check_choice
from .errors import PyramidError


class Estimator:
    """Keeps the parameters of the constructor as they are given: `sklearn.base.clone` needs no more.

    Attributes:
        LOADED: The attributes that `_load` sets. Asking for one of them loads all.
        PARAMETERS: The names that `set_params` takes.
    """

    LOADED: ClassVar[tuple[str, ...]] = ()
    PARAMETERS: ClassVar[tuple[str, ...]] = ()
    _parameters: dict[str, Any]

    def _load(self) -> None:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        """Loads when one of the attributes that loading sets is first asked for."""
        if name not in type(self).LOADED:
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        self._load()
        return self.__dict__[name]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name; with `deep` also the fields of those that have fields, as `training__epochs`."""
        found = dict(self._parameters)
        for name, value in self._parameters.items() if deep else ():
            if is_dataclass(value):
                found |= {f"{name}__{field.name}": getattr(value, field.name) for field in fields(value)}
        return found

    def set_params(self, **changes: Any) -> Self:
        """Changes parameters and returns itself. Anything but `training` starts over from `model` at the next use."""
        for name, value in changes.items():
            outer, _, field = name.partition("__")
            check_choice("parameter", outer, self.PARAMETERS)
            if field:
                whole = self._parameters[outer]
                if not is_dataclass(whole) or isinstance(whole, type):
                    raise PyramidError(f"{outer} has no parameters of its own, got {name!r}; set {outer} itself")
                check_choice(f"parameter of {outer}", field, [part.name for part in fields(whole)])
                value = replace(whole, **{field: value})
            self._parameters[outer] = value
            if outer != "training":
                for attribute in self.LOADED:
                    self.__dict__.pop(attribute, None)
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return getattr(self, "labels", None) is not None

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags

        labels = self.__dict__.get("labels")
        regressor = labels is not None and labels.classes is None
        return Tags(
            estimator_type="regressor" if regressor else "classifier",
            target_tags=TargetTags(required=True),
            input_tags=InputTags(two_d_array=False, string=True),
            classifier_tags=None if regressor else ClassifierTags(),
            regressor_tags=RegressorTags() if regressor else None,
        )
