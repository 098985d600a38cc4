"""Ward's clustering of tokens against slow, obvious code, and the contract of the groups that it makes."""

import pytest
import torch

from pyramid_bert import PyramidError, Schedule, pyramidize
from pyramid_bert.bench.ideal import ideal_speedup, kept_lengths
from pyramid_bert.core import cluster
from pyramid_bert.core.cluster import ward_counts, ward_groups
from pyramid_bert.core.loop import Exactly, Pass, Step
from pyramid_bert.core.record import Kept, Trace
from pyramid_bert.core.tokens import Tokens
from pyramid_bert.text.batches import Encoded
from pyramid_bert.text.inference import outputs_of
from pyramid_bert.tune.schedules import solve_adaptive

LIMITLESS = torch.tensor([torch.inf], dtype=torch.float64)
LENGTHS = [17, 9, 25, 3, 2, 1]


def slow_ward(points, weights, k):
    """Groups of token numbers, CLS alone: the pair whose merging adds least to the squared distances to means goes."""
    groups = [[i] for i in range(len(points))]
    while len(groups) > max(k, 2):

        def added(pair):
            a, b = groups[pair[0]], groups[pair[1]]
            return spread(a + b) - spread(a) - spread(b)

        def spread(members):
            w = weights[members][:, None]
            mean = (w * points[members]).sum(0) / w.sum()
            return float((w * (points[members] - mean) ** 2).sum())

        i, j = min(((i, j) for i in range(1, len(groups)) for j in range(i + 1, len(groups))), key=added)
        groups[i] += groups.pop(j)
        groups.sort(key=min)
    return [sorted(group) for group in groups]


def as_groups(slots, n):
    found = {}
    for token in range(n):
        found.setdefault(slots[token], []).append(token)
    return [found[slot] for slot in sorted(found)]


def random_tokens(n, seed, d=3):
    return torch.randn(1, n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("seed", range(16))
def test_the_groups_of_slow_code(both_ways, seed):
    n, k = 9 + seed, 2 + seed % 4
    tokens = random_tokens(n, seed, d=2)
    weights = 1.0 + torch.arange(n, dtype=torch.float64) % 5
    slots = ward_groups(tokens, None, k, size=weights[None])[0].tolist()
    assert as_groups(slots, n) == slow_ward(tokens[0], weights, k)
    assert ward_groups(tokens, None, 1).tolist() == [[0, *[-1] * (n - 1)]]
    assert ward_groups(tokens, None, n + 5).tolist() == [list(range(n))]


def test_equal_tokens_go_together_and_ties_go_to_the_earlier(both_ways):
    tokens = torch.tensor([[[0.0], [4.0], [1.0], [4.0], [1.0], [9.0]]])
    assert ward_groups(tokens, None, 4).tolist() == [[0, 1, 2, 1, 2, 3]]
    assert ward_groups(tokens, None, 5).tolist() == [[0, 1, 2, 1, 3, 4]]


def test_within_keeps_apart_what_stands_apart(both_ways):
    tokens = torch.tensor([[[0.0], [1.0], [5.0], [6.0], [1.0], [5.0]]])
    assert ward_groups(tokens, None, 4).tolist() == [[0, 1, 2, 3, 1, 2]]
    near = ward_groups(tokens, None, 4, within=1).tolist()[0]
    assert near[2] == near[3]
    assert near[1] != near[4]
    assert set(ward_groups(tokens, None, 2, within=1).tolist()[0]) == {0, 1}  # k is reached all the same


def test_a_matrix_that_rounding_made_asymmetric():
    """The same distances from another product of matrices need not be symmetric to the last bit."""
    cost = torch.full((1, 4, 4), torch.inf, dtype=torch.float64)
    cost[0, 1, 2], cost[0, 2, 1] = 1 + 1e-12, 1
    cost[0, 1, 3] = cost[0, 3, 1] = cost[0, 2, 3] = cost[0, 3, 2] = 5
    first = cluster._merge(cost, torch.ones(1, 4, dtype=torch.float64), torch.tensor([4]), torch.tensor([3]), LIMITLESS)
    assert first.tolist() == [[0, 1, 1, 3]]


def test_what_is_carried_on_to_the_next_layer(tiny_bert, tiny_batch):
    """Sizes add up to the tokens there were, CLS is alone in the first slot, and the trace says who went where."""
    lengths = [12, 7]
    model = pyramidize(tiny_bert(), Schedule.exponential(0.3, last_layer=3), "cluster", metric="cosine", within=3)
    sizes = []

    class WithSizes(Trace):
        def reduced(self, step, decision, tokens):
            super().reduced(step, decision, tokens)
            sizes.append(tokens.size.masked_fill(~tokens.mask, 0) if tokens.mask is not None else tokens.size)

    trace = WithSizes()
    with torch.no_grad():
        model(**tiny_batch(lengths), pyramid_pass=Pass(trace, whole=True))
    assert len(sizes) == len(trace.layers) == 3
    for size, layer in zip(sizes, trace.layers, strict=True):
        assert size.sum(1).tolist() == lengths
        assert size[:, 0].tolist() == [1, 1]
        for row, n in enumerate(lengths):
            homes = layer.home[row, :n].tolist()
            assert [homes.count(token) for token in layer.kept[row].tolist() if token >= 0] == [
                int(number) for number in size[row].tolist() if number
            ]
            assert set(layer.home[row, n:].tolist()) <= {-1}


def test_tokens_weigh_by_their_size(tiny_bert):
    """The nearest two are not merged: each stands for nine tokens, and the third only for itself."""
    encoder = pyramidize(tiny_bert(), Schedule.constant(0.5), "cluster").bert.encoder
    hidden = torch.tensor([[[50.0], [0.0], [1.0], [2.3]]])
    tokens = Tokens(hidden, [4], None, size=torch.tensor([[1.0, 9.0, 9.0, 1.0]]))
    tokens = tokens.reduced(encoder.reducer(tokens, Step(1, "attention", keep=Exactly((3,)))))
    assert tokens.hidden.flatten().tolist() == pytest.approx([50, 0, (9 * 1.0 + 2.3) / 10])
    assert tokens.size.tolist() == [[1, 9, 10]]
    assert (tokens.counts, tokens.mask) == ([3], None)


def test_equal_tokens_cost_nothing(tiny_bert, tiny_batch, logits_of):
    """Merging copies, with their number in attention, changes no logit: Remark 1 of the paper."""
    batch = tiny_batch([8, 8])
    batch["input_ids"][:, 2:7] = batch["input_ids"][:, 1:2]
    model = tiny_bert()
    with torch.no_grad():
        model.bert.embeddings.position_embeddings.weight.zero_()
    dense = logits_of(model, batch)
    pyramidize(model, Schedule.constant(3 / 8), "cluster")
    assert model.bert.encoder.plan.schedule.lengths(8, 1) == (3,)
    assert torch.allclose(logits_of(model, batch), dense, atol=1e-5)


# ---- lengths that follow the text ----


def slow_count(points, weights, limit):
    """How many groups are left when merges stop before the first that adds more than `limit`."""

    def spread(groups):
        means = [(weights[g][:, None] * points[g]).sum(0) / weights[g].sum() for g in groups]
        squares = [(weights[g][:, None] * (points[g] - mean) ** 2).sum() for g, mean in zip(groups, means, strict=True)]
        return float(sum(squares))

    for k in range(len(points), 2, -1):
        if spread(slow_ward(points, weights, k - 1)) - spread(slow_ward(points, weights, k)) > limit:
            return k
    return 2


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("limit", [0.0, 0.3, 1.5, 100.0])
def test_merges_stop_where_they_cost_too_much(both_ways, seed, limit):
    n = 9 + seed
    tokens = random_tokens(n, seed, d=2)
    weights = 1.0 + torch.arange(n, dtype=torch.float64) % 5
    found = ward_counts(tokens, None, torch.tensor([limit]), size=weights[None])
    assert found == [slow_count(tokens[0], weights, limit)]


def kept_and_logits(model, batch):
    record = Kept(model.config.num_hidden_layers)
    with torch.no_grad():
        logits = model(**batch, pyramid_pass=Pass(record)).logits
    return record.kept, logits


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_each_text_keeps_the_groups_that_it_needs(tiny_bert, tiny_batch, one_row, metric):
    schedule = Schedule.adaptive(0.5, steps=8, last_layer=3, growth=1.2, min_tokens=2)
    model, batch = pyramidize(tiny_bert(), schedule, "cluster", metric=metric), tiny_batch(LENGTHS)
    kept, logits = kept_and_logits(model, batch)
    assert kept[0, 2] < 17  # something is merged
    for row, n in enumerate(LENGTHS):
        assert set(kept[row].tolist()) <= {*schedule.options(n, 1), n}
        alone, own = kept_and_logits(model, one_row(batch, row))
        assert alone[0].tolist() == kept[row].tolist()
        assert torch.allclose(own[0], logits[row], atol=1e-5)
    wide, _ = kept_and_logits(model, tiny_batch(LENGTHS, width=60))
    assert wide.tolist() == kept.tolist()


def test_a_radius_that_grows_keeps_fewer(tiny_bert, tiny_batch):
    totals = []
    for growth in (0.5, 1.0, 2.0):
        model = pyramidize(tiny_bert(), Schedule.adaptive(0.4, growth=growth), "cluster", metric="cosine")
        kept, _ = kept_and_logits(model, tiny_batch(LENGTHS))
        totals.append((int(kept[:, 0].sum()), int(kept[:, 2].sum())))
    assert len({first for first, _ in totals}) == 1
    assert totals[0][1] > totals[2][1]


@pytest.mark.parametrize("relative", [True, False])
def test_the_radius_for_a_speedup(tiny_bert, tiny_batch, items_of, relative):
    lengths = [5 + 7 * i % 40 for i in range(60)]
    items = items_of(tiny_batch(lengths))
    settings = {"selector": "cluster", "metric": "cosine", "rest_from": 4}
    found = solve_adaptive(tiny_bert(), 1.6, items, settings=settings, relative=relative, last_layer=3, steps=16)
    pyramid = pyramidize(tiny_bert(), found.schedule, **settings)
    kept = kept_lengths(pyramid, items)
    assert 1.6 <= found.ideal == ideal_speedup(pyramid, items, kept) < 1.9
    assert len({tuple(round(16 * k / n) for k in row) for row, n in zip(kept, lengths, strict=True)}) > 1
    with pytest.raises(PyramidError, match="take metric='cosine'"):
        solve_adaptive(tiny_bert(), 1.6, items, settings={"selector": "cluster"}, relative=False)


def test_without_covering_radii_they_are_refused_and_counts_are_not(tiny_bert):
    model, items = pyramidize(tiny_bert(), Schedule.adaptive(0.5), "cluster"), [Encoded([2, 9, 8, 7, 3])]
    with pytest.raises(PyramidError, match="there is no covering radius"):
        outputs_of(model, items, 0, batch_size=1, coverage=True)
    assert len(kept_lengths(model, items)) == 1
