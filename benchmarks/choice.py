"""Which of several equally fast schedules loses least without training: by Theorem 1's sum, by outputs, by CLS vectors?

python benchmarks/choice.py MODEL TASK DATA [--trained-on ROWS] [--dev-rows N]

MODEL is a dense classifier that was trained on `sample_rows(load_task(TASK, DATA), ROWS, seed=0)`. Each choice is made
on other training rows as long as dev rows: 64 for the sum, as version 0.1.0 did, and 256 for the two distances, as
`schedule_for_speedup` does now. Metric and agreement with the dense model are of dev rows. Speed-ups count
multiply-accumulates at true lengths. Prints a line of JSON for each choice.
"""

import copy
import json
import math
from functools import partial
from typing import Any

import torch
from common import arguments
from samples import as_long_as

from pyramid_bert import PyramidClassifier, PyramidConfig, pyramidize
from pyramid_bert.lab.glue.tasks import TASKS, load_task
from pyramid_bert.lab.theory.radius import RadiusCurves
from pyramid_bert.text.batches import Encoded
from pyramid_bert.text.metrics import metrics_of
from pyramid_bert.text.sampling import sample_rows, shuffled
from pyramid_bert.text.tables import Table
from pyramid_bert.tune.candidates import places
from pyramid_bert.tune.judge import Judge, agreement, cls_distances, cls_of, divergences, logits_of
from pyramid_bert.tune.solver import at_speedup, extreme_schedule
from pyramid_bert.tune.speed import Counted
from pyramid_bert.tune.strategy import Deadline, halve

SPEEDUPS = (1.5, 2.0, 3.0)
BATCH, FEW = 32, 64


def main() -> None:
    """Chooses, runs on dev rows, and prints."""
    args = arguments(__doc__, **{"trained-on": 6000, "dev-rows": 100_000})
    torch.set_num_threads(1)
    clf, metric = PyramidClassifier.load(args.model), TASKS[args.task].metric
    dev = sample_rows(load_task(args.task, args.data, "dev"), args.dev_rows, 0)
    train = load_task(args.task, args.data)
    unseen = shuffled(len(train.texts), 0)[args.trained_on :]
    rest = Table([train.texts[i] for i in unseen], [train.labels[i] for i in unseen])
    sample, items = clf.encode(as_long_as(dev, rest, 256).texts), clf.encode(dev.texts)
    outputs = logits_of(clf.tokenizer.pad_token_id, BATCH)
    dense, pyramid = outputs(clf.model, items), copy.deepcopy(clf.model)

    def show(name: str, settings: PyramidConfig | None, logits: torch.Tensor, **about: Any) -> None:
        found = {"metric": metrics_of(clf.known_labels(), dev.labels, logits.numpy())[metric]}
        found |= {"agreement": agreement(dense, logits), "divergence": float(divergences(dense, logits).mean())}
        schedule = None if settings is None else settings.schedule.to_dict()
        print(json.dumps({"by": name, **about, **found, "schedule": schedule}), flush=True)

    show("dense", None, dense, rows=len(items))
    for reduce in ("merge", "drop"):
        settings = PyramidConfig(schedule=extreme_schedule(), reduce=reduce)
        curves = RadiusCurves.of(clf.model, pyramidize(pyramid, config=settings), sample[:FEW])
        for wanted in SPEEDUPS:
            for name, chosen in _choices(clf, settings, curves, sample, wanted).items():
                show(name, chosen, outputs(pyramidize(pyramid, config=chosen), items), reduce=reduce, speedup=wanted)


def _choices(
    clf: PyramidClassifier, settings: PyramidConfig, curves: RadiusCurves, sample: list[Encoded], wanted: float
) -> dict[str, PyramidConfig]:
    """The choice among equally fast schedules, under the name of its criterion."""
    counted = Counted(clf.model, [len(item) for item in sample])
    solved = [at_speedup(settings, *place, counted, wanted) for place in places(clf.model.config.num_hidden_layers)]
    found = [one for one in solved if one is not None]
    chosen = {"theorem": min(found, key=lambda one: curves.bound(one.schedule))}
    for name, kind in (("outputs", logits_of), ("cls", cls_of)):
        outputs = kind(clf.tokenizer.pad_token_id, BATCH)
        dense = outputs(clf.model, sample)
        distances = partial(divergences, among=dense) if name == "outputs" else cls_distances
        judge = Judge(copy.deepcopy(clf.model), sample, dense, outputs, distances=distances)
        chosen[name] = halve(judge, found, len(sample), Deadline(math.inf))[0].settings
    return chosen


if __name__ == "__main__":
    main()
