"""Whether texts can tell how numbers are spread inside a model, and what an export changes. Checked before any work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import DataError
from ..text.batches import Encoded
from ..text.kind import TextKind

LEAST_TEXTS = 50
_MOST_UNKNOWN = 0.2


def check_kind_of_texts(classifier: Any, items: Sequence[Encoded]) -> None:
    """Raises for pairs where the model was trained on single texts, and the other way; where that is known."""
    learned, known = known_kind(classifier)
    found = TextKind.of(items, classifier.tokenizer.sep_token_id)
    if known is not None and found.is_other_than(known):
        remedy = "leave out the second text" if found.pairs else "give the second text as well"
        raise DataError(
            f"these are {found.words}, and the model was {learned} {known.words}: {remedy} "
            "(--text-pair-column on the command line)"
        )


def doubt_about(classifier: Any, items: Sequence[Encoded]) -> str | None:
    """What to say of texts that are far longer or shorter than those the model was trained on; None if they are not.

    It is no error: a model may be used on other lengths than it was trained on.
    """
    learned, known = known_kind(classifier)
    if not items or known is None:
        return None
    found = TextKind.of(items, classifier.tokenizer.sep_token_id)
    if not found.is_far_from(known):
        return None
    return (
        f"these texts have {found.tokens} tokens (median), and the model was {learned} texts of {known.tokens}; what "
        "is measured holds for texts like these: give those that it will be used on"
    )


def known_kind(classifier: Any) -> tuple[str, TextKind | None]:
    """The kind of texts that a classifier was trained on, else certified on, in words and as it is; None if unknown."""
    if classifier.seen is not None:
        return "trained on", classifier.seen
    certificate = classifier.certificate
    return "certified on", None if certificate is None else certificate.texts


def check_calibration(classifier: Any, items: Sequence[Encoded]) -> None:
    """Raises if int8 cannot take its scales from these texts."""
    different = len({tuple(item.input_ids) for item in items})
    if different < LEAST_TEXTS:
        got = f"{len(items)}, of which {different} differ" if different < len(items) else f"{different}"
        raise DataError(
            f"int8 needs at least {LEAST_TEXTS} texts like those that the model will be used on, got {got}; "
            "give more, or use precision fp32 or bf16"
        )
    ids = [number for item in items for number in item.input_ids]
    unknown = ids.count(classifier.tokenizer.unk_token_id) / len(ids)
    if unknown > _MOST_UNKNOWN:
        raise DataError(
            f"{unknown:.0%} of the tokens of these texts are unknown to the model: they are of another kind than those "
            "it was trained on; give texts like those that it will be used on"
        )
