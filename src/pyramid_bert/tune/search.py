"""find_pyramid: from a dense classifier and a few rows to a pyramid with the same weights, and how both compare."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from numbers import Real
from typing import Any

from torch import Tensor

from ..bench.ideal import ideal_speedup, kept_lengths
from ..classifier import PyramidClassifier
from ..config import PyramidConfig
from ..errors import DataError, OutOfReachError, PyramidError, UnknownNameError
from ..families import family_of
from ..families.hub import is_pyramid, pyramid_settings, pyramidize
from ..text.inference import outputs_of
from ..text.labels import Labels
from ..text.metrics import CLASSIFICATION, REGRESSION, metrics_of
from ..text.tables import Text
from .adaptive import MIN_ITEMS, solve_adaptive
from .calibration import runs_of_calibration
from .candidates import METHODS, Method, SpeedupOf, fastest, grid, neighbours, with_other_speedup
from .deadline import Budget
from .halving import Judge, Measure, Trial, agreement, divergences, halve, runs_of, try_all, winner
from .progress import Stages
from .rows import Rows, held_out_rows
from .sensitivity import batches_to_measure, measure_sensitivity
from .solver import check_speedup, extreme_schedule, interleaved_speedup, out_of_reach
from .speeds import Counted, Predicted, timed_as
from .walk import Following, follow_texts, may_follow

MINIMUM_ROWS = 50
TARGETS = ("time", "ideal")
_CLIMBS = 3
_PARTS_FOR_FIXED = 1.5  # of the time, where lengths may follow the text as well: two thirds
_SAMPLE, _WAYS = 512, 12  # rows on which a radius is solved; ways that are expected to be tried
_CLOSE_ENOUGH, _TRIES = 0.03, 3
_FAR_OFF, _SETTLINGS = 0.15, 2


@dataclass(frozen=True, eq=False)
class Search:
    """The pyramid that was found, and how it compares with the dense model on rows whose answers the search never saw.

    Attributes:
        classifier: The pyramid, with the dense model's weights.
        settings: Its settings.
        wanted: The speed-up asked for.
        target: What it was asked of: "time" on this machine, or "ideal", multiply-accumulates over true lengths.
        ideal: Its ideal speed-up over the true lengths of all rows.
        measured: Its measured speed-up over dense, length-sorted batches of the held-out rows, in one interleaved run.
        dense_metrics: The dense model's metrics on the held-out rows; None without labels.
        metrics: The pyramid's.
        agreement: The share of held-out rows to which both give the same label; for numbers their correlation.
        divergence: How far its outputs are from the dense ones there; see `halving.divergences`.
        search_rows: How many rows the search was made on.
        held_out_rows: How many were kept from it.
        trials: Everything that was tried: the winner first, then by rows and divergence.
        in_time: Whether there was time for every candidate; if not, what a round had no time for fell out.
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
        names = [name for name in self.__dataclass_fields__ if name not in ("classifier", "settings", "trials")]
        data = {name: getattr(self, name) for name in names}
        trials = [trial.to_dict() for trial in self.trials]
        return {**data, "settings": self.settings.to_dict(), "trials": trials}


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
        target: What is to be so many times less: "time" on this machine, or the "ideal" count of multiply-accumulates.
        metric: By what the last candidates are compared; accuracy or spearman if None.
        minutes: Search for so many minutes. To measure sensitivity and to time the machine before, and to compare
            after, comes on top.
        held_out: The share of the texts that serves for the comparison. A larger one makes the comparison more certain,
            a smaller one the choice.
        batch_size: Texts a batch.
        methods: What to try.
        progress: Show a bar on stderr.
    """
    metric = _check(classifier, speedup, texts, labels, target, metric)
    if minutes <= 0 or batch_size < 1 or not methods:
        raise PyramidError(
            f"minutes must be above 0, batch_size at least 1 and methods not empty, got {minutes}, {batch_size} and "
            f"{len(methods)} methods"
        )
    check_held_out(held_out, len(texts))
    family_of(classifier.model).settings(methods[0].settings(extreme_schedule()), classifier.model.config)
    rows = Rows.of(
        classifier.encode(texts), None if labels is None else list(labels), classifier.tokenizer.pad_token_id, held_out
    )
    counted = Counted(classifier.model.config, rows.lengths)
    if (most := fastest(methods, classifier.model.config.num_hidden_layers, counted)) < speedup:
        raise out_of_reach(speedup, rows.lengths, batch_size, most)
    with Stages(progress) as stages:
        finder = _Finder(classifier, rows, metric, tuple(methods), batch_size, minutes, stages)
        return finder.find(speedup, target, counted)


def _check(
    classifier: PyramidClassifier,
    speedup: float,
    texts: Sequence[Text],
    labels: Sequence[Any] | None,
    target: str,
    metric: str | None,
) -> str | None:
    """The metric to go by, None without labels; raises when there is nothing to search with."""
    check_speedup(speedup)
    if target not in TARGETS:
        raise UnknownNameError("target", target, TARGETS)
    known = classifier.known_labels()
    if is_pyramid(classifier.model):
        raise PyramidError(
            "this model is a pyramid already; give the dense classifier that it was made from, or its "
            'weights without the pyramid: PyramidClassifier.from_pretrained(path, "dense")'
        )
    if classifier.model.config.num_hidden_layers < 2:
        raise PyramidError(
            "a search needs a model of at least 2 layers, got 1: the last layer of any pyramid computes CLS alone, so "
            "tokens that it drops save nothing more; pyramidize(model, Schedule.constant(1.0)) saves all there is"
        )
    if len(texts) < MINIMUM_ROWS:
        raise DataError(
            f"a search needs at least {MINIMUM_ROWS} texts, some of them to compare on, got {len(texts)}; "
            "a few hundred make the comparison mean something"
        )
    if labels is None:
        if metric is not None:
            raise DataError(
                f"the metric {metric!r} needs labels; give them, or leave the metric out to go by agreement"
            )
        return None
    known.targets(labels, texts=len(texts))
    return metric_for(known, metric)


def metric_for(known: Labels, metric: str | None) -> str:
    """The metric by which last candidates are compared; raises unless the one that is named suits the labels."""
    names = [name for name in (REGRESSION if known.classes is None else CLASSIFICATION) if name != "rmse"]
    if metric is not None and metric not in names:
        raise UnknownNameError("metric", metric, names)
    return metric or names[0]


def check_held_out(held_out: float, texts: int) -> None:
    """Raises unless a share of the texts, and what is left of them, are enough to compare and to search on."""
    if isinstance(held_out, bool) or not isinstance(held_out, Real) or not 0 < held_out < 1:
        raise PyramidError(f"the share held out must be a number between 0 and 1, got {held_out!r}; 0.5 is half")
    least, rows = MINIMUM_ROWS // 2, held_out_rows(held_out, texts)
    if not least <= rows <= texts - least:
        raise PyramidError(
            f"the share held out must be {least} to {texts - least} of {texts} texts, so that {least} at least are "
            f"searched on and compared on, got {held_out:g}, which is {rows}; 0.5 is always enough"
        )


class _Finder:
    """One search, step by step."""

    def __init__(
        self,
        classifier: PyramidClassifier,
        rows: Rows,
        metric: str | None,
        methods: tuple[Method, ...],
        batch_size: int,
        minutes: float,
        stages: Stages,
    ) -> None:
        self._start, self._minutes = time.monotonic(), minutes
        self._dense, self._model = classifier, copy.deepcopy(classifier.model)
        self._rows, self._metric, self._methods = rows, metric, methods
        self._batch_size = min(batch_size, len(rows.items))
        self._stages = stages
        self._layers: int = classifier.model.config.num_hidden_layers
        if any(method.metric == "sensitivity" for method in methods):
            self._measure_sensitivity()
        self._pyramid = copy.deepcopy(self._model)

    def find(self, speedup: float, target: str, counted: Counted) -> Search:
        """The search from beginning to end."""
        speedup_of = counted if target == "ideal" else self._timed_machine()
        candidates = grid(self._methods, self._layers, speedup_of, speedup)
        if not candidates:
            most = fastest(self._methods, self._layers, speedup_of)
            raise out_of_reach(speedup, self._rows.lengths, self._batch_size, most)
        outputs = self._outputs(self._dense.model, 0, "asking the dense model")
        judge, budget = self._judge(outputs), Budget(60 * self._minutes)
        fixed = budget.part(_PARTS_FOR_FIXED) if target == "ideal" and self._may_follow() else budget
        best = self._climb(judge, self._halve(judge, candidates, fixed), speedup_of, speedup, fixed)
        if target == "time":
            settings, measured = self._settled(best.settings, speedup_of, speedup)
        else:
            best = self._adapt(judge, best, speedup, budget)
            settings, measured = best.settings, self._on_held_out(best.settings)
        pyramidize(self._pyramid, config=settings)
        others = sorted(judge.trials.values(), key=lambda trial: (-trial.rows, trial.divergence))
        return Search(
            classifier=PyramidClassifier(
                self._pyramid, self._dense.tokenizer, labels=self._dense.labels, max_length=self._dense.max_length
            ),
            settings=settings,
            wanted=speedup,
            target=target,
            ideal=self._ideal(counted),
            measured=measured,
            **self._compared(outputs[self._rows.search :]),
            search_rows=self._rows.search,
            held_out_rows=len(self._rows.items) - self._rows.search,
            trials=(best, *(trial for trial in others if trial is not best)),
            in_time=not budget.was_short,
            seconds=time.monotonic() - self._start,
        )

    def _measure_sensitivity(self) -> None:
        items = self._rows.items[: self._rows.search]
        step = self._stages.begin("what answers depend on", batches_to_measure(len(items)))
        measure_sensitivity(self._model, items, self._rows.pad_id, after_each=step)

    def _timed_machine(self) -> Predicted:
        one = runs_of_calibration(max(self._rows.lengths))
        timed = {timed_as(method) for method in self._methods}
        step = self._stages.begin("timing this machine", one + len(timed) * one // 2)
        return Predicted(self._model, self._rows.lengths, self._batch_size, step)

    def _outputs(self, model: Any, begin: int, title: str) -> Tensor:
        """The outputs of a model for the rows from `begin` on."""
        self._stages.begin(title, 1)
        items = self._rows.items[begin:]
        return outputs_of(model, items, self._rows.pad_id, batch_size=self._batch_size).logits

    def _metrics(self, labels: Sequence[Any], outputs: Tensor) -> dict[str, float]:
        return metrics_of(self._dense.known_labels(), labels, outputs.numpy())

    def _judge(self, dense: Tensor) -> Judge:
        labels, metric = self._rows.labels, self._metric
        measure: Measure | None = None
        if labels is not None and metric is not None:

            def measure(outputs: Tensor) -> float:
                return self._metrics(labels[: len(outputs)], outputs)[metric]

        return Judge(
            self._pyramid, self._rows.items, dense, self._rows.pad_id, batch_size=self._batch_size, measure=measure
        )

    def _halve(self, judge: Judge, candidates: Sequence[PyramidConfig], budget: Budget) -> Trial:
        rows = self._rows.search
        step = self._stages.begin(f"{len(candidates)} candidates", runs_of(len(candidates), rows))
        return winner(halve(judge, candidates, rows, budget, step))

    def _climb(self, judge: Judge, best: Trial, speedup_of: SpeedupOf, speedup: float, budget: Budget) -> Trial:
        """The best among the neighbours of the best, for as long as there is a better one."""
        for _ in range(_CLIMBS):
            pool = [
                settings
                for settings in neighbours(best.settings, self._layers, speedup_of, speedup)
                if settings not in judge.trials or judge.trials[settings].rows < best.rows
            ]
            step = self._stages.begin("neighbours of the best", len(pool))
            better = winner([best, *try_all(judge, pool, best.rows, budget, step)])
            if better is best:
                return better
            best = better
        return best

    def _may_follow(self) -> bool:
        """Whether there are methods and rows enough for lengths that follow the text."""
        return self._rows.search >= MIN_ITEMS and any(may_follow(method) for method in self._methods)

    def _adapt(self, judge: Judge, best: Trial, speedup: float, budget: Budget) -> Trial:
        """The best as it is, or with lengths that follow the text. In batches these save less than they count."""
        if not self._may_follow():
            return best
        items = self._rows.items[: self._rows.search]
        how: dict[str, Any] = {"pad_id": self._rows.pad_id, "batch_size": self._batch_size, "sample": _SAMPLE}

        def solve(way: Following, near: float | None) -> PyramidConfig | None:
            shape = {**way.shape(self._layers), "settings": asdict(way.method), "near": near}
            try:
                return way.method.settings(solve_adaptive(self._model, speedup, items, **how, **shape).schedule)
            except OutOfReachError:  # with these layers
                return None

        step = self._stages.begin("lengths that follow the text", _WAYS)
        return winner([best, *follow_texts(judge, best, self._layers, solve, budget, step)])

    def _ideal(self, counted: Counted) -> float:
        """The ideal speed-up of the pyramid over all rows."""
        settings, items = pyramid_settings(self._pyramid), self._rows.items
        assert settings is not None
        if not settings.schedule.is_adaptive:
            return counted(settings)
        kept = kept_lengths(self._pyramid, items, self._rows.pad_id, batch_size=self._batch_size)
        return ideal_speedup(self._pyramid, items, kept)

    def _settled(self, settings: PyramidConfig, speedup_of: SpeedupOf, speedup: float) -> tuple[PyramidConfig, float]:
        """The pyramid that was settled on, and its speed-up on the held-out rows.

        Where that is far from the wanted one, something else was running while it was settled: once more, then.
        """
        found = []
        for _ in range(_SETTLINGS):
            settings = self._settle(settings, speedup_of, speedup)
            measured = self._on_held_out(settings)
            found.append((abs(measured / speedup - 1), settings, measured))
            if found[-1][0] <= _FAR_OFF:
                break
        _, settings, measured = min(found, key=lambda one: one[0])
        return settings, measured

    def _settle(self, settings: PyramidConfig, speedup_of: SpeedupOf, speedup: float) -> PyramidConfig:
        """The same layers and method, with the keep ratio that is measured to give the speed-up."""
        tries: list[tuple[float, PyramidConfig]] = []
        aim = speedup_of(settings)
        for _ in range(_TRIES):
            measured = self._measured(settings, held_out=False, rounds=3)
            tries.append((abs(measured / speedup - 1), settings))
            aim *= speedup / measured
            corrected = with_other_speedup(settings, speedup_of, aim)
            if tries[-1][0] <= _CLOSE_ENOUGH or corrected is None:
                break
            settings = corrected
        return min(tries, key=lambda found: found[0])[1]

    def _on_held_out(self, settings: PyramidConfig) -> float:
        return self._measured(settings, held_out=True, rounds=5)

    def _measured(self, settings: PyramidConfig, *, held_out: bool, rounds: int) -> float:
        pyramidize(self._pyramid, config=settings)
        step = self._stages.begin("dense and pyramid in turn", 2 * (rounds + 1))
        workload = self._rows.to_time(self._batch_size, held_out=held_out)
        return interleaved_speedup(
            self._dense.model, self._pyramid, workload, self._batch_size, rounds=rounds, after_each=step
        )

    def _compared(self, dense: Tensor) -> dict[str, Any]:
        """What both say to the rows that were held out."""
        pyramid = self._outputs(self._pyramid, self._rows.search, "asking the pyramid")
        labels = None if self._rows.labels is None else self._rows.labels[self._rows.search :]
        return {
            "dense_metrics": None if labels is None else self._metrics(labels, dense),
            "metrics": None if labels is None else self._metrics(labels, pyramid),
            "agreement": agreement(dense, pyramid),
            "divergence": float(divergences(dense, pyramid).mean()),
        }
