"""What a pyramid saves at best: the tokens that each layer keeps of each text, and the products they cost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import PyramidError
from ..families import has_head, pyramid_settings, sizes_of
from ..text.batches import Encoded
from ..text.inference import kept_of


def kept_lengths(
    pyramid: Any, items: Sequence[Encoded], pad_id: int = 0, *, batch_size: int = 32
) -> list[tuple[int, ...]]:
    """The tokens that each layer keeps of each text: asked of the schedule, or measured if it is adaptive.

    Args:
        pyramid: A pyramid, in evaluation mode.
        items: The texts.
        pad_id: The padding token.
        batch_size: Texts at a time.
    """
    settings = pyramid_settings(pyramid)
    if settings is None:
        raise PyramidError("kept_lengths takes a pyramid; use pyramidize(model, schedule) first")
    if settings.schedule.is_adaptive:
        check_head(pyramid)
    return kept_of(pyramid, items, pad_id, batch_size=batch_size)


def ideal_speedup(pyramid: Any, items: Sequence[Encoded], kept: Sequence[Sequence[int]]) -> float:
    """Dense over pyramid multiply-accumulates at true lengths, when the pyramid keeps these numbers of tokens."""
    settings = pyramid_settings(pyramid)
    assert settings is not None
    sizes = sizes_of(pyramid)
    costs = [settings.cost(lengths, len(item), sizes) for lengths, item in zip(kept, items, strict=True)]
    return sum(cost.dense_macs for cost in costs) / sum(cost.macs for cost in costs)


def check_head(model: Any) -> None:
    """Raises unless the model is a classifier: what texts keep is seen when it runs on them."""
    if not has_head(model):
        raise PyramidError(
            f"an adaptive schedule is measured on a classifier, got {type(model).__name__}, which has no head; give "
            "AutoModelForSequenceClassification.from_pretrained(path), or PyramidClassifier.from_pretrained(path).model"
        )
