"""A pyramid for a wanted speed-up that is trained with the dense model as its teacher.

Tokens are merged up to some layer, and from then on only CLS is computed. From which layer is found by short trainings.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..boundary import translating
from ..checks import check_choice
from ..classifier import PyramidClassifier
from ..config import PyramidConfig
from ..errors import CheckpointError
from ..families import pyramidize
from ..files import write_text
from ..progress import Bar
from ..resuming import START_OVER, check_same_run, run_text
from ..text.batches import Encoded
from ..text.inference import Outputs, outputs_of
from ..training import TrainSettings, weights_digest
from .candidates import Method
from .held_out import HeldOut, compare
from .rehearsal import Rehearsal, Rehearsals, check_rows
from .search import TARGETS, check_dense
from .solver import SpeedupOf, at_speedup, check_speedup, extreme_schedule
from .speed import (
    Counted,
    Predicted,
    measured_speedup,
    out_of_reach,
    rows_to_time,
    runs_of_calibration,
    settle,
)

METHOD = Method("cluster", metric="cosine", within=5)
# What training with a teacher changes in the settings of a run, unless the user sets it.
TAUGHT: dict[str, Any] = {"dropout": 0.0, "distill_weight": 0.9}
TAUGHT_RATE = 2  # times the learning rate of the dense model
_WHOLE, _FEWER_LAYERS = 4, 2  # candidates that run every layer, and that leave one out
RECORD, _CHOICE = "choice.json", "choice"
_ROUNDS, _TRIES = 2, 3


@dataclass(frozen=True, eq=False)
class Choice:
    """The pyramid that is to be trained.

    Attributes:
        settings: Its settings.
        wanted: The speed-up asked for.
        target: What the speed-up is of: "time" on this machine, or "ideal".
        ideal: Its ideal speed-up: multiply-accumulates over true lengths.
        measured: Its measured speed-up over dense, length-sorted batches; None for an ideal one.
        rehearsals: What was tried, the best first.
    """

    settings: PyramidConfig
    wanted: float
    target: str
    ideal: float
    measured: float | None
    rehearsals: tuple[Rehearsal, ...]

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dict from which `from_dict` makes an equal choice."""
        numbers = {name: getattr(self, name) for name in ("wanted", "target", "ideal", "measured")}
        return {**numbers, "settings": self.settings.to_dict(), "tried": [one.to_dict() for one in self.rehearsals]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Choice:
        """The choice that `to_dict` described."""
        tried = (Rehearsal(PyramidConfig.from_dict(o["settings"]), o["steps"], o["divergence"]) for o in data["tried"])
        numbers = {name: data[name] for name in ("wanted", "target", "ideal", "measured")}
        return cls(settings=PyramidConfig.from_dict(data["settings"]), rehearsals=tuple(tried), **numbers)


@dataclass(frozen=True, eq=False)
class Taught:
    """A pyramid that was trained with a dense teacher.

    Attributes:
        classifier: The pyramid.
        choice: How it was chosen.
        compared: Both on the dev rows; None without any.
    """

    classifier: PyramidClassifier
    choice: Choice
    compared: HeldOut | None


def train_pyramid(
    dense: PyramidClassifier,
    speedup: float,
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
) -> Taught:
    """Finds the pyramid of a wanted speed-up that will be best after training, and trains it from the dense weights.

    Args:
        dense: A trained dense classifier or regressor, which is the teacher; it is not changed.
        speedup: The wanted speed-up over the dense model on length-sorted batches.
        texts: At least 200 texts to learn from, or what `encode` returned.
        labels: One per text; without them all is learned from the dense model.
        dev: Texts and labels to evaluate on after each epoch, and to compare both models on in the end.
        like: Texts as long as those of later use, for the speed-up; by default those of `dev`, or else `texts`.
        target: What the speed-up is of: "time" on this machine, or the "ideal" count of multiply-accumulates.
        method: How tokens are merged; if it names a layer from which tokens rest, only that one is tried.
        settings: How to train; by default `as_taught(TrainSettings())`.
        speedup_of: What tells the speed-up of settings, if `speeds` has been called before.
        output_dir: Where the choice, checkpoints and a log are written; a stopped run with the same arguments resumes.
        log_dir: Where event files for TensorBoard are written.
        progress: Show progress bars.

    Example:
        dense = PyramidClassifier.load("my-dense-model")
        fast = train_pyramid(dense, 2.5, texts, labels).classifier
    """
    check_speedup(speedup)
    check_choice("target", target, TARGETS)
    check_dense(dense)
    settings = as_taught(TrainSettings()) if settings is None else settings
    items = dense.encode(texts)
    timed = as_used(dense, items, dev, like)
    record = None if output_dir is None else Path(output_dir) / RECORD
    run = {} if record is None else identity(dense, items, timed, speedup, target, method, settings)
    outputs: Outputs | None = None
    choice = None if record is None else _recorded(record, run)
    if choice is None:
        speedup_of = speedup_of or speeds(dense, timed, target, settings.eval_batch_size, progress=progress)
        worth_it = to_train(dense, items, timed, method, speedup_of, speedup)
        outputs = ask(dense, items, settings, progress=progress)
        how: dict[str, Any] = {"speedup_of": speedup_of, "speedup": speedup, "target": target, "settings": settings}
        choice = _choose(dense, items, timed, worth_it, outputs, **how, progress=progress)
        if record is not None:
            write_text(record, run_text({**run, _CHOICE: choice.to_dict()}))
    made = pyramid_of(dense, choice.settings)
    kept: dict[str, Any] = {"output_dir": output_dir, "log_dir": log_dir, "progress": progress, "dev": dev}
    made.fit(items, labels, settings=settings, teacher=dense, teacher_outputs=outputs, **kept)
    return Taught(made, choice, None if dev is None else _compared(dense, made, dev, settings.eval_batch_size))


def as_taught(settings: TrainSettings, given: Collection[str] = ()) -> TrainSettings:
    """How a pyramid learns from a dense model that these settings train: faster, without dropout, from its teacher.

    Settings that are `given` stay.

    Example:
        >>> as_taught(TrainSettings(learning_rate=3e-5)).learning_rate
        6e-05
    """
    usual = {**TAUGHT, "learning_rate": min(TAUGHT_RATE * settings.learning_rate, 1.0)}
    return replace(settings, **{name: value for name, value in usual.items() if name not in given})


def as_used(
    dense: PyramidClassifier,
    items: Sequence[Encoded],
    dev: tuple[Sequence[Any], Sequence[Any]] | None,
    like: Sequence[Any] | None,
) -> Sequence[Encoded]:
    """The texts whose lengths count for a speed-up: those given as typical, those of dev, or the training texts."""
    given = like if like is not None else None if dev is None else dev[0]
    return items if given is None else dense.encode(given)


def _recorded(record: Path, run: Mapping[str, Any]) -> Choice | None:
    """The pyramid that a stopped run had chosen; raises if that was another run."""
    if not record.is_file():
        return None
    before = check_same_run(record, run, CheckpointError, found=[_CHOICE])
    with translating(CheckpointError, f"{record} is damaged", START_OVER):
        return Choice.from_dict(before[_CHOICE])


def pyramid_of(dense: PyramidClassifier, settings: PyramidConfig) -> PyramidClassifier:
    """A copy of the dense classifier as a pyramid."""
    return dense.with_model(pyramidize(copy.deepcopy(dense.model), config=settings))


def _choose(
    dense: PyramidClassifier,
    items: Sequence[Encoded],
    timed: Sequence[Encoded],
    candidates: Sequence[PyramidConfig],
    outputs: Outputs,
    *,
    speedup_of: SpeedupOf,
    speedup: float,
    target: str,
    settings: TrainSettings,
    progress: bool,
) -> Choice:
    """The candidate that is best after a short training, at the wanted speed."""
    best, tried, measured = candidates[0], list[Rehearsal](), None
    if len(candidates) > 1:
        with Bar(shown=progress) as bar:
            tried = Rehearsals(dense, items, outputs, settings, bar)(candidates, speedup, settings.epochs)
        best = tried[0].settings
    if target == "time":
        measured, best = _settled(dense, best, speedup, speedup_of, timed, settings.eval_batch_size)
    ideal = Counted(dense.model, [len(item) for item in timed])(best)
    return Choice(best, speedup, target, ideal, measured, tuple(tried))


def identity(
    dense: PyramidClassifier,
    items: Sequence[Encoded],
    timed: Sequence[Encoded],
    speedup: float | list[float],
    target: str,
    method: Method,
    settings: TrainSettings,
) -> dict[str, Any]:
    """What a stopped run must have in common with this one for its choice to count."""
    return {
        "speedup": speedup,
        "target": target,
        "selection": asdict(method),
        **asdict(settings),
        "dense model": weights_digest(dense.model),
        "training data": hashlib.blake2b(repr(items).encode(), digest_size=16).hexdigest(),
        "lengths of texts": hashlib.blake2b(repr([len(item) for item in timed]).encode(), digest_size=16).hexdigest(),
    }


def _compared(dense: PyramidClassifier, pyramid: PyramidClassifier, dev: Any, batch_size: int) -> HeldOut:
    items, labels = dense.encode(dev[0]), dev[1]
    how: dict[str, Any] = {"pad_id": dense.tokenizer.pad_token_id, "batch_size": batch_size}
    known = dense.known_labels()
    return compare(dense.model, pyramid.model, items, known, labels, least=len(items), in_time=lambda: True, **how)


def ask(dense: PyramidClassifier, items: Sequence[Encoded], settings: TrainSettings, *, progress: bool) -> Outputs:
    """What the dense model gives for the texts."""
    return outputs_of(
        dense.model,
        items,
        dense.tokenizer.pad_token_id,
        batch_size=settings.eval_batch_size,
        cls=settings.hidden_weight > 0,
        title="asking the dense model" if progress else None,
        bf16=settings.bf16,
    )


def speeds(
    classifier: PyramidClassifier, items: Sequence[Encoded], target: str, batch_size: int, *, progress: bool = False
) -> SpeedupOf:
    """What tells the speed-up of settings on these texts: by counting, or by timing the parts of the model."""
    lengths = [len(item) for item in items]
    if target == "ideal":
        return Counted(classifier.model, lengths)
    with Bar(shown=progress) as bar:
        task = bar.add_task("timing this machine", total=runs_of_calibration(max(lengths)))
        predicted = Predicted(classifier.model, lengths, batch_size, lambda: bar.advance(task))
        predicted(METHOD.settings(extreme_schedule()))
    return predicted


def to_train(
    classifier: PyramidClassifier,
    items: Sequence[Encoded],
    timed: Sequence[Encoded],
    method: Method,
    speedup_of: SpeedupOf,
    wanted: float,
) -> list[PyramidConfig]:
    """The pyramids of a speed-up that are worth training; raises if there are none, or too few texts to compare them.

    The weights of the classifier do not matter.

    Args:
        classifier: The dense model, or one of its sizes.
        items: The texts to learn from.
        timed: The texts that the speed-up is on.
        method: How tokens are merged.
        speedup_of: What tells the speed-up of settings.
        wanted: The speed-up.
    """
    layers = classifier.model.config.num_hidden_layers
    found = candidates(method, layers, speedup_of, wanted)
    if not found:
        fastest = speedup_of(replace(method, rest_from=method.rest_from or 2).settings(extreme_schedule()))
        counts = isinstance(speedup_of, Counted)
        raise out_of_reach(wanted, [len(item) for item in timed], len(timed), fastest, timed=not counts)
    if len(found) > 1:
        check_rows(len(items))
    return found


def candidates(method: Method, layers: int, speedup_of: SpeedupOf, wanted: float) -> list[PyramidConfig]:
    """Pyramids of a speed-up that are worth training, by the layer from which only CLS is computed.

    The later that layer, the more tokens are merged before it. The first candidate rests at the latest layer at which
    nothing has to be merged. Some leave out a layer in the middle of those below, and merge less for it. A method that
    names the layer has one candidate.

    Example:
        >>> def count(settings):
        ...     awake = settings.run_lengths(settings.schedule.lengths(100, 4)[: (settings.rest_from or 4) - 1])
        ...     return 4 / sum(length / 100 for length in awake)
        >>> found = candidates(METHOD, 4, count, 2.0)
        >>> [(one.rest_from, one.skip, round(one.schedule.keep_ratio, 2)) for one in found]
        [(3, (), 1.0), (4, (), 0.53), (4, (2,), 1.0)]
    """
    if method.rest_from:
        one = _resting(method, method.rest_from, (), speedup_of, wanted)
        return [] if one is None else [one]
    found: list[tuple[int, PyramidConfig]] = []
    for rest in range(2, layers + 1):
        one = _resting(method, rest, (), speedup_of, wanted)
        if one is not None:
            found = [(rest, one)] if one.schedule.to_dict()["keep_ratio"] == 1 else [*found, (rest, one)]
    fewer = [
        _resting(method, rest, (rest // 2,), speedup_of, wanted)
        for rest, _ in found[1 : 1 + _FEWER_LAYERS]
        if rest > 3  # the first layer stays
    ]
    return [*(one for _, one in found[:_WHOLE]), *(one for one in fewer if one is not None)]


def _resting(
    method: Method, rest: int, skip: tuple[int, ...], speedup_of: SpeedupOf, wanted: float
) -> PyramidConfig | None:
    """The pyramid of a speed-up that computes only CLS from layer `rest` on; None if none is as fast."""
    start = replace(method, rest_from=rest).settings(extreme_schedule()).replace(skip=skip)
    return at_speedup(start, 1, rest - 1, speedup_of, wanted)


def _settled(
    dense: PyramidClassifier,
    settings: PyramidConfig,
    speedup: float,
    speedup_of: SpeedupOf,
    items: Sequence[Encoded],
    batch_size: int,
) -> tuple[float, PyramidConfig]:
    """The measured speed-up, and the settings with the keep ratio that gives the wanted one."""
    pyramid, some = copy.deepcopy(dense.model), rows_to_time(items, batch_size, dense.tokenizer.pad_token_id)

    def measure(settings: PyramidConfig) -> float:
        pyramidize(pyramid, config=settings)
        return measured_speedup(dense.model, pyramid, some, batch_size, rounds=_ROUNDS)

    return settle(settings, speedup, speedup_of, measure, _TRIES)[0]
