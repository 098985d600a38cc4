"""Measure a trained classifier on a labelled file or on the dev data of a GLUE task, and print the metrics by name."""

from __future__ import annotations

import argparse

from ..errors import UsageError
from . import options

EPILOG = """examples:
  pyramid-bert evaluate my-model --data test.csv
  pyramid-bert evaluate my-model --data dev.tsv.gz --text-column sentence --json
  pyramid-bert evaluate my-model --task sst2 --data glue"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("model", help="the folder of a trained classifier, pyramid or dense")
    parser.add_argument("--data", metavar="PATH", help="a file of texts and labels, or the folder of a --task")
    options.add_task_option(parser)
    parser.add_argument("--batch-size", type=int, metavar="N", help="texts at a time (default: 32, or the task's)")
    options.add_max_length_option(parser)
    options.add_speed_option(parser)
    options.add_optimize_option(parser)
    options.add_data_options(parser)
    options.add_device_option(parser)
    options.add_json_option(parser)


def run(args: argparse.Namespace) -> None:
    """Evaluates and prints."""
    if args.data is None and args.task is None:
        raise UsageError("give texts and labels with --data, or a --task")
    options.check_task_call(args)
    task = options.task_from(args)
    tables = {"": options.read_data(args.data, args)} if task is None else options.dev_tables(task, args.data)
    classifier = options.load_classifier(args)
    size = (task.eval_batch_size if task else 32) if args.batch_size is None else args.batch_size
    options.report(options.evaluate_all(classifier, tables, size), args.json)
