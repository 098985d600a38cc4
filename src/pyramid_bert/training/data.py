"""The data of a fine-tuning run: training rows, dev data, and the order of batches."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from ..text.batches import Encoded
from ..text.inference import Outputs, collate, outputs_of
from ..text.labels import Labels
from ..text.metrics import metrics_of
from .settings import TrainSettings


class TrainingData(Dataset[int]):
    """Encoded texts with their targets and the teacher's outputs. Rows are indices until `batch` collates them."""

    def __init__(
        self, items: Sequence[Encoded], targets: Sequence[float | int], pad_id: int, *, pad_to: int | None = None
    ) -> None:
        self.items = items
        self.targets = torch.tensor(targets)
        self.pad_id = pad_id
        self.pad_to = pad_to  # the width of all batches; None pads each to its longest row
        self.taught: Outputs | None = None

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> int:
        return i

    def batch(self, rows: list[int]) -> dict[str, Tensor]:
        """The rows as the model and the loss take them."""
        batch = {**collate([self.items[i] for i in rows], self.pad_id, self.pad_to), "labels": self.targets[rows]}
        if self.taught is not None:
            batch["teacher_logits"] = self.taught.logits[rows]
            if self.taught.cls is not None:
                batch["teacher_cls"] = self.taught.cls[rows]
        return batch

    def digest(self) -> str:
        """Changes with every text and target."""
        data = hashlib.sha256()
        for item, target in zip(self.items, self.targets.tolist(), strict=True):
            data.update(f"{item.input_ids}{item.token_type_ids}{target}".encode())
        return data.hexdigest()


@dataclass(frozen=True)
class Dev:
    """Data to evaluate on after each epoch, and how. Every process takes part in `measure`, and gets the same."""

    data: TrainingData
    measure: Callable[[], dict[str, float]]
    metric: str

    @classmethod
    def of(cls, model: Any, data: TrainingData, known: Labels, labels: Sequence[Any], settings: TrainSettings) -> Dev:
        """The dev data of a classifier with the labels `known`; raises if metrics cannot be computed for `labels`."""
        # A dry run: what would fail after the first epoch fails now.
        metrics_of(known, labels, np.arange(len(data) * known.outputs).reshape(len(data), known.outputs))

        def measure() -> dict[str, float]:
            size = settings.eval_batch_size
            outputs = outputs_of(model, data.items, data.pad_id, batch_size=size, share=True)
            return metrics_of(known, labels, outputs.logits.numpy())

        return cls(data, measure, settings.metric_for(regression=known.classes is None))


class LengthSampler(Sampler[int]):
    """Shuffles so that texts of similar length meet in a batch; the order depends only on seed and epoch.

    transformers' own sampler draws from the global random state, so that a resumed run would see other batches.
    """

    CHUNK = 50  # batches that are sorted together: large enough to match lengths, small enough to stay random

    def __init__(self, lengths: Sequence[int], batch_size: int, seed: int) -> None:
        self.lengths = lengths
        self.batch_size = batch_size
        self.seed = seed
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.lengths)

    def set_epoch(self, epoch: int) -> None:
        """Called before each pass over the data."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + self.epoch)
        order = torch.randperm(len(self), generator=generator).tolist()
        chunk = self.CHUNK * self.batch_size
        batches = []
        for start in range(0, len(order), chunk):
            part = sorted(order[start : start + chunk], key=lambda i: self.lengths[i], reverse=True)
            batches += [part[i : i + self.batch_size] for i in range(0, len(part), self.batch_size)]
        # Only the last chunk can end with a short batch, and a short batch has to stay last.
        short = [batches.pop()] if len(batches[-1]) < self.batch_size else []
        shuffled = torch.randperm(len(batches), generator=generator).tolist()
        for batch in [*(batches[i] for i in shuffled), *short]:
            yield from batch
