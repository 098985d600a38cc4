"""Three tasks of Long Range Arena (Tay et al., 2021) as rows of small integers: pixels of an image, bytes of a text.

Read from a local folder or from the hub; Pathfinder from the files of `pyramid-bert lra make-pathfinder`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ...checks import check_choice, check_int
from ...errors import DataError
from ...text.sampling import shuffled
from ..glue.tasks import load_task
from .cifar import CLASSES, read_cifar10
from .pathfinder.store import RECORD, read_pathfinder

PAD = -1


@dataclass(frozen=True)
class LraTask:
    """A task.

    Example:
        >>> LRA_TASKS["text"].title, LRA_TASKS["text"].length
        ('IMDB', 1000)

    Attributes:
        name: Its short name.
        title: Its name in papers.
        length: The most tokens of a row, without CLS.
        vocabulary: Tokens are below this number.
        classes: The number of classes.
    """

    name: str
    title: str
    length: int
    vocabulary: int
    classes: int


@dataclass(frozen=True, eq=False)
class LraData:
    """The rows of one split of a task.

    Attributes:
        ids: (rows, length) int16: tokens, and -1 after the end of a row.
        lengths: (rows,) int64: tokens of each row.
        labels: (rows,) int64: classes from 0.
    """

    ids: NDArray[np.int16]
    lengths: NDArray[np.int64]
    labels: NDArray[np.int64]


LRA_TASKS: Mapping[str, LraTask] = {
    "cifar10": LraTask("cifar10", "CIFAR-10", 1024, 256, len(CLASSES)),
    "text": LraTask("text", "IMDB", 1000, 256, 2),
    "pathfinder32": LraTask("pathfinder32", "Pathfinder", 1024, 256, 2),
}


def load_lra(
    task: str, folder: str | Path | None, split: Literal["train", "dev"], *, rows: int | None = None, seed: int = 0
) -> LraData:
    r"""The rows of one split of a task, or a fixed sample of them.

    Args:
        task: One of `LRA_TASKS`.
        folder: The folder of the task, or the one above it; docs/data.md shows the layouts. None takes CIFAR-10 and
            IMDB from the hub.
        split: "train", or "dev": the test set of CIFAR-10 and IMDB, and the second part of Pathfinder.
        rows: The size of a sample with the class shares of all rows, in their order; None for all rows.
        seed: Of the sample.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = Path(folder, "train.tsv").write_text("sentence\tlabel\nfine\t1\ndull mess\t0\n")
        ...     data = load_lra("text", folder, "train")
        >>> bytes(data.ids[1, :9].astype("uint8")), data.lengths.tolist(), data.labels.tolist()
        (b'dull mess', [4, 9], [1, 0])
    """
    check_choice("Long Range Arena task", task, LRA_TASKS)
    check_choice(f"split of {LRA_TASKS[task].title}", split, ("train", "dev"))
    if rows is not None:
        check_int("rows", rows, 1, "leave it out for all rows")
    place = None if folder is None else Path(folder)
    if task == "text":
        table = load_task("imdb", place, split)
        labels = np.array(table.labels, np.int64)
        keep = sample_balanced(labels, rows, seed)
        texts = [str(table.texts[number]).encode() for number in keep]
        return _padded(texts, LRA_TASKS[task].length, labels[keep])
    images, classes = read_cifar10(place, split) if task == "cifar10" else _pathfinder(place, split)
    keep = sample_balanced(classes, rows, seed)
    ids = images[keep].reshape(len(keep), -1).astype(np.int16)
    return LraData(ids, np.full(len(keep), ids.shape[1], np.int64), classes[keep].astype(np.int64))


def sample_balanced(labels: NDArray[np.integer], rows: int | None, seed: int) -> NDArray[np.int64]:
    """The indices of a sample of `rows` rows, ascending, with each class as frequent as in all rows.

    The sample depends only on labels, rows and seed, not on the machine or library versions.

    Example:
        >>> sample_balanced(np.array([0, 0, 0, 0, 1, 1]), 3, seed=0).tolist()
        [2, 3, 4]
    """
    if rows is None or rows >= len(labels):
        return np.arange(len(labels))
    classes, counts = np.unique(labels, return_counts=True)
    shares = counts * rows
    quotas = shares // len(labels)
    # The remainder goes to the classes that rounding cut most, the lower class first.
    by_rest = np.argsort(-(shares % len(labels)), kind="stable")
    quotas[by_rest[: rows - quotas.sum()]] += 1
    order = np.array(shuffled(len(labels), seed))
    kept = [order[labels[order] == one][:quota] for one, quota in zip(classes, quotas, strict=True)]
    return np.sort(np.concatenate(kept))


def _padded(texts: list[bytes], length: int, labels: NDArray[np.int64]) -> LraData:
    """Texts byte by byte, cut to `length`."""
    ids = np.full((len(texts), length), PAD, np.int16)
    for row, text in zip(ids, texts, strict=True):
        row[: len(text)] = np.frombuffer(text[:length], np.uint8)
    return LraData(ids, (ids != PAD).sum(axis=1), labels)


def _pathfinder(folder: Path | None, split: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """The first 80 % of the images, or the 10 % after them; the last 10 % are Long Range Arena's test set."""
    if folder is None:
        raise DataError(
            "Pathfinder is not on the hub; make it with `pyramid-bert lra make-pathfinder --out DIR --n 20000` and "
            "give DIR"
        )
    inner = folder / "pathfinder32"
    place = inner if (inner / RECORD).is_file() and not (folder / RECORD).is_file() else folder
    made = read_pathfinder(place)
    window = made.record.settings.window
    if window**2 != LRA_TASKS["pathfinder32"].length:
        raise DataError(f"the images in {place} are {window}x{window}, not 32x32; make them with a window of 32")
    count = len(made.labels)
    start, stop = (0, count * 8 // 10) if split == "train" else (count * 8 // 10, count * 9 // 10)
    if start == stop:
        raise DataError(f"{place} has {count} images, too few for the split {split!r}; make at least 10")
    return made.images[start:stop], made.labels[start:stop]
