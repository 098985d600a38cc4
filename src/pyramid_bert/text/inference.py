"""What a model says to encoded texts: sorted by length, at true lengths, in the order in which they were given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from ..core.record import Covers, Radii
from ..errors import PyramidError
from ..families import base_model, pyramid_encoder
from ..runtimes.processes import added_up, place
from .batches import Encoded, collate, sorted_batches


@dataclass(frozen=True)
class Outputs:
    """The outputs for n texts, in float32 on the CPU.

    Attributes:
        logits: (n, classes).
        cls: The last layer's vector of the first token (n, D); None when it was not asked for.
        covers: What each layer kept and how well that covers the others, each (n, layers); None likewise.
    """

    logits: Tensor
    cls: Tensor | None = None
    covers: Covers | None = None


def outputs_of(
    model: Any,
    items: Sequence[Encoded],
    pad_id: int,
    *,
    batch_size: int,
    cls: bool = False,
    covers: bool = False,
    kept: bool = False,
    title: str | None = None,
    share: bool = False,
    pad_to: int | None = None,
) -> Outputs:
    """The outputs of `model`, which should be in evaluation mode, for all of the texts.

    Args:
        model: A transformers classifier, dense or pyramid.
        items: The texts.
        pad_id: The id that fills up a batch.
        batch_size: Texts at a time.
        cls: Keep the CLS vectors as well.
        covers: Keep the covering radius of each layer of a pyramid as well. Not together with `share`.
        kept: Keep the numbers of tokens that each layer keeps, where radii do not matter, as `Covers`.
        title: What the progress bar on stderr says; None shows none.
        share: Where several processes train together, each runs a part of the batches, and all get all outputs. Every
            process has to make the call.
        pad_to: The width of all batches; that of their longest row if None.
    """
    logits = torch.zeros(len(items), model.config.num_labels)
    vectors = torch.zeros(len(items), model.config.hidden_size) if cls else None
    number, count = place() if share else (0, 1)
    batches = sorted_batches([len(item) for item in items], batch_size)[number::count]
    found: list[Covers] = []
    with cls_vectors(model) as seen, _measured(model, covers, kept) as radii:
        for rows in _shown(batches, title):
            batch = collate([items[i] for i in rows], pad_id, pad_to)
            with torch.inference_mode():
                given = model(**{name: tensor.to(model.device) for name, tensor in batch.items()}).logits
            logits[rows] = given.float().cpu()
            if radii is not None:
                found.append(radii.covers)
            vector = seen.pop()
            if vectors is not None:
                vectors[rows] = vector.float().cpu()
    if share:
        logits = added_up(logits, model.device)
        vectors = None if vectors is None else added_up(vectors, model.device)
    return Outputs(logits, vectors, _in_order(found, batches) if covers or kept else None)


def kept_of(model: Any, items: Sequence[Encoded], pad_id: int, *, batch_size: int) -> list[tuple[int, ...]]:
    """The tokens that each layer of a pyramid keeps of each text: asked of the schedule, or measured if adaptive."""
    encoder = pyramid_encoder(model)
    assert encoder is not None
    if not encoder.schedule.is_adaptive:
        return [encoder.schedule.lengths(len(item), len(encoder.layer)) for item in items]
    covers = outputs_of(model, items, pad_id, batch_size=batch_size, kept=True).covers
    assert covers is not None
    return [tuple(row) for row in covers.kept.tolist()]


def _measured(model: Any, covers: bool, kept: bool) -> AbstractContextManager[Radii | None]:
    if not covers and not kept:
        return nullcontext()
    encoder = pyramid_encoder(model)
    if encoder is None:
        raise PyramidError("a dense model drops no token, so it has no covering radius; pyramidize it first")
    return encoder.measuring(only_kept=not covers)


def _in_order(found: Sequence[Covers], batches: Sequence[Sequence[int]]) -> Covers:
    """The covers of the batches as one, rows in the order of the texts."""
    order = torch.tensor([row for rows in batches for row in rows]).argsort()
    parts = ([getattr(covers, name) for covers in found] for name in ("radius", "alone", "kept"))
    return Covers(*(torch.cat(part)[order] for part in parts))


@contextmanager
def cls_vectors(model: Any) -> Iterator[list[Tensor]]:
    """A list to which every call of `model` inside of the block adds its last layer's CLS vectors (B, D)."""
    seen: list[Tensor] = []

    def keep(module: Any, arguments: Any, output: Any) -> None:
        seen.append(output[0][:, 0])

    handle = base_model(model).register_forward_hook(keep)
    try:
        yield seen
    finally:
        handle.remove()


def _shown(batches: list[list[int]], title: str | None) -> Iterator[list[int]]:
    if title is None:
        yield from batches
        return
    yield from track(batches, description=title, console=Console(stderr=True))
