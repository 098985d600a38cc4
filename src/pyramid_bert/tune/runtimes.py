"""find_runtime: runtime, precision and pyramid for a wanted speed-up, chosen together.

The dense model is timed in every runtime and precision. Where it is not fast enough, a pyramid brings what is missing.
All of them are measured on the same held-out rows, over the dense model in torch (fp32, length-sorted batches).
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from ..bench.timing import Timing, time_interleaved
from ..checks import check_number, check_path
from ..classifier import PyramidClassifier
from ..config import PyramidConfig
from ..counting import steps_shown
from ..errors import DataError, OutOfReachError
from ..export.classifier import ExportedClassifier, GraphFolder
from ..export.ready import BatchRunner, Writer, everywhere, graphs_everywhere, runner, stored_in
from ..export.record import Export
from ..export.texts import check_calibration, check_kind_of_texts
from ..export.writing import check_exportable, write_folder
from ..files import replacing_folder
from ..runtimes.places import ANY, BASELINE, TORCH, Place, places_of
from ..runtimes.registry import Runtime, get_runtime
from ..text.sampling import shuffled
from ..text.tables import Text
from .candidates import METHODS, Method, fastest
from .finder import rows_held_out
from .held_out import compared
from .judge import outputs_for
from .options import Option, choose, pareto_front, pyramids_needed, searches
from .search import check_rows, find_pyramid
from .solver import check_speedup
from .speed import Counted, rows_to_time
from .strategy import Deadline

_CALIBRATED_ON, _ROUNDS = 100, 5  # three times as many texts take three times as long, for every pyramid
_NOT_REALISED, _CORRECTED = 1.15, 1.03  # an ideal speed-up over what a machine makes of it, at first and when known
_REACHABLE = 0.98  # of the largest ideal speed-up: where the solver still finds something
# Of the time that is left, timing gets one part in the first number, and all searches together in the others.
_TIMING, _SEARCHING, _AGAIN = 5, 1.8, 1.4
_LEAST_SECONDS = 0.06  # of a search: it tries a few pyramids however short its time is


@dataclass(frozen=True)
class RuntimeSearch:
    """What was chosen, and everything that was measured.

    Attributes:
        chosen: What was written.
        options: All that was measured: first the dense model in torch, which is baseline c.
        fastest: Runtime and precision of the fastest dense model, which is baseline d.
        wanted: The speed-up asked for.
        metric: The metric that decided among options that agree equally well; None without labels.
        rows: The held-out rows that all were measured on.
        left_out: Why precisions that were not asked for by name were left out.
        in_time: Whether there was time for everything.
        seconds: How long it took.
    """

    chosen: Option
    options: tuple[Option, ...]
    fastest: Place
    wanted: float
    metric: str | None
    rows: int
    left_out: tuple[str, ...]
    in_time: bool
    seconds: float

    @property
    def front(self) -> list[Option]:
        """The options that no other one beats in speed and agreement at once, the slowest first."""
        return pareto_front(self.options)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dict; every option says whether it is on the front and whether it was chosen."""
        front = self.front
        flags = ({"on_front": one in front, "chosen": one is self.chosen} for one in self.options)
        options = [{**one.to_dict(), **about} for one, about in zip(self.options, flags, strict=True)]
        return {**vars(self), "chosen": self.chosen.to_dict(), "options": options}


def find_runtime(
    classifier: PyramidClassifier,
    speedup: float,
    texts: Sequence[Text],
    labels: Sequence[Any] | None = None,
    *,
    folder: str | Path,
    runtime: str = ANY,
    precisions: Sequence[str] | None = None,
    metric: str | None = None,
    minutes: float = 10.0,
    held_out: float | None = None,
    batch_size: int = 32,
    methods: Sequence[Method] = METHODS,
    progress: bool = False,
) -> RuntimeSearch:
    """The nearest to a dense classifier that is fast enough, over runtimes, precisions and pyramids; writes it.

    The arguments that are not named here are those of `find_pyramid`.

    Args:
        classifier: A trained dense classifier or regressor on the CPU, in float32.
        speedup: The wanted speed-up over the dense model in torch, on length-sorted batches.
        texts: At least 50 texts. A part is held out to measure on; for int8 in OpenVINO, 50 must be left.
        labels: One a text. Without them agreement alone decides.
        folder: Where the chosen one goes: an exported model, or a model in torch.
        runtime: "auto" for all that are installed, or one of them.
        precisions: Only these; all that this machine has if None.
        metric: The metric that decides among those that agree equally well.
        minutes: How long it may take. The dense model is measured everywhere first, however long that takes; after it
            no model is written for a runtime if there is no time for that.
        held_out: The share of the texts to measure on.
        batch_size: Texts a batch.
        methods: The pyramids to try.
        progress: Show progress bars.
    """
    check_number("minutes", minutes, above=True)
    deadline = Deadline(60 * minutes)
    check_path("folder", folder)
    check_speedup(speedup)
    check_number("batch_size", batch_size, 1, whole=True)
    metric = check_rows(classifier, texts, labels, metric, held_out)
    places = places_of(runtime, precisions)
    if any(name != TORCH for name, _ in places):
        check_exportable(classifier)
    how: dict[str, Any] = {"metric": metric, "held_out": held_out, "batch_size": batch_size, "methods": methods}
    with TemporaryDirectory() as scratch:
        finder = RuntimeFinder(classifier, texts, labels, Path(scratch), deadline, how, progress=progress)
        return finder.choose(speedup, places, Path(folder), int8_named="int8" in (precisions or ()))


@dataclass(frozen=True, eq=False)
class _Ready:
    """A model in a runtime and precision, ready to be timed and saved."""

    place: Place
    settings: PyramidConfig | None
    run: BatchRunner
    answers: Callable[[], Tensor]  # (n, classes), of the held-out rows
    save: Callable[[Path], object]


class RuntimeFinder:
    """One choice, step by step. The held-out rows are those that `find_pyramid` holds out.

    Attributes:
        fastest: Runtime and precision of the fastest dense model, once it is measured.
        rows: How many rows are held out.
    """

    fastest: Place

    def __init__(
        self,
        classifier: PyramidClassifier,
        texts: Sequence[Text],
        labels: Sequence[Any] | None,
        scratch: Path,
        deadline: Deadline,
        how: Mapping[str, Any],
        *,
        progress: bool,
    ) -> None:
        self._start, self._deadline = time.monotonic(), deadline
        self._dense, self._scratch = classifier, scratch
        self._how, self._progress = dict(how), progress
        self._every: Any = classifier.encode(texts)
        check_kind_of_texts(classifier, self._every)
        self._labels = labels
        order = shuffled(len(self._every), 0)
        self.rows = rows_held_out(how["held_out"], len(order))
        self._some = [self._every[i] for i in order[: -self.rows]]
        self._items = [self._every[i] for i in order[-self.rows :]]
        self._truth = None if labels is None else [labels[i] for i in order[-self.rows :]]
        self._batch_size, self._pad_id = min(how["batch_size"], self.rows), classifier.tokenizer.pad_token_id
        self._workload = rows_to_time(self._items, self._batch_size, self._pad_id)
        self._ready: list[tuple[_Ready, Option]] = []
        self._writing: dict[Place, float] = {}  # the most seconds that writing a model took

    def choose(self, wanted: float, places: Sequence[Place], folder: Path, *, int8_named: bool) -> RuntimeSearch:
        """The choice from beginning to end; raises if everything is too slow, and writes the chosen one if not."""
        left_out = self._without_scales(places, named=int8_named)
        options = self._find(wanted, [place for place in places if place not in left_out])
        allowed = [option for option in options if option.place in places]
        chosen = choose(allowed or options, wanted, self._how["metric"])
        with replacing_folder(folder) as scratch:
            next(ready for ready, option in self._ready if option is chosen).save(scratch)
        return RuntimeSearch(
            chosen=chosen,
            options=tuple(options),
            fastest=self.fastest,
            wanted=wanted,
            metric=self._how["metric"],
            rows=self.rows,
            left_out=tuple(left_out.values()),
            in_time=not self._deadline.was_short,
            seconds=time.monotonic() - self._start,
        )

    def _without_scales(self, places: Sequence[Place], *, named: bool) -> dict[Place, str]:
        """The places whose scales these texts cannot tell, and why; raises if int8 was `named` and is nowhere else."""
        wanting = [place for place in places if place[1] == "int8" and place[0] != TORCH]
        wanting = [place for place in wanting if get_runtime(place[0]).calibrates]
        if not wanting:
            return {}
        try:
            check_calibration(self._dense, self._some)
        except DataError as error:
            if named and not any(place[1] == "int8" for place in places if place not in wanting):
                raise
            return {place: f"{' '.join(place)} was left out: {error}" for place in wanting}
        return {}

    def _find(self, wanted: float, places: Sequence[Place]) -> list[Option]:
        """Everything that was measured, baseline c first; raises nothing if it is all too slow."""
        options = self._measured(list(self._prepared(self._dense, list(dict.fromkeys([BASELINE, *places])))))
        needed = pyramids_needed([one for one in options if one.place in places], wanted)
        found = self._with_pyramids(needed, _NOT_REALISED, _SEARCHING)
        options += [option for option, _ in found]
        best = max((one.agreement for one in options if one.over_c >= wanted), default=-math.inf)
        # A pyramid that is too slow has to drop more. That helps only if it agrees more than what is fast enough.
        slow = [(one, ideal) for one, ideal in found if one.over_c < wanted and one.agreement > best]
        again = {one.place: ideal * wanted / one.over_c for one, ideal in slow}
        return options + [option for option, _ in self._with_pyramids(again, _CORRECTED, _AGAIN)]

    def _with_pyramids(self, needed: Mapping[Place, float], margin: float, share: float) -> list[tuple[Option, float]]:
        """Pyramids where they are needed, measured, each with the ideal speed-up that was asked for."""
        lengths, layers = [len(item) for item in self._every], self._dense.model.config.num_hidden_layers
        most = fastest(self._how["methods"], layers, Counted(self._dense.model, lengths))
        plan = searches(needed, margin, _REACHABLE * most)
        ready, asked = list[_Ready](), list[float]()
        for number, (ideal, places) in enumerate(plan.items()):
            if not (in_time := self._in_time(places)):
                continue
            minutes = self._minutes_to_search(list(plan.values())[number:], share)
            how: dict[str, Any] = {**self._how, "target": "ideal", "minutes": minutes, "progress": self._progress}
            with suppress(OutOfReachError):
                found = find_pyramid(self._dense, ideal, self._every, self._labels, **how)
                self._deadline.was_short |= not found.in_time
                ready += self._prepared(found.classifier, in_time)
                asked += [ideal] * (len(ready) - len(asked))
        return list(zip(self._measured(ready), asked, strict=True))

    def _minutes_to_search(self, plan: Sequence[Sequence[Place]], share: float) -> float:
        """The minutes of the first of these searches; what they find has to be written as well."""
        writing = self._seconds_to_write([place for places in plan for place in places])
        return max((self._deadline.left - writing) / (share * len(plan)), _LEAST_SECONDS) / 60

    def _in_time(self, places: Sequence[Place]) -> list[Place]:
        """As many of the places, in their order, as there is time to write a model for."""
        found, left = list[Place](), max(self._deadline.left, 0)
        for place in places:
            if self._seconds_to_write([*found, place]) <= left:
                found.append(place)
        self._deadline.was_short |= len(found) < len(places)
        return found

    def _seconds_to_write(self, places: Sequence[Place]) -> float:
        """How long writing a model for all these places takes, going by those that were written."""
        return sum(self._writing.get(place, 0.0) for place in set(map(stored_in, places)))

    def _prepared(self, classifier: PyramidClassifier, places: Sequence[Place]) -> Iterator[_Ready]:
        """A classifier in all these places."""
        folder = self._scratch / str(len(list(self._scratch.iterdir())))
        graphs = graphs_everywhere(classifier.model, places)
        with steps_shown("writing graphs", graphs, shown=self._progress and graphs > 0) as step:
            for place, made in everywhere(classifier.model, places, folder, self._writer(classifier, step)):
                yield (
                    self._in_torch(classifier, place, made)
                    if place[0] == TORCH
                    else self._exported(classifier, place, made)
                )

    def _in_torch(self, classifier: PyramidClassifier, place: Place, model: Any) -> _Ready:
        return _Ready(
            place=place,
            settings=classifier.settings,
            run=runner(model, self._workload, self._batch_size),
            answers=lambda: outputs_for(model, self._items, self._pad_id, self._batch_size),
            save=classifier.save,
        )

    def _exported(self, classifier: PyramidClassifier, place: Place, made: GraphFolder) -> _Ready:
        exported = ExportedClassifier(made.export, made, classifier.tokenizer, classifier.known_labels())

        def save(folder: Path) -> None:
            shutil.copytree(made.folder, folder, dirs_exist_ok=True)
            option = next(one for ready, one in self._ready if ready.save is save)
            measured = {name: value for name, value in option.to_dict().items() if name != "settings"}
            replace(made.export, measured={**measured, "rows": self.rows}).save(folder)

        return _Ready(
            place=place,
            settings=classifier.settings,
            run=runner(made, self._workload, self._batch_size),
            answers=lambda: torch.from_numpy(exported.predict_logits(self._items, batch_size=self._batch_size)),
            save=save,
        )

    def _writer(self, classifier: PyramidClassifier, step: Callable[[], object]) -> Writer:
        some = self._some[:_CALIBRATED_ON]

        def write(folder: Path, runtime: Runtime, stored: str) -> Export:
            start, place = time.monotonic(), (runtime.name, stored)
            made = write_folder(classifier, folder, runtime, stored, some, after_each=step)
            self._writing[place] = max(self._writing.get(place, 0.0), time.monotonic() - start)
            return made

        return write

    def _measured(self, new: Sequence[_Ready]) -> list[Option]:
        """Options of models that were prepared: timed in turn, beside both baselines, and compared with baseline c."""
        if not new:
            return []
        beside = [ready for ready, _ in self._ready if ready.settings is None]
        beside = [ready for ready in beside if ready.place in (BASELINE, self.fastest)]
        timing = self._timed([*beside, *new])
        if not beside:
            self._truly = new[0].answers()  # what everything is to agree with
            self.fastest = min((ready.place for ready in new), key=lambda place: timing.median(_name(place)))
        options = []
        with steps_shown("comparing", len(new), shown=self._progress) as step:
            for ready in new:
                options.append(self._option(ready, timing))
                step()
        self._ready += zip(new, options, strict=True)
        return options

    def _timed(self, ready: Sequence[_Ready]) -> Timing:
        runs = {_name(one.place, one.settings): one.run for one in ready}
        in_time = self._deadline.part(_TIMING).in_time
        with steps_shown("measuring, in turn", (_ROUNDS + 1) * len(runs), shown=self._progress) as step:
            how: dict[str, Any] = {"in_time": in_time, "at_least": 2 * len(runs)}  # the warm-up never counts
            return time_interleaved(runs, rounds=_ROUNDS, after_each=step, **how).whole_rounds()

    def _option(self, ready: _Ready, timing: Timing) -> Option:
        name = _name(ready.place, ready.settings)
        found = compared(self._dense.known_labels(), self._truth, self._truly, ready.answers())
        return Option(
            *ready.place,
            settings=ready.settings,
            over_c=timing.speedup(name, over=_name(BASELINE)),
            over_d=timing.speedup(name, over=_name(self.fastest)),
            agreement=found.agreement,
            interval=found.intervals["agreement"]["pyramid"],
            metrics=found.metrics,
        )


def _name(place: Place, settings: PyramidConfig | None = None) -> str:
    """What a model is called among those that are timed together."""
    return " ".join(place) if settings is None else f"{' '.join(place)} {settings}"
