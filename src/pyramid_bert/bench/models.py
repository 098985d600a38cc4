"""The two sides of a benchmark: a dense model, and the same weights as a pyramid."""

from __future__ import annotations

import copy
from typing import Any

import torch
from transformers import BertConfig, BertForSequenceClassification

from ..families import apply_settings, restore
from ..families.loading import load_model, load_tokenizer
from ..runtimes.devices import find_device
from ..schedule.base import Schedule
from ..training import quiet_transformers

SIZES = {"base": (12, 768, 12), "small": (12, 384, 12), "mini": (6, 384, 12), "tiny": (2, 128, 2)}


def model_pair(
    path: str | None,
    size: str,
    schedule: Schedule | None,
    settings: dict[str, Any],
    device: str | torch.device | None = None,
    *,
    texts: bool = True,
) -> tuple[Any, Any, Any]:
    """(dense model, pyramid, tokenizer or None).

    Args:
        path: A model to load; None makes a random one.
        size: Of the random one: a key of `SIZES`, (layers, hidden size, heads).
        schedule: Of the pyramid; None keeps a saved pyramid's own or takes the default.
        settings: Further fields of `PyramidConfig`.
        device: Where both run; None takes the accelerator that torch sees, else the CPU.
        texts: Whether texts are to be run, so that a tokenizer is needed.
    """
    place = find_device(device)
    tokenizer = None
    with quiet_transformers():
        if path is None:
            model = random_bert(size)
        else:
            model, tokenizer = load_model(path)[0], load_tokenizer(path) if texts else None
    dense = restore(copy.deepcopy(model.to(place)))
    apply_settings(model, schedule, settings)
    return dense, model, tokenizer


def random_bert(size: str) -> Any:
    """A BERT classifier with random weights, always the same, in evaluation mode."""
    layers, hidden, heads = SIZES[size]
    config = BertConfig(
        num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=heads, intermediate_size=4 * hidden
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return BertForSequenceClassification._from_config(config, attn_implementation="sdpa").eval()
