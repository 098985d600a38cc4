"""An experiment as a TOML file: read, and checked all at once.

No torch. docs/studies.md describes the keys.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...errors import ExperimentError, PyramidError, UnknownNameError
from ...schedule.base import Schedule
from .experiment import Study
from .methods import CS_OPT, DENSE, DISTILLING, METHODS, Method, kind_of

# What a value must be, in words and as a test; a table has a check for each of its keys.
Check = tuple[str, Callable[[Any], bool]]
Checks = Mapping[str, "Check | Checks"]


def _whole(low: int) -> Check:
    return f"a whole number of at least {low}", lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= low


_NUMBER: Check = ("a number", lambda v: isinstance(v, int | float) and not isinstance(v, bool))
_TEXT: Check = ("a text", lambda v: isinstance(v, str))
_TABLES: Check = ("a list of tables", lambda v: isinstance(v, list) and all(isinstance(entry, dict) for entry in v))
_ANY: Check = ("anything", lambda v: True)  # checked elsewhere

_DISTILLING = dict.fromkeys(DISTILLING, _NUMBER)
TRAINING: Checks = {
    **dict.fromkeys(("epochs", "batch_size", "learning_rate", "warmup_ratio", "weight_decay", "dropout"), _NUMBER),
    "bf16": ("true or false", lambda v: isinstance(v, bool)),
}
TRAININGS: Checks = {"dense": TRAINING, "pyramid": {**TRAINING, **_DISTILLING}}
SAMPLE: Checks = {**dict.fromkeys(("rows", "dev_rows", "max_length"), _whole(2)), **TRAININGS}
# What a variant may change of its method: fields of `PyramidConfig`, which checks their values before a study runs, and
# for methods that learn from the dense model, how they do.
CONFIG_KEYS = (
    *("selector", "reduce", "weighted", "placement", "centers_per_step", "metric", "within"),
    *("rest_from", "skip"),
)
VARIANT: Checks = {"of": _ANY, **dict.fromkeys(CONFIG_KEYS, _ANY), **_DISTILLING, "configurations": _TABLES}
MEASURE_DEFAULTS = {"rows": 128, "batch_size": 32, "rounds": 3}
SCHEDULE_KEYS = {
    "select": ("keep_ratio", "last_layer", "first_layer", "min_tokens", "rounding", "lengths", "n", "random"),
    "pool": ("window", "at_layers"),
    "truncate": ("keep_ratio", "min_tokens", "rounding"),
    "input": ("keep_ratio", "min_tokens", "rounding"),
}
STARTS = ("dense", "pretrained")
SELECTIONS = ("train", "inference")


def _are_speedups(value: Any) -> bool:
    right = isinstance(value, list) and len(value) > 0 and all(map(_NUMBER[1], value))
    return right and len(set(value)) == len(value) and min(value) > 1


def _are_seeds(value: Any) -> bool:
    return isinstance(value, list) and 0 < len(value) == len(set(map(str, value))) and all(map(_whole(0)[1], value))


EXPERIMENT: Checks = {
    "name": (
        "a word that can name a file",
        lambda v: isinstance(v, str) and re.fullmatch(r"[A-Za-z0-9][\w.-]*", v) is not None,
    ),
    "title": _TEXT,
    "question": _TEXT,
    "model": ("a folder or a name on the hub", _TEXT[1]),
    **dict.fromkeys(("tasks", "methods", "start", "selection"), _ANY),
    "seeds": ("a list of different whole numbers of at least 0", _are_seeds),
    "measure": (f"true, false or a table with {', '.join(MEASURE_DEFAULTS)}", lambda v: isinstance(v, bool | dict)),
    **TRAININGS,
    "variants": ("a table", lambda v: isinstance(v, dict)),
    "configurations": {
        **dict.fromkeys(SCHEDULE_KEYS, _TABLES),
        "speed": ("a list of different speed-ups above 1", _are_speedups),
    },
}


def load_study(path: str | Path) -> Study:
    """The experiment in a TOML file; one error names all that is wrong with it."""
    path = Path(path)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ExperimentError(f"no experiment file at {path}") from error
    except IsADirectoryError as error:
        raise ExperimentError(
            f"{path} is a folder; name an experiment file, such as experiments/glue-lite.toml"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ExperimentError(f"{path} is not a TOML file: {error}") from error
    try:
        return read_study({"name": path.stem, **data})
    except ExperimentError as error:
        raise ExperimentError(f"{path}: {error}") from error


def read_study(data: Mapping[str, Any]) -> Study:
    """The experiment that a dict describes.

    Example:
        >>> study = read_study({"name": "s", "tasks": ["rte"], "methods": ["CS-1"],
        ...     "configurations": {"select": [{"keep_ratio": 0.5, "last_layer": 3}]}})
        >>> study.seeds, study.configurations["select"][0].keep_ratio
        ((0,), 0.5)
    """
    reader = _Reader()
    study = reader.study({"name": None, **data})
    if reader.problems:
        raise ExperimentError("\n  ".join(["this experiment cannot be run:", *reader.problems]))
    return study


class _Reader:
    """Reads an experiment and collects its problems, instead of stopping at the first."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def study(self, data: dict[str, Any]) -> Study:
        found = self.table("", data, EXPERIMENT)
        methods = self.methods(data.get("methods"), self.variants(found.pop("variants", {})))
        tasks = self.tasks(data.get("tasks"))
        read = {
            "name": str(data["name"]),
            "tasks": tasks,
            "methods": methods,
            "configurations": self.configurations(found.get("configurations", {}), methods, tuple(tasks)),
            "speedups": self.speedups(found.get("configurations", {}), methods),
            "seeds": tuple(found.get("seeds", [0])),
            "start": self.choice("start", data, STARTS),
            "selection": self.choice("selection", data, SELECTIONS),
            "measure": self.measure(found.get("measure", False)),
        }
        taught = [name for name, method in methods.items() if method.distills]
        if read["selection"] == "inference" and taught:
            self.problems.append(
                f"selection = 'inference' trains no pyramid, so {', '.join(taught)} cannot learn; leave it out"
            )
        return Study(**{key: found[key] for key in EXPERIMENT if key in found} | read)

    def table(self, where: str, table: Any, checks: Checks) -> dict[str, Any]:
        """The entries of a table that are right."""
        if not isinstance(table, dict):
            self.problems.append(f"{where} must be a table with {', '.join(checks)}, got {table!r}")
            return {}
        self.keys(where, table, checks)
        right = {}
        for key, value in table.items():
            place, check = f"{where}.{key}".lstrip("."), checks.get(key, _ANY)
            if isinstance(check, Mapping):
                right[key] = self.table(place, value, check)
            elif check[1](value):
                right[key] = value
            else:
                self.problems.append(f"{place} must be {check[0]}, got {value!r}")
        return right

    def keys(self, where: str, table: Mapping[str, Any], known: Iterable[str]) -> bool:
        """Whether all keys are known."""
        unknown = [key for key in table if key not in known]
        self.problems += [f"{where}{': ' if where else ''}{UnknownNameError('key', key, known)}" for key in unknown]
        return not unknown

    def choice(self, key: str, data: Mapping[str, Any], known: tuple[str, ...]) -> str:
        value = data.get(key, known[0])
        if value not in known:
            self.problems.append(str(UnknownNameError(key, value, known)))
        return str(value)

    def names(self, key: str, value: Any) -> list[str]:
        if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
            self.problems.append(f"{key} must be a list of at least one name, got {value!r}")
            return []
        if twice := sorted({name for name in value if value.count(name) > 1}):
            self.problems.append(f"{key} names {', '.join(twice)} twice")
        return value

    def variants(self, value: Mapping[str, Any]) -> dict[str, Method]:
        made = {}
        for name, table in value.items():
            where = f"variants.{name}"
            if not isinstance(table, dict) or "of" not in table or len(table) < 2:
                self.problems.append(f'{where} must name a method and change it, as {{of = "CS-1", placement = "end"}}')
            elif name in (*METHODS, DENSE, CS_OPT) or not re.fullmatch(r"[\w][\w.+-]*", name):
                self.problems.append(f"{where}: a variant needs a new name, a word that can be in a file's name")
            elif table["of"] not in METHODS:
                self.problems.append(f"{where}: {UnknownNameError('method', table['of'], METHODS)}")
            else:
                found, of = self.table(where, table, VARIANT), METHODS[table["of"]]
                taught = {key: value for key, value in found.items() if key in DISTILLING}
                if taught and not of.distills:
                    able = ", ".join(method.name for method in METHODS.values() if method.distills)
                    self.problems.append(
                        f"{where}: only methods that learn from the dense model ({able}) take {', '.join(taught)}"
                    )
                made[name] = replace(
                    of,
                    name=name,
                    summary=f"{of.name} with other settings",
                    settings=of.settings | {key: value for key, value in found.items() if key in CONFIG_KEYS},
                    training=taught,
                    schedules=tuple(self.schedules(of.kind, found.get("configurations", []), where)),
                )
        return made

    def methods(self, value: Any, variants: Mapping[str, Method]) -> dict[str, Method]:
        names, known = self.names("methods", value), {**METHODS, **variants}
        self.problems += [str(UnknownNameError("method", name, known)) for name in names if name not in known]
        self.problems += [f"variants.{name} is not in methods" for name in variants if name not in names]
        return {name: known[name] for name in names if name in known}

    def tasks(self, value: Any) -> dict[str, Mapping[str, Any]]:
        if not isinstance(value, dict):
            return {name: {} for name in self.names("tasks", value)}
        if not value:
            self.problems.append("tasks is empty; name at least one")
        return {name: self.table(f"tasks.{name}", table, SAMPLE) for name, table in value.items()}

    def configurations(
        self, value: Mapping[str, Any], methods: Mapping[str, Method], tasks: tuple[str, ...]
    ) -> dict[str, tuple[Schedule, ...]]:
        for kind in SCHEDULE_KEYS:
            sharing = {name: of for name, of in methods.items() if not of.schedules}
            users = [name for name, of in sharing.items() if kind in {kind_of(of, task) for task in tasks or ("",)}]
            if users and not value.get(kind):
                self.problems.append(
                    f"configurations.{kind} is missing, and {', '.join(users)} takes its configurations from there"
                )
        return {kind: tuple(self.schedules(kind, value.get(kind, []))) for kind in SCHEDULE_KEYS}

    def speedups(self, value: Mapping[str, Any], methods: Mapping[str, Method]) -> tuple[float, ...]:
        speedups = tuple(sorted(float(speedup) for speedup in value.get("speed", [])))
        finding = {name: method for name, method in methods.items() if method.kind == "speed"}
        if finding and not speedups:
            self.problems.append(
                f"configurations.speed is missing, and {', '.join(finding)} takes speed-ups from there"
            )
        if any(method.elastic for method in finding.values()) and len(speedups) == 1:
            self.problems.append("configurations.speed has one speed-up, and Elastic is trained for several; give more")
        return speedups

    def schedules(self, kind: str, entries: list[dict[str, Any]], of: str = "") -> list[Schedule]:
        made: list[Schedule] = []
        for number, entry in enumerate(entries, start=1):
            where = f"{of}.configurations, entry {number}" if of else f"configurations.{kind}, entry {number}"
            if not self.keys(where, entry, SCHEDULE_KEYS[kind]):
                continue
            try:
                schedule = make_schedule(kind, entry)
            except (PyramidError, TypeError) as error:
                text = str(error)
                self.problems.append(f"{where}: {text.partition('() ')[2] or text}")
                continue
            if schedule in made:
                self.problems.append(f"{where} is there twice: {entry!r}")
            made.append(schedule)
        return made

    def measure(self, value: bool | dict[str, Any]) -> dict[str, int] | None:
        if isinstance(value, dict):
            return MEASURE_DEFAULTS | self.table("measure", value, dict.fromkeys(MEASURE_DEFAULTS, _whole(1)))
        return MEASURE_DEFAULTS if value else None


def make_schedule(kind: str, entry: Mapping[str, Any]) -> Schedule:
    """The schedule that an entry of `configurations` describes; its keys decide which kind it is.

    Example:
        >>> make_schedule("select", {"keep_ratio": 0.25, "last_layer": 3}).kind
        'exponential'
        >>> make_schedule("truncate", {"keep_ratio": 0.5}).kind
        'input_only'
    """
    fields = dict(entry)
    if kind == "pool":
        return Schedule.strided(**fields)
    if kind in ("truncate", "input"):
        return Schedule.input_only(**fields)
    if "random" in fields:
        return Schedule.random(fields.pop("random"), **fields)
    if "lengths" in fields:
        return Schedule.custom(**fields)
    return Schedule.exponential(**fields) if "last_layer" in fields else Schedule.constant(**fields)
