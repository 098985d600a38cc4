"""One search from beginning to end: stages that share one deadline, and what was found.

Candidates of the wanted speed-up are judged by successive halving. From the best one the search walks to neighbours
that are nearer to the dense model. For an ideal speed-up it then does the same with lengths that follow the text.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from torch import Tensor

from ..bench.ideal import ideal_speedup, kept_lengths
from ..classifier import PyramidClassifier
from ..config import PyramidConfig
from ..errors import OutOfReachError
from ..families import pyramidize, settings_for
from ..progress import Bar
from ..text.metrics import metrics_of
from ..text.sampling import shuffled
from ..text.tables import Text
from ..training.sensitivity import batches_to_measure, evenly, measure_sensitivity
from .candidates import Method, fastest, following, grid
from .held_out import HeldOut, Interval, compare
from .judge import Judge, OutOfTimeError, Trial, outputs_for, winner
from .schedules import MIN_ITEMS, solve_adaptive
from .solver import SpeedupOf, at_speedup, extreme_schedule
from .speed import (
    Counted,
    Predicted,
    out_of_reach,
    rows_to_time,
    runs_of_calibration,
    settle,
    speedups_by_round,
    timed_as,
)
from .strategy import Deadline, halve, rungs, walk

MINIMUM_ROWS = 50
# Of the time that is left when a stage begins, it gets one part in this number.
_SENSITIVITY, _TIMING, _SEARCH, _SETTLING, _MEASURING = 6, 6, 1.3, 2, 2
_GRID, _DENSE, _FIXED = 4, 8, 1.5  # of the search: solving, the dense model, and lengths that do not follow the text
_SAMPLE = 512  # rows on which a radius is solved
_TRIES, _FAR_OFF, _SETTLINGS = 3, 0.15, 2
_HELD_OUT, _TO_SEARCH_ON = 200, 100  # rows: more than half are held out to have 200, as long as 100 are left


@dataclass(frozen=True, eq=False)
class Search:
    """The pyramid that was found, and how it compares with the dense model on rows whose answers the search never saw.

    Attributes:
        classifier: The pyramid, with the dense model's weights.
        settings: Its settings.
        wanted: The speed-up asked for.
        target: What the speed-up is of: "time" on this machine, or "ideal", multiply-accumulates over true lengths.
        ideal: Its ideal speed-up over the true lengths of all rows.
        measured: Its measured speed-up over dense, length-sorted batches of held-out rows: the median of the rounds.
        by_round: The speed-up in each of the rounds, in which both models run batch by batch in turn.
        dense_metrics: The dense model's metrics on the held-out rows; None without labels.
        metrics: The pyramid's.
        agreement: The share of held-out rows to which both give the same label; for numbers their correlation.
        divergence: How far its outputs are from the dense ones there; see `judge.divergences`.
        intervals: Metric -> "dense", "pyramid" and "change" -> 95 % interval; "agreement" has "pyramid" only. Wilson's
            interval for shares, a paired one for their change, the jackknife for other metrics.
        search_rows: How many rows the search was made on.
        held_out_rows: How many other rows were compared on.
        trials: Everything that was tried: the winner first, then by rows and divergence.
        in_time: Whether there was time for everything; if not, fewer candidates were tried or fewer rows run.
        seconds: How long it took.
    """

    classifier: PyramidClassifier
    settings: PyramidConfig
    wanted: float
    target: str
    ideal: float
    measured: float
    by_round: tuple[float, ...]
    dense_metrics: dict[str, float] | None
    metrics: dict[str, float] | None
    agreement: float
    divergence: float
    intervals: dict[str, dict[str, Interval]]
    search_rows: int
    held_out_rows: int
    trials: tuple[Trial, ...]
    in_time: bool
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dict, without the classifier itself."""
        data = {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "classifier"}
        return {**data, "settings": self.settings.to_dict(), "trials": [trial.to_dict() for trial in self.trials]}


def rows_held_out(share: float | None, rows: int) -> int:
    """A share of the rows in whole rows; by default half, or up to 200 as long as 100 are left to search on.

    Example:
        >>> rows_held_out(0.5, 59), rows_held_out(0.29, 100)
        (29, 29)
        >>> [rows_held_out(None, rows) for rows in (100, 240, 300, 1000)]
        [50, 140, 200, 500]
    """
    if share is None:
        return max(rows // 2, min(_HELD_OUT, rows - _TO_SEARCH_ON))
    return int(share * rows + 1e-9)  # 0.29 * 100 is 28.999...


class Finder:
    """One search, step by step. Rows are in a fixed mixed order: those to search on, then those held out."""

    def __init__(
        self,
        classifier: PyramidClassifier,
        texts: Sequence[Text],
        labels: Sequence[Any] | None,
        held_out: float | None,
        methods: tuple[Method, ...],
        batch_size: int,
        deadline: Deadline,
        on_best: Callable[[PyramidClassifier], object] | None,
        bar: Bar,
    ) -> None:
        self._start, self._deadline = time.monotonic(), deadline
        self._bar, self._task = bar, bar.add_task("reading", total=None)
        self._dense, self._methods = classifier, methods
        order, items = shuffled(len(texts), 0), classifier.encode(texts)
        self._items = [items[i] for i in order]
        self._lengths = [len(item) for item in self._items]
        self._labels = None if labels is None else [labels[i] for i in order]
        self._rows = self._first_held_out = len(order) - rows_held_out(held_out, len(order))  # to search on
        self._batch_size, self._pad_id = min(batch_size, len(order)), classifier.tokenizer.pad_token_id
        self._layers: int = classifier.model.config.num_hidden_layers
        self._on_best = on_best
        self._best: PyramidConfig | None = None  # what was passed on last

    def find(self, speedup: float, target: str, metric: str | None) -> Search:
        """The search from beginning to end. Each stage gets a part of the time that is left."""
        counted, ideal = Counted(self._dense.model, self._lengths), target == "ideal"
        if (most := fastest(self._methods, self._layers, counted)) < speedup:
            raise out_of_reach(speedup, self._lengths, self._batch_size, most)
        self._measure_sensitivity()
        self._pyramid = copy.deepcopy(self._model)
        speedup_of = counted if ideal else self._timed_machine()
        deadline = self._deadline.part(_SEARCH)
        if isinstance(speedup_of, Predicted):
            speedup_of.in_time = deadline.in_time
        candidates = grid(self._methods, self._layers, speedup_of, speedup, deadline.part(_GRID).in_time)
        if not candidates:
            most = fastest(self._methods, self._layers, speedup_of)
            raise out_of_reach(speedup, self._lengths, self._batch_size, most)
        judge = self._make_judge(metric, deadline)
        best = self._search(judge, candidates, speedup_of, speedup, deadline, may_follow=ideal)
        if ideal:
            by_round, settings = self._measured(best.settings, held_out=True), best.settings
        else:
            by_round, settings = self._settled(best.settings, speedup_of, speedup)
        classifier = self._keep(settings)
        compared = self._compared()
        others = sorted(judge.trials.values(), key=lambda trial: (-trial.rows, trial.divergence))
        return Search(
            classifier=classifier,
            settings=classifier.settings or settings,  # as its family runs them
            wanted=speedup,
            target=target,
            ideal=self._ideal() if settings.schedule.is_adaptive else counted(settings),
            measured=median(by_round),
            by_round=tuple(by_round),
            dense_metrics=compared.dense_metrics,
            metrics=compared.metrics,
            agreement=compared.agreement,
            divergence=compared.divergence,
            intervals=compared.intervals,
            search_rows=self._rows,
            held_out_rows=compared.rows,
            trials=(best, *(trial for trial in others if trial.settings != best.settings)),
            in_time=not self._deadline.was_short,
            seconds=time.monotonic() - self._start,
        )

    def _measure_sensitivity(self) -> None:
        """Makes the model of the search: the dense one, with its sensitivity where a method needs it."""
        self._model = copy.deepcopy(self._dense.model)
        if any(method.metric == "sensitivity" for method in self._methods):
            step = self._stage("what answers depend on", batches_to_measure(self._rows))
            in_time = self._deadline.part(_SENSITIVITY).in_time
            some = self._items[: self._rows]
            measure_sensitivity(self._model, some, self._pad_id, after_each=step, in_time=in_time)

    def _keep(self, settings: PyramidConfig) -> PyramidClassifier:
        """The classifier with these settings; passes it on if it is not the one that was passed on last."""
        pyramidize(self._pyramid, config=settings)
        labels, length = self._dense.labels, self._dense.max_length
        made = PyramidClassifier(self._pyramid, self._dense.tokenizer, labels=labels, max_length=length)
        if self._on_best is not None and settings != self._best:
            self._on_best(made)
        self._best = settings
        return made

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
        fixed = deadline.part(_FIXED) if follows else deadline

        def solve(candidate: PyramidConfig, _: float | None) -> PyramidConfig | None:
            ends = candidate.schedule.to_dict()
            return at_speedup(candidate, ends["first_layer"], ends["last_layer"], speedup_of, speedup)

        step = self._stage(f"{len(candidates)} candidates")
        trials = halve(judge, candidates, self._rows, fixed, step)
        best = winner(trials)
        self._keep(best.settings)
        here = partial(walk, judge, layers=self._layers, rows=best.rows)
        step = self._stage("neighbours of the best")
        trials += here(best.settings, best, solve, deadline=fixed, step=step)
        best = winner(trials)
        self._keep(best.settings)
        if follows and Method.of(best.settings).may_follow:
            start, step = following(best.settings, self._layers), self._stage("lengths that follow the text")
            solve_radius = partial(self._solve_radius, speedup, deadline)
            trials += here(start, None, solve_radius, deadline=deadline, step=step)
            best = winner(trials)
            self._keep(best.settings)
        return best

    def _solve_radius(
        self, speedup: float, deadline: Deadline, candidate: PyramidConfig, near: float | None
    ) -> PyramidConfig | None:
        """The settings of a candidate whose lengths follow the text. In batches these save less than they count."""
        if settings_for(self._model, candidate) is None:
            return None
        shape = candidate.schedule.to_dict()
        how = {name: shape[name] for name in ("first_layer", "last_layer", "relative", "steps", "min_tokens")}
        how |= {"growth": shape.get("growth", 1.0), "pad_id": self._pad_id, "batch_size": self._batch_size}
        how |= {"settings": asdict(Method.of(candidate)), "sample": _SAMPLE, "near": near}

        def check_time() -> None:
            if not deadline.in_time():
                raise OutOfTimeError

        try:
            found = solve_adaptive(self._model, speedup, self._items[: self._rows], after_each=check_time, **how)
        except OutOfReachError:  # with these layers
            return None
        return candidate.replace(schedule=found.schedule)

    def _stage(self, title: str, total: int | None = None) -> Callable[[], None]:
        """Shows the next stage; returns what moves the bar by one of `total` steps, if that is known."""
        self._bar.reset(self._task, description=title, total=total)
        return lambda: self._bar.advance(self._task)

    def _timed_machine(self) -> Predicted:
        """Predictions for this machine. Methods that there is no time to calibrate are dropped, but not the first."""
        one, deadline = runs_of_calibration(max(self._lengths)), self._deadline.part(_TIMING)
        settings = {method: method.settings(extreme_schedule()) for method in self._methods}
        step = self._stage("timing this machine", one + len(set(map(timed_as, settings.values()))) * one // 2)
        predicted = Predicted(self._model, self._lengths, self._batch_size, step, deadline.in_time)
        known: list[Method] = []
        for method, extreme in settings.items():
            if not known or predicted.knows(extreme) or deadline.in_time():
                predicted(extreme)
                known.append(method)
        self._methods = tuple(known)
        return predicted

    def _make_judge(self, metric: str | None, deadline: Deadline) -> Judge:
        """The judge of the rows to search on: as many as the dense model runs in its part of the time."""

        def measure(logits: Tensor) -> float:
            assert metric is not None
            assert self._labels is not None
            return metrics_of(self._dense.known_labels(), self._labels[: len(logits)], logits.numpy())[metric]

        self._stage("running the dense model")
        part, done = deadline.part(_DENSE), list[Tensor]()
        how = self._pad_id, self._batch_size
        for before, count in pairwise([0, *rungs(self._rows)]):
            if done and not part.in_time():
                break
            done.append(outputs_for(self._dense.model, self._items[before:count], *how))
        dense = torch.cat(done)
        self._rows = len(dense)
        by_metric = None if metric is None else measure
        return Judge(self._pyramid, dense, self._items, *how, measure=by_metric, in_time=deadline.in_time)

    def _ideal(self) -> float:
        """The ideal speed-up, over the rows to search on, of a pyramid whose lengths follow the text."""
        items = evenly(self._items[: self._rows], _SAMPLE)
        return ideal_speedup(self._pyramid, items, kept_lengths(self._pyramid, items, self._pad_id))

    def _settled(
        self, settings: PyramidConfig, speedup_of: SpeedupOf, speedup: float
    ) -> tuple[list[float], PyramidConfig]:
        """The speed-ups on the held-out rows, and the same method with the keep ratio that is measured to give them.

        If the held-out rows are far off, another process took time from the measurement: it is settled once more. When
        time is up, the settings stay as they are.
        """
        found, deadline = list[tuple[list[float], PyramidConfig]](), self._deadline.part(_SETTLING)
        for _ in range(_SETTLINGS):
            if deadline.in_time():
                measure = lambda settings: median(self._measured(settings, deadline))  # noqa: E731
                _, settings = settle(settings, speedup, speedup_of, measure, _TRIES, deadline.in_time)[0]
            found.append((self._measured(settings, held_out=True), settings))
            if abs(median(found[-1][0]) / speedup - 1) <= _FAR_OFF or not deadline.in_time():
                break
        return min(found, key=lambda one: abs(median(one[0]) / speedup - 1))

    def _measured(
        self, settings: PyramidConfig, deadline: Deadline | None = None, *, held_out: bool = False
    ) -> list[float]:
        pyramidize(self._pyramid, config=settings)
        rounds, deadline = 5 if held_out else 3, deadline or self._deadline
        items = self._items[self._first_held_out :] if held_out else self._items[: self._rows]
        some, model = rows_to_time(items, self._batch_size, self._pad_id), self._dense.model
        batches = -(-len(some.items) // self._batch_size)
        step = self._stage("dense and pyramid in turn", 2 * (rounds + 1) * batches)
        how: dict[str, Any] = {"after_each": step, "in_time": deadline.part(_MEASURING).in_time}
        return speedups_by_round(model, self._pyramid, some, self._batch_size, rounds=rounds, **how)

    def _compared(self) -> HeldOut:
        """What both give for the rows that were held out."""
        self._stage("comparing")
        start = self._first_held_out
        return compare(
            self._dense.model,
            self._pyramid,
            self._items[start:],
            self._dense.known_labels(),
            None if self._labels is None else self._labels[start:],
            pad_id=self._pad_id,
            batch_size=self._batch_size,
            least=MINIMUM_ROWS // 2,
            in_time=self._deadline.in_time,
        )
