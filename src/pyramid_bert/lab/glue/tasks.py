"""The nine GLUE tasks and IMDB: the paper's presets, and their rows from a local folder or from the hub.

Labels are the hub's class numbers whether the files hold words or numbers, so that a model trained on one copy of a
task can be evaluated on another; STS-B's targets are floats from 0 to 5, to four decimals.
"""

from __future__ import annotations

import math
import tomllib
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ...checks import check_choice
from ...errors import DataError
from ...text.tables import Label, NumberedRows, Table, Text, table_of
from ..fetching import fetch_rows
from .files import class_folder_rows, columns_in, find_class_folders, find_file, rows_in


@dataclass(frozen=True)
class Columns:
    """Which columns hold the text, the second text of a pair, and the label.

    Attributes:
        text: Column of the text.
        pair: Column of the second text; None for single sentences.
        label: Column of the label.
        header: All columns, for files without a header line.
    """

    text: str = "sentence"
    pair: str | None = None
    label: str = "label"
    header: tuple[str, ...] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are read."""
        return tuple(name for name in (self.text, self.pair, self.label) if name is not None)


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task, how the paper fine-tunes on it, and where its rows are.

    Example:
        >>> TASKS["rte"].title, TASKS["rte"].max_length, TASKS["rte"].batch_size, TASKS["rte"].metric
        ('RTE', 256, 16, 'accuracy')

    Attributes:
        name: Its short name, as on the hub.
        title: Its name in papers, and of its folder in the official download.
        classes: The classes by their number; None for regression.
        metric: The metric that papers report, by its name in `metrics`.
        max_length: Texts are cut to this many tokens: the paper's N.
        batch_size: Texts per training step.
        learning_rate: Peak learning rate.
        epochs: Passes over the data.
        eval_batch_size: Texts per batch in evaluation.
        official: Columns of the official files; None if there is no such download.
        hub: Columns on the hub.
        hub_name: Repository and, if it has several, configuration on the hub.
        hub_splits: The hub's names of the splits.
        files: For each split the names that its file may have, without suffix, the best first; names that begin with
            the first one and an underscore are taken too (train_sub).
        original: For each split a file of another release with the official columns.
        class_folders: For each split a folder that holds a folder for each class, with a file for each text.
        broken_rows: The published data is known to hold rows without a text or a label; they are left out.
    """

    name: str
    title: str
    classes: tuple[str, ...] | None = None
    metric: Literal["accuracy", "f1", "matthews", "spearman"] = "accuracy"
    max_length: int = 128
    batch_size: int = 48
    learning_rate: float = 2e-5
    epochs: float = 3
    eval_batch_size: int = 128
    official: Columns | None = None
    hub: Columns = Columns()
    hub_name: tuple[str, ...] = ("nyu-mll/glue",)
    hub_splits: Mapping[str, str] = field(default_factory=lambda: {"train": "train", "dev": "validation"}, hash=False)
    files: Mapping[str, tuple[str, ...]] = field(
        default_factory=lambda: {"train": ("train",), "dev": ("dev",)}, hash=False
    )
    original: Mapping[str, str] = field(default_factory=dict, hash=False)
    class_folders: Mapping[str, str] = field(default_factory=dict, hash=False)
    broken_rows: bool = False

    @property
    def regression(self) -> bool:
        """Whether the targets are numbers."""
        return self.classes is None

    @property
    def pair(self) -> bool:
        """Whether the texts are pairs."""
        return self.hub.pair is not None

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that have labels."""
        return tuple(self.files)

    @property
    def plain(self) -> Columns:
        """Columns of the layout that is easy to write by hand: sentence, sentence2 (for pairs) and label."""
        return Columns(pair="sentence2" if self.pair else None)


def _read_tasks() -> dict[str, Task]:
    def plain(value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    tasks = {}
    for name, table in tomllib.loads(Path(__file__).with_name("tasks.toml").read_text(encoding="utf-8")).items():
        table = {"hub_name": ["nyu-mll/glue", name], **table}
        for key in ("official", "hub"):
            if key in table:
                table[key] = Columns(**{column: plain(value) for column, value in table[key].items()})
        tasks[name] = Task(name=name, **{key: plain(value) for key, value in table.items()})
    return tasks


TASKS: dict[str, Task] = _read_tasks()


def load_task(name: str, folder: str | Path | None, split: str = "train") -> Table:
    r"""The rows of one split of a task.

    Args:
        name: One of `TASKS`.
        folder: The folder of the task or the one above, in the official layout or as plain tab-separated files with
            the columns sentence, sentence2 and label; None takes the task from the hub.
        split: "train" or "dev" (IMDB: its test set), and for MNLI "dev_mismatched".

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     rows = [("sentence", "label"), ("a fine film", "1"), ("a dull mess", "0")]
        ...     _ = Path(folder, "train.tsv").write_text("\n".join("\t".join(row) for row in rows))
        ...     table = load_task("sst2", folder)
        >>> table.texts, table.labels
        (['a fine film', 'a dull mess'], [1, 0])
    """
    check_choice("task", name, TASKS)
    task = TASKS[name]
    check_choice(f"split of {task.title}", split, task.splits)
    if folder is None:
        official = f", or the official download with {task.title}/train.tsv" if task.official else ""
        instead = f"Give a local folder instead, with {task.name}/train.tsv and the like{official}"
        return table_from_hub(task, split, fetch_rows(task.title, task.hub_name, task.hub_splits[split], instead))
    place = find_class_folders(task, Path(folder), split)
    if place is not None:
        return _table(task, class_folder_rows(task, place), str(place), Columns("text"), split)
    path = find_file(task, Path(folder), split)
    _check_owner(task, path.parent)
    columns = columns_in(task, path)
    return _table(task, rows_in(path, columns.header), str(path), columns, split)


def table_from_hub(task: Task, split: str, rows: Iterable[Mapping[str, Any]]) -> Table:
    """A split of a task from its rows as the hub gives them."""
    source = " ".join((*task.hub_name, task.hub_splits[split]))
    names = getattr(getattr(rows, "features", {}).get("label"), "names", None)
    if task.classes is not None and names is not None and tuple(names) != task.classes:
        raise DataError(f"{source} has the classes {', '.join(names)}; expected {', '.join(task.classes)}, in order")
    return _table(task, enumerate(rows, start=1), source, task.hub, split)


def _check_owner(task: Task, folder: Path) -> None:
    """Raises if a folder is named after another task: many tasks have the same columns."""
    for other in TASKS.values():
        if other.name != task.name and folder.resolve().name in (other.name, other.title):
            raise DataError(f"{folder} is the folder of {other.title}, not of {task.title}; give the folder above it")


def _table(task: Task, rows: NumberedRows, source: str, columns: Columns, split: str) -> Table:
    """The stripped texts and the task's labels; raises for wrong labels and classes without a row."""
    if task.broken_rows:
        rows = _whole_rows(rows, source, columns)
    table = table_of(rows, source, columns.text, columns.pair, columns.label)
    texts: list[Text] = [
        text.strip() if isinstance(text, str) else (text[0].strip(), text[1].strip()) for text in table.texts
    ]
    convert = _target if task.regression else _class_number
    labels = [convert(task, label, table.where(i)) for i, label in enumerate(table.labels)]
    if len(set(labels)) < 2:
        raise DataError(f"{source}: every label is {table.labels[0]!r}; at least two different ones are needed")
    missing = [one for number, one in enumerate(task.classes or ()) if number not in labels]
    if missing and split == "train":
        raise DataError(f"{source}: no row has the label {missing[0]!r}; a model could not learn it")
    return Table(texts, labels, source, table.numbers)


def _whole_rows(rows: NumberedRows, source: str, columns: Columns) -> NumberedRows:
    """The rows that are complete; warns about the others."""
    broken = []
    for number, row in rows:
        if any(name in row and row[name] in (None, "") for name in columns.names):
            broken.append(number)
        else:
            yield number, row
    if broken:
        numbers = ", ".join(map(str, broken[:5])) + (", ..." if len(broken) > 5 else "")
        warnings.warn(f"{source}: left out {len(broken)} rows without text or label: {numbers}", stacklevel=2)


def _class_number(task: Task, label: Any, where: str) -> Label:
    if label in (-1, "-1"):
        raise DataError(f"{where}: the label -1 stands for a hidden one; use a split with labels")
    classes = dict(enumerate(task.classes or ()))
    for number, name in classes.items():
        if label in (number, str(number), name):
            return number
    known = ", ".join(f"{name} ({number})" for number, name in classes.items())
    raise DataError(f"{where}: unknown label {label!r}; {task.title} has {known}")


def _target(task: Task, label: Any, where: str) -> Label:
    if isinstance(label, bool) or not isinstance(label, int | float) or not math.isfinite(label) or not 0 <= label <= 5:
        raise DataError(f"{where}: the target is {label!r}; {task.title} has numbers from 0 to 5")
    return round(float(label), 4)  # the hub's are single precision
