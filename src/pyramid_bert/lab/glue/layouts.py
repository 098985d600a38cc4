"""What each GLUE task looks like on disk and on the hub: files, columns and classes, as data.

Column names are those of the official GLUE download and of `nyu-mll/glue` on the hub. "Plain" is the layout that is
easy to write by hand: tab-separated files with the columns sentence, sentence2 (for pairs) and label.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Columns:
    """Which columns hold the text, the second text of a pair, and the label.

    Attributes:
        text: Column of the text.
        pair: Column of the second text; None for single sentences.
        label: Column of the label.
        header: All columns, for files without a header line.
    """

    text: str
    pair: str | None
    label: str
    header: tuple[str, ...] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are read."""
        return tuple(name for name in (self.text, self.pair, self.label) if name is not None)


PLAIN_SENTENCE = Columns("sentence", None, "label")
PLAIN_PAIR = Columns("sentence", "sentence2", "label")
CLASS_FOLDERS = Columns("text", None, "label")
_NUMBERED_PAIR = Columns("sentence1", "sentence2", "label")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where a task's rows are.

    Attributes:
        folder: Name of the task's folder in the official download.
        official: Columns of the official files; None where there is no such download.
        hub: Columns on the hub.
        files: For each split the names that its file may have, without suffix, the best first; names that begin with
            the first one and an underscore are taken too (train_sub).
        original: Files of another release with the official columns, whole names, by split.
        class_folders: For each split the folder of an official download that has no tables but a folder for each
            class, and in it a file for each text.
        hub_name: Repository and configuration on the hub.
        hub_splits: Our splits by the hub's names.
        broken_rows: Whether the published data is known to hold rows without a text or a label; they are left out.
    """

    folder: str
    official: Columns | None
    hub: Columns
    hub_name: tuple[str, str | None]
    files: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"train": ("train",), "dev": ("dev",)})
    original: Mapping[str, str] = field(default_factory=dict)
    class_folders: Mapping[str, str] = field(default_factory=dict)
    hub_splits: Mapping[str, str] = field(default_factory=lambda: {"train": "train", "dev": "validation"})
    broken_rows: bool = False

    @property
    def plain(self) -> Columns:
        """Columns of the plain layout."""
        return PLAIN_SENTENCE if self.hub.pair is None else PLAIN_PAIR


def _glue(name: str) -> tuple[str, str]:
    return ("nyu-mll/glue", name)


LAYOUTS = {
    "cola": Layout(
        folder="CoLA",
        official=Columns("sentence", None, "label", header=("source", "label", "note", "sentence")),
        hub=PLAIN_SENTENCE,
        hub_name=_glue("cola"),
    ),
    "sst2": Layout(folder="SST-2", official=PLAIN_SENTENCE, hub=PLAIN_SENTENCE, hub_name=_glue("sst2")),
    "mrpc": Layout(
        folder="MRPC",
        official=Columns("#1 String", "#2 String", "Quality"),
        hub=_NUMBERED_PAIR,
        hub_name=_glue("mrpc"),
        # The corpus as its makers publish it: GLUE cut its dev set out of this train file, so the two never mix.
        original={"train": "msr_paraphrase_train.txt", "dev": "msr_paraphrase_test.txt"},
    ),
    "stsb": Layout(
        folder="STS-B",
        official=Columns("sentence1", "sentence2", "score"),
        hub=_NUMBERED_PAIR,
        hub_name=_glue("stsb"),
    ),
    "qqp": Layout(
        folder="QQP",
        official=Columns("question1", "question2", "is_duplicate"),
        hub=Columns("question1", "question2", "label"),
        hub_name=_glue("qqp"),
        # A line break inside of a question cut some lines in two, and two pairs have an empty question.
        broken_rows=True,
    ),
    "mnli": Layout(
        folder="MNLI",
        official=Columns("sentence1", "sentence2", "gold_label"),
        hub=Columns("premise", "hypothesis", "label"),
        hub_name=_glue("mnli"),
        files={"train": ("train",), "dev": ("dev_matched", "dev"), "dev_mismatched": ("dev_mismatched",)},
        hub_splits={"train": "train", "dev": "validation_matched", "dev_mismatched": "validation_mismatched"},
    ),
    "qnli": Layout(
        folder="QNLI",
        official=Columns("question", "sentence", "label"),
        hub=Columns("question", "sentence", "label"),
        hub_name=_glue("qnli"),
    ),
    "rte": Layout(folder="RTE", official=_NUMBERED_PAIR, hub=_NUMBERED_PAIR, hub_name=_glue("rte")),
    "wnli": Layout(folder="WNLI", official=_NUMBERED_PAIR, hub=_NUMBERED_PAIR, hub_name=_glue("wnli")),
    "imdb": Layout(
        folder="IMDB",
        official=None,
        hub=Columns("text", None, "label"),
        hub_name=("stanfordnlp/imdb", None),
        files={"train": ("train",), "dev": ("test", "dev")},
        class_folders={"train": "aclImdb/train", "dev": "aclImdb/test"},
        hub_splits={"train": "train", "dev": "test"},
    ),
}
