"""The two sides of a benchmark: a dense model, and the same weights as a pyramid."""

from __future__ import annotations

import copy
from typing import Any

import torch

from ..checks import check_choice
from ..families import FAMILIES, apply_settings, restore
from ..families.loading import load_model, load_tokenizer
from ..runtimes.devices import find_device
from ..schedule.base import Schedule
from ..training import quiet_transformers

SIZES = {"base": (12, 768, 12), "small": (12, 384, 12), "mini": (6, 384, 12), "tiny": (2, 128, 2)}
# What published models of a family have, where the defaults of its config are others.
_AS_PUBLISHED: dict[str, dict[str, Any]] = {
    "deberta-v2": {
        "relative_attention": True,
        "position_buckets": 256,
        "pos_att_type": ["p2c", "c2p"],
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "position_biased_input": False,
        "type_vocab_size": 0,
    },
    "eurobert": {"classifier_pooling": "bos"},
}


def model_pair(
    path: str | None,
    size: str,
    schedule: Schedule | None,
    settings: dict[str, Any],
    device: str | torch.device | None = None,
    *,
    texts: bool = True,
    family: str = "bert",
) -> tuple[Any, Any, Any]:
    """(dense model, pyramid, tokenizer or None).

    Args:
        path: A model to load; None makes a random one.
        size: Of the random one: a key of `SIZES`, (layers, hidden size, heads).
        schedule: Of the pyramid; None keeps a saved pyramid's own or takes the default.
        settings: Further fields of `PyramidConfig`.
        device: Where both run; None takes the accelerator that torch sees, else the CPU.
        texts: Whether texts are to be run, so that a tokenizer is needed.
        family: The model type of the random one.
    """
    place = find_device(device)
    tokenizer = None
    with quiet_transformers():
        if path is None:
            model = random_model(family, size)
        else:
            model, tokenizer = load_model(path)[0], load_tokenizer(path) if texts else None
    dense = restore(copy.deepcopy(model.to(place)))
    apply_settings(model, schedule, settings)
    return dense, model, tokenizer


def random_model(model_type: str, size: str) -> Any:
    """A classifier of a family with random weights, always the same, in evaluation mode.

    Its feed-forward networks are as many times wider than its tokens as those of the family's usual models.

    Args:
        model_type: The family, as in `config.model_type`.
        size: A key of `SIZES`.
    """
    check_choice("family", model_type, [family.model_type for family in FAMILIES])
    family = next(family for family in FAMILIES if family.model_type == model_type)
    layers, hidden, heads = SIZES[size]
    usual, inner = family.config(), family.where.inner_size
    sizes = {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads}
    sizes[inner] = hidden * getattr(usual, inner) // usual.hidden_size
    config = family.config(**sizes, **_AS_PUBLISHED.get(model_type, {}))
    attention = "sdpa" if family.classifier._supports_sdpa else "eager"
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return family.classifier._from_config(config, attn_implementation=attention).eval()
