"""Labels: what a classifier predicts, a class out of a fixed list or a number."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..boundary import read_object
from ..checks import check_choice, check_number
from ..errors import CheckpointError, DataError, PyramidError, shown
from .kind import TextKind

Where = Callable[[int], str]  # the place of a row, as error messages name it: "train.csv, row 3" for row 2
RECORD = "classifier.json"  # the file of a saved classifier that names its classes
Target = Literal["classes", "number"]
_SHOWN = 10  # classes that a summary names
_TRAIN_AGAIN = "fetch or train the model again"
_FEW = 20  # so few whole numbers are probably classes


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
    def of(
        cls,
        labels: Sequence[Any],
        texts: int,
        where: Where | None = None,
        target: Target | None = None,
        like: Labels | None = None,
    ) -> Labels:
        """The classes that occur in `labels`, sorted; regression when all of them are floats.

        A few whole numbers as floats could be both: pandas makes floats of classes if one is missing. They are refused
        unless `target` says what they are.

        Args:
            labels: As many as `texts`.
            texts: How many texts there are.
            where: Names the place of a row in errors, like `Table.where`; without it they say "label 3".
            target: "classes" or "number"; None goes by the type of the labels.
            like: What whole floats are taken for if `target` is None: what a model predicts already.
        """
        values = _plain(labels, texts)
        if target is None and _could_be_both(values):
            if like is None:
                raise _ambiguous(values)
            target = "number" if like.classes is None else "classes"
        if target is not None:
            values = as_target(values, target, where)
        if all(isinstance(value, float) for value in values):
            _check_numbers(values, where)
            return cls(None)
        kinds = [type(value).__name__ for value in values]
        for row, kind in enumerate(kinds):
            if kind not in ("str", "int", "float", "bool"):
                raise DataError(
                    f"labels must be strings, ints, bools or floats, got {kind}: {_named(row, values, where)}"
                )
            if kind != kinds[0]:
                raise DataError(
                    f"labels must be all strings, all ints, all bools or all floats, got "
                    f"{', '.join(sorted(set(kinds)))}: {_named(row, values, where)}, unlike the first one"
                )
        classes = tuple(sorted(set(values)))
        if len(classes) < 2:
            place = "" if where is None else f", from {where(0)} to {where(len(values) - 1)}"
            raise DataError(f"a classifier needs at least two classes, all labels are {classes[0]!r}{place}")
        return cls(classes)

    @classmethod
    def to_learn(
        cls,
        labels: Sequence[Any],
        texts: int,
        known: Labels | None,
        taught: Labels | None = None,
        *,
        target: Target | None = None,
        new_classes: bool = False,
    ) -> Labels:
        """What a model learns from `labels`: what it predicts already if they fit, else what occurs in them.

        Args:
            labels: As many as `texts`.
            texts: How many texts there are.
            known: What the model predicts; None if it has not been trained.
            taught: What its teacher predicts.
            target: As in `of`.
            new_classes: Let a trained model learn other classes than its own; without it that is an error.
        """
        found = cls.of(labels, texts, target=target, like=taught if known is None or known.made_up else known)
        if taught is not None and found.fits_into(taught):
            found = taught
        if known is None:
            return found
        if found.fits_into(known):
            return known
        if not new_classes:
            known.check_replaceable(found)
        return found

    @property
    def made_up(self) -> bool:
        """Whether transformers named the classes, because nobody else did."""
        return self.classes == tuple(f"LABEL_{i}" for i in range(self.outputs))

    def check_replaceable(self, other: Labels) -> None:
        """Raises if a model that predicts these was trained to; names that transformers made up are replaceable."""
        if not self.made_up:
            raise DataError(
                f"this model was trained to predict {self.described}, and the labels are {other.described}; pass "
                "new_classes=True (--new-classes on the command line) to replace what it has learned, or start from "
                "another model"
            )

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
        unknown = [row for row, value in enumerate(values) if not isinstance(value, Hashable) or value not in number]
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
        return f"a number, {float(min(labels))} to {float(max(labels))}" if self.classes is None else self.described

    @property
    def described(self) -> str:
        """What is predicted, in a few words."""
        if self.classes is None:
            return "a number"
        shown = [*map(str, self.classes[:_SHOWN]), *(["..."] if len(self.classes) > _SHOWN else [])]
        return f"{len(self.classes)} classes: {', '.join(shown)}"

    def write_to(self, config: Any) -> None:
        """Names the classes in a transformers config, as its Auto classes and the hub expect."""
        config.problem_type = "regression" if self.classes is None else "single_label_classification"
        if self.classes is not None:
            config.id2label = {number: str(name) for number, name in enumerate(self.classes)}
            config.label2id = {str(name): number for number, name in enumerate(self.classes)}

    def _numbers(self) -> dict[Any, int]:
        """Class name (and number, if `numbered`) -> class number; bools as files of text spell them, too."""
        names: dict[Any, int] = {name: i for i, name in enumerate(self.classes or ())}
        bools = {name: i for name, i in names.items() if isinstance(name, bool)}
        names |= {spelled: i for name, i in bools.items() for spelled in (str(name), str(name).lower())}
        return {**{i: i for i in range(len(self.classes or ()))}, **names} if self.numbered else names


def stand_ins(taught: Labels | None, texts: int) -> list[Any]:
    """Labels for texts that have none, where only the outputs of a teacher with the labels `taught` count.

    Example:
        >>> stand_ins(Labels(("neg", "pos")), 3), stand_ins(Labels(None), 1)
        (['neg', 'pos', 'neg'], [0.5])
    """
    if taught is None:
        raise DataError("labels are missing: give one per text, or a teacher to learn from without them")
    every = (0.5,) if taught.classes is None else taught.classes
    return [every[i % len(every)] for i in range(texts)]


def read_record(path: str | Path) -> dict[str, Any]:
    """The record that `PyramidClassifier.save` writes next to the weights; empty if there is none."""
    file = Path(path) / RECORD
    if not file.is_file():
        return {}
    record = read_object(file, CheckpointError, _TRAIN_AGAIN)
    classes, longest = record.get("classes", ()), record.get("max_length")
    named = isinstance(classes, list) and len(classes) > 1 and all(isinstance(name, str | int) for name in classes)
    if classes is not None and not (named and len(set(classes)) == len(classes)):
        raise CheckpointError(f"{file} is damaged: its classes are {shown(classes)}; {_TRAIN_AGAIN}")
    if not isinstance(record.get("numbered", False), bool):
        raise CheckpointError(f"{file} is damaged: numbered is {shown(record['numbered'])}; {_TRAIN_AGAIN}")
    if longest is not None:
        check_number(f"{file}: max_length", longest, 2, hint=_TRAIN_AGAIN, whole=True, error=CheckpointError)
    if (texts := record.get("texts")) is not None:
        try:
            TextKind.from_dict(texts)
        except PyramidError as error:
            raise CheckpointError(f"{file} is damaged: {error}; {_TRAIN_AGAIN}") from error
    return record


def saved_labels(path: str | Path, record: dict[str, Any], config: Any) -> Labels:
    """The labels of a trained classifier: as we saved them, or as transformers names them."""
    if record:
        classes = record["classes"]
    elif config.num_labels == 1:
        classes = None
    else:
        classes = [config.id2label.get(i) for i in range(config.num_labels)]
        if not all(isinstance(name, str) for name in classes):
            raise CheckpointError(f"{path} does not name each of its {config.num_labels} classes; {_TRAIN_AGAIN}")
    labels = Labels(None if classes is None else tuple(classes), bool(record.get("numbered")))
    if labels.outputs != config.num_labels:
        raise DataError(f"{path} names {labels.outputs} classes, but its model has {config.num_labels} outputs")
    return labels


def as_target(labels: Sequence[Any], target: Target, where: Where | None = None) -> list[str | int | float]:
    """The labels as what the user says they are: classes (words and integers) or numbers (floats).

    Example:
        >>> as_target([1, 5], "number"), as_target([0.0, 1.0], "classes")
        ([1.0, 5.0], [0, 1])
    """
    check_choice("target", target, ("classes", "number"))
    if target == "number":
        _check_numbers(labels, where)
        return [float(value) for value in labels]
    for row, value in enumerate(labels):
        if isinstance(value, float) and not value.is_integer():
            raise DataError(f"{_named(row, labels, where)}; a class must be a word or a whole number")
    return [int(value) if isinstance(value, float) else value for value in labels]


def _could_be_both(values: Sequence[Any]) -> bool:
    """Whether labels are floats that are all whole and few: classes or numbers."""
    return all(isinstance(value, float) and value.is_integer() for value in values) and len(set(values)) <= _FEW


def _ambiguous(values: Sequence[float]) -> DataError:
    shown = ", ".join(map(str, sorted(set(values))[:3]))
    return DataError(
        f"the labels are whole numbers written as floats, like {shown}: classes, or numbers to predict? Say which with "
        "target='classes' or target='number' (--target on the command line), or give classes as ints"
    )


def _check_numbers(values: Sequence[Any], where: Where | None) -> None:
    for row, value in enumerate(values):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise DataError(f"{_named(row, values, where)}; a regression target must be a finite number")


def _named(row: int, values: Sequence[Any], where: Where | None) -> str:
    return f"{f'label {row}' if where is None else f'{where(row)}: the label'} is {shown(values[row])}"


def _plain(labels: Sequence[Any], texts: int) -> list[Any]:
    """The labels as plain Python values, one for each of the texts."""
    if isinstance(labels, str | bytes | Mapping | Set) or not isinstance(labels, Iterable):
        raise DataError(f"labels must be a list or a column, got {type(labels).__name__}")
    shape = tuple(getattr(labels, "shape", (texts,)))
    if not shape or shape[1:] not in ((), (1,)):
        raise DataError(f"labels must be one column, got the shape {shape}; name one, as in frame['label']")
    if shape[1:]:  # a column of numpy or pandas: one label a row
        labels = np.asarray(labels)[:, 0].tolist()
    labels = labels.tolist() if hasattr(labels, "tolist") else list(labels)
    if len(labels) != texts:
        raise DataError(f"{len(labels)} labels for {texts} texts; give one label per text")
    if texts == 0:
        raise DataError("no texts given; at least one is needed")
    return [value.item() if isinstance(value, np.generic) else value for value in labels]
