"""Checks of single values. Every error has the given value, what is allowed and, if there is one, a remedy."""

from __future__ import annotations

from collections.abc import Collection
from math import inf
from numbers import Integral, Real
from os import PathLike
from sys import float_info
from typing import Any

from .errors import PyramidError, UnknownNameError, shown


def check_number(
    name: str,
    value: object,
    low: float = 0,
    high: float = inf,
    hint: str = "",
    *,
    whole: bool = False,
    above: bool = False,
    error: type[PyramidError] = PyramidError,
) -> None:
    """Raises unless `value` is a finite number in `low` to `high`, both included.

    Args:
        name: What the value is called in the error.
        value: The value.
        low: The least that is allowed.
        high: The most that is allowed.
        hint: A remedy, or the reason for the limits.
        whole: Only integers are allowed.
        above: `low` itself is not allowed.
        error: What is raised.

    Example:
        >>> check_number("epochs", 3, 1, 100)
        >>> check_number("epochs", 0, 1, 100, "one is the least")
        Traceback (most recent call last):
        pyramid_bert.errors.PyramidError: epochs must be a number in 1-100, got 0; one is the least
    """
    number = isinstance(value, Integral if whole else Real) and not isinstance(value, bool)
    # No comparison holds for NaN, and the largest float is below infinity.
    if number and low <= value <= min(high, float_info.max) and not (above and value == low):  # type: ignore[operator]
        return
    kind = "an integer" if whole else "a number"
    if above:
        allowed = f"{kind} above {low:g}" if high == inf else f"in ({low:g}, {high:g}]"
    else:
        allowed = f"{kind} of at least {low:g}" if high == inf else f"{kind} in {low:g}-{high:g}"
    raise error(f"{name} must be {allowed}, got {shown(value)}{hint and '; '}{hint}")


def check_int(name: str, value: object, low: int, hint: str) -> None:
    """Raises unless `value` is an integer of at least `low`."""
    check_number(name, value, low, hint=hint, whole=True)


def check_ratio(value: object) -> None:
    """Raises unless `value` can be a keep ratio."""
    check_number("keep_ratio", value, 0, 1, "the paper uses 0.1-0.75", above=True)


def check_layer(name: str, value: int, layers: int) -> None:
    """Raises unless `value` is the number of one of the model's layers."""
    if value > layers:
        raise PyramidError(f"{name} must be in 1-{layers}, got {value}; the model has {layers} layers")


def check_flag(name: str, value: object) -> None:
    """Raises unless `value` is a bool."""
    if not isinstance(value, bool):
        raise PyramidError(f"{name} must be true or false, got {shown(value)}")


def check_choice(name: str, value: object, known: Collection[str]) -> None:
    """Raises, naming the nearest, unless `value` is one of `known`."""
    if not isinstance(value, str) or value not in known:
        raise UnknownNameError(name, value, known)


def check_path(name: str, value: object) -> None:
    """Raises unless `value` is a path or a text.

    Example:
        >>> check_path("folder", 3)
        Traceback (most recent call last):
        pyramid_bert.errors.PyramidError: folder must be a path, got int
    """
    if not isinstance(value, str | PathLike):
        raise PyramidError(f"{name} must be a path, got {type(value).__name__}")


def check_kind(name: str, value: object, kind: type[Any], remedy: str) -> None:
    """Raises unless `value` is an instance of `kind`.

    Example:
        >>> check_kind("schedule", 0.5, str, "leave it out")
        Traceback (most recent call last):
        pyramid_bert.errors.PyramidError: schedule must be a str, got float; leave it out
    """
    if not isinstance(value, kind):
        article = "an" if kind.__name__[0] in "aeiou" else "a"
        raise PyramidError(f"{name} must be {article} {kind.__name__}, got {type(value).__name__}; {remedy}")
