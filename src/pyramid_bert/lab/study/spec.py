"""An experiment as a TOML file: read, checked all at once, and expanded into its cells.

No torch. docs/studies.md describes the keys.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ExperimentError, PyramidError, UnknownNameError
from ...schedule.base import Schedule
from .grid import Cell
from .methods import CS_OPT, DENSE, METHODS, Method, kind_of, variant

if TYPE_CHECKING:
    from ..glue.tasks import Task

# What a value must be, and whether it is.
Check = tuple[str, Callable[[Any], bool]]


def _whole(low: int) -> Check:
    return f"a whole number of at least {low}", lambda v: isinstance(v, int) and not isinstance(v, bool) and v >= low


_NUMBER: Check = ("a number", lambda v: isinstance(v, int | float) and not isinstance(v, bool))
_FLAG: Check = ("true or false", lambda v: isinstance(v, bool))
_TABLE: Check = ("a table", lambda v: isinstance(v, dict))
_ANY: Check = ("anything", lambda v: True)  # it is checked elsewhere

TRAINING = dict.fromkeys(("epochs", "batch_size", "learning_rate", "warmup_ratio", "weight_decay", "dropout"), _NUMBER)
TRAINING["bf16"] = _FLAG
DISTILLING = dict.fromkeys(("temperature", "distill_weight", "hidden_weight"), _NUMBER)
SAMPLE = {**dict.fromkeys(("rows", "dev_rows", "max_length"), _whole(2)), "dense": _ANY, "pyramid": _ANY}
# What a variant may change of its method: fields of `PyramidConfig`, which checks their values before a study runs, and
# how it learns from the dense model if it does.
CONFIG_KEYS = ("selector", "reduce", "weighted", "placement", "centers_per_step", "metric", "within", "rest_from")
VARIANT = {"of": _ANY, **dict.fromkeys(CONFIG_KEYS, _ANY), **DISTILLING}
MEASURE_DEFAULTS = {"rows": 128, "batch_size": 32, "rounds": 3}
SCHEDULE_KEYS = {
    "select": ("keep_ratio", "last_layer", "first_layer", "min_tokens", "rounding", "lengths", "n", "random"),
    "pool": ("window", "at_layers"),
    "truncate": ("keep_ratio", "min_tokens", "rounding"),
    "input": ("keep_ratio", "min_tokens", "rounding"),
}
STARTS = ("dense", "pretrained")
SELECTIONS = ("train", "inference")
EXPERIMENT: dict[str, Check] = {
    "name": (
        "a word that can name a file",
        lambda v: isinstance(v, str) and re.fullmatch(r"[A-Za-z0-9][\w.-]*", v) is not None,
    ),
    "model": ("a folder or a name on the hub", lambda v: isinstance(v, str)),
    **dict.fromkeys(("tasks", "methods", "seeds", "measure", "start", "selection", "dense", "pyramid"), _ANY),
    **dict.fromkeys(("title", "question"), ("a text", lambda v: isinstance(v, str))),
    "variants": _TABLE,
    "configurations": (f"a table with {', '.join(SCHEDULE_KEYS)}", lambda v: isinstance(v, dict)),
}


@dataclass(frozen=True, kw_only=True)
class Sample:
    """What of a task is used, and how it is trained where that differs from the task's own settings."""

    rows: int | None = None
    dev_rows: int | None = None
    max_length: int | None = None
    dense: Mapping[str, Any] = field(default_factory=dict)
    pyramid: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Study:
    """A checked experiment.

    Attributes:
        name: Of the folder that results go to.
        title: What reports call it; its name if empty.
        question: What it compares and why, for reports.
        model: The pretrained model by name; where it lies can be said on the command line.
        tasks: Task -> what of it is used.
        methods: By name: those of `METHODS` that are wanted, and the experiment's own variants.
        configurations: Kind of method -> its schedules.
        seeds: One trial each.
        start: "dense": pyramids start from the dense classifier of the same seed; "pretrained": from the model.
        selection: "train": pyramids are trained; "inference": the dense weights run as a pyramid, untrained.
        dense: Training of the dense classifier, where it differs from the task's.
        pyramid: Training of the pyramids, where it differs from the task's.
        measure: Rows, batch size and rounds of the speed measurements; None when none are wanted.
    """

    name: str
    title: str = ""
    question: str = ""
    model: str | None = None
    tasks: Mapping[str, Sample]
    methods: Mapping[str, Method]
    configurations: Mapping[str, tuple[Schedule, ...]]
    seeds: tuple[int, ...] = (0,)
    start: str = "dense"
    selection: str = "train"
    dense: Mapping[str, Any] = field(default_factory=dict)
    pyramid: Mapping[str, Any] = field(default_factory=dict)
    measure: Mapping[str, int] | None = None

    def cells(self, tasks: Mapping[str, Task]) -> list[Cell]:
        """All cells, in an order in which a part is of use: one seed after another, cheap tasks and cells first.

        Args:
            tasks: The known tasks, `arena.STUDY_TASKS`.
        """
        if unknown := [name for name in self.tasks if name not in tasks]:
            raise ExperimentError("\n".join(str(UnknownNameError("task", name, tasks)) for name in unknown))
        cells = []
        for seed in self.seeds:
            blocks = [self._block(task, tasks[task], seed) for task in self.tasks]
            blocks.sort(key=lambda block: block[0].weight)
            for dense, *others in blocks:
                cells += [dense, *sorted(others, key=lambda cell: cell.weight)]
        return cells

    def _block(self, name: str, task: Task, seed: int) -> list[Cell]:
        """The cells of one task and seed, the dense one first."""
        sample = self.tasks[name]
        own = {"epochs": task.epochs, "batch_size": task.batch_size, "learning_rate": task.learning_rate}
        dense = Cell(
            model=self.model,
            task=name,
            rows=sample.rows,
            dev_rows=sample.dev_rows,
            max_length=sample.max_length or task.max_length,
            method=DENSE,
            schedule=None,
            settings={},
            training=_plain({**own, **self.dense, **sample.dense}),
            distills=False,
            seed=seed,
            start="pretrained",
            dense=None,
        )
        training = {**own, **self.pyramid, **sample.pyramid}
        return [
            dense,
            *(
                self._pyramid(dense, method, schedule, {**training, **method.training})
                for method in self.methods.values()
                for schedule in self.configurations[kind_of(method, name)]
            ),
        ]

    def _pyramid(self, dense: Cell, method: Method, schedule: Schedule, training: Mapping[str, Any]) -> Cell:
        untrained = self.selection == "inference"
        from_dense = untrained or self.start == "dense"
        used = {key: value for key, value in training.items() if method.distills or key not in DISTILLING}
        return replace(
            dense,
            method=method.name,
            schedule=schedule,
            settings=method.settings,
            training=None if untrained else _plain(used),
            distills=method.distills,
            start="dense" if from_dense else "pretrained",
            dense=dense.key if from_dense or method.distills else None,
        )


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
    study = reader.study(data)
    if reader.problems:
        raise ExperimentError("\n  ".join(["this experiment cannot be run:", *reader.problems]))
    return study


class _Reader:
    """Reads an experiment and collects its problems, instead of stopping at the first."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def study(self, data: Mapping[str, Any]) -> Study:
        data = {"name": None, **data}
        found = self.table("", data, EXPERIMENT)
        methods = self.methods(data.get("methods"), self.variants(found.get("variants", {})))
        tasks = self.tasks(data.get("tasks"))
        return Study(
            name=str(found.get("name")),
            title=found.get("title", ""),
            question=found.get("question", ""),
            model=found.get("model"),
            tasks=tasks,
            methods=methods,
            configurations=self.configurations(found.get("configurations", {}), methods, tuple(tasks)),
            seeds=self.seeds(data.get("seeds", [0])),
            start=self.choice("start", data, STARTS),
            selection=self.selection(data, methods),
            dense=self.table("dense", data.get("dense", {}), TRAINING),
            pyramid=self.table("pyramid", data.get("pyramid", {}), TRAINING | DISTILLING),
            measure=self.measure(data.get("measure", False)),
        )

    def table(self, where: str, table: Any, checks: Mapping[str, Check]) -> dict[str, Any]:
        """The entries of a table that are right."""
        if not isinstance(table, dict):
            self.problems.append(f"{where} must be a table with {', '.join(checks)}, got {table!r}")
            return {}
        self.keys(where, table, checks)
        right = {}
        for key, value in table.items():
            wanted, is_right = checks.get(key, _ANY)
            if is_right(value):
                right[key] = value
            else:
                self.problems.append(f"{where}{'.' if where else ''}{key} must be {wanted}, got {value!r}")
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

    def selection(self, data: Mapping[str, Any], methods: Mapping[str, Method]) -> str:
        selection = self.choice("selection", data, SELECTIONS)
        taught = [name for name, method in methods.items() if method.distills]
        if selection == "inference" and taught:
            self.problems.append(
                f"selection = 'inference' trains no pyramid, so {', '.join(taught)} cannot learn; leave it out"
            )
        return selection

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
                made[name] = self.variant(name, METHODS[table["of"]], self.table(where, table, VARIANT))
        return made

    def variant(self, name: str, of: Method, table: Mapping[str, Any]) -> Method:
        taught = {key: value for key, value in table.items() if key in DISTILLING}
        if taught and not of.distills:
            able = ", ".join(method.name for method in METHODS.values() if method.distills)
            self.problems.append(
                f"variants.{name}: only methods that learn from the dense model ({able}) take {', '.join(taught)}"
            )
        return variant(name, of, {key: value for key, value in table.items() if key in CONFIG_KEYS}, taught)

    def methods(self, value: Any, variants: Mapping[str, Method]) -> dict[str, Method]:
        names, known = self.names("methods", value), {**METHODS, **variants}
        self.problems += [str(UnknownNameError("method", name, known)) for name in names if name not in known]
        self.problems += [f"variants.{name} is not in methods" for name in variants if name not in names]
        return {name: known[name] for name in names if name in known}

    def tasks(self, value: Any) -> dict[str, Sample]:
        if not isinstance(value, dict):
            return {name: Sample() for name in self.names("tasks", value)}
        if not value:
            self.problems.append("tasks is empty; name at least one")
        return {name: self.sample(f"tasks.{name}", table) for name, table in value.items()}

    def sample(self, where: str, table: Any) -> Sample:
        found = self.table(where, table, SAMPLE)
        for key, checks in (("dense", TRAINING), ("pyramid", TRAINING | DISTILLING)):
            found[key] = self.table(f"{where}.{key}", found.get(key, {}), checks)
        return Sample(**{key: found[key] for key in SAMPLE if key in found})

    def seeds(self, value: Any) -> tuple[int, ...]:
        right = isinstance(value, list) and value and len(set(map(str, value))) == len(value)
        if not right or not all(_whole(0)[1](seed) for seed in value):
            self.problems.append(f"seeds must be a list of different whole numbers of at least 0, got {value!r}")
            return ()
        return tuple(value)

    def configurations(
        self, value: Mapping[str, Any], methods: Mapping[str, Method], tasks: tuple[str, ...]
    ) -> dict[str, tuple[Schedule, ...]]:
        self.keys("configurations", value, SCHEDULE_KEYS)
        for kind in SCHEDULE_KEYS:
            who = [
                name for name, method in methods.items() if kind in {kind_of(method, task) for task in tasks or ("",)}
            ]
            if who and not value.get(kind):
                self.problems.append(
                    f"configurations.{kind} is missing, and {', '.join(who)} takes its configurations from there"
                )
        return {kind: tuple(self.schedules(kind, value.get(kind, []))) for kind in SCHEDULE_KEYS}

    def schedules(self, kind: str, entries: Any) -> list[Schedule]:
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            self.problems.append(f"configurations.{kind} must be a list of tables, got {entries!r}")
            return []
        made: list[Schedule] = []
        for number, entry in enumerate(entries, start=1):
            where = f"configurations.{kind}, entry {number}"
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

    def measure(self, value: Any) -> dict[str, int] | None:
        if not isinstance(value, bool | dict):
            self.problems.append(
                f"measure must be true, false or a table with {', '.join(MEASURE_DEFAULTS)}, got {value!r}"
            )
        if not isinstance(value, dict):
            return MEASURE_DEFAULTS if value is True else None
        return {**MEASURE_DEFAULTS, **self.table("measure", value, dict.fromkeys(MEASURE_DEFAULTS, _whole(1)))}


def make_schedule(kind: str, entry: Mapping[str, Any]) -> Schedule:
    """The schedule that an entry of `configurations` stands for; its keys decide which kind it is.

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


def _plain(training: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers in one form: 3 and 3.0 epochs are the same cell."""
    return {key: value if key in ("batch_size", "bf16") else float(value) for key, value in training.items()}
