"""Writes a classifier for another runtime: its stretches as graphs, its tokenizer, and how they belong together."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..checks import check_number, check_path
from ..config import PyramidConfig
from ..counting import steps_shown
from ..errors import DataError, UnsupportedModelError
from ..families import base_model, family_of, has_head, positions_of, pyramid_settings, reads_types
from ..files import check_replaceable, only_writer, replacing_folder, write_text
from ..front import FILE as FRONT
from ..planning import plan_and_reducer
from ..runtimes.registry import Runtime, get_runtime
from ..runtimes.stretches import Stretch, example, stretches_of
from ..schedule.base import Schedule
from ..text.activations import named_in
from ..text.batches import Encoded
from ..text.labels import RECORD
from ..text.sampling import shuffled
from ..training import quiet_transformers
from .calibration import arrivals
from .classifier import ExportedClassifier
from .record import FILE, GRAPHS, HALVES, SENSITIVITY, TOKENIZER, Export, Way
from .report import ExportReport, check_loss, measure
from .texts import check_calibration, check_kind_of_texts, doubt_about

# What the folder of an exported model may hold: exporting replaces it, and must not delete anything else.
WRITTEN = (FILE, RECORD, TOKENIZER, SENSITIVITY, FRONT, GRAPHS)
_CALIBRATED_ON = 300  # at most, and never more than half of the texts


def export(
    classifier: Any,
    folder: str | Path,
    *,
    runtime: str = "openvino",
    precision: str = "fp32",
    texts: Sequence[Any] | None = None,
    labels: Sequence[Any] | None = None,
    tolerance: float = 1.0,
    force: bool = False,
    progress: bool = False,
) -> ExportReport:
    """Writes a trained classifier for another runtime; see `PyramidClassifier.export`."""
    check_path("folder", folder)
    check_number("tolerance", tolerance, hint="points of the metric that may be lost")
    chosen, target = get_runtime(runtime), Path(folder)
    chosen.check_writing(precision)
    check_replaceable(target, WRITTEN)
    items = _sample(classifier, texts, labels)
    calibrates = precision == "int8" and chosen.calibrates
    if calibrates:
        check_calibration(classifier, items)
    check_exportable(classifier)
    order = shuffled(len(items), 0)
    head = order[: min(_CALIBRATED_ON, len(items) // 2)] if calibrates else []
    held_out = sorted(set(order) - set(head))
    truth = None if labels is None else [labels[i] for i in held_out]
    with quiet_transformers(), only_writer(target), replacing_folder(target) as scratch:
        number = graphs_to_write(classifier.model, precision, _pyramids(classifier))
        with steps_shown("writing graphs", number, shown=progress) as step:
            made = write_folder(classifier, scratch, chosen, precision, [items[i] for i in head], after_each=step)
        exported = ExportedClassifier.opened(scratch)  # what cannot be read back is not written
        report = measure(classifier, exported, [items[i] for i in held_out], truth, progress=progress)
        if not force:
            check_loss(report, tolerance)
        report = replace(report, slow=chosen.slow(precision), doubt=doubt_about(classifier, items))
        replace(made, measured=report.to_dict()).save(scratch)
    return replace(report, folder=target)


def _sample(classifier: Any, texts: Sequence[Any] | None, labels: Sequence[Any] | None) -> list[Encoded]:
    """The texts, encoded; raises if they do not fit the model, or their labels."""
    if texts is None:
        if labels is not None:
            raise DataError("labels need texts; give both, or neither")
        return []
    items: list[Encoded] = classifier.encode(texts)
    check_kind_of_texts(classifier, items)
    if labels is not None:
        classifier.known_labels().targets(labels, texts=len(items))
    return items


def check_exportable(classifier: Any) -> None:
    """Raises for a model that no runtime takes."""
    model, family = classifier.model, family_of(classifier.model)
    if not getattr(classifier.tokenizer, "is_fast", False):
        raise UnsupportedModelError("this model has a tokenizer in Python only, which an exported model cannot run")
    if family.how.halves.halves != HALVES:
        raise UnsupportedModelError(
            f"models of the family {family.model_type!r} cannot be exported: its layers run as a whole"
        )
    if model.dtype != torch.float32 or model.device.type != "cpu":
        raise UnsupportedModelError(
            f"only models in float32 on the CPU are exported, this one is in {model.dtype} on {model.device}; load it "
            "with dtype='float32', device='cpu'"
        )
    if (settings := pyramid_settings(model)) is not None and settings.reduce == "replace":
        raise UnsupportedModelError("a pyramid with reduce='replace' saves nothing, and is not exported; use 'drop'")


def write_folder(
    classifier: Any,
    folder: Path,
    runtime: Runtime,
    precision: str,
    items: Sequence[Encoded],
    *,
    after_each: Callable[[], object] | None = None,
) -> Export:
    """Writes a classifier to a folder, and returns what its `exported.json` says.

    The arguments are those of `write_graphs`.
    """
    tokenizer, front, known = classifier.tokenizer, classifier.front, classifier.known_labels()
    tokenizer.backend_tokenizer.save(str(folder / TOKENIZER))
    if front is not None:
        front.save(folder)
    types = "token_type_ids" in tokenizer.model_input_names and reads_types(classifier.model)
    about: dict[str, Any] = {"pad_id": tokenizer.pad_token_id, "types": types, "pyramids": _pyramids(classifier)}
    made = write_graphs(classifier.model, folder, runtime, precision, items, **about, after_each=after_each)
    record: dict[str, Any] = {
        "format": 1,
        "classes": known.classes,
        "numbered": known.numbered,
        "max_length": classifier.max_length,
    }
    if activation := named_in(classifier.model.config.to_dict(), "this model's config"):
        record["activation"] = activation
    write_text(folder / RECORD, json.dumps(record, ensure_ascii=False))
    made.save(folder)
    return made


def _pyramids(classifier: Any) -> list[PyramidConfig | None]:
    """The pyramids that a classifier can run as, first the one that it is."""
    points = () if classifier.front is None else classifier.front.points
    return list(dict.fromkeys([classifier.settings, *(point.settings for point in points)]))


def graphs_to_write(model: Any, precision: str, pyramids: Sequence[PyramidConfig | None] | None = None) -> int:
    """How often `write_graphs` calls `after_each`: once for each graph, and in int8 once more."""
    _, stretches = _ways(model, pyramids)
    return len(stretches) * (2 if precision == "int8" else 1)


def write_graphs(
    model: Any,
    folder: Path,
    runtime: Runtime,
    precision: str,
    items: Sequence[Encoded],
    *,
    pad_id: int = 0,
    types: bool = False,
    pyramids: Sequence[PyramidConfig | None] | None = None,
    after_each: Callable[[], object] | None = None,
) -> Export:
    """Writes the graphs of a model, and returns how they belong together.

    Args:
        model: A transformers model in fp32, dense or pyramid.
        folder: Where they go.
        runtime: Which runtime they are for.
        precision: Its precision.
        items: Texts that tell int8 how numbers are spread inside the model, for runtimes that calibrate.
        pad_id: The padding token.
        types: Whether the model reads token types.
        pyramids: The pyramids that it can run as; None for what it is.
        after_each: Called after each graph, for a progress bar.
    """
    ways, stretches = _ways(model, pyramids, runtime.suffix)
    step = after_each or (lambda: None)
    if any(way.pyramid is not None and way.pyramid.metric == "sensitivity" for way in ways):
        np.save(folder / SENSITIVITY, base_model(model).sensitivity.float().cpu().numpy())
    made = Export(
        runtime=runtime.name,
        precision="fp32",
        family=family_of(model).model_type,
        layers=model.config.num_hidden_layers,
        positions=positions_of(model),
        width=model.config.hidden_size,
        outputs=model.config.num_labels,
        pad_id=pad_id,
        types=types,
        reads_positions=family_of(model).how.reads_positions,
        ways=ways,
    )
    with torch.no_grad():
        for file, stretch in stretches.items():
            given = example(stretch, model.config.hidden_size, types=types, positions=made.reads_positions)
            runtime.functions.write(stretch, given, folder / file)
            step()
    if precision == "int8":
        _quantize(folder, made, runtime, items, model.config.hidden_size, step)
    return replace(made, precision=precision)


def _ways(
    model: Any, pyramids: Sequence[PyramidConfig | None] | None, suffix: str = ""
) -> tuple[tuple[Way, ...], dict[str, Stretch]]:
    """The ways in which a model runs as each of these pyramids, and its stretches by file; equal ones are one file."""
    base, layers = base_model(model), model.config.num_hidden_layers
    ways, files, stretches = [], dict[Any, str](), dict[str, Stretch]()
    for settings in [pyramid_settings(model)] if pyramids is None else pyramids:
        running = settings or PyramidConfig(schedule=Schedule.constant(1.0), cls_only=False)
        cls_only = running.cls_only and has_head(model)
        plan, _ = plan_and_reducer(running, [None] * layers, HALVES, base, cls_only=cls_only)
        found = []
        for stretch in stretches_of(model, plan, positions_of(model)):
            key = stretch.parts, stretch.first, stretch.last
            file = files.setdefault(key, f"stretch-{len(files)}{suffix}")
            stretches.setdefault(file, stretch)
            end = stretch.parts[-1]
            found.append((end.number, end.half, file))
        ways.append(Way(settings, tuple(found)))
    return tuple(ways), stretches


def _quantize(
    folder: Path, made: Export, runtime: Runtime, items: Sequence[Encoded], width: int, step: Callable[[], object]
) -> None:
    """Replaces the graphs of a folder by quantized ones."""
    quantized = folder / "int8"
    quantized.mkdir()
    without: list[Any] = []
    reaching = arrivals(folder, made, items, width) if runtime.calibrates else ((file, without) for file in made.files)
    for file, rows in reaching:
        runtime.functions.quantize(folder / file, quantized / file, rows)
        step()
    for made_smaller in quantized.iterdir():
        made_smaller.replace(folder / made_smaller.name)
    quantized.rmdir()
