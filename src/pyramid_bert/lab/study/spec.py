"""An experiment as a file: TOML that differs from defaults, checked all at once, and the cells that it stands for.

No torch. docs/studies.md describes the keys.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ExperimentError, PyramidError, UnknownNameError
from ...schedule.base import Schedule
from .grid import Cell
from .methods import CS_OPT, DENSE, METHODS, Method, kind_of, variant

if TYPE_CHECKING:
    from ..glue.tasks import Task

KEYS = (
    "name", "title", "question", "model", "tasks", "methods", "variants", "configurations", "seeds", "start",
    "selection", "dense", "pyramid", "measure",
)  # fmt: skip
SCHEDULE_KEYS = {
    "select": ("keep_ratio", "last_layer", "first_layer", "min_tokens", "rounding", "lengths", "n", "random"),
    "pool": ("window", "at_layers"),
    "truncate": ("keep_ratio", "min_tokens", "rounding"),
    "input": ("keep_ratio", "min_tokens", "rounding"),
}
KINDS = tuple(SCHEDULE_KEYS)
TASK_KEYS = ("rows", "dev_rows", "max_length", "dense", "pyramid")
TRAINING_KEYS = ("epochs", "batch_size", "learning_rate", "warmup_ratio", "weight_decay", "dropout", "bf16")
DISTILLING_KEYS = ("temperature", "distill_weight", "hidden_weight")
# What a variant may change of its method: fields of `PyramidConfig`, which checks their values before a study runs, and
# how it learns from the dense model if it does.
CONFIG_KEYS = ("selector", "reduce", "weighted", "placement", "centers_per_step", "metric", "within", "rest_from")
VARIANT_KEYS = ("of", *CONFIG_KEYS, *DISTILLING_KEYS)
MEASURE_DEFAULTS = {"rows": 128, "batch_size": 32, "rounds": 3}
STARTS = ("dense", "pretrained")
SELECTIONS = ("train", "inference")


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
        dense = self._cell(name, task, seed, training={**own, **self.dense, **sample.dense})
        training = {**own, **self.pyramid, **sample.pyramid}
        block = [dense]
        for method in self.methods.values():
            for schedule in self.configurations[kind_of(method, name)]:
                block.append(self._cell(name, task, seed, method, schedule, {**training, **method.training}, dense))
        return block

    def _cell(
        self,
        name: str,
        task: Task,
        seed: int,
        method: Method | None = None,
        schedule: Schedule | None = None,
        training: Mapping[str, Any] | None = None,
        dense: Cell | None = None,
    ) -> Cell:
        untrained = dense is not None and self.selection == "inference"
        distills = method is not None and method.distills
        from_dense = dense is not None and (untrained or self.start == "dense")
        if training is not None and not distills:
            training = {key: value for key, value in training.items() if key not in DISTILLING_KEYS}
        sample = self.tasks[name]
        return Cell(
            model=self.model,
            task=name,
            rows=sample.rows,
            dev_rows=sample.dev_rows,
            max_length=sample.max_length or task.max_length,
            method=DENSE if method is None else method.name,
            schedule=schedule,
            settings={} if method is None else method.settings,
            training=None if untrained or training is None else _plain(training),
            distills=distills,
            seed=seed,
            start="dense" if from_dense else "pretrained",
            dense=dense.key if dense is not None and (from_dense or distills) else None,
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
        raise ExperimentError(f"{path} is no TOML file: {error}") from error
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
    """Reads an experiment and collects what is wrong with it, instead of stopping at the first."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def study(self, data: Mapping[str, Any]) -> Study:
        self.keys("", data, KEYS)
        name = data.get("name")
        if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
            self.problems.append(f"name must be a word that can name a folder, got {name!r}")
        model = data.get("model")
        if not isinstance(model, str | None):
            self.problems.append(f"model must be a folder or a name on the hub, got {model!r}")
        words = {key: data.get(key, "") for key in ("title", "question")}
        self.problems += [f"{k} must be a text, got {v!r}" for k, v in words.items() if not isinstance(v, str)]
        methods = self.methods(data.get("methods"), self.variants(data.get("variants", {})))
        tasks = self.tasks(data.get("tasks"))
        return Study(
            name=str(name),
            **words,
            model=model,
            tasks=tasks,
            methods=methods,
            configurations=self.configurations(data.get("configurations", {}), methods, tuple(tasks)),
            seeds=self.seeds(data.get("seeds", [0])),
            start=self.choice("start", data, STARTS),
            selection=self.selection(data, methods),
            dense=self.training("dense", data.get("dense", {}), TRAINING_KEYS),
            pyramid=self.training("pyramid", data.get("pyramid", {}), TRAINING_KEYS + DISTILLING_KEYS),
            measure=self.measure(data.get("measure", False)),
        )

    def keys(self, where: str, table: Mapping[str, Any], known: tuple[str, ...]) -> None:
        for key in table:
            if key not in known:
                self.problems.append(f"{where}{UnknownNameError('key', key, known)}")

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

    def variants(self, value: Any) -> dict[str, Method]:
        if not isinstance(value, dict):
            self.problems.append(f"variants must be a table of tables, got {value!r}")
            return {}
        made = {}
        for name, table in value.items():
            where = f"variants.{name}"
            if not isinstance(table, dict) or "of" not in table or len(table) < 2:
                self.problems.append(f'{where} must name a method and change it, as {{of = "CS-1", placement = "end"}}')
            elif name in (*METHODS, DENSE, CS_OPT) or not re.fullmatch(r"[\w][\w.+-]*", name):
                self.problems.append(f"{where}: a variant needs a name of its own, a word that can be in a file's name")
            elif table["of"] not in METHODS:
                self.problems.append(f"{where}: {UnknownNameError('method', table['of'], METHODS)}")
            else:
                self.keys(f"{where}: ", table, VARIANT_KEYS)
                made[name] = self.variant(name, where, METHODS[table["of"]], table)
        return made

    def variant(self, name: str, where: str, of: Method, table: Mapping[str, Any]) -> Method:
        taught = {key: value for key, value in table.items() if key in DISTILLING_KEYS}
        if taught and not of.distills:
            able = ", ".join(method.name for method in METHODS.values() if method.distills)
            self.problems.append(
                f"{where}: only methods that learn from the dense model ({able}) take {', '.join(taught)}"
            )
        settings = {key: value for key, value in table.items() if key in CONFIG_KEYS}
        return variant(name, of, settings, self.training(where, taught, DISTILLING_KEYS))

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
        if not isinstance(table, dict):
            self.problems.append(f"{where} must be a table, such as {{rows = 8000}}, got {table!r}")
            return Sample()
        self.keys(f"{where}: ", table, TASK_KEYS)
        for key in ("rows", "dev_rows", "max_length"):
            self.whole(f"{where}.{key}", table.get(key), 2)
        return Sample(
            rows=table.get("rows"),
            dev_rows=table.get("dev_rows"),
            max_length=table.get("max_length"),
            dense=self.training(f"{where}.dense", table.get("dense", {}), TRAINING_KEYS),
            pyramid=self.training(f"{where}.pyramid", table.get("pyramid", {}), TRAINING_KEYS + DISTILLING_KEYS),
        )

    def whole(self, where: str, value: Any, low: int) -> None:
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < low):
            self.problems.append(f"{where} must be a whole number of at least {low}, got {value!r}")

    def training(self, where: str, table: Any, known: tuple[str, ...]) -> dict[str, Any]:
        if not isinstance(table, dict):
            self.problems.append(f"{where} must be a table, such as {{epochs = 3}}, got {table!r}")
            return {}
        self.keys(f"{where}: ", table, known)
        for key, value in table.items():
            if isinstance(value, bool) != (key == "bf16") or not isinstance(value, int | float):
                wanted = "true or false" if key == "bf16" else "a number"
                self.problems.append(f"{where}.{key} must be {wanted}, got {value!r}")
        return dict(table)

    def seeds(self, value: Any) -> tuple[int, ...]:
        if not isinstance(value, list) or not value or len(set(map(str, value))) < len(value):
            self.problems.append(f"seeds must be a list of different whole numbers, got {value!r}")
            return ()
        for seed in value:
            self.whole("each of seeds", seed, 0)
        return tuple(value)

    def configurations(
        self, value: Any, methods: Mapping[str, Method], tasks: tuple[str, ...]
    ) -> dict[str, tuple[Schedule, ...]]:
        if not isinstance(value, dict):
            self.problems.append(f"configurations must be a table with {', '.join(KINDS)}, got {value!r}")
            return {}
        self.keys("configurations: ", value, KINDS)
        kinds = {name: {kind_of(method, task) for task in tasks or ("",)} for name, method in methods.items()}
        for kind in KINDS:
            who = ", ".join(name for name in methods if kind in kinds[name])
            if who and not value.get(kind):
                self.problems.append(f"configurations.{kind} is missing, and {who} takes its configurations from there")
        return {kind: tuple(self.schedules(kind, value.get(kind, []))) for kind in KINDS}

    def schedules(self, kind: str, entries: Any) -> list[Schedule]:
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            self.problems.append(f"configurations.{kind} must be a list of tables, got {entries!r}")
            return []
        made: list[Schedule] = []
        for number, entry in enumerate(entries, start=1):
            where = f"configurations.{kind}, entry {number}"
            if any(key not in SCHEDULE_KEYS[kind] for key in entry):
                self.keys(f"{where}: ", entry, SCHEDULE_KEYS[kind])
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
        if value is False:
            return None
        table = {} if value is True else value
        if not isinstance(table, dict):
            self.problems.append(f"measure must be true, false or a table, got {value!r}")
            return None
        self.keys("measure: ", table, tuple(MEASURE_DEFAULTS))
        for key, number in table.items():
            self.whole(f"measure.{key}", number, 1)
        return {**MEASURE_DEFAULTS, **table}


def make_schedule(kind: str, entry: Mapping[str, Any]) -> Schedule:
    """The schedule that an entry of `configurations` stands for; its keys say of which sort it is.

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
