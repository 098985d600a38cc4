"""What a selection at the input changes in the embeddings: no dropout, and a hook that passes on their summands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from ..core import compiled
from ..core.tables import Summands

_MOST_VALUES = 1024  # the largest vocabulary for which the table of products is small
_GIVEN = ("inputs_embeds", "position_ids", "past_key_values_length")


class AtInput:
    """Puts a hook on embeddings and takes their dropout out; `remove` undoes both.

    Dropout before the selection would add noise to it, so that training and evaluation would choose other tokens. The
    module is taken out: a probability of 0 could be set anew, as `fit(dropout=...)` does for all dropout modules.
    The hook is put on once, at surgery, and keeps no state: threads can share the model.
    """

    def __init__(self, embeddings: Any, hooks: Sequence[RemovableHandle] = ()) -> None:
        # The first hook: if another one changes the embeddings, the result carries no summands.
        listening = embeddings.register_forward_hook(leave_summands, prepend=True, with_kwargs=True)
        self._hooks = (listening, *hooks)
        self._embeddings = embeddings
        self._name = next((name for name in ("dropout", "drop") if hasattr(embeddings, name)), None)
        if self._name is not None:
            self._dropout = getattr(embeddings, self._name)
            setattr(embeddings, self._name, nn.Identity().train(embeddings.training))

    def remove(self) -> None:
        """Puts dropout back and removes the hooks."""
        if self._name is not None:
            setattr(self._embeddings, self._name, self._dropout.train(self._embeddings.training))
        for hook in self._hooks:
            hook.remove()


def leave_summands(embeddings: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
    """A forward hook of embeddings: attaches their summands to the output, if `tables` can use them.

    It can on a CPU with numba in full precision, for a small vocabulary, positions in order, one token type and no
    dropout, if all modules are plain and have no other hooks.
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
    if getattr(embeddings, "token_type_embeddings", None) is not None:
        positions = positions + embeddings.token_type_embeddings.weight.detach()
    Summands(ids, values, positions, embeddings.LayerNorm).leave_with(output)


def _is_given(value: Any) -> bool:
    return value is not None and (isinstance(value, Tensor) or bool(value))


def _is_plain(embeddings: Any) -> bool:
    """Whether embeddings are LayerNorm(value + position) and nothing else."""
    words, places, norm = (
        getattr(embeddings, name, None) for name in ("word_embeddings", "position_embeddings", "LayerNorm")
    )
    types = getattr(embeddings, "token_type_embeddings", None)
    dropout = getattr(embeddings, "dropout", None)
    if type(words) is not nn.Embedding or type(places) is not nn.Embedding or type(norm) is not nn.LayerNorm:
        return False
    if words.num_embeddings > _MOST_VALUES or norm.weight is None or norm.weight.dim() != 1:
        return False
    if places.padding_idx is not None:  # positions are then counted from there, over tokens other than padding
        return False
    if types is not None and (type(types) is not nn.Embedding or types.num_embeddings > 1):
        return False
    if not (dropout is None or type(dropout) is nn.Identity or (type(dropout) is nn.Dropout and not dropout.training)):
        return False
    if getattr(embeddings, "embed_proj", None) is not None:
        return False
    parts = [part for part in (words, places, norm, types, dropout) if part is not None]
    return not any(part._forward_hooks or part._forward_pre_hooks for part in parts)
