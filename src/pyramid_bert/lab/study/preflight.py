"""What is checked before a study does any work: settings, model, data, and that results of a study fit together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ...errors import ExperimentError, PyramidError
from ...families import positions_of
from ...files import check_writable
from ...text.labels import Labels
from ...text.sampling import table_hash
from ..lra.presets import LRA_NAMES
from .arena import STUDY_TASKS, arena_rows, check_arena
from .cell import Site, code_commit, fingerprint, pyramid_config, tables, train_settings
from .grid import Cell
from .runs import SHARED
from .spec import Study
from .store import Store

SPLITS = ("train", "dev")


def all_cells(study: Study) -> list[Cell]:
    """The cells of a study; raises for settings that are out of range or do not fit together."""
    cells = study.cells(STUDY_TASKS)
    problems: dict[str, None] = {}
    for cell in cells:
        try:
            pyramid_config(cell)
            train_settings(cell)
            if cell.task in LRA_NAMES:
                check_arena(cell)
        except PyramidError as error:
            problems[f"{cell.method} {cell.configuration}".strip() + f": {error}"] = None
    if study.measure is not None and any(cell.task in LRA_NAMES for cell in cells):
        problems["measure: `pyramid-bert lra bench` measures models of Long Range Arena; leave it out"] = None
    if problems:
        raise ExperimentError("\n  ".join([f"{study.name} cannot be run:", *problems]))
    return cells


def prepare(
    study: Study,
    cells: Sequence[Cell],
    store: Store,
    *,
    file: str,
    model: str | None,
    data: str | None,
    work: str,
    threads: int | None = None,
) -> Site:
    """Where the study runs, when model and data are there and are those of the results that there are already.

    Args:
        study: The experiment.
        cells: The cells to be run.
        store: Its results.
        file: The experiment file, for the record.
        model: Where the model is, if the experiment does not say.
        data: The folder of the tasks; None for the hub.
        work: Where the dense classifiers of all studies are kept.
        threads: Threads for torch.
    """
    pretrained = [cell for cell in cells if cell.task not in LRA_NAMES]
    where = (model or study.model) if pretrained else ""
    if where is None:
        raise ExperimentError(f"{study.name} names no model; give one with --model DIR")
    check_writable(store.path.parent)
    check_writable(Path(work))
    weights, described = "", None
    if pretrained:
        weights, config = fingerprint(where)
        _check_fit(pretrained, where, config)
        described = _describe(where, config)
    rows = _data_hashes(cells, data)
    _check_same(store, study, {"weights": weights, "model": described, "data": rows})
    return Site(
        file=_portable(file),
        model=where,
        data=data,
        work=work,
        threads=threads,
        weights=weights,
        rows=rows,
        commit=code_commit(),
    )


def _check_fit(cells: Sequence[Cell], model: str, config: Any) -> None:
    """Raises unless the model has the layers and positions that the cells need."""
    problems: dict[str, None] = {}
    positions = positions_of(config)
    for cell in cells:
        if cell.max_length > positions:
            problems[f"{cell.task}: max_length {cell.max_length}, the model reads {positions}"] = None
        try:
            if (pyramid := pyramid_config(cell)) is not None:
                pyramid.check(config.num_hidden_layers)
        except PyramidError as error:
            problems[f"{cell.configuration}: {error}"] = None
    if problems:
        raise ExperimentError("\n  ".join([f"the model {model} does not fit this experiment:", *problems]))


def _describe(model: str, config: Any) -> dict[str, Any]:
    """The model for people: its name, without where one machine has it, and its sizes."""
    return {
        "name": Path(model).absolute().name,
        "layers": config.num_hidden_layers,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
    }


def _data_hashes(cells: Sequence[Cell], data: str | None) -> dict[str, dict[str, str]]:
    """The hashes of the rows of each task. Everything is read, so what is wrong with it comes to light now."""
    hashes = {}
    for cell in {cell.task: cell for cell in cells}.values():
        if cell.task in LRA_NAMES:
            hashes[cell.task] = {split: rows.digest for split, rows in zip(SPLITS, arena_rows(cell, data), strict=True)}
            continue
        train, dev = tables(cell, data)
        Labels.of(train.labels, len(train.texts), train.where).targets(dev.labels, where=dev.where)
        hashes[cell.task] = {"train": table_hash(train), "dev": table_hash(dev)}
    return hashes


def _check_same(store: Store, study: Study, shared: dict[str, Any]) -> None:
    """Refuses to mix results of different models or data in one file; the first run writes down which they are."""
    before = store.read(SHARED)
    if before is not None:
        differing = [task for task, hashes in shared["data"].items() if before["data"].get(task, hashes) != hashes]
        other_model = before["weights"] != shared["weights"]
        if other_model or differing:
            what = "another model" if other_model else f"other rows of {', '.join(differing)}"
            raise PyramidError(
                f"the results in {store.path} were made with {what}; give the same, or another folder with --results"
            )
    else:
        before = {"data": {}}
    record = {
        "format": 1,
        "status": "done",
        "study": study.name,
        "weights": shared["weights"],
        "model": before.get("model") or shared["model"],
        "data": {**before["data"], **shared["data"]},
    }
    if record != before:
        store.write(SHARED, record)


def _portable(file: str) -> str:
    """The experiment file as it should be written into records: not where one machine has it."""
    path = Path(file)
    if not path.is_absolute():
        return path.as_posix()
    return path.relative_to(Path.cwd()).as_posix() if path.is_relative_to(Path.cwd()) else path.name
