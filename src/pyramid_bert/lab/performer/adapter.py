"""The Performer's layers for the pyramid. They have no attention matrix, so tokens cannot be ranked by it."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from transformers.modeling_outputs import BaseModelOutput

from ...config import PyramidConfig
from ...core.encoder import PyramidEncoder
from ...core.selectors import get_selector
from ...errors import UnsupportedModelError
from ...families.bert import checkpointed, fire_hooks
from .model import PerformerEncoder


class PerformerBackbone:
    """Runs the halves of a `PerformerLayer`. Implements `backbone.Backbone`."""

    def attend(
        self,
        layer: Any,
        hidden: Tensor,
        bias: Tensor | None,
        *,
        queries: int | None = None,
        voters: Tensor | None = None,
        want_received: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """See `backbone.Backbone.attend`."""
        return checkpointed(layer, layer.attend, hidden, bias, queries), None

    def feed_forward(self, layer: Any, hidden: Tensor) -> Tensor:
        """See `backbone.Backbone.feed_forward`."""
        return cast(Tensor, checkpointed(layer, layer.feed_forward, hidden))

    def observe(self, layer: nn.Module, before: Tensor, after: Tensor) -> Tensor:
        """Fires the layer's forward hooks, by which transformers collects `output_hidden_states`."""
        return cast(Tensor, fire_hooks(layer, before, after))


class PerformerPyramidEncoder(PyramidEncoder):
    """Stands in for `PerformerEncoder`."""

    def forward(self, hidden: Tensor, mask: Tensor | None = None, **kwargs: Any) -> BaseModelOutput:
        """Runs the pyramid on what `PerformerModel` passes to its encoder."""
        wants_all = kwargs.get("output_hidden_states") or self.config.output_hidden_states
        hidden = self.run(hidden, mask, all_tokens=bool(wants_all))
        return BaseModelOutput(last_hidden_state=cast(torch.FloatTensor, hidden))


def check_performer(encoder: Any) -> None:
    """Raises unless `encoder` is a `PerformerEncoder`."""
    if not isinstance(encoder, PerformerEncoder):
        raise UnsupportedModelError(f"expected a PerformerEncoder, found {type(encoder).__name__}")


def for_performer(config: PyramidConfig, model: Any) -> PyramidConfig:
    """The settings as they are; raises when they need what a Performer has not."""
    if get_selector(config.selector).needs_attention:
        raise UnsupportedModelError(
            f"the selector {config.selector!r} ranks tokens by an attention matrix, and a Performer makes none; "
            "use 'coreset', 'first' or 'random'"
        )
    return config
