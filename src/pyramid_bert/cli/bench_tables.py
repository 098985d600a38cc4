"""How the speed ledger looks in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from ..bench.ledger import Ledger
    from ..bench.training import TrainingLedger
    from ..tune.schedules import Solution


def ledger_table(ledger: Ledger, difference: dict[str, float] | None = None) -> Table:
    """Times, work and speed-ups of the three baselines and the pyramid."""
    work, machine, entries = ledger.workload, ledger.machine, ledger.entries
    how = f", weights {ledger.optimization}" if ledger.optimization else ""
    table = Table(
        title=f"{work['rows']} rows, mean {work['mean_length']:.0f} tokens, in batches of {ledger.batch_size}{how}",
        caption=f"{work['source']}; {machine['cpu']}, {machine['threads']} threads, torch {machine['torch']}; "
        f"medians of {ledger.rounds} interleaved rounds. Ideal: the ratio of multiply-accumulates. Roofline: reading "
        f"weights at {ledger.roofline.bytes_per_second / 1e9:.0f} GB/s and multiplying at "
        f"{ledger.roofline.macs_per_second / 1e9:.0f} GMAC/s, at once or in turn.{_effect(ledger, difference)}",
    )
    table.add_column("", no_wrap=True)
    for name in (
        f"a: dense,\npadded to {work['padded_length']}",
        "b: dense,\ndynamic",
        "c: dense,\nsorted",
        "d: pyramid",
    ):
        table.add_column(name, justify="right")
    table.add_row("milliseconds", *(f"{entry.seconds * 1e3:,.1f}" for entry in entries.values()))
    table.add_row("roofline, at once", *(f"{entry.roofline_seconds * 1e3:,.1f}" for entry in entries.values()))
    table.add_row("roofline, in turn", *(f"{entry.stalled_seconds * 1e3:,.1f}" for entry in entries.values()))
    table.add_row("thousand tokens x layers", *(f"{entry.token_layers / 1e3:,.1f}" for entry in entries.values()))
    table.add_row("GMACs", *(f"{entry.macs / 1e9:,.1f}" for entry in entries.values()))
    table.add_row("peak MB of tensors", *(f"{entry.peak_bytes / 1e6:,.1f}" for entry in entries.values()))
    for letter, base in zip("abc", entries, strict=False):
        speed = (f"{entry.speedup_over[base]:.2f}x" for entry in entries.values())
        table.add_row(f"speed-up over {letter}", *speed, style="bold" if letter == "c" else None)
    table.add_row("ideal speed-up over c", *(f"{entry.ideal_over['sorted']:.2f}x" for entry in entries.values()))
    pyramid = entries["pyramid"]
    table.add_row("share of the ideal over c", "", "", "", f"{pyramid.realised('sorted'):.0%}")
    table.add_row("the same by roofline", "", "", "", " to ".join(f"{limit:.2f}x" for limit in sorted(ledger.limits)))
    table.add_row("time choosing and moving", "", "", "", f"{ledger.selecting:.1%}")
    return table


def _effect(ledger: Ledger, difference: dict[str, float] | None) -> str:
    if difference is None:
        return ""
    return (
        f" {ledger.optimization}: logits differ by at most {difference['largest_logit_difference']:.1e}, "
        f"{difference['same_predictions']:.1%} of {difference['texts']} predictions stay the same."
    )


def training_table(ledgers: Sequence[TrainingLedger]) -> Table:
    """Steps a second and peak memory by length."""
    machine = ledgers[0].machine
    table = Table(
        title="training steps: forward, backward and AdamW",
        caption=f"full rows; {machine['cpu']}, {machine['threads']} threads, torch {machine['torch']}; medians of "
        f"{ledgers[0].rounds} interleaved rounds. Memory: peak of forward and backward without weights and gradients. "
        "Choice: the share of the pyramid's step that choosing and moving tokens takes.",
    )
    for name in (
        "rows x\ntokens",
        "dense\nsteps/s",
        "pyramid\nsteps/s",
        "speed-\nup",
        "dense\nMB",
        "pyramid\nMB",
        "share",
        "choice",
    ):
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


def solution_text(solution: Solution) -> str:
    """What the solver found, in a sentence."""
    measured = "" if solution.measured is None else f", measured {solution.measured:.2f}x"
    options = " ".join(
        f"--{name.replace('_', '-')} {value}"
        for name, value in solution.schedule.to_dict().items()
        if name in ("keep_ratio", "first_layer", "last_layer", "min_tokens")
    )
    return (
        f"for {solution.wanted:g}x over dense, length-sorted: {options} "
        f"(predicted {solution.predicted:.2f}x{measured}; at most {solution.reachable:.1f}x can be reached)"
    )
