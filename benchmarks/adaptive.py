"""Adaptive lengths against fixed ones at the same mean cost, without any training.

python benchmarks/adaptive.py MODEL TASK DATA

MODEL is a dense fine-tuned classifier; TASK and DATA as in `pyramid-bert evaluate --task TASK --data DATA`. For drop
and merge, and for each wanted ideal speed-up (multiply-accumulates at true lengths): the radius, and for fixed
schedules with the same first layers the keep ratio, are chosen on training texts as long as dev texts; then both are
run on the dev set. Tokens are counted twice: those that texts need, and those that batches of 32 texts of like length
hold, where the widest row decides.
"""

from contextlib import suppress
from itertools import product
from typing import Any

import torch
from common import arguments, as_long_as, show

from pyramid_bert import PyramidClassifier, PyramidConfig, Schedule, pyramidize
from pyramid_bert.bench.ideal import ideal_speedup, kept_lengths
from pyramid_bert.errors import OutOfReachError
from pyramid_bert.lab.glue.tasks import TASKS, load_task
from pyramid_bert.text.batches import Encoded, sorted_batches
from pyramid_bert.text.sampling import table_hash
from pyramid_bert.tune.schedules import solve_adaptive
from pyramid_bert.tune.solver import at_speedup, extreme_schedule
from pyramid_bert.tune.speed import Counted

SPEEDUPS = (1.5, 2.0)
BATCH, SEED, SAMPLE = 32, 0, 256


def main() -> None:
    """Measures and prints."""
    args = arguments(__doc__)
    torch.set_num_threads(1)
    task, dev = TASKS[args.task], load_task(args.task, args.data, "dev")
    clf = PyramidClassifier.from_pretrained(args.model, "dense", max_length=task.max_length)
    dense = clf.evaluate(dev.texts, dev.labels)[task.metric]
    sample = clf.encode(as_long_as(dev, load_task(args.task, args.data, "train"), SAMPLE).texts)
    items, layers = clf.encode(dev.texts), clf.model.config.num_hidden_layers
    runs = []
    for reduce, speedup, first in product(("merge", "drop"), SPEEDUPS, (1, layers // 2)):
        for name, schedule in _candidates(clf, speedup, first, reduce, sample).items():
            pyramidize(clf.model, schedule, reduce=reduce)
            quality = clf.evaluate(dev.texts, dev.labels)[task.metric]
            labels = {"reduce": reduce, "wanted": speedup, "first_layer": first, "schedule": name}
            runs.append({**labels, "settings": schedule.to_dict(), "quality": quality, **_cost(clf, items)})
    about = {"task": args.task, "metric": task.metric, "dense": dense, "rows": len(items)}
    show({**about, "data_sha256": table_hash(dev), "seed": SEED, "batch_size": BATCH, "runs": runs})


def _candidates(
    clf: PyramidClassifier, speedup: float, first: int, reduce: str, sample: list[Encoded]
) -> dict[str, Schedule]:
    """An adaptive and fixed schedules that reach the speed-up on the sample; those that cannot are left out."""
    found: dict[str, Schedule] = {}
    with suppress(OutOfReachError):
        how: dict[str, Any] = {"first_layer": first, "settings": {"reduce": reduce}}
        found["adaptive"] = solve_adaptive(clf.model, speedup, sample, **how).schedule
    settings = PyramidConfig(schedule=extreme_schedule(), reduce=reduce)
    counted = Counted(clf.model, [len(item) for item in sample])
    for last in {first, min(first + 2, clf.model.config.num_hidden_layers)}:
        fixed = at_speedup(settings, first, last, counted, speedup)
        if fixed is not None:
            found[f"fixed {first}-{last}"] = fixed.schedule
    return found


def _cost(clf: PyramidClassifier, items: list[Encoded]) -> dict[str, Any]:
    """The ideal speed-up, and tokens kept: of texts one by one, and in batches as wide as their widest row."""
    kept = kept_lengths(clf.model, items, clf.tokenizer.pad_token_id, batch_size=BATCH)
    wide: list[tuple[int, ...]] = [()] * len(items)
    for rows in sorted_batches([len(item) for item in items], BATCH):
        widest = tuple(map(max, zip(*(kept[i] for i in rows), strict=True)))
        for i in rows:
            wide[i] = tuple(min(width, len(items[i])) for width in widest)
    columns = list(zip(*kept, strict=True))
    return {
        "ideal_speedup": ideal_speedup(clf.model, items, kept),
        "ideal_speedup_in_batches": ideal_speedup(clf.model, items, wide),
        "mean_lengths": [sum(column) / len(items) for column in columns],
        "tokens_kept": sum(map(sum, kept)),
        "slots_in_batches": sum(map(sum, wide)),
    }


if __name__ == "__main__":
    main()
