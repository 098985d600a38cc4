"""Fine-tune a classifier on your own file: a pyramid from any BERT model, or a dense model with --dense.

Labels may be words or whole numbers (classes) or decimal numbers (regression). A run that was stopped goes on from its
last checkpoint when the same command is given again, and ends with the weights it would have had.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ..errors import PyramidError, UsageError
from .options import (
    add_data_options,
    add_json_option,
    add_pyramid_options,
    add_schedule_options,
    messages,
    print_json,
    pyramid_settings_from,
    read_data,
    schedule_from,
    usage_errors,
)

EPILOG = """examples:
  pyramid-bert train --model path/to/bert --train train.csv --dev dev.csv --out my-model
  pyramid-bert train --model path/to/bert --train train.tsv.gz --text-column sentence --out my-model \\
      --keep-ratio 0.25 --first-layer 4 --last-layer 6
  pyramid-bert train --model path/to/bert --train train.csv --out as-in-the-paper \\
      --reduce drop --keep-ratio 0.25 --last-layer 3"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of this command."""
    parser.add_argument("--model", required=True, help="a model folder, or a name on the hub")
    parser.add_argument("--train", required=True, metavar="FILE", help="the training data")
    parser.add_argument("--dev", metavar="FILE", help="data to evaluate on when training is done")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="where the trained model goes")
    parser.add_argument("--dense", action="store_true", help="drop nothing: the model to compare with")
    group = parser.add_argument_group("training")
    group.add_argument("--epochs", type=float, default=3)
    group.add_argument("--learning-rate", type=float, default=2e-5)
    group.add_argument("--batch-size", type=int, default=32)
    group.add_argument("--max-length", type=int, metavar="N", help="cut longer texts to so many tokens")
    group.add_argument("--seed", type=int, default=0)
    group.add_argument("--overwrite", action="store_true", help="replace a model that is in --out already")
    add_data_options(parser)
    add_schedule_options(parser)
    add_pyramid_options(parser)
    add_json_option(parser)


def run(args: argparse.Namespace) -> None:
    """Trains, saves and evaluates."""
    schedule = schedule_from(args)
    if args.dense and schedule is not None:
        raise UsageError("--dense keeps every token; leave out the schedule options")
    out = Path(args.out)
    if (out / "config.json").exists() and not args.overwrite:
        raise PyramidError(f"{out} holds a trained model already; name another folder, or pass --overwrite")
    train = read_data(args.train, args)
    dev = read_data(args.dev, args) if args.dev else None

    from ..classifier import WRITTEN, PyramidClassifier
    from ..config import PyramidConfig
    from ..files import check_replaceable, check_writable
    from ..labels import Labels
    from ..training import TrainSettings

    check_writable(out)
    check_replaceable(out, WRITTEN)
    with usage_errors():
        settings = TrainSettings(
            epochs=args.epochs, learning_rate=args.learning_rate, batch_size=args.batch_size, seed=args.seed
        )
        pyramid: dict[str, Any] = {} if args.dense else pyramid_settings_from(args)
        if schedule is not None:
            PyramidConfig(schedule=schedule, **pyramid)
    known = Labels.of(train.labels, len(train.texts))
    if dev is not None:
        known.targets(dev.labels)
    classifier = PyramidClassifier.from_pretrained(
        args.model, "dense" if args.dense else schedule, max_length=args.max_length, **pyramid
    )
    classifier.fit(
        train.texts,
        train.labels,
        settings=settings,
        output_dir=out / "checkpoints",
    )
    classifier.save(out)
    messages().print(f"saved to {out}")
    if dev is not None:
        report(classifier.evaluate(dev.texts, dev.labels, progress=True), args.json)


def report(metrics: dict[str, float], as_json: bool) -> None:
    """Prints metrics by name."""
    if as_json:
        print_json(metrics)
    else:
        for name, value in metrics.items():
            print(f"{name} {value:.4f}")
