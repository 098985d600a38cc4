"""The front of an elastic model: pyramids of several speeds that share its weights, and the switch. No torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any

from .boundary import read_object, translating
from .checks import check_number
from .config import PyramidConfig
from .errors import CheckpointError, OutOfReachError, PyramidError
from .files import write_text

FILE = "front.json"
_FORMAT, _MOST = 1, 1000
_UPGRADE = "a newer release wrote it: pip install -U pyramid-bert"
_REMEDY = "remove it, and train the model again"
_NUMBERS = ("speed", "ideal", "agreement")


@dataclass(frozen=True)
class Point:
    """One of the pyramids of an elastic model.

    Attributes:
        speed: The speed-up over the dense model on length-sorted batches that it was made for.
        ideal: Its ideal speed-up: multiply-accumulates over true lengths.
        agreement: The share of held-out texts to which it gives the full model's label; for numbers their correlation.
        settings: The pyramid.
        metrics: On the dev rows; empty without any.
    """

    speed: float
    ideal: float
    agreement: float
    settings: PyramidConfig
    metrics: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dict."""
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        return {**numbers, "metrics": dict(self.metrics), "settings": self.settings.to_dict()}


@dataclass(frozen=True)
class Front:
    """The pyramids of an elastic model, the slowest first."""

    points: tuple[Point, ...]

    def at(self, speed: float) -> Point:
        """The slowest pyramid that has at least this speed; raises if none has, or for a speed below the slowest.

        Example:
            >>> from pyramid_bert import Schedule
            >>> keeping = [PyramidConfig(schedule=Schedule.constant(share)) for share in (1.0, 0.5, 0.25)]
            >>> speeds = zip((1.0, 2.0, 4.0), keeping)
            >>> front = Front(tuple(Point(speed, speed, 1.0, settings) for speed, settings in speeds))
            >>> front.at(1.5).speed, front.at(4).speed
            (2.0, 4.0)
        """
        low, high = self.points[0].speed, self.points[-1].speed
        check_number("speed", speed, low, high, "this model was trained for these", error=OutOfReachError)
        return next(point for point in self.points if point.speed >= speed)

    def save(self, folder: Path) -> None:
        """Writes it beside the model."""
        data = {"format": _FORMAT, "points": [point.to_dict() for point in self.points]}
        write_text(folder / FILE, json.dumps(data, indent=1, allow_nan=False) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Front | None:
        """The front of a saved model; None if it has one speed only."""
        path = folder / FILE
        if not path.exists():
            return None
        data = read_object(path, CheckpointError, _REMEDY)
        with translating(CheckpointError, f"{path} is damaged", _REMEDY):
            check_number(f"{path}: format", data["format"], 1, _FORMAT, _UPGRADE, whole=True, error=CheckpointError)
            points = tuple(_point(entry) for entry in data["points"])
            speeds = [point.speed for point in points]
        check_number(f"{path}: the number of speeds", len(points), 2, _MOST, _REMEDY, error=CheckpointError)
        if speeds != sorted(set(speeds)):
            raise CheckpointError(f"{path} is damaged: its speeds do not rise; {_REMEDY}")
        return cls(points)


def _point(entry: Mapping[str, Any]) -> Point:
    numbers = {name: entry[name] for name in _NUMBERS}
    for name, value in (*numbers.items(), *entry["metrics"].items()):
        check_number(name, value, -inf)
    return Point(**numbers, settings=PyramidConfig.from_dict(entry["settings"]), metrics=dict(entry["metrics"]))


def settings_at(front: Front | None, speed: float) -> PyramidConfig:
    """The pyramid of a front that has this speed; raises for a model with one speed."""
    if front is None:
        raise PyramidError("this model has one speed; train an elastic one with `pyramid-bert train --speedup 1.5-4`")
    return front.at(speed).settings


class WithSpeed:
    """The switch between the pyramids of an elastic model. Subclasses say what they are, and become another.

    Attributes:
        front: The speeds to choose from; None for a model with one speed.
    """

    front: Front | None

    @property
    def settings(self) -> PyramidConfig | None:
        """The pyramid's settings; None for a dense model."""
        raise NotImplementedError

    def become(self, settings: PyramidConfig) -> None:
        """Takes the settings of another pyramid of the front."""
        raise NotImplementedError

    @property
    def speed(self) -> float | None:
        """The speed-up that the model runs at; None if it has one speed only. Set it to switch."""
        points = () if self.front is None else self.front.points
        return next((point.speed for point in points if point.settings == self.settings), None)

    @speed.setter
    def speed(self, speed: float) -> None:
        self.become(settings_at(self.front, speed))
