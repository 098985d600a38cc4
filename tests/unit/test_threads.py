"""Threads share a model: whatever is asked of a pass, each call gets its own answer."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from pyramid_bert import Schedule, measure_sensitivity, pyramidize
from pyramid_bert.core.loop import Pass
from pyramid_bert.core.record import Trace
from pyramid_bert.text.batches import Encoded
from pyramid_bert.text.inference import outputs_of

WAYS = {
    "dense": None,
    "coreset": (Schedule.exponential(0.4, 3), {}),
    "replace": (Schedule.exponential(0.4, 3), {"reduce": "replace"}),
    "attention": (Schedule.exponential(0.4, 3), {"selector": "attention", "reduce": "merge"}),
    "random": (Schedule.exponential(0.4, 3), {"selector": "random"}),
    "input": (Schedule.input_only(0.5), {}),
    "input-first": (Schedule.input_only(0.5), {"selector": "input-first"}),
    "pool": (Schedule.strided(2, [1, 3]), {"selector": "pool"}),
    "first": (Schedule.exponential(0.4, 3), {"selector": "first", "weighted": True}),
    "cls-attention": (Schedule.exponential(0.4, 3), {"selector": "cls-attention"}),
    "resting": (Schedule.exponential(0.4, 2), {"selector": "cluster", "metric": "cosine", "rest_from": 3}),
    "bipartite": (Schedule.exponential(0.4, 2), {"selector": "bipartite", "metric": "cosine"}),
    "sensitivity": (Schedule.exponential(0.4, 2), {"selector": "cluster", "metric": "sensitivity"}),
    "adaptive": (Schedule.adaptive(0.6), {}),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_call_sees_another(way, tiny_bert):
    texts = [[Encoded([2, *range(5 + i, 8 + 2 * i + n), 3]) for n in range(3)] for i in range(12)]
    model = tiny_bert()
    if way == "sensitivity":
        measure_sensitivity(model, [item for items in texts for item in items])
    if WAYS[way] is not None:
        schedule, settings = WAYS[way]
        pyramidize(model, schedule, **settings)

    def ask(items):
        found, trace = outputs_of(model, items, 0, batch_size=2, cls=True), Trace()
        if WAYS[way] is not None:
            with torch.no_grad():
                model(torch.tensor([items[0].input_ids]), pyramid_pass=Pass(trace, whole=True))
        homes = [layer.home.flatten() for layer in trace.layers]
        return torch.cat([found.logits.flatten(), found.cls.flatten(), *homes])

    alone = [ask(items) for items in texts]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(ask, texts * 5))
    assert all(torch.equal(found, alone[i % len(texts)]) for i, found in enumerate(together))
