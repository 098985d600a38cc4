"""The sections that measurements fill: speed, training, and both sides of the paper's bound."""

from __future__ import annotations

from typing import Any

from ..study.render import NOTHING
from .collect import Results
from .markup import Html, command, missing, section, table, tag

# ---- speed ----


def speed(results: Results) -> Html:
    """What was measured of speed: ledgers, throughput and training."""
    again = "python -m pyramid_bert.lab.pages performance --measure"
    says = "with the name of a measurement, or for what is missing:"
    parts: list[Html] = []
    ledgers = [entry for _, entry in results.named("bench-") if "realised_over" in entry and "entries" in entry]
    if ledgers:
        head = ["(last layer, keep)", "m", "N", "batch", "weights", "over a", "over b", "over c", "ideal", "realised"]
        parts += [
            tag("h3", "BERT-base, one run for all baselines"),
            table(head, map(_ledger, ledgers)),
            command(again, says),
        ]
    rows = [entry for _, entry in results.named("bench-throughput") if "pyramid_over_best" in entry]
    if rows:
        head = [
            "task",
            "mean tokens",
            "best other, texts/s",
            "our dense",
            "our pyramid",
            "over the best other",
            "over our dense",
        ]
        parts += [
            tag("h3", "Texts a second, against what people use"),
            table(head, map(_throughput, rows)),
            command(again, says),
        ]
    rows = [entry for _, entry in results.named("bench-training") if "steps_per_second" in entry]
    if rows:
        head = ["N", "batch", "dense, steps/s", "pyramid, steps/s", "faster", "memory of dense's"]
        parts += [tag("h3", "Training, forward and backward"), table(head, map(_training, rows)), command(again, says)]
    if not parts:
        parts.append(
            missing("No speed was measured yet.", f"pyramid-bert bench --json > {results.folder}/bench-mine.json")
        )
    note = "Ratios within one interleaved run: a is dense padded to N, b dense with dynamic padding, c dense on "
    note += "length-sorted batches."
    return section("speed", "Speed", *parts, note=note)


def _ledger(entry: dict[str, Any]) -> list[object]:
    pyramid, schedule = entry["entries"]["pyramid"], entry["settings"]["schedule"]
    over = pyramid["speedup_over"]
    shape = f"({schedule.get('last_layer', NOTHING)}, {schedule.get('keep_ratio', NOTHING)})"
    return [
        shape,
        entry["settings"]["centers_per_step"],
        entry["workload"]["padded_length"],
        entry["batch_size"],
        entry["optimization"] or "as loaded",
        f"{over['padded']:.2f}x",
        f"{over['dynamic']:.2f}x",
        tag("b", f"{over['sorted']:.2f}x"),
        f"{pyramid['ideal_over']['sorted']:.2f}x",
        f"{entry['realised_over']['sorted']:.0%}",
    ]


def _throughput(entry: dict[str, Any]) -> list[object]:
    rate = entry["texts_per_second"]
    return [
        entry["task"],
        f"{entry['mean_length']:.0f}",
        f"{rate[entry['best_other']]:.1f} ({entry['best_other']})",
        f"{rate['dense']:.1f}",
        f"{rate['pyramid']:.1f}",
        tag("b", f"{entry['pyramid_over_best']:.2f}x"),
        f"{entry['pyramid_over_dense']:.2f}x",
    ]


def _training(entry: dict[str, Any]) -> list[object]:
    steps, peak = entry["steps_per_second"], entry["peak_bytes"]
    return [
        entry["n"],
        entry["batch_size"],
        f"{steps['dense']:.3f}",
        f"{steps['pyramid']:.3f}",
        tag("b", f"{entry['speedup']:.2f}x"),
        f"{peak['pyramid'] / peak['dense']:.0%}",
    ]


# ---- theory ----


def theory(results: Results) -> Html:
    """Both sides of the paper's bound, from what was measured; empty when nothing was."""
    found = [(name, entry) for name, entry in results.named("theory-bound") if "bounds" in entry]
    if not found:
        return Html("")
    head = [
        "(first layer, last layer, keep)",
        "change of the loss, mean",
        "bound as printed, mean",
        "times the change",
        "with what is really moved",
    ]
    rows = []
    for _, entry in found:
        schedule, printed = entry["settings"]["schedule"], entry["bounds"]["printed"]
        shape = tuple(schedule.get(key, NOTHING) for key in ("first_layer", "last_layer", "keep_ratio"))
        rows.append(
            [
                f"({', '.join(map(str, shape))})",
                f"{entry['observed']['mean']:.3g}",
                f"{printed['mean']:.3g}",
                f"{printed['loose']:,.0f}x",
                f"{entry['bounds']['direct']['loose']:,.0f}x",
            ]
        )
    note = "Theorem 1 bounds the change of the loss when each dropped token is replaced by its nearest kept one. It "
    note += "holds, from far away."
    commands = [command(entry["command"]) for _, entry in found]
    return section("theory", "The bound, measured", table(head, rows), *commands, note=note)
