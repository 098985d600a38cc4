"""A classifier that was exported to another runtime: it predicts without torch and without transformers.

The folder holds graphs, the tokenizer, labels and `exported.json`, which says how they belong together. Everything else
that a classifier can do (train, certify, run again with all tokens) needs the model that was exported.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..boundary import translating
from ..checks import check_number, check_path
from ..config import PyramidConfig
from ..core.loop import Recorder
from ..core.record import Radii, Trace
from ..core.selectors import Grouper, get_selector
from ..counting import steps_shown
from ..errors import CheckpointError, PyramidError
from ..front import Front, WithSpeed
from ..planning import plan_and_reducer
from ..runtimes.graphs import Graph, Graphs
from ..runtimes.registry import get_runtime
from ..schedule.base import Schedule
from ..text.batches import CUT, Encoded, encode, padded, sorted_batches
from ..text.labels import RECORD, Labels, Where, read_record
from ..text.predicting import Answers, Predictor, check_score, listed
from ..text.tables import Text
from .record import AGAIN, FILE, HALVES, SENSITIVITY, TOKENIZER, Export, Way
from .words import Words

if TYPE_CHECKING:
    from ..explain.explanation import Explanation

# What a classifier in torch has beside its model, which every other command asks for.
_IN_TORCH = ("model", "fit", "save", "export", "optimize", "certificate", "new_head", "with_model", "seen")


class ExportedClassifier(WithSpeed, Predictor):
    """A classifier in another runtime, with the verbs of `PyramidClassifier` that predict.

    Example:
        clf = ExportedClassifier.load("fast")
        clf.predict(["a fine film"])

    Attributes:
        record: What was exported.
        labels: What the model predicts.
        max_length: Texts are cut to this many tokens; None refuses texts that are too long for the model.
        front: The speeds of an elastic model, which `speed` chooses from; None for a model with one speed.
    """

    def __init__(
        self,
        export: Export,
        folder: GraphFolder,
        tokenizer: Any,
        labels: Labels,
        max_length: int | None = None,
        front: Front | None = None,
    ) -> None:
        self.record, self.labels, self.max_length, self.front = export, labels, max_length, front
        self.tokenizer, self._folder = tokenizer, folder
        self._take(export.ways[0])

    @classmethod
    def load(cls, folder: str | Path, *, threads: int | None = None) -> ExportedClassifier:
        """The classifier in a folder; `threads` are those of the runtime and of our loops, None for all cores.

        Warns if it will be slow on this processor.
        """
        made = cls.opened(folder, threads=threads)
        if (doubt := made.record.doubt) is not None:
            warnings.warn(doubt, stacklevel=2)
        return made

    @classmethod
    def opened(cls, folder: str | Path, *, threads: int | None = None) -> ExportedClassifier:
        """The same as `load`, without a warning."""
        check_path("folder", folder)
        if threads is not None:
            check_number("threads", threads, 1, hint="None takes all cores", whole=True)
        folder = Path(folder)
        if not is_exported(folder):
            raise CheckpointError(f"{folder} holds no exported model ({FILE}); make one with clf.export(folder)")
        export, record = Export.load(folder), read_record(folder)
        get_runtime(export.runtime).check(export.precision)
        classes = record.get("classes")
        labels = Labels(None if classes is None else tuple(classes), bool(record.get("numbered")))
        if labels.outputs != export.outputs:
            named = f"it names {labels.described}, and the graphs give {export.outputs} numbers"
            raise CheckpointError(f"{folder / RECORD} is of another model: {named}; {AGAIN}")
        tokenizer, front = Words(folder / TOKENIZER), Front.load(folder)
        return cls(export, GraphFolder(folder, export, threads), tokenizer, labels, record.get("max_length"), front)

    @property
    def settings(self) -> PyramidConfig | None:
        """The pyramid's settings; None for a dense model."""
        return self._way.pyramid

    def become(self, settings: PyramidConfig) -> None:
        """Runs as another pyramid of the front from now on."""
        self._take(next(way for way in self.record.ways if way.pyramid == settings))

    def _take(self, way: Way) -> None:
        self._way, self._graphs = way, self._folder.graphs(way)

    @property
    def positions(self) -> int:
        """The most tokens that the model reads."""
        return self.record.positions

    def encode(self, texts: Iterable[Any], *, where: Where | None = None, remedy: str = CUT) -> list[Encoded]:
        """The texts as token ids, at their true lengths; see `PyramidClassifier.encode`."""
        given = listed(texts)
        if isinstance(given[0], Encoded):
            return given
        longest, cut = self.positions, self.max_length
        return encode(self.tokenizer, texts, positions=longest, max_length=cut, where=where, remedy=remedy)

    def answers(
        self,
        texts: Iterable[Any],
        *,
        batch_size: int = 32,
        progress: bool = False,
        radius: bool = False,
        fallback: float | None = None,
        score: str | None = None,
        streaming: bool = False,
    ) -> Answers:
        """The raw outputs; see `Predictor.answers`. It cannot run a text again with all tokens."""
        check_score(score)
        if fallback is not None or streaming:
            raise PyramidError("an exported pyramid cannot run again with all tokens; use the model that was exported")
        items, radii = self.encode(texts), self._radii() if radius else None
        logits = np.zeros((len(items), self.known_labels().outputs), dtype=np.float32)
        found = np.zeros((len(items), self.record.layers), dtype=np.float32)
        batches = sorted_batches([len(item) for item in items], batch_size)
        with steps_shown("predicting", len(batches), shown=progress) as step:
            for rows in batches:
                logits[rows] = self._logits([items[i] for i in rows], radii)
                if radii is not None:
                    found[rows] = radii.coverage.radius
                step()
        return Answers(logits, found if radius else None)

    def explain(self, text: Text) -> Explanation:
        """Which tokens of a text survive to which layer, where the others go, and the prediction.

        What the model would say with all tokens is not known: that needs the model that was exported.
        """
        from ..explain.explanation import explanation_of  # it is drawn by rich, which nothing else here needs

        if self.settings is None:
            raise PyramidError("a dense model drops no token, so there is nothing to explain; export a pyramid")
        (item,), trace = self.encode([text]), Trace()
        logits = self._logits([item], trace)
        tokens = tuple(self.tokenizer.convert_ids_to_tokens(item.input_ids))
        return explanation_of(text, tokens, trace, self.record.layers, self.known_labels(), self.settings, logits)

    def __getattr__(self, name: str) -> Any:
        """Only what the class lacks is asked for here."""
        if name in _IN_TORCH:
            raise PyramidError(f"an exported model has no {name!r}; use the model that was exported")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _logits(self, items: list[Encoded], record: Recorder | None = None) -> Any:
        """(B, C) of a batch."""
        batch = padded(items, self.record.pad_id)
        types = batch.get("token_type_ids") if self.record.types else None
        seed = 0 if self.settings is None else self.settings.seed
        return self._graphs(batch["input_ids"], types, [len(item) for item in items], record, seed=seed)[0]

    def _radii(self) -> Radii:
        if self.settings is None or isinstance(get_selector(self.settings.selector), Grouper):
            raise PyramidError("only a pyramid that keeps tokens as they are has a covering radius; leave it out")
        return Radii(self.record.layers)


@dataclass(frozen=True, eq=False)
class GraphFolder:
    """The graphs in a folder. Each is compiled when a way first needs it.

    Attributes:
        folder: Where they are.
        export: What was exported.
        threads: Of the runtime and of our loops; None for all cores.
    """

    folder: Path
    export: Export
    threads: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "_compiled", dict[str, Graph]())

    def graphs(self, way: Way) -> Graphs:
        """The graphs of a way, ready to run."""
        settings, held = way.pyramid or PyramidConfig(schedule=Schedule.constant(1.0)), SimpleNamespace()
        if settings.metric == "sensitivity":
            with translating(CheckpointError, f"{self.folder / SENSITIVITY} is damaged", AGAIN):
                held.sensitivity = np.load(self.folder / SENSITIVITY, allow_pickle=False)
        layers: list[None] = [None] * self.export.layers
        plan, reducer = plan_and_reducer(settings, layers, HALVES, held, cls_only=settings.cls_only)
        ends = [(layer, half) for layer, half, _ in way.stretches]
        steps: list[Any] = [(step.number, step.half) for step in plan.steps([1])]
        if [step for step in steps if step in ends] != ends or ends[-1] != steps[-1]:
            raise CheckpointError(f"{self.folder / FILE} is damaged: no pass of this pyramid ends at {ends}; {AGAIN}")
        stretches: Any = {(layer, half): self._graph(file) for layer, half, file in way.stretches}
        types, positions = self.export.types, self.export.reads_positions
        return Graphs(plan, reducer, stretches, types, positions, self.threads)

    def _graph(self, name: str) -> Graph:
        compiled: dict[str, Graph] = self._compiled  # type: ignore[attr-defined]
        if name not in compiled:
            file, runtime, export = self.folder / name, get_runtime(self.export.runtime), self.export
            here, then = runtime.version, export.made_with.get(runtime.name, "")
            what, remedy = f"{file} is damaged", AGAIN
            if then and then != here:
                what = f"{file} was written with {runtime.name} {then} and cannot be read by {here}, or is damaged"
                remedy = f"pip install {runtime.name}=={then}, or {AGAIN}"
            with translating(CheckpointError, what, remedy):
                graph = runtime.functions.load(file, export.precision, self.threads)
            export.check_fits(file, graph.inputs, graph.widths)
            compiled[name] = graph
        return compiled[name]


def is_exported(folder: str | Path) -> bool:
    """Whether a folder holds an exported model. False also for what can name no folder."""
    try:
        return (Path(folder) / FILE).is_file()
    except (OSError, ValueError):
        return False
