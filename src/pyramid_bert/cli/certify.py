"""Learn from unlabelled texts how likely a pyramid's answer is not the dense model's, and save that beside the model.

Runs the texts (at least 50, and not those that the model was trained on) as a pyramid and with all tokens kept. Then
`pyramid-bert predict MODEL --fallback 0.05` runs the most doubtful answers again. The table shows what that is worth:
for each share of texts run again the flips that are gone, for scores by the pyramid's confidence, by the covering
radius, by both, and by chance; and the ideal speed-up over the dense model that is left.
"""

from __future__ import annotations

import argparse
from typing import Any

from rich.console import Console
from rich.table import Table

from ..errors import UsageError
from .options import add_data_options, add_device_option, add_json_option, messages, print_json, read_data

SCORES = ("confidence", "radius", "both")
EPILOG = """examples:
  pyramid-bert certify my-model --data dev.csv
  pyramid-bert certify my-model --data dev.tsv.gz --text-column sentence --score both --json
  pyramid-bert predict my-model --data reviews.csv --fallback 0.05 --out labelled.csv"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("model", help="the folder of a trained pyramid; the certificate is written there")
    parser.add_argument("--data", required=True, metavar="FILE", help="texts to calibrate on; labels are not read")
    parser.add_argument("--score", choices=SCORES, default="confidence", help="what an answer is judged by")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--dry-run", action="store_true", help="print the table, save nothing")
    add_data_options(parser)
    add_device_option(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> None:
    """Calibrates, saves and prints."""
    if args.batch_size < 1:
        raise UsageError(f"--batch-size must be at least 1, got {args.batch_size}")
    texts = read_data(args.data, args, labels=False).texts

    from ..certificate import FILE, Certificate, trial_of
    from ..classifier import PyramidClassifier
    from ..evidence import removed_by_share

    classifier = PyramidClassifier.load(args.model, device=args.device)
    trial = trial_of(classifier, texts, score=args.score, batch_size=args.batch_size, progress=True)
    assert classifier.settings is not None
    certificate = Certificate.of(trial, args.score, classifier.settings.to_dict())
    table = removed_by_share(trial)
    if not args.dry_run:
        certificate.save(args.model)
    if args.json:
        flips = {"rows": certificate.rows, "flips": certificate.flips, "ideal_speedup": trial.speedup()}
        print_json({**flips, "score": args.score, "by_share": table})
    else:
        Console().print(_table(table, args.score, certificate.rows, certificate.flips, trial.speedup()))
    if not args.dry_run:
        messages().print(f"saved to {args.model}/{FILE}")


def _table(rows: list[dict[str, Any]], score: str, texts: int, flips: int, speedup: float) -> Table:
    table = Table(
        title=f"{flips} of {texts} predictions differ from the dense model's, at {speedup:.2f}x ideal speed-up",
        caption="flips removed when a share of the texts is run again, chosen by each score (fitted on other texts)",
    )
    table.add_column("run again", justify="right")
    names = tuple(rows[0]["removed"])  # "random" first; the radius is not there for every pyramid
    for name in names:
        table.add_column(f"by {name}", justify="right", style="bold" if name == score else None)
    table.add_column("ideal speed-up", justify="right")
    for row in rows:
        removed = (f"{row['removed'][name]:.0%}" for name in names)
        table.add_row(f"{row['share']:.0%}", *removed, f"{row['ideal_speedup'][score]:.2f}x")
    return table
