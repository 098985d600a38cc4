"""PyramidReranker: the best documents for a query, from any reranker of transformers or sentence-transformers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from numpy.typing import NDArray

from .boundary import read_object
from .checks import check_choice, check_number, check_path
from .config import PyramidConfig
from .errors import CheckpointError, DataError, UnsupportedModelError, shown
from .export.classifier import ExportedClassifier, is_exported
from .front import Front, WithSpeed
from .ranking.files import check_list, ranked_by
from .schedule.base import Schedule
from .text.activations import ACTIVATIONS, Activation, activated, named_in, note
from .text.batches import Encoded
from .text.labels import read_record
from .text.pairs import Pairs

if TYPE_CHECKING:
    import torch

    from .classifier import PyramidClassifier
    from .export.report import ExportReport

# What sentence-transformers writes beside a model.
CROSS_ENCODER, MODULES = "config_sentence_transformers.json", "modules.json"
_FETCH = "fetch or save the model again"


class PyramidReranker(WithSpeed):
    """Ranks documents by their relevance to a query. The model inside is a pyramid, or dense.

    Example:
        rr = PyramidReranker.load("my-reranker")
        rr.rank("which film is good?", documents, top_k=10)

    Attributes:
        classifier: The model with its tokenizer, in torch or exported; it predicts one number for a pair of texts.
        activation: What turns that number into a score: "sigmoid", "identity" or "tanh". It changes no order.
    """

    def __init__(
        self, classifier: PyramidClassifier | ExportedClassifier, *, activation: Activation = "sigmoid"
    ) -> None:
        check_choice("activation", activation, ACTIVATIONS)
        labels = classifier.labels
        if labels is not None and labels.outputs != 1:
            raise UnsupportedModelError(
                f"this model has a head that gives no score: it predicts {labels.described}; a reranker has one output"
            )
        self.classifier: Any = classifier
        self.activation = activation
        self._pairs: tuple[int, Pairs] | None = None

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        activation: Activation | None = None,
        attn_implementation: str | None = None,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
    ) -> PyramidReranker:
        """The reranker in a folder: of transformers, of sentence-transformers' CrossEncoder, or exported.

        Args:
            folder: The folder.
            activation: What turns the model's number into a score; None takes the saved one, else "sigmoid".
            attn_implementation: "sdpa" (default) or "eager".
            device: "cpu", "cuda", "mps"; None takes the accelerator that torch sees, else the CPU.
            dtype: The precision of the weights, like "bfloat16".
        """
        check_path("folder", folder)
        how: dict[str, Any] = {"attn_implementation": attn_implementation, "device": device, "dtype": dtype}
        chosen = activation or saved_activation(folder)
        if is_exported(folder) and all(value is None for value in how.values()):  # without torch
            return cls(ExportedClassifier.load(folder), activation=chosen)
        from .classifier import PyramidClassifier

        return cls(PyramidClassifier.load(folder, **how), activation=chosen)

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path,
        schedule: Schedule | Literal["dense"] | None = None,
        selector: str | None = None,
        *,
        activation: Activation | None = None,
        **parameters: Any,
    ) -> PyramidReranker:
        """A reranker from any model, to be trained if its head is new; see `PyramidClassifier.from_pretrained`."""
        from .classifier import PyramidClassifier

        chosen = activation or saved_activation(path)
        return cls(PyramidClassifier.from_pretrained(path, schedule, selector, **parameters), activation=chosen)

    def score(
        self, query: str, documents: Iterable[str], *, batch_size: int = 32, progress: bool = False
    ) -> NDArray[Any]:
        """The scores (n,) of the documents, in their order. They run sorted by length.

        Args:
            query: The query.
            documents: At least one text.
            batch_size: Documents at a time.
            progress: Show a progress bar.
        """
        return self.score_lists([(query, documents)], batch_size=batch_size, progress=progress)[0]

    def score_lists(
        self, lists: Iterable[tuple[str, Iterable[str]]], *, batch_size: int = 32, progress: bool = False
    ) -> list[NDArray[Any]]:
        """The scores of the documents of several queries. Documents of all lists run together, sorted by length.

        Args:
            lists: Queries with their documents.
            batch_size: Documents at a time.
            progress: Show a progress bar.
        """
        encoded = [self.encode(query, documents) for query, documents in lists]
        items = [item for one in encoded for item in one]
        if not items:
            raise DataError("no lists given; give at least one query with its documents")
        logits = self.classifier.predict_logits(items, batch_size=batch_size, progress=progress)
        scores = activated(logits[:, 0], self.activation)
        ends = list(accumulate(map(len, encoded)))
        return [scores[end - len(one) : end] for end, one in zip(ends, encoded, strict=True)]

    def rank(
        self, query: str, documents: Iterable[str], top_k: int | None = 10, *, batch_size: int = 32
    ) -> list[dict[str, Any]]:
        """The best documents, the best first, as CrossEncoder gives them: `corpus_id`, `score` and `text` of each.

        Args:
            query: The query.
            documents: At least one text.
            top_k: How many are returned; None for all.
            batch_size: Documents at a time.
        """
        if top_k is not None:
            check_number("top_k", top_k, 1, hint="None returns all", whole=True, error=DataError)
        _, documents = check_list(query, documents)
        scores = self.score(query, documents, batch_size=batch_size).tolist()
        best = ranked_by(scores)[:top_k]
        return [{"corpus_id": i, "score": scores[i], "text": documents[i]} for i in best]

    def encode(self, query: str, documents: Iterable[str]) -> list[Encoded]:
        """The pairs of the query and each document as token ids; those that are too long are cut."""
        query, documents = check_list(query, documents)
        longest = self.max_length
        if self._pairs is None or self._pairs[0] != longest:
            self._pairs = longest, _pairs_of(self.classifier.tokenizer, longest)
        return self._pairs[1](query, documents)

    @property
    def max_length(self) -> int:
        """Pairs are cut to this many tokens: as it was saved, else all that the model and its tokenizer take."""
        if self.classifier.max_length is not None:
            return int(self.classifier.max_length)
        named = getattr(self.classifier.tokenizer, "model_max_length", None)
        return int(min(self.classifier.positions, named or self.classifier.positions))

    @max_length.setter
    def max_length(self, longest: int) -> None:
        limits = (2, self.classifier.positions)
        check_number("max_length", longest, *limits, "the model reads no more", whole=True, error=DataError)
        self.classifier.max_length = longest

    def save(self, folder: str | Path, *, run: Mapping[str, Any] | None = None) -> None:
        """Writes the model to a folder that `load` and CrossEncoder read; `run` says what trained it."""
        self._note_activation()
        self.classifier.save(folder, run=run)

    def export(
        self,
        folder: str | Path,
        *,
        runtime: str = "openvino",
        precision: str = "fp32",
        lists: Iterable[tuple[str, Sequence[str]]] = (),
        progress: bool = False,
    ) -> ExportReport:
        """Writes the reranker for another runtime, where it runs without torch, and returns what was measured.

        Args:
            folder: Where it goes; an exported model that is there is replaced.
            runtime: "openvino" or "onnxruntime".
            precision: "fp32", "bf16", or "int8" with scales that are measured on a part of the lists.
            lists: Queries with their documents, like those that it will be used on; int8 takes at least 50 documents.
                Those that scales were not measured on are run before and after.
            progress: Show progress bars.
        """
        self._note_activation()
        items = [item for query, documents in lists for item in self.encode(query, documents)]
        own, self.classifier.max_length = self.classifier.max_length, self.max_length  # the tokenizer's is not exported
        try:
            how: dict[str, Any] = {"runtime": runtime, "precision": precision, "progress": progress}
            report: ExportReport = self.classifier.export(folder, texts=items or None, **how)
            return report
        finally:
            self.classifier.max_length = own

    @property
    def settings(self) -> PyramidConfig | None:
        """The pyramid's settings; None for a dense model."""
        found: PyramidConfig | None = self.classifier.settings
        return found

    def become(self, settings: PyramidConfig) -> None:
        """Runs as another pyramid from now on, with the same weights."""
        self.classifier.become(settings)

    @property
    def front(self) -> Front | None:  # type: ignore[override]
        """The speeds of an elastic model; None for a model with one speed."""
        found: Front | None = self.classifier.front
        return found

    def _note_activation(self) -> None:
        """Writes the activation where it is saved with the model; raises for an exported one."""
        note(self.classifier.model.config, self.activation)


def _pairs_of(tokenizer: Any, longest: int) -> Pairs:
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise UnsupportedModelError("this model has a tokenizer in Python only; a reranker needs a fast one")
    return Pairs(backend, longest, types="token_type_ids" in tokenizer.model_input_names)


def saved_activation(path: str | Path) -> Activation:
    """The activation that a folder names, else sigmoid; raises for a CrossEncoder that is no sequence classifier."""
    if is_exported(path):
        return named_in({"activation_fn": read_record(path).get("activation")}, str(path)) or "sigmoid"
    from .families.loading import model_folder

    folder = model_folder(path)
    if (folder / MODULES).is_file():
        _check_modules(folder)
    for file in (folder / CROSS_ENCODER, folder / "config.json"):
        data = read_object(file, CheckpointError, _FETCH) if file.is_file() else {}
        if data.get("default_prompt_name") is not None:
            raise UnsupportedModelError(
                f"{folder} puts the prompt {shown(data['default_prompt_name'])} before texts; use its CrossEncoder"
            )
        if (named := named_in(data, str(file))) is not None:
            return named
    return "sigmoid"


def _check_modules(folder: Path) -> None:
    try:
        kinds = [str(module["type"]).rpartition(".")[2] for module in json.loads((folder / MODULES).read_text("utf-8"))]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise CheckpointError(f"{folder / MODULES} is damaged; {_FETCH}") from error
    if kinds != ["Transformer"]:
        raise UnsupportedModelError(
            f"{folder} is a modular CrossEncoder ({', '.join(kinds)}); pyramidize(CrossEncoder({str(folder)!r}), ...) "
            "runs it, PyramidReranker takes a sequence classifier"
        )
