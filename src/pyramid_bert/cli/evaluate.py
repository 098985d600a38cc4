"""Measure a trained classifier on a labelled file, and print the metrics by name."""

from __future__ import annotations

import argparse

from .options import add_data_options, add_json_option, read_data
from .train import report

EPILOG = """examples:
  pyramid-bert evaluate my-model --data test.csv
  pyramid-bert evaluate my-model --data dev.tsv.gz --text-column sentence --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("model", help="the folder of a trained classifier, pyramid or dense")
    parser.add_argument("--data", required=True, metavar="FILE", help="texts and labels")
    parser.add_argument("--batch-size", type=int, default=32)
    add_data_options(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> None:
    """Evaluates and prints."""
    table = read_data(args.data, args)

    from ..classifier import PyramidClassifier

    classifier = PyramidClassifier.load(args.model)
    classifier.known_labels().targets(table.labels, where=table.where)  # an unknown label is named with file and row
    metrics = classifier.evaluate(table.texts, table.labels, batch_size=args.batch_size, progress=True)
    report(metrics, args.json)
