"""Which answers of a pyramid are not the dense model's, and what finds them: radius, confidence, both, or chance?

python benchmarks/certificate.py MODEL TASK DATA > results/theory-certificate-TASK.json

MODEL is a dense fine-tuned classifier, which runs as a pyramid without any training; TASK and DATA as in
`pyramid-bert evaluate --task TASK --data DATA`. On the dev set, for drop and merge at two schedules: the share of
flips that is removed when a share of the texts is run again with all tokens, chosen by each score; the area under the
ROC curve of several scores; how well the certificates are calibrated on texts that they have not seen.
"""

import argparse
import json
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from pyramid_bert import PyramidClassifier, Schedule
from pyramid_bert.bench.machine import describe_machine
from pyramid_bert.certificate import Certificate
from pyramid_bert.evidence import FOLDS, SCORES, Trial, removed_by_share
from pyramid_bert.lab.glue.tasks import TASKS, load_task
from pyramid_bert.text.inference import Covers, outputs_of
from pyramid_bert.text.metrics import metrics_of
from pyramid_bert.text.sampling import table_hash

SEED = 0
SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("task", choices=sorted(name for name, task in TASKS.items() if task.classes))
    parser.add_argument("data")
    args = parser.parse_args()
    torch.set_num_threads(1)
    task, table = TASKS[args.task], load_task(args.task, args.data, "dev")
    pyramids = []
    for name, schedule in _schedules(_layers(args.model)).items():
        for reduce in ("merge", "drop"):
            clf = PyramidClassifier.from_pretrained(args.model, schedule, reduce=reduce, max_length=task.max_length)
            pyramids.append({"schedule": name, "reduce": reduce, **_measured(clf, table, task.metric)})
    result = {
        "task": args.task,
        "metric": task.metric,
        "rows": len(table.texts),
        "data_sha256": table_hash(table),
        "seed": SEED,
        "folds": FOLDS,
        "machine": describe_machine(),
        "pyramids": pyramids,
    }
    print(json.dumps(result, indent=1))


def _layers(model: str) -> int:
    return int(PyramidClassifier.from_pretrained(model, "dense").model.config.num_hidden_layers)


def _schedules(layers: int) -> dict[str, Schedule]:
    """A gentle and a harsh one."""
    middle = layers // 2
    return {
        "late": Schedule.exponential(0.25, middle + 1, first_layer=middle, min_tokens=4),
        "early": Schedule.exponential(0.25, middle, min_tokens=4),
    }


def _measured(clf: PyramidClassifier, table: Any, metric: str) -> dict[str, Any]:
    items, pad_id = clf.encode(table.texts), clf.tokenizer.pad_token_id
    trial = Trial.of(clf.model, items, pad_id, batch_size=32)
    covers = outputs_of(clf.model, items, pad_id, batch_size=32, covers=True).covers
    assert covers is not None
    assert clf.settings is not None
    quality = {
        name: metrics_of(clf.known_labels(), table.labels, logits)[metric]
        for name, logits in (("pyramid", trial.logits), ("dense", trial.dense_logits))
    }
    return {
        "settings": clf.settings.to_dict(),
        "quality": quality,
        "flips": int(trial.flips.sum()),
        "ideal_speedup": trial.speedup(),
        "by_share": removed_by_share(trial, SHARES, seed=SEED),
        "area_under_roc": _areas(trial, covers, np.array([len(item) for item in items])),
        "calibration_error": {score: _calibration_error(trial, score) for score in SCORES},
    }


def _areas(trial: Trial, covers: Covers, lengths: NDArray[Any]) -> dict[str, float]:
    """How well each number tells flips from others: 0.5 is chance, 1 is all of them."""
    from sklearn.metrics import roc_auc_score

    radius, relative = covers.radius.numpy(), covers.relative.numpy()
    dropped = lengths[:, None] - covers.kept.numpy()
    numbers = {
        "confidence": trial.evidence.doubt,
        "radius, sum over layers": radius.sum(1),
        "radius, largest": radius.max(1),
        "relative radius, sum": relative.sum(1),
        "relative radius, largest": relative.max(1),
        "Theorem 1: sum of (N − l)·radius": (dropped * radius).sum(1),
        "length": lengths,
    }
    return {name: float(roc_auc_score(trial.flips, value)) for name, value in numbers.items()}


def _calibration_error(trial: Trial, score: str) -> float:
    """The mean over fifths of unseen texts, by score, of |flips expected − flips there are| as a share."""
    n = len(trial.flips)
    fold = np.random.default_rng(SEED).permutation(n) % FOLDS
    chance = np.zeros(n)
    order = np.zeros(n)
    for number in range(FOLDS):
        here = fold == number
        rows = np.flatnonzero(~here)
        seen = Trial(
            trial.evidence.rows(rows),
            *(part[rows] for part in (trial.flips, trial.macs, trial.dense_macs, trial.logits, trial.dense_logits)),
        )
        certificate = Certificate.of(seen, score, {})
        scores = trial.evidence.rows(here).score(certificate.weights)
        chance[here] = certificate.chance(scores)
        order[here] = scores.argsort().argsort() / here.sum()
    fifth = (order * 5).astype(int)
    gaps = [abs(chance[fifth == i].mean() - trial.flips[fifth == i].mean()) for i in range(5)]
    return float(np.mean(gaps))


if __name__ == "__main__":
    main()
