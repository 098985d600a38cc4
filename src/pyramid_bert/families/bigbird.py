"""BigBird with a selection at the input: its own layers run on fewer tokens, in whole blocks.

Layers cannot reduce: block-sparse attention uses the same blocks in all layers, and its masks are 0 or 1. Three things
differ from transformers' BigBird:

- when an input is too short for block-sparse attention, transformers switches the model to full attention for good and
  only logs it; here that is an error, and the model does not change;
- in evaluation transformers uses block 0 for all random blocks; here they are those of training, as in Long Range
  Arena, so that a model is evaluated as it was trained;
- transformers seeds numpy's global generator in every pass; here its state is restored, also after recomputation for
  gradient checkpointing.

In the last layer a classifier reads only CLS. The queries of the first block see every key, so CLS needs only plain
attention of one query. In the layers below, transformers computes N x N attention probabilities, so their memory is
quadratic in N.
"""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.hooks import RemovableHandle
from transformers.models.big_bird.modeling_big_bird import BigBirdEncoder, BigBirdModel
from transformers.utils.generic import ModelOutput

from ..config import PyramidConfig
from ..core.encoder import PyramidEncoder
from ..core.loop import Half, Pass, Step
from ..core.tokens import Tokens
from ..errors import PyramidError, UnsupportedModelError
from ..schedule.kinds import InputSchedule
from .attention import key_mask
from .halves import checkpointed, fire_hooks, run_encoder

# A layer's mode and numpy's global generator are changed while it runs, so threads take turns.
_ONE_LAYER = threading.RLock()


class BigBirdHalves:
    """Runs a `BigBirdLayer` as a whole. Implements `core.loop.Halves`."""

    halves: tuple[Half, ...] = ("layer",)

    def run(self, step: Step, tokens: Tokens) -> Tokens:
        """The tokens after a layer; the last one computes only CLS."""
        if step.half != "layer":  # transformers fires the layer's hooks
            return tokens
        layer = step.layer
        if tokens.masks is None:
            tokens = _in_blocks(layer, tokens)
        hidden, (masks, bias) = tokens.hidden, tokens.masks
        if step.cls_only:
            after = checkpointed(layer, _only_cls, layer, hidden, bias)
            # BigBirdModel cuts the padding that fills up a block off the end; CLS has to stay.
            hidden = F.pad(fire_hooks(layer, hidden, after), (0, 0, 0, layer.config.block_size - 1))
        elif layer.attention_type == "block_sparse":
            hidden = checkpointed(layer, _run_layer, layer, hidden, masks)
        else:
            hidden = layer(hidden, **masks)
        return replace(tokens, hidden=hidden)


class BigBirdPyramidEncoder(PyramidEncoder):
    """Replaces `BigBirdEncoder`: selects, fills up the last block, and runs the layers as they are."""

    def forward(
        self,
        hidden_states: Tensor,
        attention_mask: Tensor | None = None,
        to_mask: Tensor | None = None,
        pyramid_pass: Pass | None = None,
        **kwargs: Any,
    ) -> ModelOutput:
        """Runs the pyramid on what `BigBirdModel` passes to its encoder; `to_mask` is there in block-sparse mode."""
        mask = key_mask(attention_mask) if to_mask is None else to_mask[:, 0, 0] != 0
        return run_encoder(self, hidden_states, mask, pyramid_pass, kwargs)

    def set_attention_type(self, value: str) -> None:
        """Called by `BigBirdModel` when it switches its attention type: refused."""
        kept = self.owner[0].attention_type = self.config.attention_type
        raise PyramidError(
            f"a BigBird that selects keeps its attention_type {kept!r}, got {value!r}; restore(model) first, or build "
            f"the model with attention_type={value!r}"
        )


def watch_bigbird(base: Any) -> list[RemovableHandle]:
    """Checks the length of inputs before `BigBirdModel` would switch its attention type."""
    return [base.register_forward_pre_hook(_check_length, with_kwargs=True)]


def _check_length(model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """A forward pre-hook: raises when an input, or what is kept of it, is too short for block-sparse attention."""
    names = ("input_ids", "attention_mask", "token_type_ids", "position_ids", "inputs_embeds")
    found = {**dict(zip(names, args, strict=False)), **kwargs}
    given = found.get("inputs_embeds") if found.get("input_ids") is None else found["input_ids"]
    if given is None or model.config.attention_type != "block_sparse":
        return
    n, block, least = given.shape[1], model.config.block_size, least_tokens(model.config)
    if n <= least - block:
        raise PyramidError(
            f"the input has {n} tokens, {-(-n // block)} blocks of {block}, and block-sparse attention needs at least "
            f"{least // block} blocks, {least} tokens; pad it, or build the model with a smaller block_size or "
            "attention_type='original_full'"
        )
    check_blocks(model.encoder.plan.schedule, n, model.config)


def least_tokens(config: Any) -> int:
    """The fewest tokens that transformers runs block-sparse attention on, in whole blocks.

    Two global blocks, three of the window and twice the random ones have to be fewer than all.

    Example:
        >>> from transformers import BigBirdConfig
        >>> least_tokens(BigBirdConfig(block_size=8, num_random_blocks=3))
        96
    """
    return int((5 + 2 * config.num_random_blocks + 1) * config.block_size)


def check_blocks(schedule: Any, n: int, config: Any) -> None:
    """Raises when a schedule leaves fewer of `n` tokens, in whole blocks, than block-sparse attention needs."""
    block, least = config.block_size, least_tokens(config)
    if schedule.lengths(-(-n // block) * block, config.num_hidden_layers)[0] >= least:
        return
    share = dataclasses.replace(schedule, multiple_of=1).lengths(n, config.num_hidden_layers)[0]
    few = "less than a block" if share < block else f"{-(-share // block)} blocks"
    raise PyramidError(
        f"keep_ratio {schedule.keep_ratio:g} leaves {share} of {n} tokens, {few} of {block}, and block-sparse "
        f"attention needs at least {least // block} blocks, {least} tokens; keep more, or build the model with a "
        "smaller block_size or attention_type='original_full'"
    )


def check_bigbird(encoder: Any) -> None:
    """Raises unless `encoder` is a `BigBirdEncoder` that a pyramid can replace."""
    if not isinstance(encoder, BigBirdEncoder):
        raise UnsupportedModelError(f"expected a BigBirdEncoder, found {type(encoder).__name__}")
    if encoder.config.is_decoder:
        raise UnsupportedModelError("this BigBird is a decoder (is_decoder=True); a pyramid needs an encoder")
    if encoder.attention_type != encoder.config.attention_type:
        raise UnsupportedModelError(
            "this BigBird has turned to full attention because of a short input; load it again, and give it inputs of "
            f"at least {least_tokens(encoder.config)} tokens"
        )


def for_bigbird(config: PyramidConfig, model: Any) -> PyramidConfig:
    """The settings with lengths in whole blocks; raises for anything but a selection at the input."""
    if config.placement != "input":
        raise UnsupportedModelError(
            f"BigBird can select only at the input, got placement={config.placement!r}: its layers share one division "
            "into blocks; use Schedule.input_only(keep_ratio)"
        )
    if config.weighted or config.reduce == "replace":
        what = "weighted=True" if config.weighted else "reduce='replace'"
        raise UnsupportedModelError(
            f"BigBird's masks are 0 or 1 and its tokens all count once, so {what} has no meaning there; "
            "use reduce='drop' or reduce='merge'"
        )
    if config.protect:
        raise UnsupportedModelError(
            f"BigBird's lengths are whole blocks, so tokens cannot be protected, got protect={config.protect!r}; leave "
            "it out"
        )
    if config.rest_from is not None:
        raise UnsupportedModelError(
            f"BigBird's layers work on whole blocks, so its tokens cannot rest, got rest_from={config.rest_from}; "
            "leave it out"
        )
    assert isinstance(config.schedule, InputSchedule)
    block = model.block_size if model.attention_type == "block_sparse" else 1
    return config.replace(schedule=dataclasses.replace(config.schedule, multiple_of=block))


def _in_blocks(layer: Any, tokens: Tokens) -> Tokens:
    """The tokens padded to whole blocks, with the masks of a `BigBirdLayer` and the bias for the attention of CLS."""
    config, hidden = layer.config, tokens.hidden
    sparse = layer.attention_type == "block_sparse"
    rows, n, _ = hidden.shape
    block, least = (config.block_size, least_tokens(config)) if sparse else (1, 1)
    more = max(-(-n // block) * block, least) - n
    real = hidden.new_ones(rows, n) if tokens.mask is None else tokens.mask.to(hidden.dtype)
    hidden, real = F.pad(hidden, (0, 0, 0, more)), F.pad(real, (0, more))
    return replace(tokens, hidden=hidden, masks=(_masks(real, block if sparse else None), _key_bias(real)))


def _masks(real: Tensor, block: int | None) -> dict[str, Tensor | None]:
    """The masks of a `BigBirdLayer`, in blocks or for full attention; `real` (B, N) is 1 for real tokens."""
    if block is None:
        return {"attention_mask": _key_bias(real)}
    blocked, band, from_mask, to_mask = BigBirdModel.create_masks_for_block_sparse_attn(real, block)
    return {"blocked_encoder_mask": blocked, "band_mask": band, "from_mask": from_mask, "to_mask": to_mask}


def _key_bias(real: Tensor) -> Tensor:
    """(B, 1, 1, N): 0 for real tokens, the lowest number for the others."""
    return torch.zeros_like(real).masked_fill(real == 0, torch.finfo(real.dtype).min)[:, None, None]


def _only_cls(layer: Any, hidden: Tensor, bias: Tensor) -> Tensor:
    """The output (B, 1, D) of `layer` for the first of its tokens (B, N, D)."""
    attention, cls = layer.attention.self, hidden[:, :1]
    query, key, value = (
        project(x).unflatten(-1, (-1, attention.attention_head_size)).transpose(1, 2)  # (B, H, 1 or N, D/H)
        for project, x in ((attention.query, cls), (attention.key, hidden), (attention.value, hidden))
    )
    scores = query @ key.transpose(-1, -2) / math.sqrt(attention.attention_head_size) + bias  # (B, H, 1, N)
    weights = scores.softmax(dim=-1)
    if layer.attention_type == "original_full":  # block-sparse attention has no dropout
        weights = attention.dropout(weights)
    context = (weights @ value).transpose(1, 2).flatten(2)
    return cast(Tensor, layer.feed_forward_chunk(layer.attention.output(context, cls)))


def _run_layer(layer: Any, hidden: Tensor, masks: dict[str, Tensor | None]) -> Tensor:
    """The output (B, N, D) of `layer`; `checkpointed` may run it twice."""
    with _blocks_of_training(layer):
        return cast(Tensor, layer(hidden, **masks))


@contextmanager
def _blocks_of_training(layer: Any) -> Iterator[None]:
    """Uses the random blocks of training (such attention has no dropout) and restores numpy's generator.

    The layer's own checkpointing is off inside, because it would recompute outside of this context.
    """
    attention = layer.attention.self
    with _ONE_LAYER:
        state, mode = np.random.get_state(legacy=True), attention.training
        checkpoints = layer.gradient_checkpointing
        try:
            attention.training, layer.gradient_checkpointing = True, False
            yield
        finally:
            attention.training, layer.gradient_checkpointing = mode, checkpoints
            np.random.set_state(state)
