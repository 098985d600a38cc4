"""Writes a classifier for another runtime: its stretches as graphs, its tokenizer, and how they belong together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .checks import check_choice, check_path
from .config import PyramidConfig
from .errors import UnsupportedModelError
from .exported import FILE, SENSITIVITY, TOKENIZER, Export, ExportedClassifier
from .families import base_model, family_of, has_head, positions_of, pyramid_settings
from .files import check_replaceable, replacing_folder, write_text
from .planning import plan_and_reducer
from .runtimes.openvino import convert, save
from .runtimes.stretches import example, stretches_of
from .schedule.base import Schedule
from .text.labels import RECORD
from .training import quiet_transformers

PRECISIONS = ("fp32", "bf16")
# What the folder of an exported model may hold: exporting replaces it, and must not delete anything else.
WRITTEN = (FILE, RECORD, TOKENIZER, SENSITIVITY, "stretch-*")


def export(classifier: Any, folder: str | Path, *, precision: str = "fp32") -> ExportedClassifier:
    """Writes a trained classifier for OpenVINO, and returns the exported one; see `PyramidClassifier.export`."""
    check_choice("precision", precision, PRECISIONS)
    check_path("folder", folder)
    labels, tokenizer, target = classifier.known_labels(), classifier.tokenizer, Path(folder)
    if not getattr(tokenizer, "is_fast", False):
        raise UnsupportedModelError("this model has a tokenizer in Python only, which an exported model cannot run")
    check_replaceable(target, WRITTEN)
    with quiet_transformers(), replacing_folder(target) as scratch:
        types = "token_type_ids" in tokenizer.model_input_names
        made = write_graphs(classifier.model, scratch, precision, pad_id=tokenizer.pad_token_id, types=types)
        tokenizer.backend_tokenizer.save(str(scratch / TOKENIZER))
        record = {"format": 1, "classes": labels.classes, "numbered": labels.numbered}
        write_text(scratch / RECORD, json.dumps({**record, "max_length": classifier.max_length}, ensure_ascii=False))
        write_text(scratch / FILE, json.dumps(made.to_dict(), indent=1) + "\n")
        ExportedClassifier.load(scratch)  # what cannot be read back is not written
    return ExportedClassifier.load(target)


def write_graphs(model: Any, folder: Path, precision: str, *, pad_id: int, types: bool) -> Export:
    """Writes the graphs of a classifier, and returns what `exported.json` is to say."""
    settings, family = pyramid_settings(model), family_of(model)
    if family.halves.halves != ("attention", "feed_forward"):
        raise UnsupportedModelError(f"models of the family {family.model_type!r} cannot be exported; those of BERT can")
    if model.dtype != torch.float32 or model.device.type != "cpu":
        raise UnsupportedModelError(
            f"only models in float32 on the CPU are exported, this one is in {model.dtype} on {model.device}; load it "
            "with dtype='float32', device='cpu'"
        )
    base, layers = base_model(model), model.config.num_hidden_layers
    running = settings or PyramidConfig(schedule=Schedule.constant(1.0))
    if running.reduce == "replace":
        raise UnsupportedModelError("a pyramid with reduce='replace' saves nothing, and is not exported; use 'drop'")
    cls_only = running.cls_only and has_head(model)
    plan, _ = plan_and_reducer(running, [None] * layers, family.halves.halves, base, cls_only=cls_only)
    stretches = []
    with torch.no_grad():
        for number, stretch in enumerate(stretches_of(model, plan, positions_of(model))):
            end, file = stretch.parts[-1], f"stretch-{number}.xml"
            save(convert(stretch, example(stretch, model.config.hidden_size, types=types)), folder / file)
            stretches.append((end.number, end.half, file))
    if running.metric == "sensitivity":
        np.save(folder / SENSITIVITY, base.sensitivity.float().cpu().numpy())
    return Export(
        runtime="openvino",
        precision=precision,
        layers=layers,
        positions=positions_of(model),
        pad_id=pad_id,
        types=types,
        pyramid=settings,
        stretches=tuple(stretches),
    )
