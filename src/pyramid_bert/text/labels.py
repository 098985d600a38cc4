"""Labels: what a classifier predicts, a class out of a fixed list or a number."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..errors import CheckpointError, DataError

Where = Callable[[int], str]  # the place of a row, as error messages name it: "train.csv, row 3" for row 2
RECORD = "classifier.json"  # the file of a saved classifier that names its classes
_SHOWN = 10  # classes that a summary names


@dataclass(frozen=True)
class Labels:
    """The classes in the order of the model's outputs; None for regression.

    Attributes:
        classes: What the model predicts.
        numbered: Whether data may also give a class by its number, as GLUE's files do.

    Example:
        >>> Labels.of(["pos", "neg", "pos"], texts=3)
        Labels(classes=('neg', 'pos'), numbered=False)
    """

    classes: tuple[Any, ...] | None
    numbered: bool = False

    @property
    def outputs(self) -> int:
        """How many outputs the model needs."""
        return 1 if self.classes is None else len(self.classes)

    @classmethod
    def of(cls, labels: Sequence[Any], texts: int, where: Where | None = None) -> Labels:
        """The classes that occur in `labels`, sorted; regression when all of them are floats.

        There must be as many labels as `texts`. `where` names the place of a row in errors, like `Table.where`; without
        it they say "label 3".
        """
        values = _plain(labels, texts)
        if all(isinstance(value, float) for value in values):
            _check_numbers(values, where)
            return cls(None)
        kinds = [type(value).__name__ for value in values]
        for row, kind in enumerate(kinds):
            if kind not in ("str", "int", "float"):
                raise DataError(f"labels must be strings, ints or floats, got {kind}: {_named(row, values, where)}")
            if kind != kinds[0]:
                raise DataError(
                    f"labels must be all strings, all ints or all floats, got {', '.join(sorted(set(kinds)))}: "
                    f"{_named(row, values, where)}, unlike the first one"
                )
        classes = tuple(sorted(set(values)))
        if len(classes) < 2:
            place = "" if where is None else f", from {where(0)} to {where(len(values) - 1)}"
            raise DataError(f"a classifier needs at least two classes, all labels are {classes[0]!r}{place}")
        return cls(classes)

    def fits_into(self, other: Labels) -> bool:
        """Whether a model with the labels `other` can learn these without a new head."""
        if self.classes is None or other.classes is None:
            return self.classes is other.classes
        return set(self.classes) <= other._numbers().keys()

    def targets(self, labels: Sequence[Any], texts: int | None = None, where: Where | None = None) -> list[float | int]:
        """The labels as class numbers, or as floats for regression; `where` names the place of a row in errors."""
        values = _plain(labels, len(labels) if texts is None else texts)
        if self.classes is None:
            _check_numbers(values, where)
            return [float(value) for value in values]
        number = self._numbers()
        unknown = [row for row, value in enumerate(values) if value not in number]
        if unknown:
            # One stray word makes strings of a file's whole numbers: name the stray, not the first number.
            spelled = {str(name) for name in number}
            row = next((row for row in unknown if str(values[row]) not in spelled), unknown[0])
            known = ", ".join(repr(name) for name in self.classes)
            raise DataError(f"{_named(row, values, where)}, which the model does not know; its classes are {known}")
        return [number[value] for value in values]

    def decode(self, logits: NDArray[Any]) -> NDArray[Any]:
        """The labels (n,) that outputs (n, classes) stand for."""
        if self.classes is None:
            return logits[:, 0]
        decoded: NDArray[Any] = np.array(self.classes)[logits.argmax(axis=1)]
        return decoded

    def summary(self, labels: Sequence[Any]) -> str:
        """One line that says what is learned from `labels`.

        Example:
            >>> Labels(("neg", "pos")).summary(["pos", "neg"]), Labels(None).summary([5.0, 0.0, 2.5])
            ('2 classes: neg, pos', 'a number, 0.0 to 5.0')
        """
        if self.classes is None:
            return f"a number, {float(min(labels))} to {float(max(labels))}"
        shown = [*map(str, self.classes[:_SHOWN]), *(["..."] if len(self.classes) > _SHOWN else [])]
        return f"{len(self.classes)} classes: {', '.join(shown)}"

    def write_to(self, config: Any) -> None:
        """Names the classes in a transformers config, as its Auto classes and the hub expect."""
        config.problem_type = "regression" if self.classes is None else "single_label_classification"
        if self.classes is not None:
            config.id2label = {number: str(name) for number, name in enumerate(self.classes)}
            config.label2id = {str(name): number for number, name in enumerate(self.classes)}

    def _numbers(self) -> dict[Any, int]:
        """Class name (and number, if `numbered`) -> class number."""
        names = {name: i for i, name in enumerate(self.classes or ())}
        return {**{i: i for i in range(len(names))}, **names} if self.numbered else names


def read_record(path: str | Path) -> dict[str, Any]:
    """The record that `PyramidClassifier.save` writes next to the weights; empty if there is none."""
    file = Path(path) / RECORD
    if not file.is_file():
        return {}
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{file} is damaged: {error}") from error
    if not isinstance(record, dict) or "classes" not in record:
        raise CheckpointError(f"{file} is damaged: it names no classes")
    return record


def saved_labels(path: str | Path, record: dict[str, Any], config: Any) -> Labels:
    """The labels of a trained classifier: as we saved them, or as transformers names them."""
    if record:
        classes = record["classes"]
    elif config.num_labels == 1:
        classes = None
    else:
        classes = [config.id2label[i] for i in range(config.num_labels)]
    labels = Labels(None if classes is None else tuple(classes), bool(record.get("numbered")))
    if labels.outputs != config.num_labels:
        raise DataError(f"{path} names {labels.outputs} classes, but its model has {config.num_labels} outputs")
    return labels


def as_target(
    labels: Sequence[Any], target: Literal["classes", "number"], where: Where | None = None
) -> list[str | int | float]:
    """The labels of a file as what the user says they are: classes (words and integers) or numbers (floats).

    Example:
        >>> as_target([1, 5], "number"), as_target([0.0, 1.0], "classes")
        ([1.0, 5.0], [0, 1])
    """
    if target == "number":
        _check_numbers(labels, where)
        return [float(value) for value in labels]
    for row, value in enumerate(labels):
        if isinstance(value, float) and not value.is_integer():
            raise DataError(f"{_named(row, labels, where)}; a class must be a word or a whole number")
    return [int(value) if isinstance(value, float) else value for value in labels]


def _check_numbers(values: Sequence[Any], where: Where | None) -> None:
    for row, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise DataError(f"{_named(row, values, where)}; a regression target must be a finite number")


def _named(row: int, values: Sequence[Any], where: Where | None) -> str:
    return f"{f'label {row}' if where is None else f'{where(row)}: the label'} is {values[row]!r}"


def _plain(labels: Sequence[Any], texts: int) -> list[Any]:
    """The labels as plain Python values, one for each of the texts."""
    if getattr(labels, "shape", (0,))[1:] == (1,):  # a column of numpy or pandas: one label a row
        labels = np.asarray(labels)[:, 0].tolist()
    labels = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    if len(labels) != texts:
        raise DataError(f"{len(labels)} labels for {texts} texts; give one label per text")
    if texts == 0:
        raise DataError("no texts given; at least one is needed")
    return [value.item() if isinstance(value, np.generic) else value for value in labels]
