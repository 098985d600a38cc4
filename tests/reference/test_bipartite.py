"""Bipartite merging against slow, obvious code."""

import pytest
import torch

from pyramid_bert import PyramidConfig, PyramidError, Schedule, pyramidize
from pyramid_bert.core import bipartite_groups
from pyramid_bert.core.loop import Pass
from pyramid_bert.core.record import Kept


def slow_groups(points, weights, k, metric):
    """Groups of token numbers: rounds of matching between every other group and the rest, the closest pairs first."""
    groups = [[i] for i in range(len(points))]

    def distance(a, b):
        one, two = ((weights[g][:, None] * points[g]).sum(0) / weights[g].sum() for g in (a, b))
        if metric == "cosine":
            return 1 - float(torch.cosine_similarity(one, two, dim=0))
        return float((one - two).square().sum())

    while len(groups) > max(k, 2):
        first, second = range(1, len(groups), 2), range(2, len(groups), 2)
        pairs = [(min((distance(groups[i], groups[j]), j) for j in second), i) for i in first]
        closest = sorted(pairs, key=lambda pair: (pair[0][0], pair[1]))[: len(groups) - max(k, 2)]
        for (_, j), i in closest:
            groups[j] = groups[j] + groups[i]
        groups = [group for i, group in enumerate(groups) if i not in {i for _, i in closest}]
    return sorted((sorted(group) for group in groups), key=min)


def as_groups(slots):
    found = {}
    for token, slot in enumerate(slots):
        found.setdefault(slot, []).append(token)
    return [found[slot] for slot in sorted(found) if slot >= 0]


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("seed", range(12))
def test_the_groups_of_slow_code(seed, metric):
    n, k = 5 + 2 * seed, 2 + seed % 5
    tokens = torch.randn(1, n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    weights = 1.0 + torch.arange(n, dtype=torch.float64) % 4
    slots = bipartite_groups(tokens, None, k, size=weights[None], metric=metric)[0].tolist()
    assert as_groups(slots) == slow_groups(tokens[0], weights, k, metric)
    assert sorted(set(slots)) == list(range(k))


def test_cls_stays_by_itself_and_ends_are_exact():
    tokens = torch.zeros(1, 6, 2)
    assert bipartite_groups(tokens, None, 1).tolist() == [[0, -1, -1, -1, -1, -1]]
    assert bipartite_groups(tokens, None, 9).tolist() == [[0, 1, 2, 3, 4, 5]]
    assert bipartite_groups(tokens, None, 2).tolist() == [[0, 1, 1, 1, 1, 1]]
    assert bipartite_groups(tokens[:, :1], None, 1).tolist() == [[0]]


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_vectors_that_are_not_finite_end_all_the_same(value):
    tokens = torch.randn(2, 9, 3, generator=torch.Generator().manual_seed(0))
    tokens[0, 3] = tokens[1, 1:] = value
    slots = bipartite_groups(tokens, None, 3)
    assert [sorted(set(row)) for row in slots.tolist()] == [[0, 1, 2], [0, 1, 2]]


def test_a_pyramid_merges_by_weighted_means(tiny_bert, tiny_batch):
    model = pyramidize(tiny_bert(), Schedule.custom([12, 6, 3, 3], n=24), "bipartite", metric="cosine")
    record = Kept(4)
    with torch.inference_mode():
        outputs = model(**tiny_batch((24, 17)), pyramid_pass=Pass(record, whole=True))
    assert record.kept[0].tolist() == [12, 6, 3, 3]
    assert outputs.logits.isfinite().all()


def test_what_does_not_fit_is_refused():
    for settings, message in (
        ({"reduce": "drop"}, "the selector 'bipartite' merges by itself, got reduce='drop'"),
        ({"within": 3}, "within goes with the selector 'cluster', got 'bipartite'"),
        ({"centers_per_step": 2}, "the selector 'bipartite' has no centres"),
        ({"schedule": Schedule.adaptive(0.5)}, "cannot tell how many tokens a text needs"),
    ):
        with pytest.raises(PyramidError, match=message):
            PyramidConfig(**{"schedule": Schedule.constant(0.5), "selector": "bipartite", **settings})
