"""Fine-tuning on transformers' Trainer: batches by length, progress, checkpoints, and a resume that changes nothing."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor
from torch.utils.data import Dataset, Sampler
from transformers import TrainerCallback, TrainingArguments
from transformers.trainer_callback import PrinterCallback, ProgressCallback
from transformers.utils import logging as transformers_logging

from .checkpoints import SafeTrainer, last_complete_checkpoint
from .data import Encoded, collate
from .errors import CheckpointError, MissingExtraError, PyramidError
from .files import check_writable, write_text


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """How to fine-tune. The defaults are the paper's for GLUE, but for the batch size.

    Attributes:
        learning_rate: Peak learning rate; it falls linearly to 0.
        epochs: Passes over the data.
        batch_size: Texts a step.
        warmup_ratio: Share of the steps over which the learning rate rises.
        weight_decay: Decoupled weight decay.
        seed: Seed of everything random.
        checkpoints_per_epoch: How often the state is saved, when there is an output folder.
    """

    learning_rate: float = 2e-5
    epochs: float = 3
    batch_size: int = 32
    warmup_ratio: float = 0.0
    weight_decay: float = 0.0
    seed: int = 0
    checkpoints_per_epoch: int = 2

    def __post_init__(self) -> None:
        for name, kind, low, high in (
            ("learning_rate", float, 1e-12, 1),
            ("epochs", float, 1e-6, 10_000),
            ("batch_size", int, 1, 1_000_000),
            ("warmup_ratio", float, 0, 1),
            ("weight_decay", float, 0, 1),
            ("seed", int, 0, 2**32 - 1),
            ("checkpoints_per_epoch", int, 1, 1_000_000),
        ):
            value = getattr(self, name)
            fits = isinstance(value, kind) or (kind is float and isinstance(value, int))
            if not fits or isinstance(value, bool) or not low <= value <= high:
                what = "a whole number" if kind is int else "a number"
                raise PyramidError(f"{name} must be {what} in {low:g}-{high:g}, got {value!r}")


class EncodedDataset(Dataset[tuple[Encoded, float | int]]):
    """Encoded texts with their targets."""

    def __init__(self, items: Sequence[Encoded], targets: Sequence[float | int]) -> None:
        self.items = items
        self.targets = targets

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, i: int) -> tuple[Encoded, float | int]:
        return self.items[i], self.targets[i]


class LengthSampler(Sampler[int]):
    """Shuffles so that texts of similar length meet in a batch; the order depends on seed and epoch alone.

    transformers' sampler of the same purpose draws from the global random state, and so would deal other batches
    after a resume.
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


class PyramidTrainer(SafeTrainer):
    """The Trainer with our sampler."""

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int]:
        data: Any = train_dataset or self.train_dataset
        return LengthSampler([len(item) for item in data.items], self.args.train_batch_size, self.args.seed)


def finetune(
    model: Any,
    tokenizer: Any,
    items: Sequence[Encoded],
    targets: Sequence[float | int],
    settings: TrainSettings,
    *,
    output_dir: str | Path | None = None,
    progress: bool = True,
    title: str = "training",
) -> None:
    """Trains `model` in place.

    Args:
        model: A transformers classifier, dense or pyramid.
        tokenizer: Its tokenizer.
        items: The texts.
        targets: Class numbers, or floats for regression.
        settings: How to train.
        output_dir: Where checkpoints go. A run that was stopped goes on from the last one there, and ends with the
            weights that it would have had. Without it nothing is saved on the way.
        progress: Show a progress bar on stderr.
        title: What the bar says.
    """
    if find_spec("accelerate") is None:
        raise MissingExtraError("accelerate", "train", "training")
    if output_dir is None:
        with tempfile.TemporaryDirectory() as scratch:  # the Trainer wants a folder, though nothing is saved
            trainer = _make_trainer(
                model, tokenizer, EncodedDataset(items, targets), settings, Path(scratch), save=False
            )
            _run(trainer, None, title if progress else None)
        return
    folder = Path(output_dir)
    check_writable(folder)
    resume = _checkpoint_to_resume(folder, _fingerprint(model, items, targets, settings))
    trainer = _make_trainer(model, tokenizer, EncodedDataset(items, targets), settings, folder, save=True)
    _run(trainer, resume, title if progress else None)


def _make_trainer(
    model: Any, tokenizer: Any, data: EncodedDataset, settings: TrainSettings, folder: Path, *, save: bool
) -> PyramidTrainer:
    steps_per_epoch = -(-len(data) // settings.batch_size)
    arguments = TrainingArguments(
        output_dir=str(folder),
        learning_rate=settings.learning_rate,
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.batch_size,
        warmup_steps=int(settings.warmup_ratio * steps_per_epoch * settings.epochs),
        weight_decay=settings.weight_decay,
        seed=settings.seed,
        save_strategy="steps" if save else "no",
        save_steps=max(1, steps_per_epoch // settings.checkpoints_per_epoch),
        save_total_limit=2,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=torch.cuda.is_available(),
        remove_unused_columns=False,
    )
    trainer = PyramidTrainer(
        model=model,
        args=arguments,
        train_dataset=data,
        data_collator=_collator(tokenizer.pad_token_id),
        processing_class=tokenizer,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    return trainer


def _run(trainer: PyramidTrainer, resume: Path | None, title: str | None) -> None:
    bar = None if title is None else RichProgress(title)
    if bar is not None:
        trainer.add_callback(bar)
    trained: Any = trainer.model
    try:
        with quiet_transformers():
            trainer.train(resume_from_checkpoint=None if resume is None else str(resume))
    finally:  # also when it is stopped: a model left in training mode would predict at random
        trained.eval()
        if bar is not None:
            bar.close()


class RichProgress(TrainerCallback):
    """A progress bar on stderr with the loss beside it."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.bar: Progress | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Opens the bar, at the step from which a resumed run goes on."""
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, TextColumn("{task.fields[loss]}"), console=Console(stderr=True))
        self.bar.start()
        self.task = self.bar.add_task(self.title, total=state.max_steps, completed=state.global_step, loss="")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Moves the bar."""
        assert self.bar is not None
        control.should_log = state.global_step % 20 == 0
        self.bar.update(self.task, completed=state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Shows the loss."""
        if self.bar is not None and "loss" in (logs or {}):
            self.bar.update(self.task, loss=f"loss {float(logs['loss']):.3f}")

    def close(self) -> None:
        """Takes the bar off the terminal's hands."""
        if self.bar is not None:
            self.bar.stop()


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Keeps transformers' notes and bars off the terminal while it does what it was asked to."""
    level = transformers_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()


def _collator(pad_id: int) -> Callable[[Sequence[tuple[Encoded, float | int]]], dict[str, Tensor]]:
    def make_batch(rows: Sequence[tuple[Encoded, float | int]]) -> dict[str, Tensor]:
        batch = collate([item for item, _ in rows], pad_id)
        return {**batch, "labels": torch.tensor([target for _, target in rows])}

    return make_batch


def _fingerprint(
    model: Any, items: Sequence[Encoded], targets: Sequence[float | int], settings: TrainSettings
) -> dict[str, Any]:
    """What must be the same for a stopped run to go on: settings, data, and the model it began with."""
    data = hashlib.sha256()
    for item, target in zip(items, targets, strict=True):
        data.update(f"{item.input_ids}{item.token_type_ids}{target}".encode())
    weights = hashlib.sha256()
    for name, value in model.state_dict().items():
        weights.update(name.encode())
        weights.update(value.detach().cpu().contiguous().view(torch.uint8).numpy())
    return {
        "settings": dataclasses.asdict(settings),
        "data": data.hexdigest(),
        "weights": weights.hexdigest(),
        "pyramid": getattr(model.config, "pyramid", None),
    }


def _checkpoint_to_resume(folder: Path, fingerprint: dict[str, Any]) -> Path | None:
    """The checkpoint to go on from, or None for a fresh start. Another run's folder is refused."""
    record = folder / "run.json"
    found = last_complete_checkpoint(folder)
    if found is not None:
        try:
            before = json.loads(record.read_text())
        except (OSError, json.JSONDecodeError) as error:
            raise CheckpointError(f"{folder} holds checkpoints but no readable run.json; use another folder") from error
        changed = sorted(key for key in fingerprint if before.get(key) != json.loads(json.dumps(fingerprint[key])))
        if changed:
            raise CheckpointError(
                f"{folder} holds checkpoints of another run: {', '.join(changed)} differ. "
                "Go on from the model that the run began with, use another folder, or remove these checkpoints"
            )
    write_text(record, json.dumps(fingerprint, indent=1))
    return found
