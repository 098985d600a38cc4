"""One cell, from data to record: train or not, evaluate on dev at true lengths, count what it saves."""

from __future__ import annotations

import dataclasses
import json
import math
import platform
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from ...bench.ledger import measure
from ...bench.machine import describe_machine
from ...bench.models import model_pair
from ...bench.workload import Workload
from ...checks import check_choice
from ...classifier import PyramidClassifier
from ...config import PyramidConfig
from ...cost import Cost, Placement, space_reduction
from ...errors import PyramidError
from ...families import positions_of, sizes_of
from ...files import replacing_folder, take_lock, write_text
from ...text.sampling import sample_rows, table_hash
from ...text.tables import Table
from ...training import TrainSettings
from ...tune.candidates import Method
from ...tune.elastic import train_elastic
from ...tune.taught import METHOD, train_pyramid
from ..glue.tasks import load_task
from ..lra.presets import LRA_NAMES
from .arena import STUDY_TASKS, run_arena
from .grid import Cell, settled

FORMAT = 1
POLL_SECONDS = 1.0
_RECORD = "record.json"
_STARTED_FROM = "dense.json"  # beside an elastic model: the record of the dense model that it was made of
SAMPLE_SEED = 0  # all seeds of a study train on the same rows


@dataclass(frozen=True, kw_only=True)
class Site:
    """Where a study runs: what differs between machines and does not change a result.

    Attributes:
        file: The experiment file, as the command line names it.
        model: Where the pretrained model is: a folder, or a name on the hub; "" if none is needed.
        data: The folder of the tasks; None for the hub.
        work: Where the dense classifiers of all studies are kept.
        threads: Threads for torch; None for its default.
        weights: Hash of the pretrained weights.
        rows: Hashes of the rows of each task, under "train" and "dev".
        commit: The commit of this library, for the record.
    """

    file: str
    model: str
    data: str | None
    work: str
    threads: int | None = None
    weights: str = ""
    rows: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    commit: str | None = None

    def dense_folder(self, cell: Cell) -> Path:
        """Where the dense classifier that a cell makes or needs is kept.

        Studies share the folder, and a cell's id covers neither the pretrained weights nor the rows, so the path does.
        """
        made_of = f"{self.weights[:10]}-{self.rows[cell.task]['train'][:10]}"
        return Path(self.work) / "dense" / made_of / (cell.dense or cell.key)

    def elastic_folder(self, cell: Cell) -> Path:
        """Where the elastic model of a cell is kept; the cells of all its speed-ups share it."""
        return self.dense_folder(cell).parent / dataclasses.replace(cell, speedup=cell.together[0]).key

    def has_dense(self, cell: Cell) -> bool:
        """Whether that classifier is there; True for Long Range Arena, where none are kept or needed."""
        return cell.task in LRA_NAMES or (self.dense_folder(cell) / "classifier.json").is_file()

    def use_threads(self) -> None:
        """Sets the number of torch's threads."""
        if self.threads:
            torch.set_num_threads(self.threads)


def run_cell(cell: Cell, site: Site, anew: Collection[str] = ()) -> dict[str, Any]:
    """The record of a cell.

    A dense cell leaves its classifier and its record in the work folder. If a study already did, its record is reused,
    unless `anew` has the cell's key.
    """
    site.use_threads()
    if not cell.is_dense or cell.task in LRA_NAMES:
        return _run(cell, site)[0]
    folder = site.dense_folder(cell)
    with waiting(folder):
        record = None if cell.key in anew else _kept_record(cell, site)
        if record is None:
            record, classifier = _run(cell, site)
            _keep(classifier, record, folder)
    return record


@contextmanager
def waiting(folder: Path) -> Iterator[None]:
    """Inside the block nobody else makes the classifier of this folder; waits while somebody does."""
    while (lock := take_lock(folder.parent / ".locks" / folder.name)) is None:
        time.sleep(POLL_SECONDS)
    with lock:
        yield


def _run(cell: Cell, site: Site) -> tuple[dict[str, Any], Any]:
    """The record of a cell, and its classifier; None for models of Long Range Arena."""
    settings, pyramid, task = train_settings(cell), pyramid_config(cell), STUDY_TASKS[cell.task]
    classifier = None
    if cell.task in LRA_NAMES:
        settings = dataclasses.replace(settings, eval_batch_size=task.eval_batch_size)
        metrics, facts = run_arena(cell, settings, site.data)
    else:
        classifier, metrics, facts = _run_classifier(cell, site, settings)
        pyramid = classifier.settings
    # A correlation with a constant is undefined: it counts 0.
    finite = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
    return {
        "format": FORMAT,
        "id": cell.id,
        "name": cell.name,
        "status": "done",
        "cell": cell.to_dict(),
        "metric": task.metric,
        "value": finite[task.metric] or 0.0,
        "metrics": finite,
        "title": task.title,
        **facts,
        "training": None if cell.training is None else dataclasses.asdict(settings),
        "pyramid": None if pyramid is None else pyramid.to_dict(),
        **_provenance(cell, site, f"--only {cell.id} --again"),
    }, classifier


def _run_classifier(
    cell: Cell, site: Site, settings: TrainSettings
) -> tuple[PyramidClassifier, dict[str, float], dict[str, Any]]:
    start = time.perf_counter()
    train, dev = tables(cell, site.data)
    made = _given if cell.speedup is None else _elastic if cell.together else _taught
    compared = _text_of(site.dense_folder(cell) / _RECORD) if cell.dense else None  # now: it can be trained again
    classifier, seconds = made(cell, site, settings, train, dev)
    if cell.together:  # it may have been made of an earlier dense model
        compared = _text_of(site.elastic_folder(cell) / _STARTED_FROM)
    metrics = classifier.evaluate(dev.texts, dev.labels, batch_size=STUDY_TASKS[cell.task].eval_batch_size)
    lengths = [len(item) for item in classifier.encode(dev.texts)]
    facts = {
        **counted(cell, classifier.settings, classifier.model.config, lengths),
        "seconds": {"train": seconds, "total": time.perf_counter() - start},
        "rows": {"train": len(train.texts), "dev": len(dev.texts)},
        "data": {"train": table_hash(train), "dev": table_hash(dev)},
    }
    if compared is not None:
        facts["dense"] = json.loads(compared)["metrics"]
    return classifier, metrics, facts


def _given(
    cell: Cell, site: Site, settings: TrainSettings, train: Table, dev: Table
) -> tuple[PyramidClassifier, float]:
    """The dense model or the cell's own pyramid, and the seconds of its training; 0 if the cell asks for none."""
    pyramid = pyramid_config(cell)
    path = site.dense_folder(cell) if cell.start == "dense" else site.model
    changes = {key: getattr(pyramid, key) for key in (*cell.settings, "seed")} if pyramid else {}
    classifier = PyramidClassifier.from_pretrained(
        path, pyramid.schedule if pyramid else "dense", max_length=cell.max_length, **changes
    )
    if cell.training is None:
        return classifier, 0.0
    start = time.perf_counter()
    teacher = PyramidClassifier.load(site.dense_folder(cell)) if cell.distills else None
    target = "number" if STUDY_TASKS[cell.task].classes is None else None
    how: dict[str, Any] = {"target": target, "new_classes": True, "progress": False}  # a cell names its task
    classifier.fit(train.texts, train.labels, settings=settings, teacher=teacher, **how)
    return classifier, time.perf_counter() - start


def _taught(
    cell: Cell, site: Site, settings: TrainSettings, train: Table, dev: Table
) -> tuple[PyramidClassifier, float]:
    """The pyramid for the wanted speed-up on rows as long as those of dev, trained, and the seconds of both."""
    assert cell.speedup is not None
    start, dense = time.perf_counter(), PyramidClassifier.load(site.dense_folder(cell))
    how: dict[str, Any] = {"target": "ideal", "method": method_of(cell), "settings": settings, "progress": False}
    how |= {"like": dev.texts}
    found = train_pyramid(dense, cell.speedup, train.texts, train.labels, **how)
    return found.classifier, time.perf_counter() - start


def _elastic(
    cell: Cell, site: Site, settings: TrainSettings, train: Table, dev: Table
) -> tuple[PyramidClassifier, float]:
    """The elastic model at the wanted speed-up. The first of the cells that share it trains it, and has its seconds."""
    assert cell.speedup is not None
    start, folder = time.perf_counter(), site.elastic_folder(cell)
    with waiting(folder):
        trains = not (folder / "classifier.json").is_file()
        if trains:
            before = _text_of(site.dense_folder(cell) / _RECORD)
            dense, slowest, fastest = (
                PyramidClassifier.load(site.dense_folder(cell)),
                cell.together[0],
                cell.together[-1],
            )
            how: dict[str, Any] = {
                "target": "ideal",
                "method": method_of(cell),
                "settings": settings,
                "progress": False,
                "like": dev.texts,
            }
            made = train_elastic(dense, slowest, fastest, train.texts, train.labels, **how)
            with replacing_folder(folder) as scratch:
                made.save(scratch)
                if before is not None:
                    write_text(scratch / _STARTED_FROM, before)
    classifier = PyramidClassifier.load(folder)
    classifier.speed = cell.speedup
    return classifier, time.perf_counter() - start if trains else 0.0


def run_measurement(
    cell: Cell, site: Site, plan: Mapping[str, int], records: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """The record of a speed measurement: the pretrained model, dense and as the cell's pyramid, on rows of dev.

    `records` has the cells that are done, by key: the pyramid of a wanted speed-up is the one in its cell's record.
    """
    known = settled(cell, records.get(cell.key))
    if known.is_dense:
        raise PyramidError("a dense cell has nothing to measure: it is a side of every measurement")
    if known.schedule is None:
        raise PyramidError(f"{cell.name} is not done, so its pyramid is not known; run it first")
    start = time.perf_counter()
    site.use_threads()
    rows = sample_rows(tables(cell, site.data)[1], plan["rows"], SAMPLE_SEED)
    dense, pyramid, tokenizer = model_pair(site.model, "", known.schedule, dict(known.settings))
    workload = Workload.from_texts(
        tokenizer,
        rows.texts,
        positions=positions_of(dense),
        max_length=cell.max_length,
        source=f"{len(rows.texts)} rows of {cell.task} dev",
    )
    ledger = measure(dense, pyramid, workload, batch_size=plan["batch_size"], rounds=plan["rounds"])
    entries = ledger.entries
    return {
        "format": FORMAT,
        "status": "done",
        "over_a": entries["pyramid"].speedup_over["padded"],
        "over_c": entries["pyramid"].speedup_over["sorted"],
        "dense_over_a": entries["sorted"].speedup_over["padded"],
        "seconds": {"total": time.perf_counter() - start},
        "ledger": {name: value for name, value in ledger.to_dict().items() if name != "machine"},  # it is in the record
        **_provenance(cell, site, f"--measure --only '{cell.id}' --again"),
    }


@lru_cache(maxsize=4)
def _load(task: str, folder: str | None, split: str, rows: int | None) -> Table:
    table = load_task(task, folder, split)
    return table if rows is None else sample_rows(table, rows, SAMPLE_SEED)


def tables(cell: Cell, folder: str | None) -> tuple[Table, Table]:
    """The rows that a cell is trained and evaluated on."""
    return _load(cell.task, folder, "train", cell.rows), _load(cell.task, folder, "dev", cell.dev_rows)


def train_settings(cell: Cell) -> TrainSettings:
    """How a cell is trained; raises when a value is out of range."""
    return TrainSettings(**(cell.training or {}), seed=cell.seed)


def method_of(cell: Cell) -> Method:
    """How a pyramid that is found for a speed-up merges tokens; raises for settings that are not part of that."""
    known = [field.name for field in dataclasses.fields(Method)]
    for name in cell.settings:
        check_choice(f"setting of {cell.method}", name, known)
    return dataclasses.replace(METHOD, **cell.settings)


def pyramid_config(cell: Cell) -> PyramidConfig | None:
    """The pyramid of a cell; None for a dense one. Raises when its settings do not fit together."""
    if cell.schedule is None:
        return None
    settings = PyramidConfig(schedule=cell.schedule, seed=cell.seed, **cell.settings)
    if settings.metric == "sensitivity":
        raise PyramidError(
            "metric='sensitivity' is measured on a classifier that has been trained, which a study does not do; use "
            "'euclidean' or 'cosine', or find_pyramid"
        )
    return settings


def counted(cell: Cell, pyramid: PyramidConfig | None, config: Any, lengths: Sequence[int]) -> dict[str, Any]:
    """Ideal speed-ups on rows of these lengths, by multiply-accumulates, and the space saved at N.

    Over a: against the dense model with every row padded to N. Over c: against the dense model at true lengths.
    """
    layers, n, hidden = config.num_hidden_layers, cell.max_length, config.hidden_size
    ours = dense = 0
    for length, rows in Counter(lengths).items():
        if pyramid is None:
            cost = Cost.of((length,) * layers, length, hidden, config.intermediate_size)
        else:
            cost = pyramid.cost(pyramid.schedule.lengths(length, layers), length, sizes_of(config))
        ours += rows * cost.macs
        dense += rows * cost.dense_macs
    padded = len(lengths) * Cost.of((n,) * layers, n, hidden, config.intermediate_size).macs
    at_n: Sequence[int] = (n,) * layers
    placement: Placement = "middle"
    if pyramid is not None and pyramid.reduce != "replace":  # "replace" keeps every token
        at_n, placement = pyramid.schedule.lengths(n, layers), pyramid.placement or "middle"
    return {
        "ideal": {"over_a": padded / ours, "over_c": dense / ours},
        "space": {
            "printed": space_reduction(at_n, n, hidden, reading="printed"),
            "attention_input": space_reduction(at_n, n, hidden, placement=placement),
        },
        "mean_length": sum(lengths) / len(lengths),
    }


def _provenance(cell: Cell, site: Site, selection: str) -> dict[str, Any]:
    """What a record was made with, where and when, and the command that makes it again."""
    options = [selection]
    options += [] if site.model in (cell.model, "") else ["--model DIR"]
    options += [] if site.data is None else ["--data DIR"]
    options += [f"--threads {site.threads}"] if site.threads else []
    return {
        "weights": site.weights,
        "machine": {**describe_machine(), "python": platform.python_version()},
        "commit": site.commit,
        "command": " ".join(["pyramid-bert study run", site.file, *options]),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def code_commit() -> str | None:
    """The commit of this library if it runs from a repository, with "+changes" when its files differ from it."""
    package = Path(__file__).parents[2]

    def git(*words: str) -> str:
        command = ["git", "-C", str(package), *words]
        try:
            return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
        except (OSError, subprocess.SubprocessError):
            return ""

    if not git("ls-files", "__init__.py"):  # not in a repository, or installed inside somebody else's
        return None
    return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain", "--", ".") else "")


def _kept_record(cell: Cell, site: Site) -> dict[str, Any] | None:
    """The record beside the dense classifier of a cell; None unless it has the same weights and rows."""
    file = site.dense_folder(cell) / _RECORD
    record = json.loads(file.read_text(encoding="utf-8")) if site.has_dense(cell) and file.is_file() else {}
    same = {"format": FORMAT, "id": cell.id, "weights": site.weights, "data": site.rows[cell.task]}
    return record if same == {name: record.get(name) for name in same} else None


def _text_of(file: Path) -> str | None:
    """What a file holds, or None when it is not there."""
    return file.read_text(encoding="utf-8") if file.is_file() else None


def _keep(classifier: PyramidClassifier, record: dict[str, Any], folder: Path) -> None:
    """Saves a dense classifier with its record, all or nothing, and removes what a killed run left of it."""
    for left in folder.parent.glob(f".*{folder.name}.*"):
        shutil.rmtree(left, ignore_errors=True)
    with replacing_folder(folder) as scratch:
        classifier.save(scratch)
        write_text(scratch / _RECORD, json.dumps(record, ensure_ascii=False, indent=1, allow_nan=False) + "\n")
