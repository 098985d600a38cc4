"""Learn from unlabelled texts how likely a pyramid's answer differs from the dense model's, and save that beside it.

Runs the texts (at least 50 that the model was not trained on) as a pyramid and with all tokens kept. Afterwards
`pyramid-bert predict MODEL --fallback 0.05` runs the most doubtful answers again. The table shows what that is worth:
for each share of texts run again, the flips removed when texts are chosen by the pyramid's confidence or at random,
and the ideal speed-up over the dense model that is left.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from ..errors import UsageError
from . import options
from .options import messages, usage_errors

if TYPE_CHECKING:
    from ..certificate import Certificate

EPILOG = """examples:
  pyramid-bert certify my-model --data dev.csv
  pyramid-bert certify my-model --data dev.tsv.gz --text-column sentence --dry-run --json
  pyramid-bert predict my-model --data reviews.csv --fallback 0.05 --out labelled.csv"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("model", help="the folder of a trained pyramid; the certificate is written there")
    parser.add_argument("--data", required=True, metavar="FILE", help="texts to calibrate on; labels are not read")
    parser.add_argument("--score", help=argparse.SUPPRESS)  # deprecated: confidence is the only one
    parser.add_argument("--batch-size", type=int, default=32, metavar="N", help="texts at a time (default: 32)")
    parser.add_argument("--dry-run", action="store_true", help="print the table, save nothing")
    options.add_max_length_option(parser)
    options.add_speed_option(parser)
    options.add_data_options(parser)
    options.add_device_option(parser)
    options.add_json_option(parser)


def run(args: argparse.Namespace) -> None:
    """Calibrates, saves and prints."""
    if args.batch_size < 1:
        raise UsageError(f"--batch-size must be at least 1, got {args.batch_size}")

    from ..certificate import FILE, Certificate, compare_with_dense
    from ..text.predicting import check_score

    with usage_errors():
        check_score(args.score)
    if args.score is not None:
        messages().print("--score is deprecated: confidence is the only score; leave it out")
    table = options.read_data(args.data, args, labels=False)
    classifier = options.load_classifier(args)
    items = options.encoded(classifier, table, options.SHORTEN).texts
    comparison = compare_with_dense(classifier, items, batch_size=args.batch_size, progress=True)
    certificate, by_share, speedup = Certificate.of(comparison), comparison.by_share(), comparison.speedup()
    if not args.dry_run:
        certificate.save(args.model)
    if args.json:
        counts = {"rows": certificate.rows, "flips": certificate.flips}
        options.print_json({**counts, "ideal_speedup": speedup, "score": "confidence", "by_share": by_share})
    else:
        Console().print(_table(by_share, certificate, speedup))
    if not args.dry_run:
        options.say(f"saved to {args.model}/{FILE}")


def _table(by_share: list[dict[str, Any]], certificate: Certificate, speedup: float) -> Table:
    table = Table(
        title=f"{certificate.flips} of {certificate.rows} predictions differ from the dense model's, at "
        f"{speedup:.2f}x ideal speed-up",
        caption="flips removed when a share of the texts is run again with all tokens",
    )
    for name in ("run again", "at random", "by confidence", "ideal speed-up"):
        table.add_column(name, justify="right", style="bold" if name == "by confidence" else None)
    for row in by_share:
        removed = (f"{row['removed'][name]:.0%}" for name in ("random", "confidence"))
        table.add_row(f"{row['share']:.0%}", *removed, f"{row['ideal_speedup']['confidence']:.2f}x")
    return table
