"""Ward's clustering of tokens against slow, obvious code, and the contract of the groups that it makes."""

import pytest
import torch

from pyramid_bert import PyramidConfig, PyramidError, Schedule, pyramidize
from pyramid_bert.encoder import PyramidEncoder
from pyramid_bert.select import cluster, ward_groups
from pyramid_bert.tokens import Tokens


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


@pytest.fixture(params=["compiled", "torch"])
def both_ways(request, monkeypatch):
    if request.param == "torch":
        monkeypatch.setattr(cluster, "_kernel", lambda: None)
    elif cluster._kernel() is None:
        pytest.skip("numba is not installed")


@pytest.mark.parametrize("seed", range(16))
def test_the_groups_of_slow_code(both_ways, seed):
    n, k = 9 + seed, 2 + seed % 4
    tokens = random_tokens(n, seed, d=2)
    weights = 1.0 + torch.arange(n, dtype=torch.float64) % 5
    slots = ward_groups(tokens, None, k, size=weights[None])[0].tolist()
    assert as_groups(slots, n) == slow_ward(tokens[0], weights, k)


def test_neither_padding_nor_other_rows_change_a_row(both_ways):
    lengths, keep, width = [12, 5, 9], [4, 3, 2], 14
    hidden = torch.randn(3, width, 4, generator=torch.Generator().manual_seed(0))
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    together = ward_groups(hidden, mask, keep, within=3)
    for row, (n, k) in enumerate(zip(lengths, keep, strict=True)):
        alone = ward_groups(hidden[row : row + 1, :n], None, k, within=3)[0]
        assert together[row, :n].tolist() == alone.tolist()
        assert set(together[row, n:].tolist()) <= {-1}
        assert set(alone.tolist()) == set(range(k))
        assert (alone == 0).sum() == 1  # CLS is alone
        firsts = [alone.tolist().index(slot) for slot in range(k)]
        assert firsts == sorted(firsts)


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


def test_rounding_that_tells_a_pair_from_itself_turned_round():
    """The same distances from another product of matrices need not be symmetric to the last bit."""
    cost = torch.full((1, 4, 4), torch.inf, dtype=torch.float64)
    cost[0, 1, 2], cost[0, 2, 1] = 1 + 1e-12, 1
    cost[0, 1, 3] = cost[0, 3, 1] = cost[0, 2, 3] = cost[0, 3, 2] = 5
    first = cluster._merge(cost, torch.ones(1, 4, dtype=torch.float64), torch.tensor([4]), torch.tensor([3]))
    assert first.tolist() == [[0, 1, 1, 3]]


def test_what_is_carried_on_to_the_next_layer(tiny_bert, tiny_batch):
    """Sizes add up to the tokens there were, CLS is alone in the first slot, and the trace says who went where."""
    lengths = [12, 7]
    model = pyramidize(tiny_bert(), Schedule.exponential(0.3, last_layer=3), "cluster", metric="cosine", within=3)
    encoder = model.bert.encoder
    sizes = []

    def watch(tokens, *rest):
        PyramidEncoder.shrink(encoder, tokens, *rest)
        sizes.append(tokens.size.masked_fill(~tokens.mask, 0) if tokens.mask is not None else tokens.size)

    encoder.shrink = watch
    with torch.no_grad(), encoder.tracing() as trace:
        model(**tiny_batch(lengths))
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


def test_tokens_weigh_as_much_as_stands_behind_them(tiny_bert):
    """Alone the nearest two would be merged; but each of them stands for nine tokens, and the third for itself."""
    encoder = pyramidize(tiny_bert(), Schedule.constant(0.5), "cluster").bert.encoder
    hidden = torch.tensor([[[50.0], [0.0], [1.0], [2.3]]])
    tokens = Tokens(hidden, [4], None, size=torch.tensor([[1.0, 9.0, 9.0, 1.0]]))
    encoder.shrink(tokens, 1, [3], None, 0)
    assert tokens.hidden.flatten().tolist() == pytest.approx([50, 0, (9 * 1.0 + 2.3) / 10])
    assert tokens.size.tolist() == [[1, 9, 10]]
    assert (tokens.counts, tokens.mask) == ([3], None)


def test_cls_alone(both_ways):
    assert ward_groups(random_tokens(5, 0), None, 1).tolist() == [[0, -1, -1, -1, -1]]


def test_a_whole_row_is_left_as_it_is(both_ways):
    assert ward_groups(random_tokens(4, 0), None, 9).tolist() == [[0, 1, 2, 3]]


def test_equal_tokens_cost_nothing(tiny_bert, tiny_batch, logits_of):
    """Merging copies, with their number in attention, changes no logit: Remark 1 of the paper."""
    batch = tiny_batch([8, 8])
    batch["input_ids"][:, 2:7] = batch["input_ids"][:, 1:2]
    model = tiny_bert()
    with torch.no_grad():
        model.bert.embeddings.position_embeddings.weight.zero_()
    dense = logits_of(model, batch)
    pyramidize(model, Schedule.constant(3 / 8), "cluster")
    assert model.bert.encoder.schedule.lengths(8, 1) == (3,)
    assert torch.allclose(logits_of(model, batch), dense, atol=1e-5)


def test_settings_that_do_not_fit():
    schedule = Schedule.constant(0.5)
    assert PyramidConfig(schedule=schedule, selector="cluster").reduce == "merge"
    for reduce in ("drop", "replace"):
        with pytest.raises(PyramidError, match=f"'cluster' merges by itself, got reduce='{reduce}'"):
            PyramidConfig(schedule=schedule, selector="cluster", reduce=reduce)
    with pytest.raises(PyramidError, match="'cluster' has no centres, got centers_per_step='all'"):
        PyramidConfig(schedule=schedule, selector="cluster", centers_per_step="all")
    with pytest.raises(PyramidError, match="the selector 'cluster' keeps none as it is"):
        PyramidConfig(schedule=Schedule.adaptive(0.5), selector="cluster")
    with pytest.raises(PyramidError, match="within goes with the selector 'cluster', got 'coreset'"):
        PyramidConfig(schedule=schedule, within=3)
    with pytest.raises(PyramidError, match="within must be an integer of at least 1, got 0"):
        PyramidConfig(schedule=schedule, selector="cluster", within=0)
    with pytest.raises(PyramidError, match=r"within must be an integer of at least 1, got 2\.5"):
        PyramidConfig(schedule=schedule, selector="cluster", within=2.5)
