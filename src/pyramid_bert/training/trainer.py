"""Fine-tuning on transformers' Trainer: batches by length, a teacher, early stopping, exact resume."""

from __future__ import annotations

import dataclasses
import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Sampler
from transformers import TrainingArguments
from transformers.trainer_callback import PrinterCallback, ProgressCallback, TrainerState

from ..errors import MissingExtraError, PyramidError
from ..files import check_writable
from ..runtimes.devices import find_device
from ..runtimes.processes import first_process, place
from ..text.inference import Outputs, call, outputs_of
from .callbacks import (
    LOG,
    LOG_EVERY,
    JsonLog,
    Pace,
    RichProgress,
    check_tensorboard,
    log_entries,
    quiet_transformers,
    sign,
    tensorboard,
)
from .checkpoints import SafeTrainer, checkpoint_to_resume
from .data import Dev, LengthSampler, TrainingData
from .distillation import Distillation
from .settings import TrainSettings

_NEVER = 2**31


class PyramidTrainer(SafeTrainer):
    """The Trainer with our sampler, the teacher's part of the loss, and our own evaluation."""

    sampler: LengthSampler
    distillation: Distillation | None = None
    dev: Dev | None = None
    bf16: bool = False
    dropout: float | None = None

    def autocast_smart_context_manager(self, cache_enabled: bool | None = True) -> AbstractContextManager[Any]:
        """Mixed precision for the loss only: the Trainer's own option would also evaluate in it."""
        if not self.bf16:
            return nullcontext()
        return torch.autocast(self.args.device.type, torch.bfloat16, cache_enabled=cache_enabled)

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int]:
        return self.sampler

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor | tuple[Tensor, Any]:
        """The labels' loss, mixed with the teacher's if there is one."""
        if self.distillation is None:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        taught = {name: inputs.pop(name) for name in list(inputs) if name.startswith("teacher_")}
        wanted = self.distillation.hidden_weight > 0
        outputs, cls = call(model, inputs, cls=wanted)
        loss = self.distillation.loss(outputs.loss, outputs.logits, cls if wanted else None, taught)
        return (loss, outputs) if return_outputs else loss

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Metrics on the dev data, logged."""
        assert self.dev is not None
        evaluated: Any = self.model
        evaluated.eval()
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in self.dev.measure().items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


def finetune(
    model: Any,
    tokenizer: Any,
    data: TrainingData,
    settings: TrainSettings,
    *,
    teacher: Any = None,
    dev: Dev | None = None,
    output_dir: str | Path | None = None,
    log_dir: str | Path | None = None,
    progress: bool = True,
    title: str = "training",
    device: torch.device | None = None,
) -> list[dict[str, Any]]:
    """Trains `model` in place, and returns the log of the run.

    Args:
        model: A transformers classifier, dense or pyramid.
        tokenizer: Its tokenizer.
        data: What to learn from.
        settings: How to train.
        teacher: A transformers classifier whose outputs are to be learned as well.
        dev: What to evaluate on after each epoch.
        output_dir: Where checkpoints and the log go. A run that was stopped goes on from the last one there, and ends
            with the weights that it would have had. Without it nothing is saved on the way.
        log_dir: Where TensorBoard's event files go.
        progress: Show a progress bar on stderr.
        title: What the bar says.
        device: Where to train; None takes the accelerator that torch sees, else the CPU.
    """
    if find_spec("accelerate") is None:
        raise MissingExtraError("accelerate", "train", "training")
    if settings.patience is not None and dev is None:
        raise PyramidError(f"patience={settings.patience} needs data to evaluate on after each epoch; give dev")
    if log_dir is not None:
        check_tensorboard()
        check_writable(Path(log_dir))
    with tempfile.TemporaryDirectory() as scratch:  # the Trainer wants a folder, even when nothing is to be kept
        folder = Path(output_dir or scratch)
        check_writable(folder)
        kept, on_cpu = output_dir is not None, find_device(device).type == "cpu"
        trainer, pace = _make_trainer(model, tokenizer, data, dev, settings, folder, keep=kept, on_cpu=on_cpu)
        before = None
        if output_dir is not None:
            before = checkpoint_to_resume(folder, _fingerprint(model, data, settings, teacher, dev))
            trainer.add_callback(JsonLog(folder / LOG))
        if log_dir is not None and first_process():
            trainer.add_callback(tensorboard(Path(log_dir), 0 if before is None else _state_in(before).global_step + 1))
        if teacher is not None:
            trainer.distillation = Distillation(settings.temperature, settings.distill_weight, settings.hidden_weight)
            data.taught = _ask(teacher, data, settings, trainer.args.device, progress and first_process())
        bar = RichProgress(title, dev.metric if dev else None) if progress and first_process() else None
        _run(trainer, pace, before, bar)
    return log_entries(trainer.state.log_history)


def _make_trainer(
    model: Any,
    tokenizer: Any,
    data: TrainingData,
    dev: Dev | None,
    settings: TrainSettings,
    folder: Path,
    *,
    keep: bool,
    on_cpu: bool,
) -> tuple[PyramidTrainer, Pace]:
    steps = -(-len(data) // settings.batch_size)
    chosen = dev if settings.patience is not None else None
    processes = place()[1]
    if settings.batch_size % processes:
        raise PyramidError(
            f"batch_size {settings.batch_size} cannot be divided among {processes} processes; choose a multiple"
        )
    arguments = TrainingArguments(
        output_dir=str(folder),
        learning_rate=settings.learning_rate,
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.batch_size,
        warmup_steps=int(settings.warmup_ratio * steps * settings.epochs),
        weight_decay=settings.weight_decay,
        seed=settings.seed,
        save_strategy="steps" if keep or chosen else "no",
        save_steps=max(1, steps // settings.checkpoints_per_epoch) if keep else _NEVER,
        save_only_model=not keep,
        save_total_limit=2,
        metric_for_best_model=None if chosen is None else chosen.metric,
        greater_is_better=None if chosen is None else sign(chosen.metric) > 0,
        logging_steps=LOG_EVERY,
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=not on_cpu and torch.cuda.is_available(),
        remove_unused_columns=False,
        # Several processes share a batch; rows are repeated where it cannot be divided.
        accelerator_config={"split_batches": processes > 1},
        average_tokens_across_devices=False,  # their parts are equal: the mean of means is the mean
        use_cpu=on_cpu,
    )
    trainer = PyramidTrainer(
        model=model,
        args=arguments,
        train_dataset=data,
        data_collator=data.batch,
        processing_class=tokenizer,
    )
    trainer.dev, trainer.bf16, trainer.dropout = dev, settings.bf16, settings.dropout
    trainer.sampler = LengthSampler([len(item) for item in data.items], arguments.train_batch_size, settings.seed)
    pace = Pace(trainer.sampler, evaluate=dev is not None, patience=settings.patience, metric=dev.metric if dev else "")
    trainer.remove_callback(PrinterCallback)
    trainer.remove_callback(ProgressCallback)
    trainer.add_callback(pace)
    return trainer, pace


def _run(trainer: PyramidTrainer, pace: Pace, before: Path | None, bar: RichProgress | None) -> None:
    """Trains, from the checkpoint `before` if there is one; with patience, returns to the best weights."""
    if bar is not None:
        trainer.add_callback(bar)
    trained: Any = trainer.model
    try:
        with (
            quiet_transformers(),
            _attention_to_learn_with(trained, trainer.args.device),
            _dropout(trained, trainer.dropout),
        ):
            if before is not None and pace.exhausted(_state_in(before).log_history):
                trainer.state = _state_in(before)  # training was complete; only the rest was interrupted
            else:
                trainer.train(resume_from_checkpoint=None if before is None else str(before))
            if pace.patience is not None:
                trainer.restore_best()
    finally:  # also when it is stopped: a model left in training mode would predict at random
        trained.eval()
        if bar is not None:
            bar.close()


@contextmanager
def _attention_to_learn_with(model: Any, device: torch.device) -> Iterator[None]:
    """Plain attention for training on a CPU: the fused one is faster forward and slower backward there."""
    before = model.config._attn_implementation
    plain = device.type == "cpu" and before == "sdpa"
    if plain:
        model.set_attn_implementation("eager")
    try:
        yield
    finally:
        if plain:
            model.set_attn_implementation(before)


@contextmanager
def _dropout(model: Any, share: float | None) -> Iterator[None]:
    """Another dropout inside the block; None leaves the model's own."""
    places = [place for place in model.modules() if isinstance(place, torch.nn.Dropout)]
    before = [place.p for place in places]
    try:
        if share is not None:
            for place in places:
                place.p = share
        yield
    finally:
        for place, own in zip(places, before, strict=True):
            place.p = own


def _state_in(checkpoint: Path) -> TrainerState:
    return TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))


def _ask(teacher: Any, data: TrainingData, settings: TrainSettings, device: Any, progress: bool) -> Outputs:
    """The teacher's outputs for every row, computed on the device of the training."""
    place_before = teacher.device
    try:
        return outputs_of(
            teacher.to(device).eval(),
            data.items,
            data.pad_id,
            batch_size=settings.eval_batch_size,
            cls=settings.hidden_weight > 0,
            title="asking the teacher" if progress else None,
            share=True,
        )
    finally:
        teacher.to(place_before)


def _fingerprint(
    model: Any, data: TrainingData, settings: TrainSettings, teacher: Any, dev: Dev | None
) -> dict[str, Any]:
    """What must be equal for a stopped run to resume: settings, data, and the initial models."""
    return {
        "settings": dataclasses.asdict(settings),
        "data": data.digest(),
        "weights": _weights_digest(model),
        "pyramid": getattr(model.config, "pyramid", None),
        # Not a digest of what the teacher says: that may differ in the last bit from one machine to another.
        "teacher": None if teacher is None else [_weights_digest(teacher), getattr(teacher.config, "pyramid", None)],
        "dev": None if dev is None else dev.data.digest(),
        "processes": place()[1],
    }


def _weights_digest(model: Any) -> str:
    weights = hashlib.sha256()
    for name, value in model.state_dict().items():
        weights.update(name.encode())
        weights.update(value.detach().cpu().contiguous().view(torch.uint8).numpy())
    return weights.hexdigest()
