"""A Trainer whose checkpoints hold no pickle, and that finds the last complete one again.

transformers saves optimizer, scheduler and random states with `torch.save`. Here tensors go into safetensors and the
rest into JSON, so that resuming never unpickles a file.
"""

from __future__ import annotations

import json
import random
import re
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import Trainer
from transformers.trainer_callback import TrainerState

from ..boundary import one_line, translating
from ..errors import CheckpointError, UnsupportedModelError
from ..files import write_text
from ..resuming import RUN, START_OVER, check_same_run, run_text
from ..runtimes.processes import first_process, share_weights, wait_for_all

_TENSORS = "training_state.safetensors"
_REST = "training_state.json"


class SafeTrainer(Trainer):
    """transformers' `Trainer`, with checkpoints in safetensors and JSON. Overrides only how state is saved and read."""

    model: Any
    optimizer: Any
    lr_scheduler: Any

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        try:
            super()._save_checkpoint(model, trial)
        except (OSError, SafetensorError) as error:  # a full disk, for example
            raise CheckpointError(
                f"cannot write a checkpoint to {self.args.output_dir}: {one_line(error)}; make room, and give the same "
                "command again: it goes on from the last complete checkpoint"
            ) from error

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        super()._save(output_dir, state_dict)
        # A pickle of the arguments; nothing here reads it.
        (Path(str(output_dir or self.args.output_dir)) / "training_args.bin").unlink(missing_ok=True)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        if self.is_deepspeed_enabled or self.is_fsdp_enabled:
            raise UnsupportedModelError("checkpoints of sharded training are pickles; use plain data-parallel training")
        if self.args.should_save:
            saved = self.optimizer.state_dict()
            tensors = {
                f"{number}/{name}": value.detach().cpu()
                for number, state in saved["state"].items()
                for name, value in state.items()
            }
            rest = {"groups": saved["param_groups"], "scheduler": self.lr_scheduler.state_dict()}
            _write(Path(output_dir), "", tensors, rest)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        tensors, rest = _read(Path(checkpoint), "")
        if "groups" not in rest:
            raise CheckpointError(f"{checkpoint} was written by an older version; {START_OVER}")
        with _readable(checkpoint):
            state: dict[int, dict[str, Tensor]] = {}
            for key, value in tensors.items():
                number, _, name = key.partition("/")
                state.setdefault(int(number), {})[name] = value
            self.optimizer.load_state_dict({"state": state, "param_groups": rest["groups"]})
            self.lr_scheduler.load_state_dict(rest["scheduler"])

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        if not (Path(resume_from_checkpoint) / "model.safetensors").is_file():
            raise CheckpointError(f"{resume_from_checkpoint} has no model.safetensors; {START_OVER}")
        with _readable(resume_from_checkpoint):
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _save_rng_state(self, output_dir: str) -> None:
        kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
        tensors = {"torch": torch.get_rng_state(), "numpy": torch.from_numpy(np.asarray(keys).astype(np.int64))}
        if torch.cuda.is_available():
            tensors |= {f"cuda{i}": state for i, state in enumerate(torch.cuda.get_rng_state_all())}
        rest = {"python": random.getstate(), "numpy": [kind, int(position), int(has_gauss), float(gauss)]}
        _write(Path(output_dir), self._rank_suffix, tensors, rest)
        wait_for_all()  # the first process makes the checkpoint complete, so the others' files have to be there

    def _load_rng_state(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        tensors, rest = _read(Path(checkpoint), self._rank_suffix)
        with _readable(checkpoint):
            version, state, gauss = rest["python"]
            random.setstate((version, tuple(state), gauss))
            kind, position, has_gauss, cached = rest["numpy"]
            np.random.set_state((kind, tensors["numpy"].numpy().astype(np.uint32), position, has_gauss, cached))
            torch.set_rng_state(tensors["torch"])
            if torch.cuda.is_available():
                torch.cuda.set_rng_state_all([tensors[f"cuda{i}"] for i in range(torch.cuda.device_count())])

    @property
    def _rank_suffix(self) -> str:
        return f"rng{self.args.process_index}-"

    def restore_best(self) -> None:
        """Restores the weights of the best evaluation (of the last, if all were NaN), in every process."""
        if self.args.should_save:
            step = self.state.best_global_step or self.state.global_step
            weights = Path(str(self.args.output_dir)) / f"checkpoint-{step}" / "model.safetensors"
            try:
                self.model.load_state_dict(load_file(weights))
            except (OSError, SafetensorError, RuntimeError) as error:
                raise CheckpointError(
                    f"cannot read the best weights in {weights}: {one_line(error)}; {START_OVER}"
                ) from error
        share_weights(self.model)


def checkpoint_to_resume(folder: Path, fingerprint: dict[str, Any]) -> Path | None:
    """The checkpoint in `folder` to resume from, or None for a fresh start.

    `fingerprint` identifies the run and is kept in run.json; a folder of another run is refused.
    """
    record = folder / RUN
    found = last_complete_checkpoint(folder)
    if found is not None:
        check_same_run(record, fingerprint, CheckpointError)
    if first_process():
        write_text(record, run_text(fingerprint))
    return found


def last_complete_checkpoint(folder: Path) -> Path | None:
    """The newest checkpoint in `folder` that was written to its end, or None.

    The Trainer writes its state last. If that file is missing or cut short, the run was stopped while saving.
    """
    found = []
    for path in folder.glob("checkpoint-*"):
        number = re.fullmatch(r"checkpoint-(\d+)", path.name)
        try:
            json.loads((path / "trainer_state.json").read_text())
            with safe_open(path / "model.safetensors", framework="pt"):
                pass
        except (OSError, ValueError, RecursionError, SafetensorError):
            continue
        if number:
            found.append((int(number[1]), path))
    return max(found)[1] if found else None


def _write(folder: Path, prefix: str, tensors: dict[str, Tensor], rest: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    save_file({key: value.contiguous() for key, value in tensors.items()}, folder / (prefix + _TENSORS))
    write_text(folder / (prefix + _REST), json.dumps(rest))


def _read(folder: Path, prefix: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    with _readable(folder):
        return load_file(folder / (prefix + _TENSORS)), json.loads((folder / (prefix + _REST)).read_text())


def state_in(checkpoint: Path) -> TrainerState:
    """Where a run was when it wrote a checkpoint."""
    with _readable(checkpoint):
        state = TrainerState.load_from_json(str(checkpoint / "trainer_state.json"))
        if f"checkpoint-{state.global_step:d}" != checkpoint.name or not isinstance(state.log_history, list):
            raise CheckpointError(f"{checkpoint} is damaged; {START_OVER}")
        return state


def _readable(checkpoint: str | Path) -> AbstractContextManager[None]:
    return translating(CheckpointError, f"cannot read the checkpoint {checkpoint}", START_OVER)
