"""One model for a range of speeds: pyramids that are trained together, and the best of them for each speed.

Which pyramid of a speed is best is not known before training, so all that are worth it take part in the training; those
nearest to the dense model on texts that were held out become the front of the model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from ..boundary import translating
from ..checks import check_choice
from ..classifier import PyramidClassifier
from ..config import PyramidConfig
from ..errors import CheckpointError, PyramidError
from ..families import pyramidize
from ..files import write_text
from ..front import Front, Point
from ..progress import Bar
from ..resuming import START_OVER, check_same_run, run_text
from ..schedule.base import Schedule
from ..text.batches import Encoded
from ..text.metrics import metrics_of
from ..training import Levels, TrainSettings
from .candidates import Method
from .judge import agreement, divergences, outputs_for
from .rehearsal import check_rows, held_out_rows
from .search import TARGETS, check_dense
from .solver import SpeedupOf, check_speedup
from .speed import Counted
from .taught import METHOD, as_taught, as_used, identity, pyramid_of, speeds, to_train

RECORD, _LEVELS = "levels.json", "levels"
_STEP = 1.2  # from one speed of a front to the next


def train_elastic(
    dense: PyramidClassifier,
    slowest: float,
    fastest: float,
    texts: Sequence[Any],
    labels: Sequence[Any] | None = None,
    *,
    dev: tuple[Sequence[Any], Sequence[Any]] | None = None,
    like: Sequence[Any] | None = None,
    target: str = "time",
    method: Method = METHOD,
    settings: TrainSettings | None = None,
    speedup_of: SpeedupOf | None = None,
    output_dir: str | Path | None = None,
    log_dir: str | Path | None = None,
    progress: bool = True,
) -> PyramidClassifier:
    """A classifier whose speed can be chosen while it runs: it has a `front`, and starts at the slowest speed.

    Args:
        dense: A trained dense classifier or regressor, which is the teacher; it is not changed.
        slowest: The least speed-up over the dense model that can be chosen, besides none.
        fastest: The largest.
        texts: At least 200 texts to learn from, or what `encode` returned. Some are held out to choose pyramids by.
        labels: One per text; without them all is learned from the dense model.
        dev: Texts and labels to evaluate on after each epoch, and at every speed in the end.
        like: Texts as long as those that the model will be used on: speed-ups are those on them. By default those of
            `dev`, or else `texts`.
        target: What speed-ups are of: "time" on this machine, or the "ideal" count of multiply-accumulates.
        method: How tokens are merged; if it names a layer from which tokens rest, only that one is used.
        settings: How to train; by default `as_taught(TrainSettings())`.
        speedup_of: What tells the speed-up of settings, if `speeds` has been called before.
        output_dir: Where checkpoints and a log are written; a stopped run with the same arguments resumes there.
        log_dir: Where event files for TensorBoard are written.
        progress: Show progress bars.

    Example:
        elastic = train_elastic(dense, 1.5, 4, texts, labels)
        elastic.speed = 3
    """
    check_choice("target", target, TARGETS)
    check_dense(dense)
    settings = as_taught(TrainSettings()) if settings is None else settings
    items = dense.encode(texts)
    check_rows(len(items))
    timed = as_used(dense, items, dev, like)
    how_fast: dict[str, Any] = {"target": target, "method": method, "settings": settings, "speedup_of": speedup_of}
    levels = _levels(dense, items, timed, (slowest, fastest), **how_fast, output_dir=output_dir, progress=progress)
    judged_on, learned = held_out_rows(len(items), settings.seed)
    labels = None if labels is None else [labels[i] for i in learned]
    made = pyramid_of(dense, _everything(levels[0][0]))  # on dev, the full model is evaluated
    how: dict[str, Any] = {"output_dir": output_dir, "log_dir": log_dir, "progress": progress, "dev": dev}
    made.fit([items[i] for i in learned], labels, settings=settings, teacher=dense, levels=levels, **how)
    with Bar(shown=progress) as bar:
        judged, wanted = [items[i] for i in judged_on], speeds_between(slowest, fastest)
        made.front = _front(dense, made, wanted, levels, judged, timed, dev, settings.eval_batch_size, bar)
    made.speed = slowest
    return made


def speeds_between(slowest: float, fastest: float) -> list[float]:
    """The speeds of a front, from the slowest to the fastest.

    Example:
        >>> [round(speed, 2) for speed in speeds_between(1.5, 4)]
        [1.5, 1.77, 2.08, 2.45, 2.88, 3.4, 4.0]
    """
    for name, speed in (("the slowest speed-up", slowest), ("the fastest speed-up", fastest)):
        check_speedup(speed, name)
    if not 1 < slowest < fastest:
        raise PyramidError(f"a range of speed-ups goes from one above 1 to a larger one, got {slowest:g}-{fastest:g}")
    steps = math.ceil(math.log(fastest / slowest) / math.log(_STEP) - 1e-9)
    return [*(slowest * (fastest / slowest) ** (step / steps) for step in range(steps)), float(fastest)]


def levels_of(
    dense: PyramidClassifier,
    items: Sequence[Encoded],
    timed: Sequence[Encoded],
    method: Method,
    speedup_of: SpeedupOf,
    wanted: Sequence[float],
) -> Levels:
    """For each wanted speed the pyramids that are worth training; raises if one is out of reach. See `to_train`."""
    return [to_train(dense, items, timed, method, speedup_of, speed) for speed in wanted]


def _levels(
    dense: PyramidClassifier,
    items: Sequence[Encoded],
    timed: Sequence[Encoded],
    ends: tuple[float, float],
    *,
    target: str,
    method: Method,
    settings: TrainSettings,
    speedup_of: SpeedupOf | None,
    output_dir: str | Path | None,
    progress: bool,
) -> Levels:
    """The pyramids of a stopped run with the same arguments, or new ones, which are written down."""
    wanted = speeds_between(*ends)
    record = None if output_dir is None else Path(output_dir) / RECORD
    run = {} if record is None else identity(dense, items, timed, list(ends), target, method, settings)
    if record is not None and record.is_file():
        before = check_same_run(record, run, CheckpointError, found=[_LEVELS])
        with translating(CheckpointError, f"{record} is damaged", START_OVER):
            return [[PyramidConfig.from_dict(one) for one in level] for level in before[_LEVELS]]
    speedup_of = speedup_of or speeds(dense, timed, target, settings.eval_batch_size, progress=progress)
    levels = levels_of(dense, items, timed, method, speedup_of, wanted)
    if record is not None:
        write_text(record, run_text({**run, _LEVELS: [[one.to_dict() for one in level] for level in levels]}))
    return levels


def _front(
    dense: PyramidClassifier,
    made: PyramidClassifier,
    wanted: Sequence[float],
    levels: Levels,
    items: Sequence[Encoded],
    timed: Sequence[Encoded],
    dev: tuple[Sequence[Any], Sequence[Any]] | None,
    batch_size: int,
    bar: Bar,
) -> Front:
    """For each speed the pyramid that is nearest to the dense model, and the full model as the slowest."""
    pad_id = dense.tokenizer.pad_token_id
    every = [(1.0, [_everything(levels[0][0])]), *zip(wanted, levels, strict=True)]
    task = bar.add_task("choosing the front", total=sum(len(level) for _, level in every))
    dev_items = [] if dev is None else dense.encode(dev[0])
    target = outputs_for(dense.model, items, pad_id, batch_size)
    counted = Counted(dense.model, [len(item) for item in timed])

    def run(settings: PyramidConfig, items: Sequence[Encoded]) -> Tensor:
        return outputs_for(pyramidize(made.model, config=settings), items, pad_id, batch_size)

    points = list[Point]()
    nearest, best, agreed = math.inf, every[-1][1][0], 0.0  # as they stay if training diverged
    for speed, level in reversed(every):  # one that is nearer to dense than every slower one stands for those too
        before = best
        for settings in level:
            outputs = run(settings, items)
            distance = float(divergences(target, outputs).mean())
            if distance < nearest or speed == 1:
                nearest, best, agreed = distance, settings, _or_0(agreement(target, outputs))
            bar.advance(task)
        if points and best == before:
            continue
        metrics = {} if dev is None else metrics_of(dense.known_labels(), dev[1], run(best, dev_items).numpy())
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        points.insert(0, Point(speed, counted(best), agreed, best, finite))
    return Front(tuple(points))


def _everything(settings: PyramidConfig) -> PyramidConfig:
    """The same selection with nothing to select: every token stays."""
    return settings.replace(schedule=Schedule.constant(1.0), rest_from=None, skip=())


def _or_0(value: float) -> float:
    """0 for a correlation with a constant, which is not a number."""
    return value if math.isfinite(value) else 0.0
