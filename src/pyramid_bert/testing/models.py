"""Tiny models of any family with random weights, and what they are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..families import Family

VOCABULARY, LABELS, WIDEST = 60, 3, 64
_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "max_position_embeddings": WIDEST,
    "initializer_range": 0.2,  # so large that tokens differ
    "num_labels": LABELS,
}
_INNER = 24


def tiny_model(
    family: Family,
    config: Mapping[str, Any] | None = None,
    *,
    attention: str | None = None,
    dropout: float = 0.0,
    seed: int = 0,
) -> Any:
    """A small random classifier of a family, in evaluation mode, always the same.

    Args:
        family: The row.
        config: Keys of the config that this family needs, or that are to differ.
        attention: The implementation, "eager" or "sdpa"; None for what transformers chooses.
        dropout: The probability of every dropout that `config` does not name.
        seed: Of its weights.

    Example:
        >>> from pyramid_bert.families import FAMILIES
        >>> model = tiny_model(FAMILIES[0])
        >>> model(torch.tensor([[2, 7, 5, 3]])).logits.shape
        torch.Size([1, 3])
    """
    usual = {**_SIZES, family.where.inner_size: _INNER}
    made = family.config(**{**usual, **(config or {})})
    if made.pad_token_id is None or made.pad_token_id >= made.vocab_size:
        made.pad_token_id = 0
    for name in made.to_dict():
        if name.endswith(("dropout", "dropout_prob")) and name not in (config or {}):
            setattr(made, name, dropout)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        implementation = {} if attention is None else {"attn_implementation": attention}
        return family.classifier._from_config(made, **implementation).eval()


def batch_of(model: Any, lengths: Sequence[int], width: int | None = None) -> dict[str, Tensor]:
    """A batch for a model, padded on the right. A row's tokens depend on its number only."""
    pad, words = model.config.pad_token_id, model.config.vocab_size
    width = max(lengths) if width is None else width
    ids, mask = torch.full((len(lengths), width), pad), torch.zeros(len(lengths), width, dtype=torch.long)
    for row, n in enumerate(lengths):
        drawn = torch.randint(words - 1, (n,), generator=torch.Generator().manual_seed(row))
        ids[row, :n] = drawn + (drawn >= pad)  # any token but padding
        mask[row, :n] = 1
    return {"input_ids": ids, "attention_mask": mask}


def one_row(batch: Mapping[str, Tensor], row: int) -> dict[str, Tensor]:
    """A row of a batch without its padding."""
    n = int(batch["attention_mask"][row].sum())
    return {name: tensor[row : row + 1, :n] for name, tensor in batch.items()}
