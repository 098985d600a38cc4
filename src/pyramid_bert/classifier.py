"""PyramidClassifier: a text classifier with scikit-learn's verbs, from any BERT checkpoint."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import torch
from numpy.typing import NDArray

from .certificate import FILE as CERTIFICATE
from .certificate import Answers, Certificate, answers
from .config import PyramidConfig
from .errors import CheckpointError, DataError, PyramidError
from .explain.explanation import Explanation
from .explain.tracing import explain
from .families import new_head, positions_of
from .families.hub import apply_settings, is_pyramid, pyramid_settings, restore
from .families.loading import load_model, load_tokenizer
from .files import check_replaceable, replacing_folder, write_text
from .runtimes.packed import Optimization, optimize
from .runtimes.processes import first_process
from .schedule.base import Schedule
from .text.batches import Encoded, collate, encode
from .text.inference import outputs_of
from .text.labels import Labels
from .text.metrics import metrics_of
from .text.tables import Text
from .training.distillation import check_teacher
from .training.trainer import LOG, Dev, TrainingData, TrainSettings, finetune, log_text, quiet_transformers

_RECORD = "classifier.json"
# What a model folder may hold: `save` replaces the folder, and must not take anything else with it.
WRITTEN = (
    *("config.json", _RECORD, "model*.safetensors*", "*token*.json", "vocab.txt", "checkpoints", LOG, CERTIFICATE),
    ".*",
)


class PyramidClassifier:
    """A classifier (or regressor) of texts or pairs of texts.

    Example:
        clf = PyramidClassifier.from_pretrained("path/to/bert", schedule=Schedule.exponential(0.25, last_layer=6))
        clf.fit(texts, labels)
        clf.predict(["a fine film"])

    Attributes:
        model: The transformers model, a pyramid unless asked otherwise.
        tokenizer: Its tokenizer.
        labels: What the model predicts; None until it is known.
        max_length: Texts are cut to so many tokens; None refuses texts that are too long for the model.
        history: The log of the last `fit`: losses, learning rates and metrics by step.
        certificate: How likely its answers differ from the dense model's; None until one is fitted.
    """

    def __init__(
        self, model: Any, tokenizer: Any, *, labels: Labels | None = None, max_length: int | None = None
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.labels = labels
        self.max_length = max_length
        self.history: list[dict[str, Any]] = []
        self.certificate: Certificate | None = None

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path,
        schedule: Schedule | Literal["dense"] | None = None,
        selector: str | None = None,
        *,
        max_length: int | None = None,
        attn_implementation: str | None = None,
        **settings: Any,
    ) -> PyramidClassifier:
        """A classifier from a bare encoder, a dense classifier, or a saved pyramid.

        Args:
            path: The folder of the model, or its name on the hub.
            schedule: How many tokens each layer keeps. None keeps a saved pyramid's own, and takes
                `default_schedule` for a dense model; "dense" drops nothing.
            selector: Which tokens stay; "coreset" unless a saved pyramid has another.
            max_length: Cut texts to so many tokens; a saved classifier's own if None.
            attn_implementation: "sdpa" (default) or "eager".
            **settings: The further fields of `PyramidConfig`.
        """
        with quiet_transformers():
            model, new_head = load_model(path, attn_implementation=attn_implementation)
            tokenizer = load_tokenizer(path)
        saved = pyramid_settings(model)
        if selector is not None:
            settings["selector"] = selector
        if schedule == "dense":
            if settings:
                raise PyramidError(f"a dense model has no {', '.join(settings)}; leave out schedule='dense'")
            restore(model)
        else:
            apply_settings(model, schedule, settings)
        if max_length is None:
            max_length = (_read_record(path) or {}).get("max_length")
        made = cls(model, tokenizer, labels=None if new_head else _saved_labels(path, model), max_length=max_length)
        if made.settings is not None and made.settings == saved:  # a certificate speaks of this pyramid alone
            made.certificate = Certificate.load(path)
        return made

    # ---- scikit-learn's verbs ----

    def fit(
        self,
        texts: Sequence[Text],
        labels: Sequence[Any],
        *,
        settings: TrainSettings | None = None,
        teacher: PyramidClassifier | None = None,
        dev: tuple[Sequence[Text], Sequence[Any]] | None = None,
        output_dir: str | Path | None = None,
        log_dir: str | Path | None = None,
        progress: bool = True,
        **changes: Any,
    ) -> PyramidClassifier:
        """Fine-tunes on texts and labels, and returns itself. Float labels make it a regressor.

        Args:
            texts: Texts, or pairs of texts.
            labels: One a text: strings or ints for classes, floats for regression.
            settings: How to train.
            teacher: A trained classifier, usually dense, whose outputs for the texts are learned beside the labels.
            dev: Texts and labels to evaluate on after each epoch; `history` keeps the metrics, and the setting
                `patience` stops early by them.
            output_dir: Where checkpoints and a log go; a stopped run with the same arguments goes on from there.
            log_dir: Where event files for TensorBoard go.
            progress: Show a bar.
            **changes: Single fields of `TrainSettings`, instead of `settings`.
        """
        if settings is not None and changes:
            raise PyramidError("give fit either settings or single fields of TrainSettings, not both")
        settings = settings or TrainSettings(**changes)
        found = Labels.of(labels, len(texts))
        if teacher is not None and found.fits_into(teacher.known_labels()):
            found = teacher.known_labels()
        new_head = self.labels is None or not found.fits_into(self.labels)
        known = found if new_head or self.labels is None else self.labels
        if teacher is not None:
            check_teacher(teacher, self, known, hidden=settings.hidden_weight > 0)
        data = self._training_data(texts, labels, known)
        measured = None if dev is None else self._dev(*dev, known, settings)
        if new_head:
            self.new_head(known, settings.seed)
        self.certificate = None  # it spoke of the weights that there were
        self.history = finetune(
            self.model,
            self.tokenizer,
            data,
            settings,
            teacher=None if teacher is None else teacher.model,
            dev=measured,
            output_dir=output_dir,
            log_dir=log_dir,
            progress=progress,
            title="training the pyramid" if is_pyramid(self.model) else "training the dense model",
        )
        return self

    def _training_data(self, texts: Sequence[Text], labels: Sequence[Any], known: Labels) -> TrainingData:
        targets = known.targets(labels, texts=len(texts))
        return TrainingData(self.encode(texts), targets, self.tokenizer.pad_token_id)

    def _dev(self, texts: Sequence[Text], labels: Sequence[Any], known: Labels, settings: TrainSettings) -> Dev:
        """The dev data, and how to measure on it in the middle of training."""
        data = self._training_data(texts, labels, known)
        metric = settings.metric_for(regression=known.classes is None)
        # A dry run: what would fail after the first epoch fails now.
        metrics_of(known, labels, np.arange(len(data) * known.outputs).reshape(len(data), known.outputs))

        def measure() -> dict[str, float]:
            size = settings.eval_batch_size
            outputs = outputs_of(self.model, data.items, data.pad_id, batch_size=size, share=True)
            return metrics_of(known, labels, outputs.logits.numpy())

        return Dev(data, measure, metric)

    @overload
    def predict(self, texts: Sequence[Text], *, return_radius: Literal[False] = ..., **how: Any) -> NDArray[Any]: ...
    @overload
    def predict(
        self, texts: Sequence[Text], *, return_radius: Literal[True], **how: Any
    ) -> tuple[NDArray[Any], NDArray[Any]]: ...
    def predict(self, texts: Sequence[Text], *, return_radius: bool = False, **how: Any) -> Any:
        """The predicted label of each text: (n,), or numbers for a regressor.

        Args:
            texts: Texts, or pairs of texts.
            return_radius: Also return the covering radius (n, layers) of each layer, 0 where it drops nothing. The
                core-set that is chosen step by step knows it anyway; all others compute it for this.
            **how: `batch_size`, `progress`, and `fallback`, a share of the texts to run again; see `answers`.
        """
        found = self.answers(texts, radius=return_radius, **how)
        labels = self.known_labels().decode(found.logits)
        return (labels, found.radius) if return_radius else labels

    @overload
    def predict_proba(
        self, texts: Sequence[Text], *, return_radius: Literal[False] = ..., **how: Any
    ) -> NDArray[Any]: ...
    @overload
    def predict_proba(
        self, texts: Sequence[Text], *, return_radius: Literal[True], **how: Any
    ) -> tuple[NDArray[Any], NDArray[Any]]: ...
    def predict_proba(self, texts: Sequence[Text], *, return_radius: bool = False, **how: Any) -> Any:
        """The probability of each class for each text: (n, classes), columns in the order of `classes_`.

        Takes what `predict` takes.
        """
        if self.known_labels().classes is None:
            raise PyramidError("a regressor has no probabilities; use predict")
        found = self.answers(texts, radius=return_radius, **how)
        chances = torch.from_numpy(found.logits).softmax(dim=1).numpy()
        return (chances, found.radius) if return_radius else chances

    def predict_logits(self, texts: Sequence[Text], **how: Any) -> NDArray[Any]:
        """The raw outputs of the model: (n, classes). Texts run sorted by length and come back in their own order."""
        return self.answers(texts, **how).logits

    def answers(self, texts: Sequence[Text], **how: Any) -> Answers:
        """The raw outputs and what else is known of them: covering radii, which texts were run again, and why.

        Args:
            texts: Texts, or pairs of texts.
            **how: `batch_size` and `progress`; `radius=True` for the covering radii; `fallback`, the share of the
                texts that is run again with all tokens, the most doubtful first; `streaming=True` to run again what
                reaches the threshold of the `certificate` for that share, whatever else is in the list.
        """
        return answers(self, texts, **how)

    def evaluate(
        self, texts: Sequence[Text], labels: Sequence[Any], *, batch_size: int = 32, progress: bool = False
    ) -> dict[str, float]:
        """Metrics by name: accuracy, f1 and matthews for classes; spearman, pearson and rmse for numbers."""
        known = self.known_labels()
        known.targets(labels, texts=len(texts))  # refuses unknown labels before any work
        logits = self.predict_logits(texts, batch_size=batch_size, progress=progress)
        return metrics_of(known, labels, logits)

    @property
    def classes_(self) -> NDArray[Any]:
        """The classes, in the order of the columns of `predict_proba`."""
        classes = self.known_labels().classes
        if classes is None:
            raise PyramidError("a regressor has no classes")
        return np.array(classes)

    # ---- beyond them ----

    def explain(self, text: Text) -> Explanation:
        """Which tokens of a text survive to which layer, where the others go, and what comes out of it."""
        (item,) = self.encode([text])
        batch = collate([item], self.tokenizer.pad_token_id)
        return explain(self.model, self.tokenizer, self.known_labels(), text, batch)

    def optimize(self, how: Optimization = "packed") -> PyramidClassifier:
        """Faster weights for inference on a CPU, and returns itself; see `optimize`. What is saved stays the same."""
        optimize(self.model, how)
        return self

    def save(self, folder: str | Path) -> None:
        """Writes model, tokenizer and labels to a folder, from which `load` and the Auto classes read them.

        Where several processes train together the first one writes.
        """
        if not first_process():
            return
        target = Path(folder)
        check_replaceable(target, WRITTEN)
        known = self.known_labels()
        with quiet_transformers(), replacing_folder(target) as scratch:
            self.model.save_pretrained(scratch)
            self.tokenizer.save_pretrained(scratch)
            record = {"format": 1, "classes": known.classes, "numbered": known.numbered, "max_length": self.max_length}
            write_text(scratch / _RECORD, json.dumps(record, ensure_ascii=False, indent=1))
            if self.history:
                write_text(scratch / LOG, log_text(self.history))
            if self.certificate is not None:
                self.certificate.save(scratch)

    @classmethod
    def load(cls, folder: str | Path, *, attn_implementation: str | None = None) -> PyramidClassifier:
        """The classifier that `save` wrote, dense or pyramid as it was."""
        with quiet_transformers():
            model, new_head = load_model(folder, attn_implementation=attn_implementation)
            tokenizer = load_tokenizer(folder)
        if new_head:
            kind = ", ".join(model.config.architectures or [type(model).__name__])
            raise CheckpointError(
                f"{folder} ({kind}) holds an encoder without a trained classifier that gives a text one label; train "
                f"one with `pyramid-bert train --model {folder}`, or with from_pretrained and fit"
            )
        max_length = (_read_record(folder) or {}).get("max_length")
        loaded = cls(model, tokenizer, labels=_saved_labels(folder, model), max_length=max_length)
        loaded.certificate = Certificate.load(folder)
        return loaded

    @property
    def settings(self) -> PyramidConfig | None:
        """The pyramid's settings; None for a dense model."""
        return pyramid_settings(self.model)

    def encode(self, texts: Sequence[Text]) -> list[Encoded]:
        """The texts as the model reads them, at their true lengths."""
        positions = positions_of(self.model)
        return encode(self.tokenizer, texts, positions=positions, max_length=self.max_length)

    def known_labels(self) -> Labels:
        """What the model predicts; raises when it has not learned anything yet."""
        if self.labels is None:
            raise PyramidError("this model has no trained classifier yet; call fit(texts, labels) first")
        return self.labels

    def new_head(self, labels: Labels, seed: int) -> None:
        """A fresh classifier layer for these labels; its weights depend on the seed alone."""
        model = self.model
        new_head(model, labels.outputs, seed)
        model.config.problem_type = "regression" if labels.classes is None else "single_label_classification"
        if labels.classes is not None:
            model.config.id2label = {i: str(name) for i, name in enumerate(labels.classes)}
            model.config.label2id = {str(name): i for i, name in enumerate(labels.classes)}
        self.labels = labels


def _read_record(path: str | Path) -> dict[str, Any] | None:
    file = Path(path) / _RECORD
    if not file.is_file():
        return None
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise CheckpointError(f"{file} is damaged: {error}") from error
    if not isinstance(record, dict) or "classes" not in record:
        raise CheckpointError(f"{file} is damaged: it names no classes")
    return record


def _saved_labels(path: str | Path, model: Any) -> Labels:
    """The labels of a trained classifier: as we saved them, or as transformers names them."""
    record = _read_record(path)
    if record is not None:
        classes = record["classes"]
    elif model.config.num_labels == 1:
        classes = None
    else:
        classes = [model.config.id2label[i] for i in range(model.config.num_labels)]
    labels = Labels(None if classes is None else tuple(classes), bool((record or {}).get("numbered")))
    if labels.outputs != model.config.num_labels:
        raise DataError(f"{path} names {labels.outputs} classes, but its model has {model.config.num_labels} outputs")
    return labels


__all__ = ["PyramidClassifier"]
