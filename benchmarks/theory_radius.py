"""The price of parallelism in covering radius: greedy k-center with m centres at a time against the optimum.

python benchmarks/theory_radius.py MODEL TASK DATA [--rows N] [--seed S]

The optimum is found by exhaustive search, so sets are small: texts of 12 to 24 tokens, as they stand after the
attention of each layer of the dense model, and as many random points (normal, and in clusters). Prints JSON: for each
kind of set and share k/n, the ratio of each greedy radius to the optimum of the sets that hold CLS, mean and worst.
"""

import argparse
import math
from collections.abc import Iterator

import torch
from common import arguments, show
from torch import Tensor

from pyramid_bert import PyramidClassifier, Schedule
from pyramid_bert.families import embeddings_of, pyramid_encoder
from pyramid_bert.lab.glue.tasks import load_task
from pyramid_bert.lab.theory.kcenter import price_of_parallelism
from pyramid_bert.lab.theory.measure import HalfSteps
from pyramid_bert.text.inference import collate
from pyramid_bert.text.sampling import sample_rows

SHORTEST, LONGEST = 12, 24
SHARES = (0.25, 0.5)
CLUSTERS = 6


def main() -> None:
    """Measures and prints."""
    args = arguments(__doc__, rows=16, seed=0)
    real = list(_hidden_states(args))
    kinds = {
        "hidden states": real,
        "normal": [_normal(points, seed) for seed, points in enumerate(real)],
        "clusters": [_clusters(points, seed) for seed, points in enumerate(real)],
    }
    results = [_summary(kind, sets, share) for kind, sets in kinds.items() for share in SHARES]
    about = {"task": args.task, "texts": args.rows, "layers": len(real) // args.rows, "hidden_size": real[0].shape[1]}
    show({**about, "tokens": [SHORTEST, LONGEST], "seed": args.seed, "results": results})


@torch.no_grad()
def _hidden_states(args: argparse.Namespace) -> Iterator[Tensor]:
    """The tokens (n, D) of each text after the attention of each layer."""
    classifier = PyramidClassifier.from_pretrained(args.model, Schedule.constant(0.5))
    encoder = pyramid_encoder(classifier.model)
    assert encoder is not None
    table = load_task(args.task, args.data, "dev")
    fitting = [i for i, item in enumerate(classifier.encode(table.texts)) if SHORTEST <= len(item) <= LONGEST]
    some = sample_rows(type(table)([table.texts[i] for i in fitting], []), args.rows, args.seed)
    for item in classifier.encode(some.texts):
        hidden = embeddings_of(classifier.model)(**collate([item], 0))
        for state in HalfSteps(encoder).states(hidden)[1::2]:
            yield state[0]


def _normal(like: Tensor, seed: int) -> Tensor:
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(seed))


def _clusters(like: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(CLUSTERS, like.shape[1], generator=generator)
    which = torch.randint(CLUSTERS, (len(like),), generator=generator)
    return centres[which] + 0.3 * torch.randn(like.shape, generator=generator)


def _summary(kind: str, sets: list[Tensor], share: float) -> dict:
    """The ratios over all sets, by m."""
    found = [price_of_parallelism(points, math.ceil(share * len(points))) for points in sets]
    found = [one for one in found if one["free_optimum"] > 0]
    ratios = {m: [one["radius"][m] / one["optimum"] for one in found] for m in found[0]["radius"]}
    return {
        "points": kind,
        "share": share,
        "sets": len(found),
        "over_optimum": {m: _mean_and_worst(values) for m, values in ratios.items()},
        "keeping_cls": _mean_and_worst([one["optimum"] / one["free_optimum"] for one in found]),
        "greedy_over_free_optimum": _mean_and_worst([one["radius"]["1"] / one["free_optimum"] for one in found]),
    }


def _mean_and_worst(values: list[float]) -> dict[str, float]:
    return {"mean": sum(values) / len(values), "worst": max(values)}


if __name__ == "__main__":
    main()
