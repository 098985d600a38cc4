"""The cells of a study: everything that determines one result, and a stable name for it. No torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from ...schedule.base import Schedule
from ...schedule.kinds import CustomSchedule, RandomSchedule, StridedSchedule

# Rough numbers of training rows: only the order of cells and the guess at the time left depend on them.
_ROWS = {
    "cola": 8_551, "sst2": 67_349, "mrpc": 3_668, "stsb": 5_749, "qqp": 363_846, "mnli": 392_702, "qnli": 104_743,
    "rte": 2_490, "wnli": 635, "imdb": 25_000,
}  # fmt: skip
_DEV_ROWS = 1_000


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One training run (or none) and one evaluation.

    Attributes:
        model: The name of the pretrained model, as the experiment gives it.
        task: A key of `arena.STUDY_TASKS`.
        rows: Size of the fixed sample of training rows; None for all.
        dev_rows: The same for the rows it is evaluated on.
        max_length: The paper's N: longer texts are cut, and baseline a is padded to it.
        method: A key of `METHODS`, a variant's name, or "Dense".
        schedule: The configuration; None for the dense model.
        settings: The method's fields of `PyramidConfig`.
        training: Fields of `TrainSettings`; None when nothing is trained.
        distills: Whether the dense classifier is the teacher.
        seed: Of training, and of the selector "random".
        start: "pretrained", or "dense" for the weights of the dense classifier.
        dense: The key of the dense cell that has to be done before; None if none is needed.
        speedup: In place of a schedule: the ideal speed-up for which a pyramid is found.
        together: The speed-ups that one elastic model is trained for, this one among them.
    """

    model: str | None
    task: str
    rows: int | None
    dev_rows: int | None
    max_length: int
    method: str
    schedule: Schedule | None
    settings: Mapping[str, Any]
    training: Mapping[str, Any] | None
    distills: bool
    seed: int
    start: str
    dense: str | None
    speedup: float | None = None
    together: tuple[float, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """What determines the result, as JSON."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        for name in ("speedup", "together"):  # not there unless used: ids of other cells stay as they were
            if not values[name]:
                del values[name]
        return {**values, "schedule": None if self.schedule is None else self.schedule.to_dict()}

    @cached_property
    def id(self) -> str:
        """A hash of `to_dict`: the same in every process and on every machine."""
        return _digest(self.to_dict())

    @property
    def is_dense(self) -> bool:
        """Whether this is the dense classifier that the others are compared with."""
        return self.schedule is None and self.speedup is None

    @property
    def configuration(self) -> str:
        """The schedule, or the wanted speed-up, as a short name."""
        if self.speedup is not None:
            return f"{self.speedup:g}x"
        return "" if self.schedule is None else schedule_name(self.schedule)

    @property
    def name(self) -> str:
        """For people: task, method, configuration and seed."""
        return " ".join(part for part in (self.task, self.method, self.configuration, f"seed {self.seed}") if part)

    @property
    def key(self) -> str:
        """For files: the name and the id."""
        return f"{self.name.replace(' seed ', ' s').replace(' ', '_')}_{self.id}"

    def matches(self, pattern: str) -> bool:
        """Whether a pattern like "1a2b*", "sst2*" or "*Merge*" matches the id, key or name."""
        return any(fnmatchcase(text, pattern) for text in (self.id, self.key, self.name))

    @property
    def weight(self) -> float:
        """A rough amount of work: tokens times layers, three times as much for rows that are trained on."""
        epochs = 0.0 if self.training is None else float(self.training["epochs"])
        trained = 3 * epochs * (self.rows or _ROWS.get(self.task, 10_000))
        share = 1 / (self.speedup or 1) if self.schedule is None else _mean_share(self.schedule)
        return self.max_length * share * (trained + (self.dev_rows or _DEV_ROWS))

    def measurement(self, measure: Mapping[str, Any]) -> str:
        """The key of this cell's speed measurement; seed and training do not change the speed."""
        keys = ("model", "task", "dev_rows", "max_length", "schedule", "settings")
        determines = {key: value for key, value in self.to_dict().items() if key in keys} | {"measure": dict(measure)}
        shown = ("selector", "reduce", "centers_per_step")
        words = "+".join(str(self.settings[key]) for key in shown if key in self.settings)
        return f"{self.task}_{words}_{self.configuration}_{_digest(determines)}"


def schedule_name(schedule: Schedule) -> str:
    """A short name of a schedule, for people and files.

    Example:
        >>> schedule_name(Schedule.exponential(0.25, 3, first_layer=2)), schedule_name(Schedule.strided(2, [3, 5]))
        ('0.25@2-3', 'w2@3+5')
    """
    fields = schedule.to_dict()
    if isinstance(schedule, StridedSchedule):
        return f"w{schedule.window}@{'+'.join(map(str, schedule.at_layers))}"
    if isinstance(schedule, CustomSchedule):
        word = "-".join(map(str, schedule.layer_lengths))
        word += "" if schedule.reference_length is None else f"of{schedule.reference_length}"
    elif isinstance(schedule, RandomSchedule):
        word = f"random{schedule.seed}"
    elif schedule.selects_at_input:
        word = f"{fields['keep_ratio']:g}@input"
    else:
        first = fields["first_layer"]
        word = f"{fields['keep_ratio']:g}@{first}-{fields.get('last_layer', first)}"
    word += "" if schedule.min_tokens == 1 else f"+min{schedule.min_tokens}"
    return word if schedule.rounding == "ceil" else f"{word}+{schedule.rounding}"


def settled(cell: Cell, record: Mapping[str, Any] | None) -> Cell:
    """The cell with the pyramid that its record says was found for a wanted speed-up; other cells as they are."""
    if cell.speedup is None or record is None:
        return cell
    found = dict(record["pyramid"])
    schedule = Schedule.from_dict(found.pop("schedule"))
    settings = {name: value for name, value in found.items() if name not in ("format", "seed")}
    return replace(cell, schedule=schedule, settings=settings, speedup=None, together=())


def measurements(
    cells: Iterable[Cell], done: Callable[[str], Mapping[str, Any] | None], measure: Mapping[str, Any]
) -> dict[str, Cell]:
    """Key of each speed measurement -> the first cell that it belongs to, as the experiment has it.

    `done` gives the record of a cell that is done, by its key. Where a pyramid is found for a wanted speed-up, the
    measurement is of the one in the record, and a cell that is not done has none.
    """
    found: dict[str, Cell] = {}
    for cell in cells:
        known = settled(cell, done(cell.key))
        if known.schedule is not None:
            found.setdefault(known.measurement(measure), cell)
    return found


def unfound(cells: Iterable[Cell], done: Callable[[str], Mapping[str, Any] | None]) -> list[Cell]:
    """The cells whose pyramids are not known yet, so that their speeds cannot be measured."""
    return [cell for cell in cells if cell.speedup is not None and done(cell.key) is None]


def _mean_share(schedule: Schedule) -> float:
    """The share of the tokens kept, in the mean over the layers of a model that the schedule fits."""
    fields = schedule.to_dict()
    deepest = max(fields.get("last_layer") or 1, fields.get("first_layer") or 1, *fields.get("at_layers", (1,)))
    layers = len(fields.get("layer_lengths") or ()) or max(6, deepest)
    return sum(schedule.lengths(256, layers)) / (256 * layers)


def _digest(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:10]
