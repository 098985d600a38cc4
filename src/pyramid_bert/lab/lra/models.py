"""The paper's models for Long Range Arena: a backbone with random weights and a selection at the input.

Data values are shifted by the number of special ids; every row begins with CLS.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from transformers import BigBirdConfig, BigBirdForSequenceClassification

from ...errors import PyramidError
from ...families import embeddings_of
from ...families.bigbird import least_tokens
from ...families.hub import pyramidize
from ...schedule.base import Schedule
from ..performer.model import PerformerConfig, PerformerForSequenceClassification
from .data import LRA_TASKS
from .presets import LraPreset

PAD, CLS = 0, 1
SPECIALS = 2
RANDOM_BLOCKS = 3  # of Long Range Arena's BigBird


def make_model(preset: LraPreset, schedule: Schedule | None, *, seed: int, **settings: Any) -> Any:
    """The untrained classifier of a preset, as a pyramid even if nothing is dropped.

    Args:
        preset: Sizes.
        schedule: `Schedule.input_only(...)`; None keeps everything.
        seed: Of the weights, and of the selector "random".
        **settings: The further fields of `PyramidConfig`; none without a schedule.
    """
    if schedule is None:
        if settings:
            raise PyramidError(
                f"without a schedule nothing is chosen, got {', '.join(settings)}; give "
                "Schedule.input_only(keep_ratio), or leave them out"
            )
        schedule, settings = Schedule.input_only(1.0), {"selector": "first"}
    model = make_dense(preset, schedule, seed=seed)
    return pyramidize(model, schedule, **{"seed": seed, **settings})


def make_dense(preset: LraPreset, schedule: Schedule | None = None, *, seed: int) -> Any:
    """The backbone of a preset without a selection; BigBird with the attention type that fits `schedule`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any
        if preset.backbone == "performer":
            own: dict[str, Any] = {"qkv_size": preset.qkv_size, "kernel": "relu", "num_features": 0, "redraw_every": 0}
            config = PerformerConfig(**_sizes(preset), **own, max_position_embeddings=tokens_of(preset))
            model = PerformerForSequenceClassification(config)
        else:
            model = BigBirdForSequenceClassification(_bigbird(preset, schedule))
    # A selection at the input has no dropout before it, so the dense model has none either.
    embeddings_of(model).dropout.p = 0.0
    return model.eval()


def tokens_of(preset: LraPreset) -> int:
    """The tokens of a full row, CLS counted.

    Example:
        >>> from pyramid_bert.lab.lra import preset_for
        >>> tokens_of(preset_for("performer", "cifar10"))
        1025
    """
    return LRA_TASKS[preset.task].length + 1


def attention_of(preset: LraPreset, schedule: Schedule | None = None) -> str:
    """The attention type for the tokens that a schedule keeps: "linear", "block_sparse" or "original_full".

    BigBird's block-sparse attention needs a minimum number of blocks. With fewer, attention is full: with three random
    blocks, every query sees up to eight blocks anyway.
    """
    if preset.backbone == "performer":
        return "linear"
    return str(_bigbird(preset, schedule).attention_type)


def _bigbird(preset: LraPreset, schedule: Schedule | None) -> BigBirdConfig:
    n, block = tokens_of(preset), preset.block_size
    assert block is not None
    kept = n if schedule is None else schedule.lengths(n, preset.layers)[0]
    if n < block:
        raise PyramidError(
            f"a sequence of {n} tokens is less than a block of {block}; give a preset with a block_size of at most {n}"
        )
    if kept < block:
        enough = math.ceil(100 * block / n) / 100
        raise PyramidError(
            f"{kept} of {n} tokens are less than a block of {block}; keep at least {enough:g}, or give a preset with a "
            "smaller block_size"
        )
    config = BigBirdConfig(
        **_sizes(preset),
        attention_probs_dropout_prob=preset.dropout,
        max_position_embeddings=-(-n // block) * block,
        type_vocab_size=1,
        block_size=block,
        num_random_blocks=RANDOM_BLOCKS,
    )
    if -(-kept // block) * block < least_tokens(config):
        config.attention_type = "original_full"
    return config


def _sizes(preset: LraPreset) -> dict[str, Any]:
    task = LRA_TASKS[preset.task]
    return {
        "vocab_size": task.vocabulary + SPECIALS,
        "num_labels": task.classes,
        "hidden_size": preset.hidden_size,
        "num_hidden_layers": preset.layers,
        "num_attention_heads": preset.heads,
        "intermediate_size": preset.feed_forward_size,
        "hidden_dropout_prob": preset.dropout,
        "hidden_act": "gelu",
        "pad_token_id": PAD,
    }
