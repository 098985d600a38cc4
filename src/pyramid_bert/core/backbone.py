"""What the encoder's loop asks of a model family."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor, nn


class Backbone(Protocol):
    """What the loop needs to know of a model family."""

    def attend(
        self,
        layer: nn.Module,
        hidden: Tensor,
        bias: Tensor | None,
        *,
        queries: int | None = None,
        voters: Tensor | None = None,
        want_received: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attention of `layer`, with its Add & LayerNorm.

        Args:
            layer: One of the model's layers.
            hidden: (B, N, D).
            bias: (B, 1, 1, N) added to the key logits, or None.
            queries: Compute only the first so many tokens; None for all.
            voters: (B, Q) bool, which of the first Q queries count towards received attention; None when all do.
            want_received: Return the attention (B, N) that each token receives as well.
        """

    def feed_forward(self, layer: nn.Module, hidden: Tensor) -> Tensor:
        """The rest of `layer`: its feed-forward network with Add & LayerNorm."""

    def observe(self, layer: nn.Module, before: Tensor, after: Tensor) -> Tensor:
        """Called with the input and output of each layer; returns what goes on to the next."""
