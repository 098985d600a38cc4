"""A family under test: its tiny models, the settings that it takes, and how results are compared."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..config import PyramidConfig
from ..core.loop import Pass
from ..core.selectors import selector_names
from ..errors import PyramidError, UnsupportedModelError
from ..families import Family
from ..schedule.base import Schedule
from .models import tiny_model

CLOSE = 1e-5
LENGTHS = (24, 17, 24, 9, 5, 2, 1)
_MODES: tuple[dict[str, Any], ...] = (
    {"reduce": "drop"},
    {"reduce": "merge"},
    {"reduce": "drop", "weighted": True},
    {"reduce": "replace"},
)
_ATTENTION = ("eager", "sdpa")


@dataclass(frozen=True)
class Case:
    """A family to check.

    Attributes:
        family: Its row.
        config: Keys of the config that tiny models of it need.
    """

    family: Family
    config: Mapping[str, Any] = field(default_factory=dict)

    def model(self, **how: Any) -> Any:
        """A tiny model, always the same; see `tiny_model`."""
        return tiny_model(self.family, self.config, **how)

    def attentions(self) -> Iterator[str]:
        """The implementations of attention that the dense model has."""
        for name in _ATTENTION:
            try:
                self.model(attention=name)
            except ValueError:  # transformers names what the class lacks
                continue
            yield name

    def settings(self) -> list[PyramidConfig]:
        """Every selector, reduction and placement that this family takes."""
        model = self.model()
        return [found for found in every_setting() if self.takes(found, model)]

    def takes(self, settings: PyramidConfig, model: Any) -> bool:
        """Whether the family can run these settings."""
        try:
            self.family.how.settings(settings, model.config)
        except UnsupportedModelError:
            return False
        return True

    def first(self, *wanted: PyramidConfig) -> PyramidConfig:
        """The first of these settings that the family takes."""
        model = self.model()
        found = next((one for one in wanted if self.takes(one, model)), None)
        assert found is not None, (
            f"{self.family.model_type} refuses every selection: its `settings` take none of {wanted}"
        )
        return found

    @property
    def everything(self) -> PyramidConfig:
        """Settings that keep every token."""
        layers, at_input = Schedule.constant(1.0), Schedule.input_only(1.0)
        return self.first(PyramidConfig(schedule=layers), PyramidConfig(schedule=at_input))

    @property
    def half(self) -> PyramidConfig:
        """Settings that lose tokens."""
        layers, at_input = Schedule.exponential(0.4, 3), Schedule.input_only(0.5)
        return self.first(PyramidConfig(schedule=layers), PyramidConfig(schedule=at_input))


def every_setting(placements: Sequence[Any] = ("middle", "end", "input")) -> Iterator[PyramidConfig]:
    """Every selector, way to reduce and placement that go together, and what else a pyramid can do."""
    for name, mode, placement in itertools.product(selector_names(), _MODES, placements):
        schedule = Schedule.input_only(0.4) if placement == "input" else Schedule.exponential(0.4, 3)
        schedule = Schedule.strided(2, at_layers=[1, 3]) if name == "pool" else schedule
        try:
            yield PyramidConfig(schedule=schedule, selector=name, placement=placement, **mode)
        except PyramidError:  # they do not go together
            continue
    at_once = Schedule.exponential(0.4, 2)
    yield PyramidConfig(schedule=at_once, rest_from=3)
    yield PyramidConfig(schedule=at_once, rest_from=3, selector="cluster", cls_only=False)
    yield PyramidConfig(schedule=at_once, skip=(2,))
    yield PyramidConfig(schedule=Schedule.adaptive(0.6))


def logits_of(model: Any, batch: Mapping[str, Tensor], this: Pass | None = None) -> Tensor:
    """The logits, without gradients."""
    with torch.no_grad():
        found: Tensor = model(**batch, **({} if this is None else {"pyramid_pass": this})).logits
    return found


def close(found: Tensor, wanted: Tensor, what: str, tolerance: float = CLOSE) -> None:
    """Raises unless two tensors are equal up to rounding."""
    assert found.shape == wanted.shape, f"{what}: the shape is {tuple(found.shape)}, expected {tuple(wanted.shape)}"
    differs = float((found.float() - wanted.float()).abs().max()) if found.numel() else 0.0
    assert differs <= tolerance, f"{what}: differs by {differs:.3g}, allowed is {tolerance:g}"


def named(settings: PyramidConfig) -> str:
    """Settings in a few words."""
    told = [settings.selector, str(settings.reduce), str(settings.placement)]
    told += ["weighted"] if settings.weighted else []
    told += [f"rest_from={settings.rest_from}"] if settings.rest_from else []
    told += [f"skip={settings.skip}"] if settings.skip else []
    return " ".join([*told, "adaptive"] if settings.schedule.is_adaptive else told)
