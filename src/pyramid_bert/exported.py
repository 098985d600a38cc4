"""A classifier that was exported to another runtime: it predicts without torch and without transformers.

The folder that `runtimes.export` writes holds graphs, the tokenizer and `exported.json`, which says how they belong
together. Everything else that a classifier can do (train, certify) needs the model that was exported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from .boundary import read_object, translating
from .checks import check_choice, check_number
from .config import PyramidConfig
from .core.record import Radii
from .core.selectors import Grouper, get_selector
from .errors import CheckpointError, MissingExtraError, PyramidError
from .planning import plan_and_reducer
from .progress import Bar
from .runtimes.graphs import Graph, Graphs
from .schedule.base import Schedule
from .text.batches import CUT, Encoded, encode, padded, sorted_batches
from .text.labels import Labels, Where, read_record
from .text.predicting import Answers, Predictor, listed

FILE, FORMAT = "exported.json", 1
TOKENIZER, SENSITIVITY = "tokenizer.json", "sensitivity.npy"
RUNTIMES = ("openvino",)
_AGAIN = "export the model again"


@dataclass(frozen=True)
class Export:
    """What `exported.json` says.

    Attributes:
        runtime: Which runtime takes the graphs.
        precision: In which precision it runs them.
        layers: Of the model.
        positions: The most tokens that it reads.
        pad_id: The id of the padding token.
        types: Whether it reads token types.
        pyramid: The settings of the pyramid; None for a dense model.
        stretches: The layer and half after which each graph ends, and its file.
    """

    runtime: str
    precision: str
    layers: int
    positions: int
    pad_id: int
    types: bool
    pyramid: PyramidConfig | None
    stretches: tuple[tuple[int, str, str], ...]

    def to_dict(self) -> dict[str, Any]:
        """As JSON."""
        return {**vars(self), "pyramid": None if self.pyramid is None else self.pyramid.to_dict(), "format": FORMAT}

    @classmethod
    def load(cls, folder: Path) -> Export:
        """What was exported to a folder."""
        path = folder / FILE
        data = read_object(path, CheckpointError, _AGAIN)
        with translating(CheckpointError, f"{path} is damaged", _AGAIN):
            hint = "a newer release wrote it: pip install -U pyramid-bert"
            check_number(f"{path}: format", data["format"], 1, FORMAT, hint, whole=True, error=CheckpointError)
            check_choice("runtime", data["runtime"], RUNTIMES)
            for name in ("layers", "positions", "pad_id"):
                check_number(f"{path}: {name}", data[name], 0, whole=True, error=CheckpointError)
            pyramid = None if data["pyramid"] is None else PyramidConfig.from_dict(data["pyramid"])
            stretches = tuple((int(number), str(half), Path(file).name) for number, half, file in data["stretches"])
            plain = {name: data[name] for name in ("runtime", "precision", "layers", "positions", "pad_id", "types")}
        missing = [file for *_, file in stretches if not (folder / file).is_file()]
        if missing or not stretches:
            raise CheckpointError(f"{folder} lacks {', '.join(missing) or 'graphs'}; {_AGAIN}")
        return cls(**plain, pyramid=pyramid, stretches=stretches)


class ExportedClassifier(Predictor):
    """A classifier in another runtime, with the verbs of `PyramidClassifier` that predict.

    Example:
        clf = ExportedClassifier.load("fast")
        clf.predict(["a fine film"])

    Attributes:
        export: What was exported.
        labels: What the model predicts.
        max_length: Texts are cut to this many tokens; None refuses texts that are too long for the model.
        settings: The pyramid's settings; None for a dense model.
    """

    def __init__(
        self, export: Export, graphs: Graphs, tokenizer: Any, labels: Labels, max_length: int | None = None
    ) -> None:
        self.export, self.labels, self.max_length, self.settings = export, labels, max_length, export.pyramid
        self.tokenizer, self._graphs = tokenizer, graphs
        self._seed = 0 if self.settings is None else self.settings.seed

    @classmethod
    def load(cls, folder: str | Path, *, threads: int | None = None) -> ExportedClassifier:
        """The classifier in a folder; `threads` are those of the runtime, None for all cores."""
        folder = Path(folder)
        if not (folder / FILE).is_file():
            raise CheckpointError(f"{folder} holds no exported model ({FILE}); make one with clf.export(folder)")
        export, record = Export.load(folder), read_record(folder)
        classes = record.get("classes")
        labels = Labels(None if classes is None else tuple(classes), bool(record.get("numbered")))
        graphs = _graphs(folder, export, threads)
        return cls(export, graphs, Words(folder / TOKENIZER), labels, record.get("max_length"))

    def encode(self, texts: Iterable[Any], *, where: Where | None = None, remedy: str = CUT) -> list[Encoded]:
        """The texts as token ids, at their true lengths; see `PyramidClassifier.encode`."""
        given = listed(texts)
        if isinstance(given[0], Encoded):
            return given
        longest, cut = self.export.positions, self.max_length
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
        if fallback is not None or streaming:
            raise PyramidError("an exported pyramid cannot run again with all tokens; use the model that was exported")
        items, radii = self.encode(texts), self._radii() if radius else None
        logits = np.zeros((len(items), self.known_labels().outputs), dtype=np.float32)
        found = np.zeros((len(items), self.export.layers), dtype=np.float32)
        batches = sorted_batches([len(item) for item in items], batch_size)
        with Bar(shown=progress) as bar:
            task = bar.add_task("predicting", total=len(batches))
            for rows in batches:
                some = [items[i] for i in rows]
                batch = padded(some, self.export.pad_id)
                types = batch.get("token_type_ids") if self.export.types else None
                counts = [len(item) for item in some]
                logits[rows], _ = self._graphs(batch["input_ids"], types, counts, radii, seed=self._seed)
                if radii is not None:
                    found[rows] = radii.coverage.radius
                bar.advance(task)
        return Answers(logits, found if radius else None)

    def _radii(self) -> Radii:
        if self.settings is None or isinstance(get_selector(self.settings.selector), Grouper):
            raise PyramidError("only a pyramid that keeps tokens as they are has a covering radius; leave it out")
        return Radii(self.export.layers)


class Words:
    """A tokenizer without transformers, called like one of its own."""

    def __init__(self, file: Path) -> None:
        try:
            from tokenizers import Tokenizer
        except ImportError as error:
            raise MissingExtraError("tokenizers", "openvino", "exported models") from error
        with translating(CheckpointError, f"{file} is damaged", _AGAIN):
            self._tokenizer = Tokenizer.from_file(str(file))
        self._tokenizer.no_padding()

    def __call__(
        self,
        first: Sequence[str],
        second: Sequence[str] | None = None,
        *,
        truncation: bool = False,
        max_length: int | None = None,
        **_: Any,
    ) -> Mapping[str, Any]:
        """The ids and types of texts, or of pairs of texts."""
        if truncation and max_length is not None:
            self._tokenizer.enable_truncation(max_length)
        else:
            self._tokenizer.no_truncation()
        found = self._tokenizer.encode_batch(list(first if second is None else zip(first, second, strict=True)))
        return {"input_ids": [one.ids for one in found], "token_type_ids": [one.type_ids for one in found]}


def _graphs(folder: Path, export: Export, threads: int | None) -> Graphs:
    """The graphs of a folder, compiled."""
    settings, held = export.pyramid or PyramidConfig(schedule=Schedule.constant(1.0)), SimpleNamespace()
    if settings.metric == "sensitivity":
        with translating(CheckpointError, f"{folder / SENSITIVITY} is damaged", _AGAIN):
            held.sensitivity = np.load(folder / SENSITIVITY, allow_pickle=False)
    plan, reducer = plan_and_reducer(
        settings, [None] * export.layers, ("attention", "feed_forward"), held, cls_only=settings.cls_only
    )
    compiled: dict[Any, Graph] = {}
    load = _loader(export, threads)
    for number, half, file in export.stretches:
        with translating(CheckpointError, f"{folder / file} is damaged", _AGAIN):
            compiled[number, half] = load(folder / file)
    return Graphs(plan, reducer, compiled, export.types)


def _loader(export: Export, threads: int | None) -> Callable[[Path], Graph]:
    from .runtimes.openvino import OpenVinoGraph

    return lambda file: OpenVinoGraph(file, export.precision, threads)
