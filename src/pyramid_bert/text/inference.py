"""The outputs of a model for encoded texts: run sorted by length, returned in the order in which they were given."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..core.loop import Pass
from ..core.record import Coverage, Kept, Radii
from ..core.selectors import Grouper
from ..errors import PyramidError
from ..families import pyramid_encoder
from ..progress import Bar
from ..runtimes.processes import added_up, place
from .batches import Encoded, padded, sorted_batches


@dataclass(frozen=True)
class Outputs:
    """The outputs for n texts, in float32 on the CPU.

    Attributes:
        logits: (n, classes).
        cls: The last layer's vector of the first token (n, D); None when it was not asked for.
        coverage: What each layer kept and how well that covers the others, each (n, layers); None unless asked for.
    """

    logits: Tensor
    cls: Tensor | None = None
    coverage: Coverage | None = None


def collate(
    items: Sequence[Encoded], pad_id: int, length: int | None = None, device: torch.device | None = None
) -> dict[str, Tensor]:
    """A batch as tensors (B, N) on `device`; see `padded`."""
    # numpy reads nested lists five times faster than torch does.
    return {name: torch.from_numpy(rows).to(device) for name, rows in padded(items, pad_id, length).items()}


def outputs_of(
    model: Any,
    items: Sequence[Encoded],
    pad_id: int,
    *,
    batch_size: int,
    cls: bool = False,
    coverage: bool = False,
    dense: bool = False,
    title: str | None = None,
    share: bool = False,
    pad_to: int | None = None,
    bf16: bool = False,
) -> Outputs:
    """The outputs of `model` for all texts. The model should be in evaluation mode; threads may share it.

    Args:
        model: A transformers classifier, dense or pyramid.
        items: The texts.
        pad_id: The id of the padding token.
        batch_size: Texts at a time.
        cls: Keep the CLS vectors as well.
        coverage: Keep the covering radius of each layer of a pyramid as well. Not together with `share`.
        dense: Let a pyramid keep every token.
        title: The title of a progress bar on stderr; None shows none.
        share: When several processes train together, each runs a part of the batches and gets all outputs. Every
            process has to make the call.
        pad_to: The width of all batches; None pads each to its longest row.
        bf16: Mixed precision, as in training.
    """
    radii = _radii(model) if coverage else None
    this = Pass(dense=dense) if radii is None else Pass(radii, dense=dense)
    logits = torch.zeros(len(items), model.config.num_labels)
    vectors = torch.zeros(len(items), model.config.hidden_size) if cls else None
    number, count = place() if share else (0, 1)
    batches = sorted_batches([len(item) for item in items], batch_size)[number::count]
    found: list[Coverage] = []
    with Bar(shown=title is not None) as bar:
        task = bar.add_task(title or "", total=len(batches))
        for rows in batches:
            batch = collate([items[i] for i in rows], pad_id, pad_to)
            lower = (
                torch.autocast(model.device.type, torch.bfloat16) if bf16 else nullcontext()
            )  # a caller may have one
            with torch.inference_mode(), lower:
                outputs, vector = call(model, batch, this, cls=cls)
            logits[rows] = outputs.logits.float().cpu()
            if radii is not None:
                found.append(radii.coverage)
            if vectors is not None:
                vectors[rows] = vector.float().cpu()
            bar.advance(task)
    if share:
        logits = added_up(logits, model.device)
        vectors = None if vectors is None else added_up(vectors, model.device)
    return Outputs(logits, vectors, _in_order(found, batches) if coverage else None)


def call(model: Any, batch: dict[str, Tensor], this: Pass | None = None, *, cls: bool = False) -> tuple[Any, Tensor]:
    """The output of a model for a batch, and the last layer's CLS vectors (B, D) if `cls` asks for them.

    Args:
        model: A transformers classifier, dense or pyramid, perhaps wrapped for several processes.
        batch: What `collate` makes, on any device.
        this: What is asked of a pyramid.
        cls: Return the CLS vectors; without it the second value is empty.
    """
    given = {name: tensor.to(model.device) for name, tensor in batch.items()}
    if pyramid_encoder(getattr(model, "module", model)) is not None:
        this = Pass() if this is None else this
        outputs = model(**given, pyramid_pass=this)
        assert this.cls is not None
        return outputs, this.cls if cls else this.cls[:0]
    if not cls:
        return model(**given), torch.empty(0)
    outputs = model(**given, output_hidden_states=True)
    return outputs, outputs.hidden_states[-1][:, 0]


def kept_of(model: Any, items: Sequence[Encoded], pad_id: int, *, batch_size: int) -> list[tuple[int, ...]]:
    """The tokens that each layer of a pyramid keeps of each text: asked of the schedule, or measured.

    Adaptive lengths depend on the text, and so does how many tokens are protected.
    """
    encoder = pyramid_encoder(model)
    assert encoder is not None
    layers, schedule = len(encoder.plan.layers), encoder.plan.schedule
    if not schedule.is_adaptive and encoder.reducer.protection is None:
        return [schedule.lengths(len(item), layers) for item in items]
    kept: list[tuple[int, ...]] = [()] * len(items)
    record = Kept(layers)
    for rows in sorted_batches([len(item) for item in items], batch_size):
        with torch.inference_mode():
            call(model, collate([items[i] for i in rows], pad_id), Pass(record))
        for row, found in zip(rows, record.kept.tolist(), strict=True):
            kept[row] = tuple(found)
    return kept


def _radii(model: Any) -> Radii:
    encoder = pyramid_encoder(model)
    if encoder is None:
        raise PyramidError("a dense model drops no token, so it has no covering radius; pyramidize it first")
    if isinstance(encoder.selector, Grouper):
        raise PyramidError(
            f"the selector {encoder.selector.name!r} makes new vectors and keeps no token, so there is no covering "
            "radius; use 'coreset', or another that chooses tokens"
        )
    return Radii(len(encoder.plan.layers))


def _in_order(found: Sequence[Coverage], batches: Sequence[Sequence[int]]) -> Coverage:
    """The coverage of the batches as one, rows in the order of the texts."""
    order = np.argsort([row for rows in batches for row in rows])
    parts = ([getattr(one, name) for one in found] for name in ("radius", "alone", "kept"))
    return Coverage(*(np.concatenate(part)[order] for part in parts))
