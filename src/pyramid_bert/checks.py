"""Checks of single values, with errors that say what was given, what is allowed and what to do."""

from __future__ import annotations

from numbers import Integral, Real

from .errors import PyramidError


def check_ratio(value: float) -> None:
    """Raises unless `value` can be a keep ratio."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < value <= 1:
        raise PyramidError(f"keep_ratio must be in (0, 1], got {value!r}; the paper uses 0.1-0.75")


def check_int(name: str, value: int, low: int, hint: str) -> None:
    """Raises unless `value` is a whole number of at least `low`."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < low:
        raise PyramidError(f"{name} must be an integer of at least {low}, got {value!r}; {hint}")


def check_layer(name: str, value: int, layers: int) -> None:
    """Raises unless `value` is the number of one of the model's layers."""
    if value > layers:
        raise PyramidError(f"{name} must be in 1-{layers}, got {value}; the model has {layers} layers")
