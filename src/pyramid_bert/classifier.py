"""PyramidClassifier: a text classifier with scikit-learn's verbs, from any BERT checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any, Literal, cast

import torch

from .certificate import FILE as CERTIFICATE
from .certificate import Certificate, answers
from .checks import check_choice, check_path
from .config import PyramidConfig
from .errors import PyramidError, shown
from .estimator import Estimator
from .explain.explanation import Explanation
from .explain.tracing import explain
from .export.classifier import ExportedClassifier, is_exported
from .export.report import ExportReport
from .export.writing import export
from .families import new_head, positions_of
from .families.hub import is_pyramid, pyramid_settings, pyramidize
from .files import check_replaceable, replacing_folder, write_text
from .front import FILE as FRONT
from .front import Front, WithSpeed
from .parameters import PARAMETERS, load_parts
from .resuming import RUN, run_text
from .runtimes.packed import Optimization, optimize
from .runtimes.processes import first_process
from .schedule.base import Schedule
from .text.batches import CUT, Encoded, encode
from .text.inference import Outputs, collate
from .text.kind import TextKind
from .text.labels import RECORD, Labels, Target, Where, stand_ins
from .text.predicting import Answers, Predictor, listed
from .text.tables import Text
from .training import LOG, Dev, Levels, TrainingData, TrainSettings, finetune, log_text, quiet_transformers
from .training.distillation import check_teacher, taught_labels
from .training.settings import settings_for

# What a model folder may hold: `save` replaces the folder, and must not delete anything else.
_OF_TRANSFORMERS = "config.json model*.safetensors* *token*.json vocab.txt checkpoints .*"
WRITTEN = (RECORD, LOG, CERTIFICATE, FRONT, RUN, *_OF_TRANSFORMERS.split())
_DEFAULTS = TrainSettings()


class PyramidClassifier(WithSpeed, Predictor, Estimator):
    """A classifier (or regressor) of texts or pairs of texts, with scikit-learn's methods.

    The parameters are kept as they are given, and the model is loaded when it is first used. So `clone`,
    `cross_val_score`, `Pipeline` and `GridSearchCV` of scikit-learn take it like any other estimator.

    Example:
        clf = PyramidClassifier("path/to/bert", schedule=Schedule.exponential(0.25, last_layer=6))
        clf.fit(texts, labels)
        clf.predict(["a fine film"])

    Attributes:
        model: The transformers model, a pyramid unless asked otherwise.
        tokenizer: Its tokenizer.
        labels: What the model predicts; None until it is known.
        max_length: Texts are cut to this many tokens; None refuses texts that are too long for the model.
        history: The log of the last `fit`: losses, learning rates and metrics by step.
        certificate: How likely its answers differ from the dense model's; None until one is fitted.
        front: The speeds of an elastic model, which `speed` chooses from; None for a model with one speed.
        seen: The kind of texts that the last `fit` learned from; None if it is not known.
    """

    LOADED = ("model", "tokenizer", "labels", "max_length", "history", "certificate", "front", "seen")
    PARAMETERS = (*PARAMETERS, *(field.name for field in fields(PyramidConfig)))
    model: Any
    tokenizer: Any
    labels: Labels | None
    max_length: int | None
    history: list[dict[str, Any]]
    certificate: Certificate | None
    front: Front | None
    seen: TextKind | None

    def __init__(
        self,
        model: Any,
        tokenizer: Any = None,
        *,
        schedule: Schedule | Literal["dense"] | None = None,
        selector: str | None = None,
        labels: Labels | None = None,
        max_length: int | None = None,
        device: str | torch.device | None = None,
        attn_implementation: str | None = None,
        dtype: str | torch.dtype | None = None,
        training: TrainSettings = _DEFAULTS,
        **settings: Any,
    ) -> None:
        """Keeps the parameters.

        Args:
            model: The folder of a bare encoder, a dense classifier or a saved pyramid; its name on the hub; or a
                transformers model, left as it is unless a schedule or other settings are given.
            tokenizer: None takes the model's own.
            schedule: How many tokens each layer keeps. None keeps a saved pyramid's own, and takes
                `default_schedule` for a dense model; "dense" drops nothing.
            selector: Which tokens stay; "coreset" unless a saved pyramid has another.
            labels: What the model predicts; None takes a saved classifier's.
            max_length: Cut texts to this many tokens; None takes a saved classifier's.
            device: "cpu", "cuda", "mps"; None leaves a transformers model where it is, and loads others to the
                accelerator that torch sees, else to the CPU.
            attn_implementation: "sdpa" (default) or "eager".
            dtype: The precision of the weights, like "bfloat16"; None takes that in which `save` wrote them, and
                float32 for models of others. A transformers model keeps its own.
            training: How `fit` trains, unless it is told otherwise.
            **settings: The further fields of `PyramidConfig`.
        """
        given = {"model": model, "tokenizer": tokenizer, "schedule": schedule, "selector": selector, "labels": labels}
        given |= {"max_length": max_length, "device": device, "attn_implementation": attn_implementation}
        self._parameters = {**given, "dtype": dtype, "training": training, **settings}
        for name in settings:
            check_choice("parameter", name, self.PARAMETERS)

    @classmethod
    def from_pretrained(
        cls,
        path: str | Path,
        schedule: Schedule | Literal["dense"] | None = None,
        selector: str | None = None,
        **parameters: Any,
    ) -> PyramidClassifier:
        """The classifier with these parameters, loaded at once; see the constructor."""
        made = cls(path, schedule=schedule, selector=selector, **parameters)
        made._load()
        return made

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        attn_implementation: str | None = None,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
    ) -> PyramidClassifier:
        """The classifier that `save` wrote, dense or pyramid and in the precision as it was.

        For the folder of an exported model this is an `ExportedClassifier`, which has the verbs that predict.
        """
        check_path("folder", folder)
        if is_exported(folder):
            _check_exported(folder, attn_implementation=attn_implementation, device=device, dtype=dtype)
            return cast(PyramidClassifier, ExportedClassifier.load(folder))
        made = cls(folder, schedule="dense", attn_implementation=attn_implementation, device=device, dtype=dtype)
        made._load(as_saved=True)
        return made

    def _load(self, *, as_saved: bool = False) -> None:
        """Sets the attributes that the parameters stand for.

        Args:
            as_saved: Keep the model dense or a pyramid, as it was saved; raises if it is not a trained classifier.
        """
        found = load_parts(self._parameters, as_saved=as_saved)
        self.model, self.tokenizer, self.labels, self.history = found.model, found.tokenizer, found.labels, []
        self.max_length, self.certificate, self.front = found.max_length, found.certificate, found.front
        self.seen = found.seen
        if as_saved:
            self._parameters["schedule"] = "dense" if self.settings is None else None  # a clone is to be the same

    # ---- scikit-learn's verbs ----

    def fit(
        self,
        texts: Iterable[Any],
        labels: Sequence[Any] | None = None,
        *,
        settings: TrainSettings | None = None,
        teacher: PyramidClassifier | None = None,
        teacher_outputs: Outputs | None = None,
        levels: Levels = (),
        dev: tuple[Iterable[Any], Sequence[Any]] | None = None,
        target: Target | None = None,
        new_classes: bool = False,
        output_dir: str | Path | None = None,
        log_dir: str | Path | None = None,
        progress: bool = True,
        **changes: Any,
    ) -> PyramidClassifier:
        """Fine-tunes on texts and labels, and returns itself. Sensitivity, if used, is measured again at the end.

        Args:
            texts: Texts or pairs of texts: a list, a numpy array, a pandas column or frame, or what `encode` returned.
            labels: One per text: strings, ints or bools for classes, floats for regression; not needed with a teacher.
            settings: How to train; the parameter `training` if None.
            teacher: A trained classifier, usually dense, whose outputs are learned together with the labels.
            teacher_outputs: What the teacher gives for these texts, if it has been asked before.
            levels: For elastic training: pyramids that learn together, by speed, the slowest first.
            dev: Texts and labels to evaluate on after each epoch; `history` keeps the metrics, and the setting
                `patience` stops early by them.
            target: What labels are, "classes" or "number". Floats that are all whole and few need it.
            new_classes: Let a trained classifier forget its classes and learn those in `labels`.
            output_dir: Where checkpoints and a log are written; a stopped run with the same arguments resumes there.
            log_dir: Where event files for TensorBoard are written.
            progress: Show a progress bar.
            **changes: Single fields of `TrainSettings`, instead of `settings`.
        """
        settings, texts = settings_for(settings, self._parameters["training"], changes), listed(texts)
        taught = None if teacher is None else taught_labels(teacher)
        if labels is None:
            settings, labels, target = replace(settings, distill_weight=1.0), stand_ins(taught, len(texts)), None
        known = Labels.to_learn(labels, len(texts), self.labels, taught, target=target, new_classes=new_classes)
        if teacher is not None:
            check_teacher(teacher, self, known, hidden=settings.hidden_weight > 0)
        data, measured = self._training_data(texts, labels, known), self._dev(dev, known, settings)
        self._begin(known, settings.seed, data.items)
        self.history = finetune(
            self.model,
            self.tokenizer,
            data,
            settings,
            teacher=None if teacher is None else teacher.model,
            teacher_outputs=teacher_outputs,
            levels=levels,
            dev=measured,
            output_dir=output_dir,
            log_dir=log_dir,
            progress=progress,
            title="training the pyramid" if is_pyramid(self.model) else "training the dense model",
        )
        return self

    def _begin(self, known: Labels, seed: int, items: Sequence[Encoded]) -> None:
        """A head for what is to be learned; certificate and front were valid for the old weights."""
        self.seen = TextKind.of(items, self.tokenizer.sep_token_id)
        if known is not self.labels:
            self.new_head(known, seed)
        self.certificate = self.front = None

    def _training_data(self, texts: Iterable[Any], labels: Sequence[Any], known: Labels) -> TrainingData:
        items = self.encode(texts)
        return TrainingData(items, known.targets(labels, texts=len(items)), self.tokenizer.pad_token_id)

    def _dev(self, dev: Any, known: Labels, settings: TrainSettings) -> Dev | None:
        if dev is None:
            return None
        if not isinstance(dev, tuple | list) or len(dev) != 2:
            raise PyramidError(f"dev must be (texts, labels), got {shown(dev)}")
        return Dev.of(self.model, self._training_data(dev[0], dev[1], known), known, dev[1], settings)

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
        """The raw outputs and what is known about them; see `Predictor.answers`."""
        how: dict[str, Any] = {"fallback": fallback, "score": score, "streaming": streaming, "radius": radius}
        return answers(self, texts, batch_size=batch_size, progress=progress, **how)

    # ---- beyond them ----

    def explain(self, text: Text) -> Explanation:
        """Which tokens of a text survive to which layer, where the others go, and the prediction."""
        (item,) = self.encode([text])
        batch = collate([item], self.tokenizer.pad_token_id)
        return explain(self.model, self.tokenizer, self.known_labels(), text, batch)

    def optimize(self, how: Optimization = "packed") -> PyramidClassifier:
        """Faster weights for inference on a CPU, and returns itself; see `optimize`. What is saved stays the same."""
        optimize(self.model, how)
        return self

    def export(
        self,
        folder: str | Path,
        *,
        runtime: str = "openvino",
        precision: str = "fp32",
        texts: Iterable[Any] | None = None,
        labels: Sequence[Any] | None = None,
        tolerance: float = 1.0,
        force: bool = False,
        progress: bool = False,
    ) -> ExportReport:
        """Writes the classifier for another runtime, where it runs without torch, and returns what was measured.

        An elastic model is written with all its speeds.

        Args:
            folder: Where it goes; an exported model that is there is replaced.
            runtime: "openvino" or "onnxruntime".
            precision: "fp32"; "bf16" for products in bfloat16, on processors that have it; or "int8" for 8-bit
                integers, with scales that are measured on a part of the texts.
            texts: Texts like those that it will be used on, at least 50 for int8. Those that scales were not measured
                on are run before and after.
            labels: One per text, for the metrics before and after.
            tolerance: Points of the first metric that may be lost; if more are, an error is raised and nothing written.
            force: Write it whatever is lost.
            progress: Show progress bars.
        """
        given = None if texts is None else listed(texts)
        how: dict[str, Any] = {"runtime": runtime, "precision": precision, "tolerance": tolerance, "force": force}
        return export(self, folder, texts=given, labels=labels, progress=progress, **how)

    def save(self, folder: str | Path, *, run: Mapping[str, Any] | None = None) -> None:
        """Writes model, tokenizer and labels to a folder, by the first process; `run` says what trained it."""
        if not first_process():
            return
        check_path("folder", folder)
        target = Path(folder)
        check_replaceable(target, WRITTEN)
        known = self.known_labels()
        with quiet_transformers(), replacing_folder(target) as scratch:
            self.model.save_pretrained(scratch)
            self.tokenizer.save_pretrained(scratch)
            record: dict[str, Any] = {"format": 1, "classes": known.classes, "numbered": known.numbered}
            record |= {"max_length": self.max_length, "dtype": str(self.model.dtype).removeprefix("torch.")}
            record |= {} if self.seen is None else {"texts": asdict(self.seen)}
            write_text(scratch / RECORD, json.dumps(record, ensure_ascii=False, indent=1))
            if self.history:
                write_text(scratch / LOG, log_text(self.history))
            if self.certificate is not None:
                self.certificate.save(scratch)
            if self.front is not None:
                self.front.save(scratch)
            if run is not None:
                write_text(scratch / RUN, run_text(run))

    @property
    def settings(self) -> PyramidConfig | None:
        """The pyramid's settings; None for a dense model."""
        return pyramid_settings(self.model)

    def become(self, settings: PyramidConfig) -> None:
        """Runs as another pyramid from now on, with the same weights."""
        pyramidize(self.model, config=settings)

    @property
    def positions(self) -> int:
        """The most tokens that the model reads."""
        return positions_of(self.model)

    def encode(self, texts: Iterable[Any], *, where: Where | None = None, remedy: str = CUT) -> list[Encoded]:
        """The texts as token ids, at their true lengths.

        Every method takes these in place of texts, so that a text used twice is tokenized once.

        Args:
            texts: Texts or pairs of texts, as `fit` takes them; encoded ones are returned as they are.
            where: Names the place of a text in errors, like `Table.where`.
            remedy: What the error for a text that is too long tells the user to do.
        """
        given = listed(texts)
        if isinstance(given[0], Encoded):
            return given
        cut = self.max_length
        return encode(self.tokenizer, texts, positions=self.positions, max_length=cut, where=where, remedy=remedy)

    def with_model(self, model: Any) -> PyramidClassifier:
        """A classifier with this transformers model instead, for the same texts and labels."""
        made = PyramidClassifier(model, self.tokenizer, labels=self.labels, max_length=self.max_length)
        made._load()
        made.seen = self.seen
        return made

    def new_head(self, labels: Labels, seed: int) -> None:
        """Sets a fresh classifier layer for these labels; its weights depend only on the seed."""
        new_head(self.model, labels.outputs, seed)
        labels.write_to(self.model.config)
        self.labels = labels


def _check_exported(folder: str | Path, **given: Any) -> None:
    """Raises for what cannot be chosen for an exported model."""
    for name, value in given.items():
        if value is not None and (name, str(value)) not in (("device", "cpu"), ("device", "auto")):
            raise PyramidError(
                f"{folder} holds an exported model, which runs on the CPU as it was exported; leave out "
                f"{name}={str(value)!r}"
            )
