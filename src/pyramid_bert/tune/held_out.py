"""Dense model and pyramid on rows that a search never saw, and how far chance may have moved what they show."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..text.batches import Encoded, sorted_batches
from ..text.labels import Labels
from ..text.metrics import agreement, metrics_of
from ..text.sampling import shuffled
from .judge import divergences, outputs_for

Interval = tuple[float, float]
_DEVIATIONS = 1.96  # of a 95 % interval
_GROUPS = 20


@dataclass(frozen=True)
class HeldOut:
    """What dense model and pyramid give for rows that were held out.

    Attributes:
        rows: How many rows were compared.
        dense_metrics: The dense model's metrics; None without labels.
        metrics: The pyramid's.
        agreement: The share of rows to which both give the same label; for numbers their correlation.
        divergence: How far the pyramid's outputs are from the dense ones; see `judge.divergences`.
        intervals: Metric -> "dense", "pyramid" and "change" -> 95 % interval; "agreement" has "pyramid" only.
    """

    rows: int
    dense_metrics: dict[str, float] | None
    metrics: dict[str, float] | None
    agreement: float
    divergence: float
    intervals: dict[str, dict[str, Interval]]


def compare(
    dense: Any,
    pyramid: Any,
    items: Sequence[Encoded],
    known: Labels,
    labels: Sequence[Any] | None,
    *,
    pad_id: int,
    batch_size: int,
    least: int,
    in_time: Callable[[], bool],
) -> HeldOut:
    """Runs both models on the rows, batch by batch, until time is up. At least `least` rows are compared."""
    batches, rows = sorted_batches([len(item) for item in items], batch_size), list[int]()
    parts: list[tuple[Tensor, Tensor]] = []
    for i in shuffled(len(batches), 0):  # a part of the batches has rows of all lengths
        if len(rows) >= least and not in_time():
            break
        some = [items[row] for row in batches[i]]
        parts.append((outputs_for(dense, some, pad_id, batch_size), outputs_for(pyramid, some, pad_id, batch_size)))
        rows += batches[i]
    ours, theirs = (torch.cat(part) for part in zip(*parts, strict=True))
    truth = None if labels is None else [labels[row] for row in rows]
    return compared(known, truth, ours, theirs)


def compared(known: Labels, labels: Sequence[Any] | None, dense: Tensor, pyramid: Tensor) -> HeldOut:
    """What two models give for rows, by their outputs (n, classes)."""
    every = range(len(dense))
    metrics = {} if labels is None else {"dense": dense, "pyramid": pyramid}
    found = {side: _metrics(known, labels or (), logits, every) for side, logits in metrics.items()}
    intervals: dict[str, dict[str, Interval]] = {}
    if labels is not None:
        without = [
            {side: _metrics(known, labels, logits, rows) for side, logits in metrics.items()} for rows in _groups(every)
        ]
        for name in found["dense"]:
            values = [{**one, "change": one["pyramid"] - one["dense"]} for one in _of(name, [found, *without])]
            intervals[name] = {
                side: jackknife(values[0][side], [one[side] for one in values[1:]]) for side in values[0]
            }
    agreed = agreement(dense.numpy(), pyramid.numpy())
    if known.classes is None:
        left_out = [agreement(*(x[rows].numpy() for x in (dense, pyramid))) for rows in _groups(every)]
        intervals["agreement"] = {"pyramid": jackknife(agreed, left_out)}
    else:
        same = dense.argmax(1) == pyramid.argmax(1)
        intervals["agreement"] = {"pyramid": wilson(int(same.sum()), len(same))}
    if labels is not None and known.classes is not None:
        truth = torch.tensor(known.targets(labels))
        right = [logits.argmax(1) == truth for logits in (dense, pyramid)]
        shares = {side: wilson(int(x.sum()), len(x)) for side, x in zip(metrics, right, strict=True)}
        lost, won = int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum())
        intervals["accuracy"] = {**shares, "change": paired(lost, won, len(truth))}
    return HeldOut(
        rows=len(dense),
        dense_metrics=found.get("dense"),
        metrics=found.get("pyramid"),
        agreement=agreed,
        divergence=float(divergences(dense, pyramid).mean()),
        intervals=intervals,
    )


def _metrics(known: Labels, labels: Sequence[Any], logits: Tensor, rows: Sequence[int]) -> dict[str, float]:
    with warnings.catch_warnings():  # of constant outputs, whose correlation is not a number
        warnings.simplefilter("ignore")
        return metrics_of(known, [labels[row] for row in rows], logits[list(rows)].numpy())


def _of(name: str, found: Sequence[dict[str, dict[str, float]]]) -> list[dict[str, float]]:
    return [{side: metrics[name] for side, metrics in one.items()} for one in found]


def _groups(rows: range) -> list[list[int]]:
    """All rows but those of one group, for each of the groups."""
    groups = min(_GROUPS, len(rows))
    return [[row for row in rows if row % groups != group] for group in range(groups)]


def wilson(hits: int, rows: int) -> Interval:
    """Wilson's 95 % interval of a share.

    Example:
        >>> [round(end, 2) for end in wilson(45, 50)]
        [0.79, 0.96]
    """
    z = _DEVIATIONS
    share, scale = hits / rows, 1 + z**2 / rows
    half = z * math.sqrt(share * (1 - share) / rows + z**2 / (4 * rows**2))
    return (share + z**2 / (2 * rows) - half) / scale, (share + z**2 / (2 * rows) + half) / scale


def paired(lost: int, won: int, rows: int) -> Interval:
    """The 95 % interval of the change of a share on the same rows (Agresti and Min's: half a row more in each cell).

    Args:
        lost: Rows that were right before and are not any more.
        won: Rows that have become right.
        rows: All rows.

    Example:
        >>> [round(end, 2) for end in paired(3, 1, 50)]
        [-0.12, 0.05]
    """
    n, change = rows + 2, won - lost
    half = _DEVIATIONS * math.sqrt(max(lost + won + 1 - change**2 / n, 0)) / n
    return change / n - half, change / n + half


def jackknife(value: float, without: Sequence[float]) -> Interval:
    """The 95 % interval of any number: from what it is when one group of rows after the other is left out.

    Example:
        >>> [round(end, 2) for end in jackknife(0.5, [0.4, 0.5, 0.6])]
        [0.27, 0.73]
    """
    mean, groups = sum(without) / len(without), len(without)
    half = _DEVIATIONS * math.sqrt((groups - 1) / groups * sum((one - mean) ** 2 for one in without))
    return value - half, value + half
