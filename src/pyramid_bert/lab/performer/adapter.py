"""The Performer's row in the table of families. It makes no attention matrix, so tokens cannot be ranked by one."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor
from transformers.utils.generic import ModelOutput

from ...config import PyramidConfig
from ...core.encoder import PyramidEncoder
from ...core.loop import Pass
from ...core.selectors import get_selector
from ...errors import UnsupportedModelError
from ...families import Family, add_family, announce
from ...families.halves import TwoHalves, Votes, checkpointed, run_encoder
from .model import PerformerConfig, PerformerEncoder, PerformerForSequenceClassification, PerformerModel


class PerformerHalves(TwoHalves):
    """Runs the halves of a `PerformerLayer`."""

    def attend(
        self, layer: Any, hidden: Tensor, bias: Tensor | None, *, queries: int | None = None, votes: Votes | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """See `TwoHalves.attend`."""
        return checkpointed(layer, layer.attend, hidden, bias, queries), None

    def feed_forward(self, layer: Any, hidden: Tensor) -> Tensor:
        """See `TwoHalves.feed_forward`."""
        return cast(Tensor, checkpointed(layer, layer.feed_forward, hidden))


class PerformerPyramidEncoder(PyramidEncoder):
    """Stands in for `PerformerEncoder`."""

    def forward(
        self, hidden: Tensor, mask: Tensor | None = None, pyramid_pass: Pass | None = None, **kwargs: Any
    ) -> ModelOutput:
        """Runs the pyramid on what `PerformerModel` passes to its encoder."""
        return run_encoder(self, hidden, mask, pyramid_pass, kwargs)


def check_performer(encoder: Any) -> None:
    """Raises unless `encoder` is a `PerformerEncoder`."""
    if not isinstance(encoder, PerformerEncoder):
        raise UnsupportedModelError(f"expected a PerformerEncoder, found {type(encoder).__name__}")


def for_performer(settings: PyramidConfig, config: Any) -> PyramidConfig:
    """The settings as they are; raises when they need what a Performer has not."""
    if get_selector(settings.selector).voters is not None:
        raise UnsupportedModelError(
            f"the selector {settings.selector!r} ranks tokens by an attention matrix, and a Performer makes none; "
            "use 'coreset', 'first' or 'random'"
        )
    return settings


PERFORMER = Family(
    model_type="performer",
    config=PerformerConfig,
    classifier=PerformerForSequenceClassification,
    model=PerformerModel,
    base="performer",
    head="classifier.out_proj",
    halves=PerformerHalves(),
    stand_in=PerformerPyramidEncoder,
    check=check_performer,
    settings=for_performer,
)
add_family(PERFORMER)
announce(PERFORMER)
