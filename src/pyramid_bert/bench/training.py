"""What a step of fine-tuning costs, dense and as a pyramid: seconds in one interleaved run, and peak memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.loop import Pass, Recorder
from ..errors import PyramidError
from ..families import pyramid_settings
from ..runtimes.devices import wait_for
from .machine import describe_machine
from .memory import PeakMemory
from .timing import share_selecting, time_interleaved
from .workload import Workload

SIDES = ("dense", "pyramid")


@dataclass(frozen=True)
class TrainingLedger:
    """What training at one length measured.

    Attributes:
        n: Tokens a row, all rows full.
        batch_size: Rows a step.
        steps_per_second: Dense and pyramid: forward, backward and optimizer.
        speedup: How many times more steps a second the pyramid makes, by the median of the ratios in each round.
        peak_bytes: Dense and pyramid: most bytes of tensors alive at once in forward and backward, without weights and
            their gradients.
        selecting: The share of the pyramid's step that goes into choosing tokens and moving them, in the forward pass:
            nothing is chosen in the backward one.
        settings: The pyramid's.
        machine: What it ran on.
        rounds: How often each was timed.
        seconds: All of the timings.
    """

    n: int
    batch_size: int
    steps_per_second: dict[str, float]
    speedup: float
    peak_bytes: dict[str, int]
    selecting: float
    settings: dict[str, Any]
    machine: dict[str, Any]
    rounds: int
    seconds: dict[str, list[float]]

    @property
    def memory_share(self) -> float:
        """The pyramid's peak over the dense model's."""
        return self.peak_bytes["pyramid"] / self.peak_bytes["dense"]

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dict."""
        return {**asdict(self), "memory_share": self.memory_share}


def measure_training(
    dense: Any,
    pyramid: Any,
    n: int,
    *,
    batch_size: int,
    rounds: int = 3,
    after_each: Callable[[], object] | None = None,
) -> TrainingLedger:
    """Times training steps of both models in turn, on the same full rows of `n` tokens.

    Args:
        dense: The untouched transformers model, or a pyramid that keeps every token.
        pyramid: The same model as a pyramid.
        n: Tokens a row.
        batch_size: Rows a step.
        rounds: How many times each is timed, after one round that does not count.
        after_each: Called after each single run, for a progress bar.
    """
    settings, theirs = pyramid_settings(pyramid), pyramid_settings(dense)
    drops = theirs is not None and min(theirs.schedule.lengths(n, dense.config.num_hidden_layers)) < n
    if settings is None or drops:
        raise PyramidError("measure_training takes a dense model and a pyramid, in this order")
    settings.check_saves()
    models = dict(zip(SIDES, (dense, pyramid), strict=True))
    batches = {name: full_batch(model, n, batch_size) for name, model in models.items()}
    steps = {name: _step(model, batches[name]) for name, model in models.items()}
    try:
        timing = time_interleaved(steps, rounds=rounds, after_each=after_each)
        selecting = share_selecting(steps["pyramid"])
        peaks = {}
        for name, model in models.items():  # the gradients of weights are there before, and so do not count
            with PeakMemory() as memory:
                model(**batches[name]).loss.backward()
            peaks[name] = memory.peak
    finally:
        for model in models.values():
            model.eval()
            model.zero_grad(set_to_none=True)
    return TrainingLedger(
        n=n,
        batch_size=batch_size,
        steps_per_second={name: 1 / timing.median(name) for name in SIDES},
        speedup=timing.speedup("pyramid", over="dense"),
        peak_bytes=peaks,
        selecting=selecting,
        settings=settings.to_dict(),
        machine={**describe_machine(), "device": str(pyramid.device)},
        rounds=rounds,
        seconds=timing.seconds,
    )


def full_batch(model: Any, n: int, batch_size: int) -> dict[str, Tensor]:
    """Rows of `n` random tokens with labels, on the model's device."""
    workload = Workload.synthetic([n] * batch_size, vocabulary=model.config.vocab_size)
    (batch,) = workload.tensors([list(range(batch_size))], device=model.device)
    labels = torch.arange(batch_size, device=model.device) % model.config.num_labels
    return {**batch, "labels": labels.float() if model.config.num_labels == 1 else labels}


def _step(model: Any, batch: dict[str, Tensor]) -> Callable[..., None]:
    # A learning rate of 0 leaves the weights as they are; the optimizer works as hard as with any other.
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, weight_decay=0.0)
    model.train()

    def step(record: Recorder | None = None) -> None:
        asked = {} if record is None else {"pyramid_pass": Pass(record)}
        model(**batch, **asked).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
        wait_for(model.device)

    return step
