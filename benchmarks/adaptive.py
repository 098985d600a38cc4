"""Adaptive lengths against fixed ones at the same mean cost, without any training.

python benchmarks/adaptive.py MODEL TASK DATA

MODEL is a dense fine-tuned classifier; TASK and DATA as in `pyramid-bert evaluate --task TASK --data DATA`. For drop
and merge, and for each wanted ideal speed-up (multiply-accumulates at true lengths): the radius, and for fixed
schedules with the same first layers the keep ratio, are chosen on training texts as long as dev texts; then both are
run on the dev set. Tokens are counted twice: those that texts need, and those that batches of 32 texts of like length
hold, where the widest row decides.
"""

from typing import Any

import torch
from common import arguments, show
from samples import as_long_as

from pyramid_bert import PyramidClassifier, PyramidError, Schedule, pyramidize
from pyramid_bert.bench.ideal import ideal_speedup, kept_lengths
from pyramid_bert.lab.glue.tasks import TASKS, load_task
from pyramid_bert.text.batches import Encoded, sorted_batches
from pyramid_bert.text.sampling import table_hash
from pyramid_bert.tune.schedules import solve_adaptive

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
    for reduce in ("merge", "drop"):
        for speedup in SPEEDUPS:
            for first in (1, layers // 2):
                for name, schedule in _candidates(clf, speedup, first, reduce, sample).items():
                    pyramidize(clf.model, schedule, reduce=reduce)
                    quality = clf.evaluate(dev.texts, dev.labels)[task.metric]
                    cost = _cost(clf, items)
                    labels = {"reduce": reduce, "wanted": speedup, "first_layer": first, "schedule": name}
                    runs.append({**labels, "settings": schedule.to_dict(), "quality": quality, **cost})
    result = {
        "task": args.task,
        "metric": task.metric,
        "dense": dense,
        "rows": len(items),
        "data_sha256": table_hash(dev),
        "seed": SEED,
        "batch_size": BATCH,
        "runs": runs,
    }
    show(result)


def _candidates(
    clf: PyramidClassifier, speedup: float, first: int, reduce: str, sample: list[Encoded]
) -> dict[str, Schedule]:
    """An adaptive and fixed schedules that reach the speed-up on the sample; those that cannot are left out."""
    layers = clf.model.config.num_hidden_layers
    found: dict[str, Schedule] = {}
    try:
        how: dict[str, Any] = {"first_layer": first, "settings": {"reduce": reduce}}
        found["adaptive"] = solve_adaptive(clf.model, speedup, sample, **how).schedule
    except PyramidError:
        pass
    pyramidize(clf.model, Schedule.constant(1.0), reduce=reduce)
    for last in {first, min(first + 2, layers)}:
        fixed = _fixed(clf.model, speedup, first, last, sample)
        if fixed is not None:
            found[f"fixed {first}-{last}"] = fixed
    return found


def _fixed(model: Any, speedup: float, first: int, last: int, sample: list[Encoded]) -> Schedule | None:
    layers = model.config.num_hidden_layers

    def make(ratio: float) -> Schedule:
        return Schedule.exponential(ratio, last, first_layer=first, min_tokens=2)

    def reached(ratio: float) -> float:
        return ideal_speedup(model, sample, [make(ratio).lengths(len(item), layers) for item in sample])

    low, high = 1e-3, 1.0  # `low` reaches it
    if reached(low) < speedup:
        return None
    for _ in range(14):
        middle = (low + high) / 2
        low, high = (middle, high) if reached(middle) >= speedup else (low, middle)
    return make(low)


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
