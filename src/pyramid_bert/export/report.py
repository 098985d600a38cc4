"""What exporting a classifier changed: its answers beside those of the model that was exported, and its speed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..bench.timing import time_interleaved
from ..counting import steps_shown
from ..errors import PyramidError
from ..text.batches import Encoded
from ..text.labels import Labels
from ..text.metrics import agreement, metrics_of
from .classifier import ExportedClassifier

_TIMED, _ROUNDS = 256, 3


@dataclass(frozen=True)
class ExportReport:
    """What was measured on texts that were not used for calibration.

    Attributes:
        folder: Where the exported classifier is.
        runtime: Which runtime it is for.
        precision: Its precision.
        rows: How many texts were compared; 0 if none were given, and then there are no figures.
        agreement: The share of texts with the same label as before; for numbers their correlation.
        largest_change: The largest change of a logit.
        before: Metrics of the model that was exported; empty without labels.
        after: Metrics of the exported one.
        speedup: How many times faster it is than the model that was exported, in torch, both on length-sorted batches.
        slow: What is slow on this processor, in a sentence; None if nothing is.
        doubt: How the texts differ from those that the model was trained on, in a sentence; None if they do not.
    """

    folder: Path
    runtime: str
    precision: str
    rows: int = 0
    agreement: float | None = None
    largest_change: float | None = None
    before: dict[str, float] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)
    speedup: float | None = None
    slow: str | None = None
    doubt: str | None = None

    @property
    def classifier(self) -> ExportedClassifier:
        """The exported classifier, loaded from its folder."""
        return ExportedClassifier.load(self.folder)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dict; without the folder, which may be moved."""
        return {name: value for name, value in asdict(self).items() if name != "folder"}


def measure(
    classifier: Any,
    exported: ExportedClassifier,
    items: Sequence[Encoded],
    labels: Sequence[Any] | None,
    *,
    batch_size: int = 32,
    progress: bool = False,
) -> ExportReport:
    """Runs both classifiers on the texts, and times them in turn on some."""
    report = ExportReport(Path(), exported.record.runtime, exported.record.precision)
    if not items:
        return report
    before, after = (one.predict_logits(items, batch_size=batch_size) for one in (classifier, exported))
    known, some = exported.known_labels(), list(items[:_TIMED])
    runs = {
        name: lambda one=one: one.predict_logits(some, batch_size=batch_size)
        for name, one in {"torch": classifier, "exported": exported}.items()
    }
    with steps_shown("measuring, in turn", 2 * (_ROUNDS + 1), shown=progress) as step:
        timing = time_interleaved(runs, rounds=_ROUNDS, after_each=step)
    return replace(
        report,
        rows=len(items),
        agreement=agreement(before, after),
        largest_change=float(np.abs(before - after).max()),
        before=_metrics(known, labels, before),
        after=_metrics(known, labels, after),
        speedup=timing.speedup("exported", over="torch"),
    )


def _metrics(known: Labels, labels: Sequence[Any] | None, logits: Any) -> dict[str, float]:
    """The metrics by name, none without labels. A correlation with a constant is undefined: it counts 0."""
    found = {} if labels is None else metrics_of(known, labels, logits)
    return {name: value if math.isfinite(value) else 0.0 for name, value in found.items()}


def check_loss(report: ExportReport, tolerance: float) -> None:
    """Raises if the metric that decides, the first one, fell by more than `tolerance` points."""
    for name, before in list(report.before.items())[:1]:
        after = report.after[name]
        lost = 100 * (before - after)
        if lost > tolerance:
            raise PyramidError(
                f"{report.precision} in {report.runtime} costs {lost:.1f} points of {name} on {report.rows} texts "
                f"({100 * before:.1f} to {100 * after:.1f}), more than the {tolerance:g} that may be lost; nothing was "
                "written. Use a higher precision, give more texts, or allow it (--tolerance, --force)"
            )
