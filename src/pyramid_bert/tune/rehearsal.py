"""Which pyramid will be best after training: candidates are trained for a short while, the better ones for longer.

How near a pyramid is to the dense model before training says little about how near training brings it: one whose tokens
rest early is far off at first, and among the best in the end (docs/design/0024-trained-pyramids.md).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..classifier import PyramidClassifier
from ..config import PyramidConfig
from ..errors import DataError
from ..families import pyramidize
from ..progress import Bar
from ..text.batches import Encoded
from ..text.inference import Outputs, outputs_of
from ..text.sampling import shuffled
from ..training import TrainingData, TrainSettings, finetune
from .judge import divergences

LEAST_ROWS = 200  # fewer tell candidates apart by chance
_HELD_OUT, _MOST_HELD_OUT = 5, 512  # one row in 5 judges the candidates
_ROUNDS = 2
_LEAST_STEPS, _MOST_STEPS = 8, 100
_SHARE = 0.25  # of the time that training the dense model takes


@dataclass(frozen=True)
class Rehearsal:
    """What a candidate became by a short training.

    Attributes:
        settings: The candidate.
        steps: How many steps it was trained.
        divergence: How far its outputs were then from the dense model's on rows that it was not trained on.
    """

    settings: PyramidConfig
    steps: int
    divergence: float

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dict."""
        return {"settings": self.settings.to_dict(), "steps": self.steps, "divergence": self.divergence}


class Rehearsals:
    """Trains candidates from the weights of a dense classifier, which is their teacher. Needs no labels.

    Args:
        dense: The trained dense classifier; it is not changed.
        items: Texts to learn from, at least 200.
        outputs: What the dense model gives for them.
        settings: How the best one will be trained.
        bar: Shows progress.
    """

    def __init__(
        self, dense: PyramidClassifier, items: Sequence[Encoded], outputs: Outputs, settings: TrainSettings, bar: Bar
    ) -> None:
        check_rows(len(items))
        self._dense, self._items, self._outputs, self._bar = dense, items, outputs, bar
        self._settings = replace(settings, epochs=1, patience=None, dev_metric=None, distill_weight=1.0)
        self._judged_on, self._learned = held_out_rows(len(items), settings.seed)
        self._weights: dict[PyramidConfig, dict[str, Tensor]] = {}
        self._model = copy.deepcopy(dense.model)

    def __call__(self, candidates: Sequence[PyramidConfig], speedup: float, epochs: float) -> list[Rehearsal]:
        """The candidates, the best first. Those that were dropped after the first round stand behind the others.

        Args:
            candidates: Pyramids of the same speed.
            speedup: That speed, by which their training steps are cheaper too.
            epochs: How many the best one will be trained.
        """
        steps = self._steps(len(candidates), speedup, epochs)
        task = self._bar.add_task("training candidates", total=(len(candidates) * _ROUNDS) * steps, shown="")
        order: list[Rehearsal] = []
        pool, start = list(candidates), 0
        for number in range(_ROUNDS):
            count, found = steps * 2**number, list[Rehearsal]()
            for settings in pool:
                divergence = self._train(settings, start, count)
                found.append(Rehearsal(settings, start + count, divergence))
                self._bar.advance(task, count)
            found.sort(key=lambda one: one.divergence)
            order = [*found, *order[len(found) :]]
            start += count
            pool = [one.settings for one in found[: max(1, len(found) // 2)]]
            self._weights = {settings: self._weights[settings] for settings in pool}
        return order

    def _steps(self, candidates: int, speedup: float, epochs: float) -> int:
        """Steps of the first round: all rounds together take a share of the time of a dense training."""
        whole = epochs * len(self._items) / self._settings.batch_size
        return min(max(int(_SHARE * whole * speedup / (candidates * _ROUNDS)), _LEAST_STEPS), _MOST_STEPS)

    def _train(self, settings: PyramidConfig, start: int, steps: int) -> float:
        """Trains a candidate some steps more, and returns how far it is from the dense model."""
        size = self._settings.batch_size
        wanted = range(start * size, (start + steps) * size)
        rows = [self._learned[i % len(self._learned)] for i in wanted]
        self._model.load_state_dict(self._weights.get(settings) or self._dense.model.state_dict(), strict=False)
        pyramidize(self._model, config=settings)
        data = TrainingData([self._items[i] for i in rows], [0] * len(rows), self._dense.tokenizer.pad_token_id)
        if self._dense.known_labels().classes is None:
            data.targets = data.targets.float()
        cls = self._outputs.cls
        taught = Outputs(self._outputs.logits[rows], None if cls is None else cls[rows])
        finetune(self._model, self._dense.tokenizer, data, self._settings, teacher_outputs=taught, progress=False)
        self._weights[settings] = {name: value.clone() for name, value in self._model.state_dict().items()}
        return self._judge()

    def _judge(self) -> float:
        items, pad_id = [self._items[i] for i in self._judged_on], self._dense.tokenizer.pad_token_id
        how: dict[str, Any] = {"batch_size": self._settings.eval_batch_size, "bf16": self._settings.bf16}
        found = outputs_of(self._model, items, pad_id, **how).logits  # as exact as what the dense model gave
        distances = divergences(self._outputs.logits[self._judged_on], found, among=self._outputs.logits)
        return float(torch.nan_to_num(distances, nan=float("inf")).mean())


def held_out_rows(rows: int, seed: int) -> tuple[list[int], list[int]]:
    """The rows that judge candidates, and those that they learn from."""
    order, held_out = shuffled(rows, seed), min(rows // _HELD_OUT, _MOST_HELD_OUT)
    return order[:held_out], order[held_out:]


def check_rows(rows: int) -> None:
    """Raises if there are too few texts to tell candidates apart."""
    if rows < LEAST_ROWS:
        raise DataError(
            f"finding the pyramid that will be best after training needs at least {LEAST_ROWS} texts, got {rows}; give "
            "more (with a teacher they need no labels), or choose the pyramid yourself (--rest-from, --selector)"
        )
