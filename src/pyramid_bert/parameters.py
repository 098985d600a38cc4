"""The parameters of a classifier, and the model, tokenizer and labels that they stand for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .certificate import Certificate
from .checks import check_choice, check_kind, check_number
from .errors import CheckpointError, DataError, PyramidError, UnsupportedModelError
from .families import has_head
from .families.hub import apply_settings, pyramid_settings, restore
from .families.loading import load_model, load_tokenizer, model_folder
from .families.protecting import reads_types
from .front import Front
from .runtimes.devices import find_device
from .text.kind import TextKind
from .text.labels import Labels, read_record, saved_labels
from .training import TrainSettings, quiet_transformers

# The parameters beside the fields of `PyramidConfig`.
PARAMETERS = ("model", "tokenizer", "labels", "max_length", "device", "attn_implementation", "dtype", "training")


@dataclass(frozen=True)
class Parts:
    """What the parameters of a classifier stand for; see the attributes of `PyramidClassifier`."""

    model: Any
    tokenizer: Any
    labels: Labels | None
    max_length: int | None
    certificate: Certificate | None
    front: Front | None
    seen: TextKind | None


def load_parts(given: dict[str, Any], *, as_saved: bool) -> Parts:
    """Loads what the parameters `given` stand for.

    Args:
        given: The parameters by name; see the constructor of `PyramidClassifier`.
        as_saved: Keep the model dense or a pyramid, as it was saved; raises if it is not a trained classifier.
    """
    _check(given)
    model, tokenizer, labels, source = given["model"], given["tokenizer"], given["labels"], given["model"]
    record: dict[str, Any] = {}
    is_path = isinstance(source, str | Path)
    device = find_device(given["device"]) if is_path or given["device"] is not None else None
    if is_path:
        record = read_record(model_folder(source))
        dtype = record.get("dtype") if given["dtype"] is None else given["dtype"]
        with quiet_transformers():
            model, head_is_new = load_model(source, attn_implementation=given["attn_implementation"], dtype=dtype)
            tokenizer = load_tokenizer(source, model) if tokenizer is None else tokenizer
        if as_saved and head_is_new:
            raise _untrained(source, model)
        labels = saved_labels(source, record, model.config) if labels is None and not head_is_new else labels
    saved = pyramid_settings(model)
    if not as_saved:
        _apply(given, model, tokenizer, by_default=is_path)
    longest = record.get("max_length") if given["max_length"] is None else given["max_length"]
    # What was saved beside a pyramid is valid for that one only.
    valid = is_path and saved is not None and pyramid_settings(model) == saved
    certificate = Certificate.load(model_folder(source)) if valid else None
    front = Front.load(model_folder(source)) if valid else None
    seen = None if record.get("texts") is None else TextKind.from_dict(record["texts"])
    return Parts(model if device is None else model.to(device), tokenizer, labels, longest, certificate, front, seen)


def _apply(given: dict[str, Any], model: Any, tokenizer: Any, *, by_default: bool) -> None:
    """Turns `model` into the pyramid that the parameters ask for, or into a dense model."""
    settings = {name: value for name, value in given.items() if name not in PARAMETERS and value is not None}
    schedule = settings.pop("schedule", None)
    by_types = reads_types(model.config) and "token_type_ids" in tokenizer.model_input_names
    if settings.get("protect") and not by_types:
        settings.setdefault("separator", tokenizer.sep_token_id)
    if isinstance(schedule, str) and schedule == "dense":
        if settings:
            raise PyramidError(f"a dense model has no {', '.join(settings)}; leave out schedule='dense'")
        restore(model)
    elif by_default or schedule is not None or settings:
        apply_settings(model, schedule, settings)


def _check(given: dict[str, Any]) -> None:
    """Raises for parameters of the wrong kind, before anything is loaded."""
    model = given["model"]
    if not isinstance(model, str | Path):
        check_kind("model", model, torch.nn.Module, "give a folder, a name on the hub or a transformers model")
        if not has_head(model):
            raise UnsupportedModelError(f"{type(model).__name__} has no head; give a sequence classifier, or a folder")
        if not type(model).__name__.endswith("ForSequenceClassification"):
            raise UnsupportedModelError(f"{type(model).__name__} gives a text no label; give a sequence classifier")
        if given["tokenizer"] is None:
            raise PyramidError(f"give the tokenizer of this {type(model).__name__} as well")
    if given["labels"] is not None:
        check_kind("labels", given["labels"], Labels, "leave it out: fit finds them")
    if given["max_length"] is not None:
        check_number("max_length", given["max_length"], 2, whole=True, error=DataError)
    if given["attn_implementation"] is not None:
        check_choice("attn_implementation", given["attn_implementation"], ("eager", "sdpa"))
    check_kind("training", given["training"], TrainSettings, "give TrainSettings(epochs=3)")


def _untrained(path: str | Path, model: Any) -> CheckpointError:
    kind = ", ".join(model.config.architectures or [type(model).__name__])
    return CheckpointError(
        f"{path} ({kind}) holds an encoder without a trained classifier that gives a text one label; train one with "
        f"`pyramid-bert train --model {path}`, or with from_pretrained and fit"
    )
