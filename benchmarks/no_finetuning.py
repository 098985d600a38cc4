"""What a dense classifier loses as a pyramid, without any training: the search, and the paper's schedule.

python benchmarks/no_finetuning.py MODEL TASK DATA --trained-on ROWS --epochs EPOCHS
python benchmarks/no_finetuning.py MODEL TASK DATA --paper-only

MODEL is a dense classifier that was trained on `sample_rows(load_task(TASK, DATA), ROWS, seed=0)`, for example by
`benchmarks/no_finetuning.py --train BASE MODEL TASK DATA --trained-on ROWS`. The search sees only training rows that
are not in that sample, whole sentences as long as dev rows are (SST-2 trains on phrases and is asked about sentences);
every figure is of the dev set, and the search sees only the lengths of its rows. Prints JSON.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

import torch
from common import show
from samples import as_long_as, whole

from pyramid_bert import PyramidClassifier, PyramidConfig, Schedule, pyramidize
from pyramid_bert.bench.ideal import ideal_speedup, kept_lengths
from pyramid_bert.families import base_model, set_sensitivity
from pyramid_bert.lab.glue.tasks import TASKS, load_task
from pyramid_bert.text.metrics import metrics_of
from pyramid_bert.text.sampling import sample_rows, shuffled, table_hash
from pyramid_bert.text.tables import Table
from pyramid_bert.training import TrainSettings
from pyramid_bert.tune.candidates import Method
from pyramid_bert.tune.judge import Trial, agreement
from pyramid_bert.tune.search import find_pyramid

SPEEDUPS = (1.5, 2.0)
CALIBRATION_ROWS, HELD_OUT = 2000, 0.1  # the dev set is what is compared on
PADDED, LAST_LAYER, KEEP_RATIO = 128, 3, 0.2
TRAINING = {"epochs": 3, "learning_rate": 5e-5, "batch_size": 32, "bf16": True, "seed": 0}
REDUCTIONS = {
    "drop": Method("coreset", "drop"),
    "weighted": Method("coreset", "drop", weighted=True),
    "merge": Method("coreset", "merge"),
    "cluster": Method("cluster", metric="cosine"),
    "cluster within 8": Method("cluster", metric="cosine", within=8),
}


def main() -> None:
    """Trains, or searches and prints."""
    args = _arguments()
    task = TASKS[args.task]
    dev = load_task(args.task, args.data, "dev")
    dev = sample_rows(dev, args.dev_rows, 0) if args.dev_rows else dev
    if args.paper_only:
        show(_about(args, OnDev(args.model, dev, task.metric)))
        return
    train = load_task(args.task, args.data)
    if args.train:
        rows = sample_rows(train, args.trained_on, 0)
        classifier = PyramidClassifier.from_pretrained(args.train, "dense", max_length=task.max_length)
        settings = TrainSettings(**{**TRAINING, "epochs": args.epochs})
        classifier.fit(rows.texts, rows.labels, settings=settings).save(args.model)
        return
    calibration = as_long_as(dev, whole(_unseen(train, args.trained_on), train), CALIBRATION_ROWS)
    show(_run(args, calibration, dev))


def _run(args: argparse.Namespace, calibration: Table, dev: Table) -> dict[str, Any]:
    classifier = PyramidClassifier.load(args.model)
    on_dev = OnDev(args.model, dev, TASKS[args.task].metric)
    searches = []
    for speedup in SPEEDUPS:
        found = find_pyramid(
            classifier,
            speedup,
            calibration.texts,
            calibration.labels,
            target="ideal",
            metric=TASKS[args.task].metric,
            minutes=args.minutes,
            held_out=HELD_OUT,
            progress=True,
        )
        report = {name: value for name, value in found.to_dict().items() if name != "trials"}
        on_dev.feel_like(found.classifier.model)
        by_method = {str(Method.of(t.settings)): on_dev(t.settings) for t in _best_of_each(found.trials)}
        searches.append(
            {**report, "tried": len(found.trials), "dev": on_dev(found.settings), "best_of_each_method": by_method}
        )
        print(f"{args.task} at {speedup}x: {searches[-1]['dev']}", file=sys.stderr)
    return {
        **_about(args, on_dev),
        "trained_on": args.trained_on,
        "training": {**TRAINING, "epochs": args.epochs},
        "calibration": {"rows": len(calibration.texts), "sha256": table_hash(calibration)},
        "searches": searches,
    }


def _about(args: argparse.Namespace, on_dev: "OnDev") -> dict[str, Any]:
    return {
        "task": args.task,
        "metric": on_dev.metric,
        "model": on_dev.shape(),
        "dev": on_dev.about(),
        "paper": paper_schedule(on_dev),
    }


class OnDev:
    """What pyramids with these weights do on the dev set."""

    def __init__(self, model: str, dev: Table, metric: str) -> None:
        classifier = PyramidClassifier.load(model)
        self._dev, self.metric, self.config = dev, metric, classifier.model.config
        self._pyramid = classifier
        self._dense = torch.from_numpy(classifier.predict_logits(dev.texts))
        self.dense_metric = self._metric(self._dense)

    def feel_like(self, model: Any) -> None:
        """Takes over what a search has measured of the same weights."""
        set_sensitivity(base_model(self._pyramid.model), base_model(model).sensitivity)

    def about(self) -> dict[str, Any]:
        """The data, and the dense model's result."""
        return {"rows": len(self._dev.texts), "sha256": table_hash(self._dev), "dense": self.dense_metric}

    def shape(self) -> dict[str, int]:
        """The size of the model."""
        return {"layers": self.config.num_hidden_layers, "hidden_size": self.config.hidden_size}

    def __call__(self, settings: PyramidConfig) -> dict[str, Any]:
        """Metric, agreement with the dense model, and ideal speed-up over true lengths."""
        pyramidize(self._pyramid.model, config=settings)
        logits = torch.from_numpy(self._pyramid.predict_logits(self._dev.texts))
        metric = self._metric(logits)
        return {
            "metric": metric,
            "loss_in_points": 100 * (self.dense_metric - metric),
            "agreement": agreement(self._dense, logits),
            "ideal": self._ideal(),
        }

    def _ideal(self) -> float:
        items = self._pyramid.encode(self._dev.texts)
        kept = kept_lengths(self._pyramid.model, items, self._pyramid.tokenizer.pad_token_id)
        return ideal_speedup(self._pyramid.model, items, kept)

    def _metric(self, logits: torch.Tensor) -> float:
        return metrics_of(self._pyramid.known_labels(), self._dev.labels, logits.numpy())[self.metric]


def paper_schedule(on_dev: OnDev) -> dict[str, Any]:
    """The paper's (3, 0.2): with the lengths of a row padded to 128, and with the same shares of true lengths.

    A padded row keeps lengths that are shares of 128. Pads are never chosen before real tokens here, so the same number
    of slots goes to real tokens, and a text that is short enough keeps them all.
    """
    shares = Schedule.exponential(KEEP_RATIO, LAST_LAYER)
    padded = Schedule.custom(shares.lengths(PADDED, on_dev.config.num_hidden_layers))
    return {
        name: {how: on_dev(method.settings(schedule)) for how, method in REDUCTIONS.items()}
        for name, schedule in (("padded to 128", padded), ("true lengths", shares))
    }


def _unseen(table: Table, trained_on: int) -> Table:
    """The rows that are not in the training sample."""
    rest = sorted(shuffled(len(table.texts), 0)[trained_on:])
    if not rest:
        raise SystemExit("no training rows are left to search on; train on a sample with --trained-on")
    return Table([table.texts[i] for i in rest], [table.labels[i] for i in rest], table.source)


def _best_of_each(trials: Sequence[Trial]) -> list[Trial]:
    """For each method the trial on most rows that was nearest to the dense model."""
    best: dict[Method, Trial] = {}
    for trial in sorted(trials, key=lambda trial: (-trial.rows, trial.divergence)):
        best.setdefault(Method.of(trial.settings), trial)
    return list(best.values())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("data")
    parser.add_argument("--paper-only", action="store_true", help="the paper's schedule, without a search")
    parser.add_argument("--trained-on", type=int, default=0, help="rows of the training sample")
    parser.add_argument("--dev-rows", type=int, help="a sample of the dev set in place of the whole")
    parser.add_argument("--train", metavar="BASE", help="train MODEL from this encoder and stop")
    parser.add_argument("--epochs", type=float, default=TRAINING["epochs"])
    parser.add_argument("--minutes", type=float, default=30)
    return parser.parse_args()


if __name__ == "__main__":
    main()
