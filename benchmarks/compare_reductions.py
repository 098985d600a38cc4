"""Drop, weighted drop and merge on the demo's film reviews, with and without fine-tuning the pyramid.

python benchmarks/compare_reductions.py results/reductions-rotten-tomatoes.jsonl

One JSON line a run; runs that are in the file already are skipped, so it can be stopped and started again.
"""

import json
import platform
import sys
from pathlib import Path

import torch

from pyramid_bert import Cost, PyramidClassifier, Schedule, __version__, pyramidize
from pyramid_bert.demo import TEST_ROWS, demo_model, demo_reviews

REDUCTIONS = {
    "drop": {"reduce": "drop"},
    "weighted": {"reduce": "drop", "weighted": True},
    "merge": {"reduce": "merge"},
}
SCHEDULES = {
    "from layer 3": Schedule.exponential(0.25, last_layer=4, first_layer=3, min_tokens=4),
    "from layer 1": Schedule.exponential(0.25, last_layer=3, min_tokens=4),
}
TRAINING = {"epochs": 1, "learning_rate": 1e-4, "warmup_ratio": 0.1, "progress": False}


def main(path: Path, seeds: tuple[int, ...] = (0, 1), rows: int = 6830) -> None:
    """Runs what is missing in the file at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    done = {json.loads(line)["run"] for line in path.read_text().splitlines()} if path.exists() else set()
    texts, labels = demo_reviews()
    test = texts[-TEST_ROWS:], labels[-TEST_ROWS:]

    def record(run: str, classifier: PyramidClassifier, ideal: float) -> None:
        accuracy = classifier.evaluate(*test)["accuracy"]
        versions = {"torch": torch.__version__, "pyramid_bert": __version__, "machine": platform.machine()}
        row = {"run": run, "accuracy": accuracy, "ideal_speedup": ideal, "rows": rows, **versions}
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{run:50} {accuracy:.4f} at {ideal:.2f}x ideal", flush=True)

    for seed in seeds:
        plan: list[tuple[str, str | Schedule, dict]] = [(f"dense seed {seed}", "dense", {})]
        plan += [(f"{r} {s} seed {seed}", SCHEDULES[s], REDUCTIONS[r]) for s in SCHEDULES for r in REDUCTIONS]
        for run, schedule, settings in plan:
            if run in done:
                continue
            classifier = PyramidClassifier.from_pretrained(demo_model(), schedule, max_length=64, **settings)
            classifier.fit(texts[:rows], labels[:rows], seed=seed, **TRAINING)
            lengths = [len(item) for item in classifier.encode(test[0])]
            record(run, classifier, _ideal(schedule, lengths))
            if schedule == "dense":  # the same weights as a pyramid, without fine-tuning
                for s, r in ((s, r) for s in SCHEDULES for r in REDUCTIONS):
                    pyramidize(classifier.model, SCHEDULES[s], **REDUCTIONS[r])
                    record(f"{r} {s} seed {seed}, not fine-tuned", classifier, _ideal(SCHEDULES[s], lengths))


def _ideal(schedule: Schedule | str, lengths: list[int]) -> float:
    """Dense over pyramid multiply-accumulates at the true lengths of the test texts, the last layer for CLS alone."""
    if isinstance(schedule, str):
        return 1.0
    costs = [Cost.of(schedule.lengths(n, 6), n, hidden_size=384, cls_layers=1, heads=12) for n in lengths]
    return sum(cost.dense_macs for cost in costs) / sum(cost.macs for cost in costs)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
