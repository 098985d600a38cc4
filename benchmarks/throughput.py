"""Texts a second of our predict against what people use: pipeline on sorted texts, and sentence-transformers' way.

python benchmarks/throughput.py MODEL TASK DATA [--rows N] [--rounds R]

All start from the same texts and include tokenization. The model is a dense one with a fresh head, then the same
weights as a pyramid: only speed is looked at. Prints JSON.
"""

import torch
from common import arguments, show
from transformers import TextClassificationPipeline

from pyramid_bert import PyramidClassifier, PyramidConfig, Schedule
from pyramid_bert.bench.timing import time_interleaved
from pyramid_bert.lab.glue.tasks import load_task
from pyramid_bert.text.labels import Labels
from pyramid_bert.tune.speed import Counted

BATCH = 32
KEEP, FIRST, LAST = 0.25, 2, 6


def main() -> None:
    """Measures and prints."""
    args = arguments(__doc__, rows=10_000, rounds=3)
    dense = PyramidClassifier.from_pretrained(args.model, "dense")
    schedule = Schedule.exponential(KEEP, LAST, first_layer=FIRST)
    pyramid = PyramidClassifier.from_pretrained(args.model, schedule)
    for classifier in (dense, pyramid):
        classifier.labels = Labels(("no", "yes"))
    every = load_task(args.task, args.data, "dev").texts
    texts = [text for text in every if len(dense.tokenizer(text, verbose=False)["input_ids"]) <= 512][: args.rows]
    runs = {
        "pipeline": lambda: _pipeline(dense, texts),
        "sentence-transformers": lambda: _like_sentence_transformers(dense, texts),
        "dense": lambda: dense.predict(texts, batch_size=BATCH),
        "pyramid": lambda: pyramid.predict(texts, batch_size=BATCH),
    }
    timing = time_interleaved(runs, rounds=args.rounds, warmup=0)
    best = min(("pipeline", "sentence-transformers"), key=timing.median)
    lengths = [len(item) for item in dense.encode(texts)]
    result = {
        "task": args.task,
        "texts": len(texts),
        "mean_length": sum(lengths) / len(lengths),
        "texts_per_second": {name: len(texts) / timing.median(name) for name in runs},
        "best_other": best,
        "dense_over_best": timing.speedup("dense", over=best),
        "pyramid_over_best": timing.speedup("pyramid", over=best),
        "pyramid_over_dense": timing.speedup("pyramid", over="dense"),
        "ideal": Counted(dense.model, lengths)(PyramidConfig(schedule=schedule)),
        "schedule": schedule.to_dict(),
        "rounds": args.rounds,
        "seconds": timing.seconds,
    }
    show(result)


def _pipeline(classifier: PyramidClassifier, texts: list[str]) -> None:
    run = TextClassificationPipeline(model=classifier.model, tokenizer=classifier.tokenizer, device="cpu")
    run(sorted(texts, key=len, reverse=True), batch_size=BATCH)


@torch.inference_mode()
def _like_sentence_transformers(classifier: PyramidClassifier, texts: list[str]) -> None:
    """Sorted by characters, tokenized and padded batch by batch, attention mask always given."""
    ordered = sorted(texts, key=len, reverse=True)
    for start in range(0, len(ordered), BATCH):
        batch = classifier.tokenizer(ordered[start : start + BATCH], padding=True, truncation=True, return_tensors="pt")
        classifier.model(**batch).logits.cpu()


if __name__ == "__main__":
    main()
