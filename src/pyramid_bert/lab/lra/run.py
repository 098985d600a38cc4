"""One run of Long Range Arena: read rows, build a model from a preset, train it from scratch, evaluate it."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ...errors import PyramidError
from ...runtimes.devices import find_device
from ...schedule.base import Schedule
from ...schedule.kinds import InputSchedule
from ...text.batches import Encoded
from ...text.inference import outputs_of
from ...text.metrics import classification_metrics
from ...training import TrainingData, TrainSettings, finetune
from .data import LraData, load_lra
from .models import CLS, PAD, SPECIALS, attention_of, make_model, tokens_of
from .presets import LraPreset

SAMPLE_SEED = 0  # runs with the same number of rows use the same rows


@dataclass(frozen=True)
class LraRows:
    """The rows of a split as models read them.

    Attributes:
        items: CLS and shifted values, at their true lengths.
        labels: The classes.
        digest: Changes with every value and label.
    """

    items: list[Encoded]
    labels: list[int]
    digest: str

    @classmethod
    def of(cls, data: LraData) -> LraRows:
        """The rows of loaded data."""
        digest = hashlib.sha256()
        for array in (data.ids, data.lengths, data.labels):
            digest.update(f"{array.dtype}{array.shape}".encode())
            digest.update(array.tobytes())
        shifted = data.ids.astype("int64") + SPECIALS
        items = [Encoded([CLS, *row[:n].tolist()]) for row, n in zip(shifted, data.lengths, strict=True)]
        return cls(items, data.labels.tolist(), digest.hexdigest())


@dataclass(frozen=True)
class LraResult:
    """The result of a run.

    Attributes:
        model: The trained classifier.
        metrics: On the dev rows, by name.
        facts: Tokens kept, attention, space saved, seconds: ready for JSON.
    """

    model: Any
    metrics: dict[str, float]
    facts: dict[str, Any]


def read_rows(task: str, folder: str | Path | None, split: Literal["train", "dev"], rows: int | None = None) -> LraRows:
    """The rows of a split, or a fixed sample of them.

    Args:
        task: A key of `LRA_TASKS`.
        folder: Where its data is; None for the hub.
        split: "train" or "dev".
        rows: The size of the sample; None for all rows.
    """
    place = None if folder is None else Path(folder)
    return LraRows.of(load_lra(task, place, split, rows=rows, seed=SAMPLE_SEED))


def default_settings(preset: LraPreset, **changes: Any) -> TrainSettings:
    """The training settings of a preset, with `changes`; warm-up takes at most a tenth of the steps."""
    own = {
        "learning_rate": preset.peak,
        "epochs": preset.epochs,
        "batch_size": preset.batch_size,
        "eval_batch_size": 64,
        "weight_decay": preset.weight_decay,
    }
    settings = TrainSettings(**{**own, **changes})
    if "warmup_ratio" in changes:
        return settings
    return dataclasses.replace(settings, warmup_ratio=min(0.1, preset.warmup_epochs / settings.epochs))


def run_lra(
    preset: LraPreset,
    train: LraRows,
    dev: LraRows,
    training: TrainSettings,
    *,
    schedule: Schedule | None = None,
    settings: dict[str, Any] | None = None,
    progress: bool = True,
    device: str | None = None,
) -> LraResult:
    """Trains a preset's model from scratch and evaluates it.

    Args:
        preset: Which model.
        train: Rows to learn from.
        dev: Rows to evaluate on.
        training: How to train; its seed is that of the weights too.
        schedule: `Schedule.input_only(...)`; None keeps every token.
        settings: Further fields of `PyramidConfig`: selector, reduce, centers_per_step.
        progress: Show bars on stderr.
        device: Where to train; the accelerator that torch sees, else the CPU, if None.
    """
    model = make_model(preset, schedule, seed=training.seed, **(settings or {})).to(find_device(device))
    n = tokens_of(preset)
    # BigBird needs the full length for its blocks; linear attention takes rows at their own length.
    pad_to = n if preset.backbone == "bigbird" else None
    data = TrainingData(train.items, train.labels, PAD, pad_to=pad_to)
    start = time.perf_counter()
    title = "training the backbone" if schedule is None else "training behind the selection"
    finetune(model, None, data, training, progress=progress, title=title)
    trained = time.perf_counter()
    outputs = outputs_of(model, dev.items, PAD, batch_size=training.eval_batch_size, pad_to=pad_to)
    metrics = classification_metrics(dev.labels, outputs.logits.argmax(dim=1).tolist(), outputs.logits.shape[1])
    steps = training.epochs * -(-len(train.items) // training.batch_size)
    facts = {
        **describe(preset, schedule),
        "seconds": {"train": trained - start, "step": (trained - start) / steps, "total": time.perf_counter() - start},
        "rows": {"train": len(train.items), "dev": len(dev.items)},
        "data": {"train": train.digest, "dev": dev.digest},
    }
    return LraResult(model, metrics, facts)


def describe(preset: LraPreset, schedule: Schedule | None) -> dict[str, Any]:
    """What a selection keeps of a full row and what it saves."""
    n, attention = tokens_of(preset), attention_of(preset, schedule)
    kept = n
    if schedule is not None:
        if not isinstance(schedule, InputSchedule):
            raise PyramidError(
                f"models of Long Range Arena select at the input, once, got a schedule of kind {schedule.kind!r}; use "
                "Schedule.input_only(keep_ratio)"
            )
        block = (preset.block_size or 1) if attention == "block_sparse" else 1
        kept = dataclasses.replace(schedule, multiple_of=block).lengths(n, preset.layers)[0]
    return {"tokens": n, "kept": kept, "attention": attention, "space": preset.space_saved(kept, n)}
