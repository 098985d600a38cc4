"""What a selection at the input changes around the encoder, and what embeddings tell it of themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..core import compiled
from ..core.tables import Summands

_MOST_VALUES = 1024  # of a vocabulary, for the table of its products to be small
_GIVEN = ("inputs_embeds", "position_ids", "past_key_values_length")


class AtInput:
    """Listens to embeddings and takes their dropout away; `remove` undoes both.

    Dropout before the choice would let noise choose, and other tokens in training than in evaluation.
    """

    def __init__(self, embeddings: Any, hooks: Sequence[RemovableHandle] = ()) -> None:
        # First of all hooks, so that what another one makes of the embeddings carries nothing.
        listening = embeddings.register_forward_hook(leave_summands, prepend=True, with_kwargs=True)
        self._hooks = (listening, *hooks)
        self._dropout, self._p = embeddings.dropout, embeddings.dropout.p
        self._dropout.p = 0.0

    def remove(self) -> None:
        """Puts dropout back, and takes the hooks off."""
        self._dropout.p = self._p
        for hook in self._hooks:
            hook.remove()


def leave_summands(embeddings: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """A forward hook of embeddings: leaves with their output what it was made of, or does nothing.

    It does nothing unless tables serve: on a CPU with numba and full precision, for a small vocabulary, positions in
    order, one type of token, no dropout, and parts that are what they seem: plain ones that nobody else has hooked.
    """
    if not isinstance(output, Tensor) or output.device.type != "cpu" or not compiled.available():
        return
    if output.dtype not in (torch.float32, torch.float64) or not _is_plain(embeddings):
        return
    ids = kwargs.get("input_ids", args[0] if args else None)
    if ids is None or any(_is_given(x) for x in (*args[1:], *(kwargs.get(name) for name in _GIVEN))):
        return
    values, positions = embeddings.word_embeddings.weight.detach(), embeddings.position_embeddings.weight.detach()
    if getattr(embeddings, "rescale_embeddings", False):
        values = values * values.shape[1] ** 0.5
    if hasattr(embeddings, "token_type_embeddings"):
        positions = positions + embeddings.token_type_embeddings.weight.detach()
    Summands(ids, values, positions, embeddings.LayerNorm).leave_with(output)


def _is_given(value: Any) -> bool:
    return value is not None and (isinstance(value, Tensor) or bool(value))


def _is_plain(embeddings: Any) -> bool:
    """Whether embeddings are LayerNorm(value + position), and nothing else has a say in it."""
    words, places, norm = (
        getattr(embeddings, name, None) for name in ("word_embeddings", "position_embeddings", "LayerNorm")
    )
    types = getattr(embeddings, "token_type_embeddings", None)
    dropout = getattr(embeddings, "dropout", None)
    if type(words) is not nn.Embedding or type(places) is not nn.Embedding or type(norm) is not nn.LayerNorm:
        return False
    if words.num_embeddings > _MOST_VALUES or norm.weight is None or norm.weight.dim() != 1:
        return False
    if types is not None and (type(types) is not nn.Embedding or types.num_embeddings > 1):
        return False
    if dropout is not None and (type(dropout) is not nn.Dropout or (embeddings.training and dropout.p > 0)):
        return False
    parts = [part for part in (words, places, norm, types, dropout) if part is not None]
    return not any(part._forward_hooks or part._forward_pre_hooks for part in parts)
