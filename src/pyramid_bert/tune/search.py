"""find_pyramid: from a dense classifier and some rows to a pyramid with the same weights, and how both compare.

Candidates of the wanted speed-up are judged by successive halving. From the best one the search walks to neighbours
that are nearer to the dense model. For an ideal speed-up it then does the same with lengths that follow the text.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from numbers import Real
from typing import Any

from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from ..bench.ideal import ideal_speedup, kept_lengths
from ..checks import check_choice
from ..classifier import PyramidClassifier
from ..config import PyramidConfig
from ..errors import DataError, OutOfReachError, PyramidError
from ..families import family_of, is_pyramid, pyramidize
from ..text.labels import Labels
from ..text.metrics import CLASSIFICATION, REGRESSION, metrics_of
from ..text.sampling import shuffled
from ..text.tables import Text
from ..training.sensitivity import batches_to_measure, measure_sensitivity
from .candidates import METHODS, Method, fastest, following, grid
from .judge import Judge, Trial, agreement, divergences, winner
from .schedules import MIN_ITEMS, solve_adaptive
from .solver import SpeedupOf, at_speedup, check_speedup, extreme_schedule
from .speed import (
    Counted,
    Predicted,
    measured_speedup,
    out_of_reach,
    rows_to_time,
    runs_of_calibration,
    settle,
    timed_as,
)
from .strategy import Deadline, halve, walk

MINIMUM_ROWS = 50
TARGETS = ("time", "ideal")
_SHARE_FOR_FIXED = 1.5  # of the time, where lengths may follow the text as well: one part in 1.5
_SAMPLE = 512  # rows on which a radius is solved
_TRIES, _FAR_OFF, _SETTLINGS = 3, 0.15, 2


@dataclass(frozen=True, eq=False)
class Search:
    """The pyramid that was found, and how it compares with the dense model on rows whose answers the search never saw.

    Attributes:
        classifier: The pyramid, with the dense model's weights.
        settings: Its settings.
        wanted: The speed-up asked for.
        target: What the speed-up is of: "time" on this machine, or "ideal", multiply-accumulates over true lengths.
        ideal: Its ideal speed-up over the true lengths of all rows.
        measured: Its measured speed-up over dense, length-sorted batches of the held-out rows, in one interleaved run.
        dense_metrics: The dense model's metrics on the held-out rows; None without labels.
        metrics: The pyramid's.
        agreement: The share of held-out rows to which both give the same label; for numbers their correlation.
        divergence: How far its outputs are from the dense ones there; see `judge.divergences`.
        search_rows: How many rows the search was made on.
        held_out_rows: How many were held out.
        trials: Everything that was tried: the winner first, then by rows and divergence.
        in_time: Whether there was time for every candidate; if not, some were dropped.
        seconds: How long it took.
    """

    classifier: PyramidClassifier
    settings: PyramidConfig
    wanted: float
    target: str
    ideal: float
    measured: float
    dense_metrics: dict[str, float] | None
    metrics: dict[str, float] | None
    agreement: float
    divergence: float
    search_rows: int
    held_out_rows: int
    trials: tuple[Trial, ...]
    in_time: bool
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dict, without the classifier itself."""
        data = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "classifier"}
        return {**data, "settings": self.settings.to_dict(), "trials": [trial.to_dict() for trial in self.trials]}


def find_pyramid(
    classifier: PyramidClassifier,
    speedup: float,
    texts: Sequence[Text],
    labels: Sequence[Any] | None = None,
    *,
    target: str = "time",
    metric: str | None = None,
    minutes: float = 10.0,
    held_out: float = 0.5,
    batch_size: int = 32,
    methods: Sequence[Method] = METHODS,
    progress: bool = False,
) -> Search:
    """The best pyramid of the wanted speed-up that has the weights of a dense classifier: no training.

    A fixed share of the texts is held out for the comparison; the others are searched on. With target="ideal" the same
    call gives the same pyramid again, unless its time is up.

    Args:
        classifier: A trained dense classifier or regressor; it is not changed.
        speedup: The wanted speed-up over the dense model on length-sorted batches.
        texts: At least 50 texts like those that it will be used on.
        labels: One a text. Without them the pyramid that stays nearest to the dense outputs is taken.
        target: What the speed-up is of: "time" on this machine, or the "ideal" count of multiply-accumulates.
        metric: The metric that decides among the last candidates; accuracy or spearman if None.
        minutes: How long to search. Measuring sensitivity, timing the machine and the comparison come on top.
        held_out: The share of the texts for the comparison; a larger one makes it more certain.
        batch_size: Texts a batch.
        methods: What to try.
        progress: Show a bar on stderr.
    """
    check_speedup(speedup)
    check_choice("target", target, TARGETS)
    _check_model(classifier)
    if len(texts) < MINIMUM_ROWS:
        raise DataError(
            f"a search needs at least {MINIMUM_ROWS} texts, some of them to compare on, got {len(texts)}; "
            "a few hundred make the comparison mean something"
        )
    if labels is not None:
        classifier.known_labels().targets(labels, texts=len(texts))
        metric = metric_for(classifier.known_labels(), metric)
    elif metric is not None:
        raise DataError(
            f"the metric {metric!r} needs labels; give them, or leave the metric out to compare by agreement"
        )
    if minutes <= 0 or batch_size < 1 or not methods:
        raise PyramidError(
            f"minutes must be above 0, batch_size at least 1 and methods not empty, got {minutes}, {batch_size} and "
            f"{len(methods)} methods"
        )
    check_held_out(held_out, len(texts))
    family_of(classifier.model).settings(methods[0].settings(extreme_schedule()), classifier.model.config)
    with Progress(console=Console(stderr=True), transient=True, disable=not progress) as bar:
        finder = _Finder(classifier, texts, labels, held_out, tuple(methods), batch_size, bar)
        return finder.find(speedup, target, metric, minutes)


def _check_model(classifier: PyramidClassifier) -> None:
    """Raises unless this is a trained dense classifier that can become a pyramid."""
    classifier.known_labels()
    if is_pyramid(classifier.model):
        raise PyramidError(
            "this model is a pyramid already; give the dense classifier that it was made from, or its "
            'weights without the pyramid: PyramidClassifier.from_pretrained(path, "dense")'
        )
    if classifier.model.config.num_hidden_layers < 2:
        raise PyramidError(
            "a search needs a model of at least 2 layers, got 1: the last layer of any pyramid computes only CLS, so "
            "tokens that it drops save nothing more; pyramidize(model, Schedule.constant(1.0)) saves all there is"
        )


def metric_for(known: Labels, metric: str | None) -> str:
    """The metric by which last candidates are compared; raises unless the one that is named suits the labels."""
    names = [name for name in (REGRESSION if known.classes is None else CLASSIFICATION) if name != "rmse"]
    if metric is not None:
        check_choice("metric", metric, names)
    return metric or names[0]


def check_held_out(held_out: float, texts: int) -> None:
    """Raises unless a share of the texts, and what is left of them, are enough to compare and to search on."""
    if isinstance(held_out, bool) or not isinstance(held_out, Real) or not 0 < held_out < 1:
        raise PyramidError(f"the share held out must be a number between 0 and 1, got {held_out!r}; 0.5 is half")
    least, rows = MINIMUM_ROWS // 2, _whole_rows(held_out, texts)
    if not least <= rows <= texts - least:
        raise PyramidError(
            f"the share held out must be {least} to {texts - least} of {texts} texts, so that {least} at least are "
            f"searched on and compared on, got {held_out:g}, which is {rows}; 0.5 is always enough"
        )


def _whole_rows(share: float, rows: int) -> int:
    """A share of the rows in whole rows.

    Example:
        >>> _whole_rows(0.5, 59), _whole_rows(0.29, 100)
        (29, 29)
    """
    return int(share * rows + 1e-9)  # 0.29 * 100 is 28.999...


class _Finder:
    """One search, step by step. Rows are in a fixed mixed order: those to search on, then those held out."""

    def __init__(
        self,
        classifier: PyramidClassifier,
        texts: Sequence[Text],
        labels: Sequence[Any] | None,
        held_out: float,
        methods: tuple[Method, ...],
        batch_size: int,
        bar: Progress,
    ) -> None:
        self._start, self._bar = time.monotonic(), bar
        self._dense, self._methods = classifier, methods
        order, items = shuffled(len(texts), 0), classifier.encode(texts)
        self._items = [items[i] for i in order]
        self._lengths = [len(item) for item in self._items]
        self._labels = None if labels is None else [labels[i] for i in order]
        self._rows = len(order) - _whole_rows(held_out, len(order))  # to search on
        self._batch_size, self._pad_id = min(batch_size, len(order)), classifier.tokenizer.pad_token_id
        self._layers: int = classifier.model.config.num_hidden_layers

    def find(self, speedup: float, target: str, metric: str | None, minutes: float) -> Search:
        """The search from beginning to end."""
        counted, ideal = Counted(self._dense.model, self._lengths), target == "ideal"
        if (most := fastest(self._methods, self._layers, counted)) < speedup:
            raise out_of_reach(speedup, self._lengths, self._batch_size, most)
        self._model = copy.deepcopy(self._dense.model)
        if any(method.metric == "sensitivity" for method in self._methods):
            step = self._stage("what answers depend on", batches_to_measure(self._rows))
            measure_sensitivity(self._model, self._items[: self._rows], self._pad_id, after_each=step)
        self._pyramid = copy.deepcopy(self._model)
        speedup_of = counted if ideal else self._timed_machine()
        candidates = grid(self._methods, self._layers, speedup_of, speedup)
        if not candidates:
            most = fastest(self._methods, self._layers, speedup_of)
            raise out_of_reach(speedup, self._lengths, self._batch_size, most)
        self._stage("running the dense model")
        judge = self._make_judge(metric)
        deadline = Deadline(60 * minutes)
        best = self._search(judge, candidates, speedup_of, speedup, deadline, may_follow=ideal)
        if ideal:
            measured, settings = self._measured(best.settings, held_out=True), best.settings
        else:
            measured, settings = self._settled(best.settings, speedup_of, speedup)
        pyramidize(self._pyramid, config=settings)
        self._stage("running the pyramid")
        others = sorted(judge.trials.values(), key=lambda trial: (-trial.rows, trial.divergence))
        labels, length = self._dense.labels, self._dense.max_length
        return Search(
            classifier=PyramidClassifier(self._pyramid, self._dense.tokenizer, labels=labels, max_length=length),
            settings=settings,
            wanted=speedup,
            target=target,
            ideal=self._ideal() if settings.schedule.is_adaptive else counted(settings),
            measured=measured,
            **self._compared(judge),
            search_rows=self._rows,
            held_out_rows=len(self._items) - self._rows,
            trials=(best, *(trial for trial in others if trial.settings != best.settings)),
            in_time=not deadline.was_short,
            seconds=time.monotonic() - self._start,
        )

    def _search(
        self,
        judge: Judge,
        candidates: Sequence[PyramidConfig],
        speedup_of: SpeedupOf,
        speedup: float,
        deadline: Deadline,
        *,
        may_follow: bool,
    ) -> Trial:
        """The best of the candidates, of their neighbours and, if allowed, of lengths that follow the text."""
        follows = may_follow and self._rows >= MIN_ITEMS and any(method.may_follow for method in self._methods)
        fixed = deadline.part(_SHARE_FOR_FIXED) if follows else deadline

        def solve(candidate: PyramidConfig, _: float | None) -> PyramidConfig | None:
            ends = candidate.schedule.to_dict()
            return at_speedup(candidate, ends["first_layer"], ends["last_layer"], speedup_of, speedup)

        step = self._stage(f"{len(candidates)} candidates")
        trials = halve(judge, candidates, self._rows, fixed, step)
        best = winner(trials)
        here = partial(walk, judge, layers=self._layers, rows=best.rows)
        step = self._stage("neighbours of the best")
        trials += here(best.settings, best, solve, deadline=fixed, step=step)
        best = winner(trials)
        if follows and Method.of(best.settings).may_follow:
            start, step = following(best.settings, self._layers), self._stage("lengths that follow the text")
            trials += here(start, None, partial(self._solve_radius, speedup), deadline=deadline, step=step)
        return winner(trials)

    def _solve_radius(self, speedup: float, candidate: PyramidConfig, near: float | None) -> PyramidConfig | None:
        """The settings of a candidate whose lengths follow the text. In batches these save less than they count."""
        shape = candidate.schedule.to_dict()
        how = {name: shape[name] for name in ("first_layer", "last_layer", "relative", "steps", "min_tokens")}
        how |= {"growth": shape.get("growth", 1.0), "pad_id": self._pad_id, "batch_size": self._batch_size}
        items, settings = self._items[: self._rows], asdict(Method.of(candidate))
        try:
            found = solve_adaptive(self._model, speedup, items, settings=settings, sample=_SAMPLE, near=near, **how)
        except OutOfReachError:  # with these layers
            return None
        return candidate.replace(schedule=found.schedule)

    def _stage(self, title: str, total: int | None = None) -> Callable[[], None]:
        """Shows the next stage; returns what moves the bar by one of `total` steps, if that is known."""
        for task in self._bar.task_ids:
            self._bar.remove_task(task)
        task = self._bar.add_task(title, total=total)
        return lambda: self._bar.advance(task)

    def _timed_machine(self) -> Predicted:
        one = runs_of_calibration(max(self._lengths))
        timed = {timed_as(method.settings(extreme_schedule())) for method in self._methods}
        step = self._stage("timing this machine", one + len(timed) * one // 2)
        return Predicted(self._model, self._lengths, self._batch_size, step)

    def _make_judge(self, metric: str | None) -> Judge:
        def measure(logits: Tensor) -> float:
            assert metric is not None
            return self._metrics(slice(len(logits)), logits)[metric]

        model, how = self._dense.model, None if metric is None else measure
        return Judge(self._pyramid, model, self._items, self._pad_id, self._batch_size, measure=how)

    def _metrics(self, rows: slice, logits: Tensor) -> dict[str, float]:
        assert self._labels is not None
        return metrics_of(self._dense.known_labels(), self._labels[rows], logits.numpy())

    def _ideal(self) -> float:
        """The ideal speed-up over all rows of a pyramid whose lengths follow the text."""
        kept = kept_lengths(self._pyramid, self._items, self._pad_id, batch_size=self._batch_size)
        return ideal_speedup(self._pyramid, self._items, kept)

    def _settled(self, settings: PyramidConfig, speedup_of: SpeedupOf, speedup: float) -> tuple[float, PyramidConfig]:
        """The speed-up on the held-out rows, and the same method with the keep ratio that is measured to give it.

        If the held-out rows are far off, another process took time from the measurement: it is settled once more.
        """
        found = []
        for _ in range(_SETTLINGS):
            _, settings = settle(settings, speedup, speedup_of, self._measured, _TRIES)[0]
            found.append((self._measured(settings, held_out=True), settings))
            if abs(found[-1][0] / speedup - 1) <= _FAR_OFF:
                break
        return min(found, key=lambda one: abs(one[0] / speedup - 1))

    def _measured(self, settings: PyramidConfig, *, held_out: bool = False) -> float:
        pyramidize(self._pyramid, config=settings)
        rounds = 5 if held_out else 3
        step = self._stage("dense and pyramid in turn", 2 * (rounds + 1))
        items = self._items[self._rows :] if held_out else self._items[: self._rows]
        some, model = rows_to_time(items, self._batch_size, self._pad_id), self._dense.model
        return measured_speedup(model, self._pyramid, some, self._batch_size, rounds=rounds, after_each=step)

    def _compared(self, judge: Judge) -> dict[str, Any]:
        """What both give for the rows that were held out."""
        rows, labelled = slice(self._rows, None), self._labels is not None
        dense, pyramid = judge.dense[rows], judge.outputs(self._pyramid, self._items[rows])
        return {
            "dense_metrics": self._metrics(rows, dense) if labelled else None,
            "metrics": self._metrics(rows, pyramid) if labelled else None,
            "agreement": agreement(dense, pyramid),
            "divergence": float(divergences(dense, pyramid).mean()),
        }
