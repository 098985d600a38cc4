"""The table that compares a dense model with its pyramid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from ..tune.finder import Search
    from ..tune.held_out import HeldOut

INTERVALS = (
    "±: half of a 95 % interval (Wilson's for accuracy and agreement, paired for its change, else the jackknife). "
    "Ideal: multiply-accumulates at true lengths. Measured: over dense, length-sorted batches, in turn, on this machine"
)


def comparison(found: Search | HeldOut, title: str, caption: str, speedups: Mapping[str, float]) -> Table:
    """Metrics, agreement and speed-ups of both."""
    table = Table(title=title, caption=caption)
    table.add_column("")
    for name in ("dense", "pyramid", "change"):
        table.add_column(name, justify="right")
    for name, dense in (found.dense_metrics or {}).items():
        pyramid = (found.metrics or {})[name]
        unit, digits = (1, 4) if name == "rmse" else (100, 1)  # an error has the labels' unit, the others are shares
        sides = {"dense": dense, "pyramid": pyramid, "change": pyramid - dense}
        cells = (f"{unit * x:{'+' if side == 'change' else ''}.{digits}f}" for side, x in sides.items())
        margins = (_margin(found, name, side, unit, digits) for side in sides)
        table.add_row(name, *map("".join, zip(cells, margins, strict=True)))
    margin = _margin(found, "agreement", "pyramid", 100, 1)
    table.add_row("agreement with dense", "100.0", f"{100 * found.agreement:.1f}{margin}", "")
    for name, value in speedups.items():
        table.add_row(f"speed-up, {name}", "1.00x", f"{value:.2f}x", "")
    return table


def _margin(found: Search | HeldOut, name: str, side: str, unit: int, digits: int) -> str:
    """Half of the interval of a number; empty where there is none."""
    interval = found.intervals.get(name, {}).get(side)
    return "" if interval is None else f" ± {unit * (interval[1] - interval[0]) / 2:.{digits}f}"


def metric_text(name: str, value: float | None) -> str:
    """A metric for people: an error in the labels' unit, others as shares of 100.

    Example:
        >>> metric_text("accuracy", 0.875), metric_text("rmse", 0.5), metric_text("f1", None)
        ('87.5', '0.5000', '–')
    """
    if value is None:
        return "–"
    return f"{value:.4f}" if name == "rmse" else f"{100 * value:.1f}"
