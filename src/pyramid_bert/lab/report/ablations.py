"""The paper's ablations and ours: what each asks, and the results that answer it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PREFIX = "ablation-"
IMPORTANCE = f"{PREFIX}importance"

# methods: a table and a chart of a study. fit: lines through all points, by kind of schedule. beside: two studies of
# the same cells. importance: files of mutual information.
Kind = Literal["methods", "fit", "beside", "importance"]


@dataclass(frozen=True)
class Ablation:
    """One question.

    Attributes:
        key: For links, and after `ablation-` the name of its study.
        letter: Its place among the questions that are asked of every model; empty for further studies.
        title: In a few words.
        question: What is compared, and why.
        kind: How the answer is shown.
        studies: The studies that answer it; all have to be there.
    """

    key: str
    title: str
    question: str
    kind: Kind
    studies: tuple[str, ...]
    letter: str = ""

    @property
    def heading(self) -> str:
        """The title, after its letter."""
        return f"({self.letter}) {self.title}" if self.letter else self.title


def _study(key: str, title: str, question: str, kind: Kind = "methods", letter: str = "") -> Ablation:
    return Ablation(key, title, question, kind, (PREFIX + key,), letter)


ABLATIONS = (
    _study(
        "m",
        "Centres at a time",
        "Greedy k-center adds m centres between two updates of the distances. m = 1 covers best, m = k − 1 is one "
        "parallel step: what does it cost?",
        letter="a",
    ),
    Ablation(
        "importance",
        "Does rank mean importance?",
        "Remove the k-th most important token at an encoder and measure the mutual information between predictions "
        "with and without it. If rank means importance, it grows with k; the number is Spearman's correlation of both.",
        "importance",
        (),
        "b",
    ),
    Ablation(
        "inference",
        "Selection at inference only",
        "The same pyramids with and without fine-tuning as a pyramid. What is fine-tuned has had an epoch more than "
        "dense, so not all that it gains is the merit of having seen the selection.",
        "beside",
        ("glue-lite", "glue-lite-inference"),
        "c",
    ),
    _study(
        "placement",
        "Middle or end of a layer",
        "Tokens may be dropped after attention, before the feed-forward network (middle), or after the layer (end). "
        "At the same configuration the end is slower: all tokens go through the feed-forward network first.",
        letter="d",
    ),
    _study(
        "schedules",
        "Exponential or random schedules",
        "Is the exponential decay a good shape? The range of speed-ups and metrics that a kind of schedule offers, and "
        "a line fitted to all its cells: its height is the quality at a speed-up, the spread around it how much the "
        "shape matters. Our exponential ones are few and chosen to be far apart.",
        "fit",
        "e",
    ),
    _study(
        "ours",
        "Drop, weigh or merge; Euclidean or cosine; floor or ceil",
        "The choices that the paper leaves open or that we added.",
        letter="f",
    ),
)


def is_ablation(study: str) -> bool:
    """Whether a study has its place among the ablations alone."""
    return study.startswith(PREFIX) or study == "glue-lite-inference"


def kind_of(study: str) -> Kind:
    """How a study's answer is shown; "methods" for one that is no ablation.

    Example:
        >>> kind_of("ablation-schedules"), kind_of("glue-lite")
        ('fit', 'methods')
    """
    return next((one.kind for one in ABLATIONS if one.studies == (study,)), "methods")


def all_ablations(studies: list[str]) -> list[Ablation]:
    """The known ablations, and one for each further study whose name begins with `ablation-`."""
    known = {name for ablation in ABLATIONS for name in ablation.studies}
    others = sorted(name for name in studies if name.startswith(PREFIX) and name not in known)
    return [*ABLATIONS, *(_study(name.removeprefix(PREFIX), name, "") for name in others)]
