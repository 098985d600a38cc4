"""Measure both sides of the paper's Theorem 1 on your texts: the change of the loss, and what the bound allows.

Runs the dense model and pyramid* (full length, with every dropped token replaced by its nearest kept one; the same
logits as dropping with weighted attention). Shows for each layer the number of replaced tokens, the covering radius and
the Lipschitz constants on the sample: the largest ratio of the change of the output to the change of the input, for the
replacement and for random changes of the same size. True constants are larger.

With --label-column the loss is computed on these labels, otherwise on the dense model's own predictions.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from ..counting import steps_shown
from ..errors import UsageError
from .options import (
    add_data_options,
    add_device_option,
    add_json_option,
    add_pyramid_options,
    add_schedule_options,
    print_json,
    pyramid_settings_from,
    read_data,
    schedule_from,
)

if TYPE_CHECKING:
    from ..lab.theory.bound import TheoremReport

EPILOG = """examples:
  pyramid-bert theory my-model --data dev.csv --keep-ratio 0.5 --last-layer 4
  pyramid-bert theory my-model --data dev.tsv.gz --text-column sentence --label-column label --rows 200
  pyramid-bert theory my-model --data dev.csv --centers-per-step all --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("model", help="folder of a trained classifier; a saved pyramid has its own schedule")
    parser.add_argument("--data", metavar="FILE", required=True, help="texts to measure on")
    parser.add_argument("--rows", type=int, default=64, metavar="N", help="texts to draw from the file (default: 64)")
    parser.add_argument(
        "--directions", type=int, default=2, metavar="N", help="random changes at each layer of a text (default: 2)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the draw and of the random changes (default: 0)")
    add_data_options(parser, label=None)
    add_schedule_options(parser)
    add_pyramid_options(parser)
    add_device_option(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> None:
    """Measures and prints."""
    schedule = schedule_from(args)
    if args.rows < 1 or args.directions < 1:
        raise UsageError(f"--rows and --directions must be at least 1, got {args.rows} and {args.directions}")
    if args.reduce is not None or args.weighted:
        raise UsageError("the theorem is about pyramid*, which replaces tokens; leave out --reduce and --weighted")
    table = read_data(args.data, args, labels=args.label_column is not None)

    from ..bench.machine import describe_machine
    from ..classifier import PyramidClassifier
    from ..families.hub import apply_settings
    from ..lab.theory.measure import measure_theorem
    from ..text.sampling import sample_rows

    classifier = PyramidClassifier.load(args.model, device=args.device)
    apply_settings(classifier.model, schedule, pyramid_settings_from(args))
    some = sample_rows(table, args.rows, args.seed)
    targets = classifier.known_labels().targets(some.labels, where=some.where) if some.labels else None
    items = classifier.encode(some.texts, where=some.where, remedy="shorten it")
    with steps_shown("measuring", len(items)) as step:
        report = measure_theorem(
            classifier.model, items, targets, directions=args.directions, seed=args.seed, after_each=step
        )
    if args.json:
        print_json({**report.to_dict(), "machine": describe_machine()})
        return
    console = Console()
    console.print(_layers(report))
    console.print(_bounds(report))
    console.print(report.sentence(), soft_wrap=True)


def _layers(report: TheoremReport) -> Table:
    mean = sum(row.n for row in report.rows) / len(report.rows)
    table = Table(
        title=f"pyramid* on {len(report.rows)} texts of {mean:.0f} tokens on average",
        caption="N − l: tokens replaced, mean (max). radius: the largest distance from a token to the one that "
        "replaces it. moved: norm of the layer's change. Constants: the largest ratio for the replacement / for random "
        "changes; λ: of the layer; direct: from the layer to the last CLS vector.",
    )
    for name in ("layer", "N − l", "radius δ", "moved", "λ", "product above", "direct"):
        table.add_column(name, justify="right")
    for row in report.layers():
        about = (f"{row[name]['mean']:.3g} ({row[name]['max']:.3g})" for name in ("replaced", "radius", "moved"))
        layer, direct = (
            f"{_number(row[f'{what}_from_pyramid'])} / {_number(row[f'{what}_from_random'])}"
            for what in ("layer", "direct")
        )
        table.add_row(str(row["layer"]), *about, layer, _number(row["product_above"]), direct)
    return table


def _bounds(report: TheoremReport) -> Table:
    from ..lab.theory.bound import BOUNDS

    seen = report.observed
    table = Table(title=f"change of the loss ({report.loss}); λ of the head: {report.constants.head:.3g}")
    table.add_column("")
    for name in ("mean", "largest", "times observed"):
        table.add_column(name, justify="right")
    table.add_row("observed", f"{seen['mean']:.3g}", f"{seen['max']:.3g}", "1", style="bold")
    for name, bound in report.bounds().items():
        table.add_row(BOUNDS[name], f"{bound['mean']:.3g}", f"{bound['max']:.3g}", _number(bound["loose"]))
    return table


def _number(value: float | None) -> str:
    """A constant or a ratio; a dash if there was nothing to measure."""
    from ..lab.theory.bound import shown

    return shown(value) if value else "–"
