"""The contract of `pyramid_bert.core.selectors`, for every selector that is registered."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyramid_bert.core.baselines import drawn_by, pool_groups
from pyramid_bert.core.cluster import ward_groups
from pyramid_bert.core.reduction import Reduction
from pyramid_bert.core.selectors import Candidates, Grouper, Ranker, get_selector, register, selector_names
from pyramid_bert.errors import PyramidError, UnknownNameError
from pyramid_bert.schedule.base import Schedule

KNOB_VALUES = {"centers_per_step": [1, 0.4, "all"], "metric": ["euclidean", "cosine"]}


def variants():
    """Every ranking selector with every combination of the knobs that it takes."""
    for name in selector_names():
        selector = get_selector(name)
        if isinstance(selector, Ranker):
            knobs = (*selector.knobs, "metric") if selector.knobs else ()
            chosen = {knob: values for knob, values in KNOB_VALUES.items() if knob in knobs}
            for values in itertools.product(*chosen.values()):
                yield pytest.param(name, dict(zip(chosen, values, strict=True)), id="-".join(map(str, (name, *values))))


every_selector = pytest.mark.parametrize(("name", "knobs"), list(variants()))


def received_for(name, hidden):
    """Stands for the attention that tokens receive, if a selector needs it: any number for each token will do."""
    return {"received": hidden.abs().sum(-1)} if get_selector(name).voters is not None else {}


def select(name, knobs, hidden, mask, k, drawn=0):
    seen = {"metric": "euclidean", **received_for(name, hidden), **knobs}
    knobs = {knob: seen.pop(knob) for knob in get_selector(name).knobs}
    return get_selector(name).rank(Candidates(hidden, mask, drawn=drawn, **seen), k, **knobs).indices


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@st.composite
def batches(draw, ties=True):
    """(hidden, mask, k of each row): vectors of whole numbers, with many exact ties, or random ones."""
    rows, n, d = draw(st.integers(1, 4)), draw(st.integers(1, 12)), draw(st.integers(1, 3))
    generator = seeded(draw(st.integers(0, 2**31)))
    if ties and draw(st.booleans()):
        hidden = torch.randint(-2, 3, (rows, n, d), generator=generator).float()
    else:
        hidden = torch.randn(rows, n, 4 * d, generator=generator)
    lengths = draw(st.lists(st.integers(1, n), min_size=rows, max_size=rows))
    counts = draw(st.lists(st.integers(1, n), min_size=rows, max_size=rows))
    return hidden, torch.arange(n) < torch.tensor(lengths)[:, None], counts


def batch_for(knobs, data):
    """Draws a batch; cosine distances of whole numbers are not exact, so ties are left out there."""
    return data.draw(batches(ties=knobs.get("metric") != "cosine"))


def padded(hidden, mask, padding):
    """The batch with more padding on the right, (B, more, D)."""
    return torch.cat([hidden, padding], dim=1), torch.cat([mask, padding.new_zeros(padding.shape[:2]).bool()], dim=1)


# ---- selectors that rank tokens ----


@every_selector
@given(data=st.data())
def test_indices_are_positions_in_rank_order_with_cls_first(name, knobs, data):
    hidden, mask, counts = batch_for(knobs, data)
    ranked = select(name, knobs, hidden, mask, counts)
    assert ranked.shape == (len(hidden), max(counts))
    assert ranked.dtype == torch.long
    for row, k in enumerate(counts):
        kept = ranked[row, :k].tolist()
        assert kept[0] == 0
        assert len(set(kept)) == k
        assert set(kept) <= set(range(hidden.shape[1]))
        real = int(mask[row].sum())  # a pad is chosen only when real tokens run out
        assert mask[row][kept].tolist() == [True] * min(real, k) + [False] * max(k - real, 0)


@every_selector
@given(data=st.data(), more=st.integers(0, 3))
def test_as_many_as_there_are_or_more_keeps_everything(name, knobs, data, more):
    hidden, mask, _ = batch_for(knobs, data)
    n = hidden.shape[1]
    ranked = select(name, knobs, hidden, mask, n + more)
    assert ranked.sort(dim=1).values.tolist() == [list(range(n))] * len(hidden)
    assert torch.equal(select(name, knobs, hidden, mask, [n + more] * len(hidden)), ranked)


@every_selector
@given(data=st.data(), more=st.integers(1, 9))
def test_neither_other_rows_nor_padding_change_anything(name, knobs, data, more):
    hidden, mask, counts = batch_for(knobs, data)
    rows, _, d = hidden.shape
    together = select(name, knobs, hidden, mask, counts, 1)
    for row, k in enumerate(counts):
        alone = select(name, knobs, hidden[row : row + 1], mask[row : row + 1], [k], 1)
        assert together[row, :k].tolist() == alone[0].tolist()
    rubbish = torch.randint(-50, 50, (rows, more, d), generator=seeded(2)).float()
    lengths = mask.sum(1).tolist()
    counts = [min(k, real) for k, real in zip(counts, lengths, strict=True)]
    together = select(name, knobs, *padded(hidden, mask, rubbish), counts, 1)
    for row, (k, real) in enumerate(zip(counts, lengths, strict=True)):
        unpadded = select(name, knobs, hidden[row : row + 1, :real], None, [k], 1)
        assert together[row, :k].tolist() == unpadded[0].tolist()


@every_selector
@given(data=st.data())
def test_randomness_comes_from_the_drawn_number_alone(name, knobs, data):
    hidden, mask, counts = batch_for(knobs, data)
    state = torch.get_rng_state()
    first = select(name, knobs, hidden, mask, counts, 7)
    assert torch.equal(select(name, knobs, hidden, mask, counts, 7), first)
    without = select(name, knobs, hidden, mask, counts)
    assert torch.equal(torch.get_rng_state(), state)
    with torch.random.fork_rng():
        torch.manual_seed(123)
        assert torch.equal(select(name, knobs, hidden, mask, counts, 7), first)
        assert torch.equal(select(name, knobs, hidden, mask, counts), without)


@every_selector
@given(data=st.data())
def test_no_gradient_flows_and_the_arguments_stay_as_they_are(name, knobs, data):
    hidden, mask, counts = batch_for(knobs, data)
    hidden.requires_grad_()
    received = received_for(name, hidden)
    arguments = {"hidden": hidden, "mask": mask, **received}
    before = {argument: tensor.detach().clone() for argument, tensor in arguments.items()}
    ranked = select(name, {**received, **knobs}, hidden, mask, counts)
    assert not ranked.requires_grad
    for argument, tensor in arguments.items():
        assert torch.equal(tensor.detach(), before[argument]), argument


def test_random_follows_its_number():
    hidden = torch.zeros(1, 200, 1)
    picks = {tuple(select("random", {}, hidden, None, 20, drawn)[0].tolist()) for drawn in range(22)}
    assert len(picks) == 22


@pytest.mark.parametrize("seed", [0, 1, 12_345, 2**31 - 1])
def test_a_seed_draws_what_it_does_in_torch(seed):
    assert drawn_by(seed) == int(torch.randint(2**31, (), generator=torch.Generator().manual_seed(seed)))


def test_random_prefers_no_position():
    hidden, n = torch.zeros(1, 21, 1), 21
    chosen = torch.zeros(n)
    for seed in range(2000):
        chosen[select("random", {}, hidden, None, 6, seed)[0]] += 1
    # 5 of 20 tokens a draw: 500 expected each, with a standard deviation of 19.
    assert chosen[0] == 2000
    assert chosen[1:].min() > 400
    assert chosen[1:].max() < 600


def test_first_keeps_the_first_and_attention_what_receives_most():
    few = torch.tensor([[True] * 5, [True, True, False, False, False]])
    for name in ("first", "input-first"):
        assert select(name, {}, torch.zeros(2, 5, 1), few, [3, 3]).tolist() == [[0, 1, 2], [0, 1, 2]]
    received = torch.tensor([[0.0, 2.0, 5.0, 1.0, 9.0], [0.0, 2.0, 5.0, 5.0, 9.0]])
    mask = torch.tensor([[True] * 5, [True, True, True, True, False]])
    ranked = get_selector("attention").rank(Candidates(torch.zeros(2, 5, 1), mask, received=received), 3)
    assert ranked.indices.tolist() == [[0, 4, 2], [0, 2, 3]]


def test_attention_cannot_do_without_attention():
    with pytest.raises(PyramidError, match=r"^selection by attention needs the attention that tokens receive"):
        get_selector("attention").rank(Candidates(torch.zeros(1, 5, 1)), 3)


# ---- clusters, which are groups of similar tokens ----


@given(batch=batches(), within=st.none() | st.integers(1, 6), more=st.integers(0, 9))
def test_clusters_are_as_many_as_asked_for_and_depend_on_their_own_row_alone(batch, within, more):
    hidden, mask, counts = batch
    rows, _, d = hidden.shape
    wider, wider_mask = padded(hidden, mask, torch.full((rows, more, d), 1e6))
    together = ward_groups(wider, wider_mask, counts, within=within)
    for row, k in enumerate(counts):
        real = int(mask[row].sum())
        alone = ward_groups(hidden[row : row + 1, :real], None, min(k, real), within=within)[0].tolist()
        assert together[row, :real].tolist() == alone
        assert set(together[row, real:].tolist()) <= {-1}
        assert alone.count(0) == 1
        assert alone[0] == 0
        slots = range(min(k, real))
        assert set(alone) - {-1} == set(slots)
        assert (-1 in alone) == (k == 1 < real)  # nothing is averaged into CLS
        assert sorted(slots, key=alone.index) == list(slots)


@given(batch=batches(ties=False), metric=st.sampled_from(["euclidean", "cosine"]))
def test_clusters_leave_cls_as_it_is_and_average_by_size(batch, metric):
    hidden, mask, counts = batch
    size = 1.0 + torch.arange(hidden.shape[1]).expand(mask.shape) % 3
    group = ward_groups(hidden, mask, counts, size=size, metric=metric)
    merged = Reduction.from_group(group, max(counts), size).apply(hidden)
    assert torch.equal(merged[:, 0], hidden[:, 0])
    for row, slots in enumerate(group):
        for slot in range(1, int(slots.max()) + 1):
            members = slots == slot
            weights = size[row, members, None]
            expected = (weights * hidden[row, members]).sum(0) / weights.sum()
            torch.testing.assert_close(merged[row, slot], expected, atol=1e-5, rtol=0)


# ---- pooling, which makes groups of neighbours instead ----


def test_what_makes_groups_ranks_nothing():
    groupers = {name for name in selector_names() if isinstance(get_selector(name), Grouper)}
    assert groupers == {"cluster", "bipartite", "pool"}


@given(batch=batches(), window=st.integers(2, 5))
def test_pooling_puts_cls_alone_and_neighbours_together(batch, window):
    hidden, mask, _ = batch
    rows, n, _ = hidden.shape
    group = pool_groups(Candidates(hidden, mask), n, window=window)
    for row in range(rows):
        real = int(mask[row].sum())
        slots = Schedule.strided(window, [1]).lengths(real, 1)[0]
        assert group[row, real:].tolist() == [-1] * (n - real)
        expected = [0] + [slot for slot in range(1, slots) for _ in range(window)]
        assert group[row, :real].tolist() == expected[:real]


@given(batch=batches(), window=st.integers(2, 5), more=st.integers(1, 9))
def test_pooling_takes_means_that_depend_neither_on_other_rows_nor_on_padding(batch, window, more):
    hidden, mask, _ = batch
    rows, n, d = hidden.shape
    wider, wider_mask = padded(hidden, mask, torch.full((rows, more, d), 1e6))
    slots = Schedule.strided(window, [1]).lengths(n, 1)[0]
    together = Reduction.from_group(pool_groups(Candidates(wider, wider_mask), n, window=window), slots)
    means = together.apply(wider)
    for row in range(rows):
        real = int(mask[row].sum())
        kept = Schedule.strided(window, [1]).lengths(real, 1)[0]
        alone = Reduction.from_group(pool_groups(Candidates(hidden[row : row + 1, :real]), real, window=window), kept)
        unpadded = alone.apply(hidden[row : row + 1, :real])[0]
        torch.testing.assert_close(means[row, :kept], unpadded, atol=1e-5, rtol=0)
        assert together.mask[row].tolist() == [True] * kept + [False] * (slots - kept)
        assert torch.equal(means[row, 0], hidden[row, 0])
        for slot, start in enumerate(range(1, real, window), start=1):
            mean = hidden[row, start : min(start + window, real)].mean(dim=0)
            torch.testing.assert_close(means[row, slot], mean, atol=1e-5, rtol=0)


# ---- the registry ----


def test_an_unregistered_name_is_refused_with_the_nearest_one():
    with pytest.raises(UnknownNameError, match=r"^unknown selector 'corset'; did you mean 'coreset'"):
        get_selector("corset")


def test_a_name_can_be_taken_only_once():
    with pytest.raises(PyramidError, match=r"^a selector named 'coreset' is registered already$"):
        register(get_selector("coreset"))
    assert selector_names().count("coreset") == 1


@pytest.mark.parametrize("name", selector_names())
def test_every_selector_describes_itself_in_one_line(name):
    selector = get_selector(name)
    assert selector.name == name
    assert selector.summary
    assert "\n" not in selector.summary
