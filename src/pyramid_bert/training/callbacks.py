"""Callbacks of a training run: when to evaluate, save and stop; the progress bar; the logs."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from transformers import TrainerCallback
from transformers.utils import logging as transformers_logging

from ..boundary import translating
from ..errors import MissingExtraError, PyramidError
from ..files import to_json, write_text
from ..progress import Bar

LOG = "log.jsonl"
LOG_EVERY = 20  # steps


class Pace(TrainerCallback):
    """Decides at the end of each step whether to log, evaluate and save, in this order, alike in every process.

    transformers evaluates at the end of an epoch after it has saved the checkpoint of that step. A run that resumed
    there would skip the evaluation.
    """

    def __init__(self, sampler: Any, patience: int | None, metric: str | None) -> None:
        """`metric` is the one that counts on the dev data; None without dev data."""
        self.sampler = sampler
        self.steps_per_epoch = -(-len(sampler) // sampler.batch_size)
        self.patience = patience
        self.metric = metric

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Tells the sampler its epoch. accelerate does not when several processes resume."""
        self.sampler.set_epoch(state.global_step // self.steps_per_epoch)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Asks for an evaluation when an epoch ends, for a checkpoint of what may be the best, and for logs."""
        if state.global_step % self.steps_per_epoch == 0 or state.global_step >= state.max_steps:
            control.should_log = True
            control.should_evaluate = self.metric is not None
            control.should_save = control.should_save or self.patience is not None
        # A logged loss is an average since the last log, and checkpoints do not hold that sum.
        control.should_log = control.should_log or control.should_save

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stops the run when the metric has not improved for too long."""
        if self.exhausted(state.log_history):
            control.should_training_stop = True

    def exhausted(self, history: Sequence[Mapping[str, Any]]) -> bool:
        """Whether none of the last `patience` evaluations is better than all before them."""
        if self.patience is None or self.metric is None:
            return False
        values = [float(entry[f"eval_{self.metric}"]) for entry in history if f"eval_{self.metric}" in entry]
        ranked = [-math.inf if math.isnan(value) else value * sign(self.metric) for value in values]
        return bool(ranked) and len(ranked) - 1 - ranked.index(max(ranked)) >= self.patience


def sign(metric: str) -> int:
    """1 for a metric where more is better, -1 where less is.

    Example:
        >>> sign("accuracy"), sign("rmse")
        (1, -1)
    """
    return -1 if metric == "rmse" else 1


class RichProgress(TrainerCallback):
    """Shows steps, the loss and the metric that counts on the dev data in a progress bar."""

    def __init__(self, bar: Bar, title: str, metric: str | None) -> None:
        self.bar = bar
        self.title = title
        self.metric = metric
        self.shown: dict[str, str] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Starts at the step at which a resumed run continues, and says so."""
        if state.global_step:
            self.bar.say(f"resuming from step {state.global_step:,}")
        self.task = self.bar.add_task(self.title, total=state.max_steps, completed=state.global_step, shown="")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Moves the bar."""
        self.bar.update(self.task, completed=state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Shows the loss and the metric."""
        for name, shown in (("loss", "loss"), (f"eval_{self.metric}", f"dev {self.metric}")):
            if name in (logs or {}):
                self.shown[name] = f"{shown} {float(logs[name]):.3f}"
        self.bar.update(self.task, shown="  ".join(self.shown.values()))


def progress_bar(shown: bool) -> Bar:
    """The bar on stderr that `RichProgress` moves."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    return Bar(*columns, TextColumn("{task.fields[shown]}"), shown=shown, stays=True)


class JsonLog(TrainerCallback):
    """Writes log.jsonl, one line per entry. A resumed run keeps the lines up to its checkpoint and appends."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Writes the entries of the checkpoint; none for a fresh run."""
        if state.is_world_process_zero:
            write_text(self.path, log_text(log_entries(state.log_history)))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Adds a line."""
        if state.is_world_process_zero:
            full = translating(PyramidError, f"cannot write {self.path}", "make room, and give the same command again")
            with full, self.path.open("a", encoding="utf-8") as file:
                file.write(log_text(log_entries(state.log_history[-1:])))


def log_entries(history: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The Trainer's log with keys in a fixed order, metrics of the dev data as `dev_...`, and no running times.

    Example:
        >>> log_entries([{"loss": 0.7, "epoch": 1.0, "step": 20}, {"eval_accuracy": 0.5, "epoch": 1.0, "step": 20}])
        [{'step': 20, 'epoch': 1.0, 'loss': 0.7}, {'step': 20, 'epoch': 1.0, 'dev_accuracy': 0.5}]
    """
    entries = []
    for entry in history:
        if "train_runtime" not in entry:
            names = ["step", "epoch", *sorted(entry.keys() - {"step", "epoch"})]
            entries.append({name.replace("eval_", "dev_", 1): entry[name] for name in names})
    return entries


def log_text(entries: Sequence[Mapping[str, Any]]) -> str:
    """Entries as lines of JSON; NaN becomes null."""
    return "".join(to_json(entry) + "\n" for entry in map(dict, entries))


def tensorboard(folder: Path, first_step: int) -> TrainerCallback:
    """The callback that writes TensorBoard's event files; steps from `first_step` on replace those of a stopped run."""
    from torch.utils.tensorboard import SummaryWriter
    from transformers.integrations.integration_utils import TensorBoardCallback

    return TensorBoardCallback(SummaryWriter(log_dir=str(folder), purge_step=first_step or None))


def check_tensorboard() -> None:
    """Raises unless event files can be written."""
    if find_spec("tensorboard") is None:
        raise MissingExtraError("tensorboard", "logs", "writing TensorBoard logs")


@contextlib.contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silences transformers' messages and progress bars inside the block."""
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
