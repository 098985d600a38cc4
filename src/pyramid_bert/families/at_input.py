"""What a selection at the input changes around the encoder."""

from __future__ import annotations

from typing import Any

from torch.utils.hooks import RemovableHandle

from .summands import leave_summands


class AtInput:
    """Listens to the embeddings of a base model and takes their dropout away; `remove` undoes both.

    Dropout before the choice would let noise choose, and other tokens in training than in evaluation.
    """

    def __init__(self, base: Any, *hooks: RemovableHandle) -> None:
        # First of all hooks, so that what another one makes of the embeddings carries nothing.
        listening = base.embeddings.register_forward_hook(leave_summands, prepend=True, with_kwargs=True)
        self._hooks = (listening, *hooks)
        self._dropout, self._p = base.embeddings.dropout, base.embeddings.dropout.p
        self._dropout.p = 0.0

    def remove(self) -> None:
        """Puts dropout back, and takes the hooks off."""
        self._dropout.p = self._p
        for hook in self._hooks:
            hook.remove()
