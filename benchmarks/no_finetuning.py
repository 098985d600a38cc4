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
from typing import Any

from common import arguments, as_long_as, rows_of, show, whole
from numpy.typing import NDArray

from pyramid_bert import PyramidClassifier, PyramidConfig, Schedule, pyramidize
from pyramid_bert.bench.ideal import ideal_speedup, kept_lengths
from pyramid_bert.families import base_model, set_sensitivity
from pyramid_bert.lab.glue.tasks import TASKS, load_task
from pyramid_bert.text.metrics import agreement, metrics_of
from pyramid_bert.text.sampling import sample_rows, shuffled, table_hash
from pyramid_bert.text.tables import Table
from pyramid_bert.training import TrainSettings
from pyramid_bert.tune import Method, find_pyramid

SPEEDUPS = (1.5, 2.0)
CALIBRATION_ROWS, HELD_OUT = 2000, 0.1  # the dev set is what is compared on
PADDED, LAST_LAYER, KEEP_RATIO = 128, 3, 0.2
TRAINING = {"epochs": 3.0, "learning_rate": 5e-5, "batch_size": 32, "bf16": True, "seed": 0}
REDUCTIONS = {
    "drop": Method("coreset", "drop"),
    "weighted": Method("coreset", "drop", weighted=True),
    "merge": Method("coreset", "merge"),
    "cluster": Method("cluster", metric="cosine"),
    "cluster within 8": Method("cluster", metric="cosine", within=8),
}


def main() -> None:
    """Trains, or searches and prints."""
    options = {"trained_on": 0, "dev_rows": 0, "train": "", "epochs": TRAINING["epochs"], "minutes": 30.0}
    args = arguments(__doc__, paper_only=False, **options)
    task, train = TASKS[args.task], None if args.paper_only else load_task(args.task, args.data)
    if train is not None and args.train:
        rows = sample_rows(train, args.trained_on, 0)
        classifier = PyramidClassifier.from_pretrained(args.train, "dense", max_length=task.max_length)
        settings = TrainSettings(**{**TRAINING, "epochs": args.epochs})
        classifier.fit(rows.texts, rows.labels, settings=settings).save(args.model)
        return
    dev = load_task(args.task, args.data, "dev")
    on_dev = OnDev(args.model, sample_rows(dev, args.dev_rows, 0) if args.dev_rows else dev, task.metric)
    about = {"task": args.task, "metric": task.metric, **on_dev.about(), "paper": paper_schedule(on_dev)}
    show(about if train is None else {**about, **_searches(args, train, on_dev)})


def _searches(args: argparse.Namespace, train: Table, on_dev: "OnDev") -> dict[str, Any]:
    rest = sorted(shuffled(len(train.texts), 0)[args.trained_on :])
    if not rest:
        raise SystemExit("no training rows are left to search on; train on a sample with --trained-on")
    rows = as_long_as(on_dev.dev, whole(rows_of(train, rest), train), CALIBRATION_ROWS)
    how = {"target": "ideal", "metric": on_dev.metric, "minutes": args.minutes, "held_out": HELD_OUT, "progress": True}
    classifier, searches = PyramidClassifier.load(args.model), []
    for speedup in SPEEDUPS:
        found = find_pyramid(classifier, speedup, rows.texts, rows.labels, **how)
        on_dev.take_sensitivity(found.classifier.model)
        best: dict[str, PyramidConfig] = {}  # of each method, the nearest to the dense model on most rows
        for trial in sorted(found.trials, key=lambda trial: (-trial.rows, trial.divergence)):
            best.setdefault(str(Method.of(trial.settings)), trial.settings)
        report = {name: value for name, value in found.to_dict().items() if name != "trials"}
        report |= {"tried": len(found.trials), "dev": on_dev(found.settings)}
        searches.append({**report, "best_of_each_method": {name: on_dev(one) for name, one in best.items()}})
        print(f"{args.task} at {speedup}x: {report['dev']}", file=sys.stderr)
    return {
        "trained_on": args.trained_on,
        "training": {**TRAINING, "epochs": args.epochs},
        "calibration": {"rows": len(rows.texts), "sha256": table_hash(rows)},
        "searches": searches,
    }


class OnDev:
    """What pyramids with these weights do on the dev set."""

    def __init__(self, model: str, dev: Table, metric: str) -> None:
        self._pyramid = PyramidClassifier.load(model)
        self.dev, self.metric, self.config = dev, metric, self._pyramid.model.config
        self._dense = self._pyramid.predict_logits(dev.texts)
        self._dense_metric = self._metric(self._dense)

    def take_sensitivity(self, model: Any) -> None:
        """Takes over what a search has measured of the same weights."""
        set_sensitivity(base_model(self._pyramid.model), base_model(model).sensitivity)

    def about(self) -> dict[str, Any]:
        """The model, the data, and the dense model's result."""
        return {
            "model": {"layers": self.config.num_hidden_layers, "hidden_size": self.config.hidden_size},
            "dev": {"rows": len(self.dev.texts), "sha256": table_hash(self.dev), "dense": self._dense_metric},
        }

    def __call__(self, settings: PyramidConfig) -> dict[str, Any]:
        """Metric, agreement with the dense model, and ideal speed-up over true lengths."""
        model = pyramidize(self._pyramid.model, config=settings)
        logits = self._pyramid.predict_logits(self.dev.texts)
        metric, items = self._metric(logits), self._pyramid.encode(self.dev.texts)
        return {
            "metric": metric,
            "loss_in_points": 100 * (self._dense_metric - metric),
            "agreement": agreement(self._dense, logits),
            "ideal": ideal_speedup(model, items, kept_lengths(model, items, self._pyramid.tokenizer.pad_token_id)),
        }

    def _metric(self, logits: NDArray[Any]) -> float:
        return metrics_of(self._pyramid.known_labels(), self.dev.labels, logits)[self.metric]


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


if __name__ == "__main__":
    main()
