"""Fine-tuning on transformers' Trainer: batches by length, a teacher, early stopping, exact resume."""

from __future__ import annotations

import dataclasses
import hashlib
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Sampler
from transformers import TrainingArguments
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from ..checks import check_kind, check_path
from ..core.loop import Pass
from ..errors import MissingExtraError, PyramidError
from ..files import check_writable, only_writer
from ..progress import Bar
from ..resuming import RUN
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
    progress_bar,
    quiet_transformers,
    sign,
    tensorboard,
)
from .checkpoints import SafeTrainer, checkpoint_to_resume, state_in
from .data import Dev, LengthSampler, TrainingData
from .distillation import distilled_loss
from .elastic import Elastic, Levels
from .sensitivity import check_refreshable, refresh_sensitivity
from .settings import TrainSettings

_NEVER = 2**31


class PyramidTrainer(SafeTrainer):
    """The Trainer with our sampler, the teacher's part of the loss, and our own evaluation."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        data: TrainingData,
        settings: TrainSettings,
        dev: Dev | None,
        folder: Path,
        *,
        keep: bool,
        levels: Levels = (),
    ) -> None:
        """With `keep` checkpoints are written to `folder`; without it only what early stopping needs."""
        steps, processes, on_cpu = -(-len(data) // settings.batch_size), place()[1], model.device.type == "cpu"
        if settings.batch_size % processes:
            raise PyramidError(
                f"batch_size {settings.batch_size} cannot be divided among {processes} processes; choose a multiple"
            )
        deciding = dev.metric if dev is not None and settings.patience is not None else None
        arguments = TrainingArguments(
            output_dir=str(folder),
            learning_rate=settings.learning_rate,
            num_train_epochs=settings.epochs,
            per_device_train_batch_size=settings.batch_size,
            warmup_steps=int(settings.warmup_ratio * steps * settings.epochs),
            weight_decay=settings.weight_decay,
            seed=settings.seed,
            save_strategy="steps" if keep or deciding else "no",
            save_steps=max(1, steps // settings.checkpoints_per_epoch) if keep else _NEVER,
            save_only_model=not keep,
            save_total_limit=2,
            metric_for_best_model=deciding,
            greater_is_better=None if deciding is None else sign(deciding) > 0,
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
        super().__init__(
            model=model, args=arguments, train_dataset=data, data_collator=data.batch, processing_class=tokenizer
        )
        self.settings, self.dev = settings, dev
        self.elastic = Elastic(model, levels, settings.seed) if levels else None
        self.sampler = LengthSampler([len(item) for item in data.items], arguments.train_batch_size, settings.seed)
        self.pace = Pace(self.sampler, settings.patience, dev.metric if dev else None)
        self.remove_callback(PrinterCallback)
        self.remove_callback(ProgressCallback)
        self.add_callback(self.pace)

    def autocast_smart_context_manager(self, cache_enabled: bool | None = True) -> AbstractContextManager[Any]:
        """Mixed precision for the loss only: the Trainer's own option would also evaluate in it."""
        if not self.settings.bf16:
            return nullcontext()
        return torch.autocast(self.args.device.type, torch.bfloat16, cache_enabled=cache_enabled)

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int]:
        return self.sampler

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Tensor | tuple[Tensor, Any]:
        """The labels' loss, mixed with the teacher's if there is one, and that of pyramids that learn together."""
        taught = {name: inputs.pop(name) for name in list(inputs) if name.startswith("teacher_")}
        if not taught and self.elastic is None:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        outputs, cls = call(model, inputs, Pass(dense=self.elastic is not None), cls="teacher_cls" in taught)
        loss = outputs.loss
        if taught:
            loss = distilled_loss(loss, outputs.logits, cls, taught, self.settings)
        if self.elastic is not None:
            step, temperature = self.state.global_step, self.settings.temperature
            loss = loss + self.elastic.loss(model, inputs, outputs.logits, step, temperature)
        return (loss, outputs) if return_outputs else loss

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Metrics on the dev data, logged."""
        assert self.dev is not None
        self.model.eval()
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in self.dev.measure().items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def finish(self, checkpoint: Path | None) -> None:
        """Trains to the end, from `checkpoint` if there is one; with patience, returns to the best weights."""
        with _ready_to_learn(self.model, self.args.device, self.settings.dropout):
            before = None if checkpoint is None else state_in(checkpoint)
            if before is not None and self.pace.exhausted(before.log_history):
                self.state = before  # training was complete; only the rest was interrupted
            else:
                self.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
            if self.settings.patience is not None:
                self.restore_best()


def finetune(
    model: Any,
    tokenizer: Any,
    data: TrainingData,
    settings: TrainSettings,
    *,
    teacher: Any = None,
    teacher_outputs: Outputs | None = None,
    levels: Levels = (),
    dev: Dev | None = None,
    output_dir: str | Path | None = None,
    log_dir: str | Path | None = None,
    progress: bool = True,
    title: str = "training",
) -> list[dict[str, Any]]:
    """Trains `model` in place, on its device, and returns the log of the run.

    Args:
        model: A transformers classifier, dense or pyramid.
        tokenizer: Its tokenizer.
        data: What to learn from.
        settings: How to train.
        teacher: A transformers classifier whose outputs are learned as well.
        teacher_outputs: What it gives for the data, if that is known.
        levels: Pyramids that learn together in this one model, by speed, the slowest first; see `elastic`.
        dev: What to evaluate on after each epoch.
        output_dir: Where checkpoints and the log go. A stopped run resumes from the last checkpoint there and ends
            with the same weights. None saves nothing on the way.
        log_dir: Where TensorBoard's event files go.
        progress: Show a progress bar on stderr.
        title: What the bar says.
    """
    _check_run(model, data, settings, dev, {"output_dir": output_dir, "log_dir": log_dir})
    check_kind("levels", levels, Sequence, "leave it out: it is for train_elastic")
    if teacher_outputs is not None:
        check_kind("teacher_outputs", teacher_outputs, Outputs, "leave it out: the teacher is asked")
    shown = progress and first_process()
    with tempfile.TemporaryDirectory() as scratch:  # the Trainer wants a folder, even when nothing is to be kept
        folder = Path(output_dir or scratch)
        check_writable(folder)
        keep = output_dir is not None
        trainer = PyramidTrainer(model, tokenizer, data, settings, dev, folder, keep=keep, levels=levels)
        with only_writer(folder) if keep and first_process() else nullcontext():
            checkpoint = None
            if keep:
                checkpoint = _checkpoint(folder, _fingerprint(model, data, settings, teacher, dev, levels), shown)
                trainer.add_callback(JsonLog(folder / LOG))
            if log_dir is not None and first_process():
                first_step = 0 if checkpoint is None else state_in(checkpoint).global_step + 1
                trainer.add_callback(tensorboard(Path(log_dir), first_step))
            data.taught = teacher_outputs
            if teacher is not None and teacher_outputs is None:
                data.taught = _ask(teacher, data, settings, trainer.args.device, shown)
            with quiet_transformers(), progress_bar(shown) as bar:
                trainer.add_callback(RichProgress(bar, title, dev.metric if dev else None))
                trainer.finish(checkpoint)
    refresh_sensitivity(model, data.items, data.pad_id)  # it was that of the weights before
    return log_entries(trainer.state.log_history)


def _check_run(
    model: Any, data: TrainingData, settings: TrainSettings, dev: Dev | None, folders: dict[str, Any]
) -> None:
    """Raises for what could not be trained or logged, before any work."""
    for name, folder in folders.items():
        if folder is not None:
            check_path(name, folder)
    if find_spec("accelerate") is None:
        raise MissingExtraError("accelerate", "train", "training")
    if settings.patience is not None and dev is None:
        raise PyramidError(f"patience={settings.patience} needs data to evaluate on after each epoch; give dev")
    check_refreshable(model, len(data))
    if folders["log_dir"] is not None:
        check_tensorboard()
        check_writable(Path(folders["log_dir"]))


def _checkpoint(folder: Path, fingerprint: dict[str, Any], shown: bool) -> Path | None:
    """The checkpoint that a stopped run left; says so where it had begun and left none."""
    began = (folder / RUN).is_file()
    found = checkpoint_to_resume(folder, fingerprint)
    if shown and began and found is None:
        Bar().say("the stopped run had written no checkpoint yet; starting from its first step")
    return found


@contextmanager
def _ready_to_learn(model: Any, device: torch.device, dropout: float | None) -> Iterator[None]:
    """Inside the block: the dropout asked for and, on a CPU, plain attention (fused is slower backward there).

    Afterwards, also when training is stopped, the model is as before and in evaluation mode.
    """
    attention = model.config._attn_implementation
    plain = device.type == "cpu" and attention == "sdpa"
    before = [(module, module.p) for module in model.modules() if isinstance(module, torch.nn.Dropout)]
    try:
        if plain:
            model.set_attn_implementation("eager")
        for module, own in before:
            module.p = own if dropout is None else dropout
        yield
    finally:
        model.eval()
        if plain:
            model.set_attn_implementation(attention)
        for module, own in before:
            module.p = own


def _ask(teacher: Any, data: TrainingData, settings: TrainSettings, device: Any, progress: bool) -> Outputs:
    """The teacher's outputs for every row, computed on the device of the training."""
    home = teacher.device
    try:
        return outputs_of(
            teacher.to(device).eval(),
            data.items,
            data.pad_id,
            batch_size=settings.eval_batch_size,
            cls=settings.hidden_weight > 0,
            title="asking the teacher" if progress else None,
            share=True,
            bf16=settings.bf16,
        )
    finally:
        teacher.to(home)


def _fingerprint(
    model: Any, data: TrainingData, settings: TrainSettings, teacher: Any, dev: Dev | None, levels: Levels
) -> dict[str, Any]:
    """What must be equal for a stopped run to resume: settings, data, and the initial models."""
    return {
        **dataclasses.asdict(settings),
        "training data": data.digest(),
        "starting weights": weights_digest(model),
        "pyramid": getattr(model.config, "pyramid", None),
        **({"speeds": [[one.to_dict() for one in level] for level in levels]} if levels else {}),
        # Not a digest of what the teacher says: that may differ in the last bit from one machine to another.
        "teacher": None if teacher is None else [weights_digest(teacher), getattr(teacher.config, "pyramid", None)],
        "dev data": None if dev is None else dev.data.digest(),
        "processes": place()[1],
    }


def weights_digest(model: Any) -> str:
    """A digest of all weights and buffers of a model."""
    weights = hashlib.sha256()
    for name, value in model.state_dict().items():
        weights.update(name.encode())
        weights.update(value.detach().cpu().contiguous().view(torch.uint8).numpy())
    return weights.hexdigest()
