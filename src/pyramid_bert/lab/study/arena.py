"""Cells of Long Range Arena: a backbone on a task is one task of a study, and every cell is trained from scratch."""

from __future__ import annotations

import dataclasses
from functools import lru_cache
from typing import Any, Literal

from ...errors import PyramidError
from ...training import TrainSettings
from ..glue.tasks import TASKS, Task
from ..lra.data import LRA_TASKS
from ..lra.models import tokens_of
from ..lra.presets import BACKBONES, LRA_NAMES, LraPreset, load_presets
from ..lra.run import LraRows, describe, read_rows, run_lra
from .grid import Cell


def _task(name: str, preset: LraPreset) -> Task:
    data = LRA_TASKS[preset.task]
    return Task(
        name=name,
        title=f"{BACKBONES[preset.backbone]} {data.title}",
        classes=tuple(map(str, range(data.classes))),
        max_length=tokens_of(preset),
        batch_size=preset.batch_size,
        learning_rate=preset.peak,
        epochs=preset.epochs,
        eval_batch_size=64,
    )


# Every task that a study can name.
STUDY_TASKS: dict[str, Task] = {**TASKS, **{name: _task(name, load_presets()[name]) for name in LRA_NAMES}}


def check_arena(cell: Cell) -> None:
    """Raises unless a cell of Long Range Arena can be run: from scratch, at full length, with blocks to attend to."""
    if cell.training is None or cell.start == "dense" or cell.distills:
        raise PyramidError(
            "models of Long Range Arena are trained from nothing; set start = 'pretrained' and selection = 'train', "
            "and leave out methods that learn from the dense model"
        )
    tokens = STUDY_TASKS[cell.task].max_length
    if cell.max_length != tokens:
        raise PyramidError(f"{cell.task} has rows of {tokens} tokens; leave out max_length, got {cell.max_length}")
    describe(load_presets()[cell.task], cell.schedule)


@lru_cache(maxsize=2)
def _rows(task: str, folder: str | None, split: Literal["train", "dev"], rows: int | None) -> LraRows:
    return read_rows(task, folder, split, rows)


def arena_rows(cell: Cell, folder: str | None) -> tuple[LraRows, LraRows]:
    """The rows that a cell is trained and evaluated on."""
    task = load_presets()[cell.task].task
    return _rows(task, folder, "train", cell.rows), _rows(task, folder, "dev", cell.dev_rows)


def run_arena(cell: Cell, settings: TrainSettings, folder: str | None) -> tuple[dict[str, float], dict[str, Any]]:
    """The metrics of a cell, and what its record says about the run.

    Ideal speed-ups are ratios of tokens: the work of both backbones is proportional to them. BigBird pads every row to
    N. Selection is not counted; the time of a step includes it.
    """
    preset = load_presets()[cell.task]
    train, dev = arena_rows(cell, folder)
    result = run_lra(preset, train, dev, settings, schedule=cell.schedule, settings=dict(cell.settings), progress=False)
    n, mean = result.facts["tokens"], sum(len(item) for item in dev.items) / len(dev.items)
    fewer = n / result.facts["kept"]
    padding = n / mean if preset.backbone == "performer" else 1.0
    ideal = {"over_a": fewer * padding, "over_c": fewer}
    return result.metrics, {
        **result.facts,
        "ideal": ideal,
        "mean_length": mean,
        "preset": dataclasses.asdict(preset),
    }
