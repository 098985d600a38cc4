"""What is checked before a study does any work: settings, model, data, and that all results of a study fit together."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ...errors import ExperimentError, PyramidError
from ...families import positions_of
from ...families.loading import load_model
from ...files import check_writable
from ...text.labels import Labels
from ...text.sampling import table_hash
from ...training import quiet_transformers
from ...tune.rehearsal import check_rows
from ..lra.presets import LRA_NAMES
from .arena import STUDY_TASKS, arena_rows, check_arena
from .cell import Site, code_commit, method_of, pyramid_config, tables, train_settings
from .experiment import Study
from .grid import Cell
from .runs import SHARED
from .store import Store


def all_cells(study: Study) -> list[Cell]:
    """The cells of a study; raises for settings that are out of range or do not fit together."""
    cells = study.cells(STUDY_TASKS)
    problems: list[str] = []
    for cell in cells:
        try:
            pyramid_config(cell)
            train_settings(cell)
            if cell.speedup is not None:
                method_of(cell)
            if cell.task in LRA_NAMES and cell.speedup is not None:
                raise PyramidError("models of Long Range Arena have no dense teacher; leave it out")
            if cell.task in LRA_NAMES:
                check_arena(cell)
        except PyramidError as error:
            problems.append(f"{cell.method} {cell.configuration}".strip() + f": {error}")
    if study.measure is not None and any(cell.task in LRA_NAMES for cell in cells):
        problems.append("measure: `pyramid-bert lra bench` measures models of Long Range Arena; leave it out")
    _refuse(f"{study.name} cannot be run:", problems)
    return cells


def _refuse(title: str, problems: Sequence[str]) -> None:
    """Raises if there are problems; names each once."""
    if problems:
        raise ExperimentError("\n  ".join([title, *dict.fromkeys(problems)]))


def prepare(study: Study, cells: Sequence[Cell], store: Store, site: Site) -> Site:
    """The site with hashes of model and data; raises unless both are there, and are those of the results so far.

    `cells` are those to be run; the site's model is "" if the experiment names it.
    """
    pretrained = [cell for cell in cells if cell.task not in LRA_NAMES]
    model = (site.model or study.model) if pretrained else ""
    if model is None:
        raise ExperimentError(f"{study.name} names no model; give one with --model DIR")
    check_writable(store.path.parent)
    check_writable(Path(site.work))
    weights, described = "", None
    if pretrained:
        weights, config = fingerprint(model)
        _check_fit(pretrained, model, config)
        sizes = {name: getattr(config, name) for name in ("hidden_size", "intermediate_size")}
        described = {"name": Path(model).absolute().name, "layers": config.num_hidden_layers, **sizes}
    rows = _data_hashes(cells, site.data)
    _check_same(store, study.name, weights, described, rows)
    file = _portable(site.file)
    return replace(site, file=file, model=model, weights=weights, rows=rows, commit=code_commit())


def fingerprint(path: str) -> tuple[str, Any]:
    """The hash of a pretrained model's weights, without a head that is still to be trained, and its config."""
    with quiet_transformers():
        model, new_head = load_model(path)
    digest = hashlib.sha256()
    for name, value in model.state_dict().items():
        if not (new_head and name.startswith("classifier.")):
            digest.update(name.encode())
            digest.update(value.detach().cpu().contiguous().view(torch.uint8).numpy())
    return digest.hexdigest(), model.config


def _check_fit(cells: Sequence[Cell], model: str, config: Any) -> None:
    """Raises unless the model has the layers and positions that the cells need."""
    problems, longest = [], positions_of(config)
    for cell in cells:
        if cell.max_length > longest:
            problems.append(f"{cell.task}: max_length {cell.max_length}, the model reads {longest}")
        try:
            if (pyramid := pyramid_config(cell)) is not None:
                pyramid.check(config.num_hidden_layers)
        except PyramidError as error:
            problems.append(f"{cell.configuration}: {error}")
    _refuse(f"the model {model} does not fit this experiment:", problems)


def _data_hashes(cells: Sequence[Cell], data: str | None) -> dict[str, dict[str, str]]:
    """The hashes of the rows of each task. Everything is read, so bad files are found now."""
    hashes = {}
    for cell in {cell.task: cell for cell in cells}.values():
        if cell.task in LRA_NAMES:
            train, dev = (rows.digest for rows in arena_rows(cell, data))
        else:
            rows, dev_rows = tables(cell, data)
            if any(other.task == cell.task and other.speedup is not None for other in cells):
                check_rows(len(rows.texts))
            Labels.of(rows.labels, len(rows.texts), rows.where).targets(dev_rows.labels, where=dev_rows.where)
            train, dev = table_hash(rows), table_hash(dev_rows)
        hashes[cell.task] = {"train": train, "dev": dev}
    return hashes


def _check_same(
    store: Store, name: str, weights: str, model: dict[str, Any] | None, rows: dict[str, dict[str, str]]
) -> None:
    """Refuses to mix results of different models or data in one file; the first run records which they are."""
    before = store.read(SHARED) or {"weights": weights, "data": {}}
    differing = [task for task, hashes in rows.items() if before["data"].get(task, hashes) != hashes]
    other_model = before["weights"] != weights
    if other_model or differing:
        what = "another model" if other_model else f"other rows of {', '.join(differing)}"
        raise PyramidError(
            f"the results in {store.path} were made with {what}; give the same, or another folder with --results"
        )
    record = {
        "format": 1,
        "status": "done",
        "study": name,
        "weights": weights,
        "model": before.get("model") or model,
        "data": {**before["data"], **rows},
    }
    if record != before:
        store.write(SHARED, record)


def _portable(file: str) -> str:
    """The experiment file for records: relative to the current folder, or only its name if it is elsewhere."""
    path = Path(file)
    if not path.is_absolute():
        return path.as_posix()
    return path.relative_to(Path.cwd()).as_posix() if path.is_relative_to(Path.cwd()) else path.name
