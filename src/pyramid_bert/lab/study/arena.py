"""Cells of Long Range Arena: a backbone on a task is one task of a study, trained from nothing for every cell."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

from ...errors import PyramidError
from ..glue.tasks import TASKS, Task
from ..lra.data import LRA_TASKS
from ..lra.models import tokens_of
from ..lra.presets import BACKBONES, LRA_NAMES, LraPreset, load_presets
from ..lra.run import LraRows, describe, read_rows, run_lra
from .cell import FORMAT, Site, provenance, pyramid_config, score, train_settings
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


# Everything that a study can name.
STUDY_TASKS: dict[str, Task] = {**TASKS, **{name: _task(name, load_presets()[name]) for name in LRA_NAMES}}


def check_arena(cell: Cell) -> None:
    """Raises unless a cell of Long Range Arena can be run: from nothing, at full length, with blocks to attend to."""
    if cell.training is None or cell.start == "dense" or cell.distills:
        raise PyramidError(
            "models of Long Range Arena are trained from nothing; set start = 'pretrained' and selection = 'train', "
            "and leave out methods that learn from the dense model"
        )
    if cell.max_length != STUDY_TASKS[cell.task].max_length:
        raise PyramidError(
            f"{cell.task} has rows of {STUDY_TASKS[cell.task].max_length} tokens; leave out max_length, got "
            f"{cell.max_length}"
        )
    describe(load_presets()[cell.task], cell.schedule)


@lru_cache(maxsize=2)
def _rows(task: str, folder: str | None, split: Literal["train", "dev"], rows: int | None) -> LraRows:
    return read_rows(task, folder, split, rows)


def arena_rows(cell: Cell, folder: str | None) -> tuple[LraRows, LraRows]:
    """The rows that a cell is trained and evaluated on."""
    task = load_presets()[cell.task].task
    return _rows(task, folder, "train", cell.rows), _rows(task, folder, "dev", cell.dev_rows)


def run_arena_cell(cell: Cell, site: Site) -> dict[str, Any]:
    """The record of a cell."""
    preset = load_presets()[cell.task]
    train, dev = arena_rows(cell, site.data)
    settings = dataclasses.replace(train_settings(cell), eval_batch_size=STUDY_TASKS[cell.task].eval_batch_size)
    result = run_lra(preset, train, dev, settings, schedule=cell.schedule, settings=dict(cell.settings), progress=False)
    pyramid = pyramid_config(cell)
    return {
        "format": FORMAT,
        "id": cell.id,
        "name": cell.name,
        "status": "done",
        "cell": cell.to_dict(),
        **score(STUDY_TASKS[cell.task], result.metrics),
        **result.facts,
        **_ideal(preset, result.facts, [len(item) for item in dev.items]),
        "preset": dataclasses.asdict(preset),
        "training": dataclasses.asdict(settings),
        "pyramid": None if pyramid is None else pyramid.to_dict(),
        "weights": site.weights,
        **provenance(cell, site, f"--only {cell.id} --again"),
    }


def _ideal(preset: LraPreset, facts: dict[str, Any], lengths: Sequence[int]) -> dict[str, Any]:
    """Ideal speed-ups by tokens: the work of both backbones is proportional to them. BigBird pads every row to N.

    The selection itself is not counted, as elsewhere; the time of a step holds it.
    """
    n, mean = facts["tokens"], sum(lengths) / len(lengths)
    fewer = n / facts["kept"]
    padding = n / mean if preset.backbone == "performer" else 1.0
    return {"ideal": {"over_a": fewer * padding, "over_c": fewer}, "mean_length": mean}
