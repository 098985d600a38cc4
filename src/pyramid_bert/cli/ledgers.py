"""The tables of `pyramid-bert bench`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.markup import escape
from rich.table import Table

from ..boundary import printable

if TYPE_CHECKING:
    from ..bench.ledger import Ledger
    from ..bench.training import TrainingLedger
    from ..export.ledger import RuntimeLedger


def ledger_table(ledger: Ledger, difference: dict[str, float] | None = None) -> Table:
    """Times, work and speed-ups of the three baselines and the pyramid."""
    work, machine, entries = ledger.workload, ledger.machine, ledger.entries
    how = f", weights {ledger.optimization}" if ledger.optimization else ""
    effect = (
        ""
        if difference is None
        else (
            f" {ledger.optimization}: logits differ by at most {difference['largest_logit_difference']:.1e}, "
            f"{difference['same_predictions']:.1%} of {difference['texts']} predictions stay the same."
        )
    )
    table = Table(
        title=f"{work['rows']} rows, mean {work['mean_length']:.0f} tokens, in batches of {ledger.batch_size}{how}",
        caption=f"{escape(printable(work['source']))}; {machine['cpu']}, {machine['threads']} threads, "
        f"torch {machine['torch']}; medians of {ledger.rounds} interleaved rounds, of times and of "
        "ratios within a round. Ideal: the ratio of "
        "multiply-accumulates. Roofline: reading "
        f"weights at {ledger.roofline.bytes_per_second / 1e9:.0f} GB/s and multiplying at "
        f"{ledger.roofline.macs_per_second / 1e9:.0f} GMAC/s, at once or in turn.{effect}",
    )
    table.add_column("", no_wrap=True)
    padded = f"dense,\npadded to {work['padded_length']}"
    for name in (f"a: {padded}", "b: dense,\ndynamic", "c: dense,\nsorted", "pyramid"):
        table.add_column(name, justify="right")
    for title, name, unit in (
        ("milliseconds", "seconds", 1e-3),
        ("roofline, at once", "roofline_seconds", 1e-3),
        ("roofline, in turn", "stalled_seconds", 1e-3),
        ("thousand tokens x layers", "token_layers", 1e3),
        ("GMACs", "macs", 1e9),
        ("peak MB of tensors", "peak_bytes", 1e6),
    ):
        table.add_row(title, *(f"{getattr(entry, name) / unit:,.1f}" for entry in entries.values()))
    for letter, base in zip("abc", entries, strict=False):
        speed = (f"{entry.speedup_over[base]:.2f}x" for entry in entries.values())
        table.add_row(f"speed-up over {letter}", *speed, style="bold" if letter == "c" else None)
    table.add_row("ideal speed-up over c", *(f"{entry.ideal_over['sorted']:.2f}x" for entry in entries.values()))
    pyramid = entries["pyramid"]
    table.add_row("share of the ideal over c", "", "", "", f"{pyramid.realised('sorted'):.0%}")
    table.add_row("the same by roofline", "", "", "", " to ".join(f"{limit:.2f}x" for limit in sorted(ledger.limits)))
    table.add_row("time choosing and moving", "", "", "", f"{ledger.selecting:.1%}")
    return table


def training_table(ledgers: Sequence[TrainingLedger]) -> Table:
    """Steps a second and peak memory by length."""
    machine = ledgers[0].machine
    table = Table(
        title="training steps: forward, backward and AdamW",
        caption=f"full rows; {machine['cpu']}, {machine['threads']} threads, torch {machine['torch']}; medians of "
        f"{ledgers[0].rounds} interleaved rounds. Memory: peak of forward and backward without weights and gradients. "
        "Choice: the share of the pyramid's step that choosing and moving tokens takes.",
    )
    heads = "rows x\ntokens|dense\nsteps/s|pyramid\nsteps/s|speed-\nup|dense\nMB|pyramid\nMB|share|choice"
    for name in heads.split("|"):
        table.add_column(name, justify="right")
    for ledger in ledgers:
        steps, peak = ledger.steps_per_second, ledger.peak_bytes
        table.add_row(
            f"{ledger.batch_size} x {ledger.n}",
            *(f"{steps[side]:.3f}" for side in ("dense", "pyramid")),
            f"{ledger.speedup:.2f}x",
            *(f"{peak[side] / 1e6:,.0f}" for side in ("dense", "pyramid")),
            f"{ledger.memory_share:.2f}",
            f"{ledger.selecting:.1%}",
        )
    return table


def runtime_tables(ledger: RuntimeLedger) -> list[Table]:
    """Dense model and pyramid in every runtime and precision; for one text at a time also percentiles."""
    return [_runtime_table(ledger), *([_latency_table(ledger)] if ledger.batch_size == 1 else [])]


def _runtime_table(ledger: RuntimeLedger) -> Table:
    """The times and speed-ups over baselines c and d."""
    work, machine = ledger.workload, ledger.machine
    how = "one at a time" if ledger.batch_size == 1 else f"in length-sorted batches of {ledger.batch_size}"
    table = _narrow(
        title=f"{work['rows']} rows, mean {work['mean_length']:.0f} tokens, {how}",
        caption=f"{escape(printable(work['source']))}; {machine['cpu']}, {machine['threads']} threads; medians of "
        f"{ledger.rounds} interleaved rounds, of times and of ratios within a round. c: dense in torch. d: the fastest "
        f"dense one, here {' '.join(ledger.fastest)}. Ideal of this pyramid: {ledger.ideal:.2f}x by "
        "multiply-accumulates. Own dense: in the same runtime and precision. Choice: the share of the time that "
        "choosing and moving tokens takes.",
    )
    for name in ("dense\nms", "over c", "over d", "pyramid\nms", "over c", "over d", "over own\ndense", "choice"):
        table.add_column(name, justify="right")
    found = {(entry.runtime, entry.precision, entry.side): entry for entry in ledger.entries}
    for runtime, precision in dict.fromkeys(name[:2] for name in found):
        dense, pyramid = (found[runtime, precision, side] for side in ("dense", "pyramid"))
        cells = [
            text
            for entry in (dense, pyramid)
            for text in (f"{1000 * entry.seconds:,.0f}", f"{entry.over_c:.2f}x", f"{entry.over_d:.2f}x")
        ]
        table.add_row(
            f"{runtime} {precision}",
            *cells,
            f"{pyramid.over_own:.2f}x",
            f"{pyramid.selecting:.1%}",
            style="bold" if (runtime, precision) == ledger.fastest else None,
        )
    return table


def _latency_table(ledger: RuntimeLedger) -> Table:
    """Percentiles of the time of one text."""
    names, rounds = list(ledger.entries[0].latency or ()), ledger.rounds
    table = _narrow(
        title="one text at a time, in milliseconds",
        caption=f"of {ledger.workload['rows']} texts, {rounds} times each, in the order of the rows",
    )
    for side in ("dense", "pyramid"):
        for name in names:
            table.add_column(f"{side}\n{name}", justify="right")
    sides = {(entry.runtime, entry.precision, entry.side): entry.latency or {} for entry in ledger.entries}
    for runtime, precision in dict.fromkeys(name[:2] for name in sides):
        found = [sides[runtime, precision, side][name] for side in ("dense", "pyramid") for name in names]
        bold = "bold" if (runtime, precision) == ledger.fastest else None
        table.add_row(f"{runtime} {precision}", *(f"{1000 * value:,.1f}" for value in found), style=bold)
    return table


def _narrow(title: str, caption: str) -> Table:
    """An empty table without vertical lines, which fits into 80 columns; the first column names what ran."""
    table = Table(title=title, caption=caption, box=box.SIMPLE_HEAD, padding=0)
    table.add_column("", no_wrap=True)
    return table
