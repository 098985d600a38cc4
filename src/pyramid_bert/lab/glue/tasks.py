"""The nine GLUE tasks and IMDB: the paper's presets, and their rows from a local folder or from the hub.

Labels are the hub's class numbers whatever the files hold (words or numbers), so that a model trained on one copy of a
task can be evaluated on another; STS-B's targets are floats from 0 to 5, to four decimals.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ...errors import DataError, UnknownNameError
from ...text.tables import Label, NumberedRows, Table, Text, table_of
from ..fetching import fetch_rows
from .files import class_folder_rows, columns_in, find_class_folders, find_file, rows_in
from .layouts import CLASS_FOLDERS, LAYOUTS, Columns, Layout


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task and how the paper fine-tunes on it.

    Example:
        >>> TASKS["rte"].title, TASKS["rte"].max_length, TASKS["rte"].batch_size, TASKS["rte"].metric
        ('RTE', 256, 16, 'accuracy')

    Attributes:
        name: Its short name, as on the hub.
        title: Its name in papers.
        classes: The classes by their number; None for regression.
        metric: The metric that papers report, by its name in `metrics`.
        max_length: Texts are cut to this many tokens: the paper's N.
        batch_size: Texts a training step.
        learning_rate: Peak learning rate.
        epochs: Passes over the data.
        eval_batch_size: Texts a batch in evaluation.
    """

    name: str
    title: str
    classes: tuple[str, ...] | None
    metric: Literal["accuracy", "f1", "matthews", "spearman"] = "accuracy"
    max_length: int = 128
    batch_size: int = 48
    learning_rate: float = 2e-5
    epochs: float = 3
    eval_batch_size: int = 128

    @property
    def regression(self) -> bool:
        """Whether the targets are numbers."""
        return self.classes is None

    @property
    def pair(self) -> bool:
        """Whether the texts are pairs."""
        return self.layout.plain.pair is not None

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that have labels."""
        return tuple(self.layout.files)

    @property
    def layout(self) -> Layout:
        """Where its rows are."""
        return LAYOUTS[self.name]


_ENTAILMENT = ("entailment", "not_entailment")
# The paper leaves out WNLI and uses IMDB by bytes only: their presets are ours, after its others.
TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task(name="cola", title="CoLA", classes=("unacceptable", "acceptable"), metric="matthews", max_length=64),
        Task(name="sst2", title="SST-2", classes=("negative", "positive"), max_length=64),
        Task(name="mrpc", title="MRPC", classes=("not_equivalent", "equivalent"), metric="f1"),
        Task(name="stsb", title="STS-B", classes=None, metric="spearman"),
        Task(name="qqp", title="QQP", classes=("not_duplicate", "duplicate"), metric="f1"),
        Task(name="mnli", title="MNLI", classes=("entailment", "neutral", "contradiction"), batch_size=32),
        Task(name="qnli", title="QNLI", classes=_ENTAILMENT),
        Task(name="rte", title="RTE", classes=_ENTAILMENT, max_length=256, batch_size=16),
        Task(name="wnli", title="WNLI", classes=("not_entailment", "entailment")),
        Task(name="imdb", title="IMDB", classes=("neg", "pos"), max_length=256),
    )
}


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
    if name not in TASKS:
        raise UnknownNameError("task", name, TASKS)
    task = TASKS[name]
    if split not in task.splits:
        raise UnknownNameError(f"split of {task.title}", split, task.splits)
    if folder is None:
        return table_from_hub(task, split, _fetch(task, split))
    place = find_class_folders(name, Path(folder), split, task.classes or ())
    if place is not None:
        rows = class_folder_rows(place, task.classes or ())
        return _checked(task, _table(task, rows, str(place), CLASS_FOLDERS), split)
    path = find_file(name, Path(folder), split)
    columns = columns_in(name, path)
    return _checked(task, _table(task, rows_in(path, columns.header), str(path), columns), split)


def _fetch(task: Task, split: str) -> Iterable[Mapping[str, Any]]:
    official = f", or the official download with {task.title}/train.tsv" if task.layout.official else ""
    instead = f"Give a local folder instead, with {task.name}/train.tsv and the like{official}"
    return fetch_rows(task.title, task.layout.hub_name, task.layout.hub_splits[split], instead)


def table_from_hub(task: Task, split: str, rows: Iterable[Mapping[str, Any]]) -> Table:
    """A split of a task from its rows as the hub gives them."""
    source = " ".join(part for part in (*task.layout.hub_name, task.layout.hub_splits[split]) if part)
    names = getattr(getattr(rows, "features", {}).get("label"), "names", None)
    if task.classes is not None and names is not None and tuple(names) != task.classes:
        raise DataError(f"{source} has the classes {', '.join(names)}; expected {', '.join(task.classes)}, in order")
    return _checked(task, _table(task, enumerate(rows, start=1), source, task.layout.hub), split)


def _table(task: Task, rows: NumberedRows, source: str, columns: Columns) -> Table:
    """The texts, and the labels as they stand in the data."""
    if task.layout.broken_rows:
        rows = _whole_rows(rows, source, columns)
    return table_of(rows, source, columns.text, columns.pair, columns.label)


def _whole_rows(rows: NumberedRows, source: str, columns: Columns) -> NumberedRows:
    """The rows that have all they need; says which were left out."""
    broken = []
    for number, row in rows:
        if any(name in row and row[name] in (None, "") for name in columns.names):
            broken.append(number)
        else:
            yield number, row
    if broken:
        numbers = ", ".join(map(str, broken[:5])) + (", ..." if len(broken) > 5 else "")
        warnings.warn(f"{source}: left out {len(broken)} rows without text or label: {numbers}", stacklevel=2)


def _checked(task: Task, table: Table, split: str) -> Table:
    """The table with stripped texts and the task's own labels; raises for labels that are none."""
    texts: list[Text] = [
        text.strip() if isinstance(text, str) else (text[0].strip(), text[1].strip()) for text in table.texts
    ]
    convert = _target if task.classes is None else _class_number
    labels = [convert(task, label, table.where(i)) for i, label in enumerate(table.labels)]
    missing = [] if task.classes is None else [c for number, c in enumerate(task.classes) if number not in labels]
    if len(set(labels)) < 2:
        raise DataError(f"{table.source}: every label is {table.labels[0]!r}; at least two different ones are needed")
    if missing and split == "train":
        raise DataError(f"{table.source}: no row has the label {missing[0]!r}; a model could not learn it")
    return Table(texts, labels, table.source, table.numbers)


def _class_number(task: Task, label: Any, where: str) -> Label:
    assert task.classes is not None
    if label in (-1, "-1"):
        raise DataError(f"{where}: the label -1 stands for a hidden one; use a split with labels")
    for number, name in enumerate(task.classes):
        if label in (number, str(number), name):
            return number
    known = ", ".join(f"{name} ({number})" for number, name in enumerate(task.classes))
    raise DataError(f"{where}: unknown label {label!r}; {task.title} has {known}")


def _target(task: Task, label: Any, where: str) -> Label:
    if isinstance(label, bool) or not isinstance(label, int | float) or not math.isfinite(label) or not 0 <= label <= 5:
        raise DataError(f"{where}: the target is {label!r}; {task.title} has numbers from 0 to 5")
    return round(float(label), 4)  # the hub's are single precision
