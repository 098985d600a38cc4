"""k-center-greedy against slow, obvious code: numpy in float64, direct differences, loops over everything."""

import itertools
import math
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pyramid_bert.core import compiled
from pyramid_bert.core.coreset import _in_batches, _one_at_a_time, centers_in_a_step, k_center_greedy
from pyramid_bert.core.covering import nearest_kept
from pyramid_bert.core.distances import Geometry
from pyramid_bert.core.selectors import Candidates, get_selector
from pyramid_bert.errors import PyramidError

STEPS = [1, 2, 0.1, 0.4, "all"]
METRICS = ["euclidean", "cosine"]


@pytest.fixture(scope="module", autouse=True, params=["torch", "compiled"])
def loop(request):
    """Holds the torch loop and the compiled one to the same references."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "torch":
            patch.setattr(compiled, "available", lambda: False)
        yield


# ---- the slow code ----


def distance(a, b, metric):
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if metric == "cosine":
        return 1 - float(np.dot(a / np.linalg.norm(a), b / np.linalg.norm(b)))
    return math.sqrt(float(np.square(a - b).sum()))


def step_size(m, k):
    if m == "all":
        return max(k - 1, 1)
    return math.ceil(Fraction(str(m)) * k) if isinstance(m, float) else m


def reference_batched(points, real, k, m, metric):
    """Each round takes the m tokens farthest from the centres of the rounds before; with m = 1 the classical greedy."""
    n = len(points)
    k = min(k, n)
    chosen = [0]
    while len(chosen) < k:
        stale = {}
        for token in range(n):
            if token not in chosen:
                nearest = min(distance(points[token], points[centre], metric) for centre in chosen)
                stale[token] = nearest if real[token] else -1.0
        ranked = sorted(stale, key=lambda token: (-stale[token], token))
        chosen += ranked[: min(step_size(m, k), k - len(chosen))]
    return chosen


def reference_radius(points, real, chosen, metric):
    radius = 0.0
    for token in range(len(points)):
        if real[token] and token not in chosen:
            radius = max(radius, min(distance(points[token], points[centre], metric) for centre in chosen))
    return radius


def optimal_radius(points, k):
    """The least radius of any k centres, whether CLS is one of them or not."""
    everyone = range(len(points))
    return min(
        max(min(distance(points[token], points[centre], "euclidean") for centre in centres) for token in everyone)
        for centres in itertools.combinations(everyone, min(k, len(points)))
    )


# ---- inputs ----


def random_rows(seed, rows=4, n=12, d=3, dtype=torch.float64):
    """Vectors, a mask of right padding (the first row has none) and one k a row."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(rows, n, d, generator=generator, dtype=dtype)
    lengths = torch.randint(1, n + 1, (rows,), generator=generator)
    lengths[0] = n
    mask = torch.arange(n) < lengths[:, None]
    counts = torch.randint(1, n + 1, (rows,), generator=generator).tolist()
    return hidden, mask, counts


@st.composite
def whole_number_rows(draw):
    """Tokens on a small grid, where many distances are equal; a mask and one k a row."""
    rows, n = draw(st.integers(1, 3)), draw(st.integers(1, 8))
    row = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=n, max_size=n)
    hidden = draw(st.lists(row, min_size=rows, max_size=rows))
    lengths = draw(st.lists(st.integers(1, n), min_size=rows, max_size=rows))
    counts = draw(st.lists(st.integers(1, n + 2), min_size=rows, max_size=rows))
    mask = torch.arange(n) < torch.tensor(lengths)[:, None]
    return torch.tensor(hidden, dtype=torch.float32), mask, counts


def assert_matches_reference(hidden, mask, counts, m, metric, rtol):
    cover = k_center_greedy(hidden, mask, counts, centers_per_step=m, metric=metric)
    assert cover.indices.shape == (len(hidden), min(max(counts), hidden.shape[1]))
    for row, k in enumerate(counts):
        points, real = hidden[row].double().numpy(), mask[row].tolist()
        chosen = reference_batched(points, real, k, m, metric)
        assert cover.indices[row, :k].tolist() == chosen, f"row {row}"
        expected = reference_radius(points, real, chosen, metric)
        assert cover.radius[row].item() == pytest.approx(expected, rel=rtol, abs=rtol), f"row {row}"


# ---- worked examples ----


def test_one_round_may_miss_what_many_rounds_find():
    tokens = torch.tensor([[[0.0], [10.0], [-8.0], [11.0]]])
    one_by_one = k_center_greedy(tokens, None, 3, centers_per_step=1)
    at_once = k_center_greedy(tokens, None, 3, centers_per_step="all")
    assert (one_by_one.indices.tolist(), one_by_one.radius.tolist()) == ([[0, 3, 2]], [1])
    assert (at_once.indices.tolist(), at_once.radius.tolist()) == ([[0, 3, 1]], [8])
    assert at_once.radius.item() > 2 * optimal_radius(tokens[0].numpy(), 3)  # no bound, unlike many rounds


def test_centres_in_a_step():
    asked = [(1, 32), (5, 32), (0.1, 32), (0.1, 30), (0.4, 5), (0.3, 10), (0.07, 100), ("all", 32), ("all", 1)]
    found = [centers_in_a_step(m, k) for m, k in asked]
    assert found == [1, 5, 4, 3, 2, 3, 7, 31, 1] == [step_size(m, k) for m, k in asked]


# ---- against the slow code ----


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("m", STEPS)
@pytest.mark.parametrize("seed", range(8))
def test_masks_and_one_k_a_row_in_double_and_single_precision(seed, m, metric):
    hidden, mask, counts = random_rows(seed)
    assert_matches_reference(hidden, mask, counts, m, metric, rtol=1e-9)
    assert_matches_reference(hidden, torch.ones_like(mask), counts, m, metric, rtol=1e-9)
    assert_matches_reference(*random_rows(100 + seed, dtype=torch.float32), m, metric, rtol=1e-5)


@pytest.mark.parametrize("m", STEPS)
@given(rows=whole_number_rows())
def test_exact_ties_go_to_the_earlier_position(m, rows):
    assert_matches_reference(*rows, m, "euclidean", rtol=1e-6)


# ---- what follows from covering ----


@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(6))
def test_the_radius_is_at_most_twice_the_optimum(seed, k):
    hidden, mask, _ = random_rows(seed, rows=2, n=8, d=2)
    cover = k_center_greedy(hidden, mask, k)
    for row in range(2):
        points = hidden[row][mask[row]].numpy()
        assert cover.radius[row].item() <= 2 * optimal_radius(points, k) + 1e-9


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("seed", range(5))
def test_duplicates_are_chosen_last(seed, metric):
    generator = torch.Generator().manual_seed(seed)
    unique = 5 + torch.randn(4, 768, generator=generator)
    which = torch.tensor([0, 1, 2, 3, 0, 1, 3])
    which[1:] = which[1:][torch.randperm(6, generator=generator)]
    tokens = unique[which][None]
    everything = k_center_greedy(tokens, None, 7, metric=metric)
    assert sorted(which[everything.indices[0, :4]].tolist()) == [0, 1, 2, 3]
    at_four = k_center_greedy(tokens, None, 4, metric=metric)
    assert at_four.radius.item() == 0
    assert at_four.indices[0].tolist() == everything.indices[0, :4].tolist()


@given(rows=whole_number_rows())
def test_an_exact_duplicate_is_chosen_only_when_everything_is_covered(rows):
    hidden, mask, _ = rows
    for row in range(len(hidden)):
        points = [tuple(point) for point in hidden[row][mask[row]].tolist()]
        order = k_center_greedy(hidden[row : row + 1], mask[row : row + 1], len(points)).indices[0].tolist()
        firsts = {points.index(point) for point in points}
        assert set(order[: len(firsts)]) == firsts


@pytest.mark.parametrize("m", STEPS)
def test_pads_are_never_covered_and_never_centres_before_real_tokens(m):
    tokens = torch.tensor([[[0.0], [1.0], [3.0], [1000.0], [2000.0]]])
    mask = torch.tensor([[True, True, True, False, False]])
    assert k_center_greedy(tokens, mask, 2, centers_per_step=m).indices.tolist() == [[0, 2]]
    assert k_center_greedy(tokens, mask, 2, centers_per_step=m).radius.tolist() == [1]
    everything = k_center_greedy(tokens, mask, 5, centers_per_step=m)
    assert everything.indices.tolist() == [[0, 2, 1, 3, 4]]
    assert everything.radius.tolist() == [0]


# ---- ways to call it ----


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("m", STEPS)
def test_a_given_geometry_changes_nothing_and_is_not_changed(m, metric):
    hidden, mask, counts = random_rows(3)
    plain = k_center_greedy(hidden, mask, counts, centers_per_step=m, metric=metric)
    geometry = Geometry.of(hidden, metric)
    before = [part.matrix.clone() for part in geometry.parts]
    reused = k_center_greedy(hidden, mask, counts, centers_per_step=m, metric=metric, geometry=geometry)
    assert torch.equal(plain.indices, reused.indices)
    assert torch.equal(plain.radius, reused.radius)
    assert all(map(torch.equal, (part.matrix for part in geometry.parts), before))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("m", STEPS)
def test_the_selector_is_the_greedy_without_gradients(m, metric):
    hidden, mask, counts = random_rows(4)
    cover = k_center_greedy(hidden.requires_grad_(), mask, counts, centers_per_step=m, metric=metric)
    assert not cover.radius.requires_grad
    ranked = get_selector("coreset").rank(Candidates(hidden, mask, metric), counts, centers_per_step=m).indices
    for row, k in enumerate(counts):
        assert ranked[row, :k].tolist() == cover.indices[row, :k].tolist()


@pytest.mark.parametrize(
    ("k", "message"),
    [
        ([2, 2, 2], "k must be an int or one int for each of the 4 rows, got 3 ints"),
        (0, "k must be at least 1 .CLS is always kept., got 0"),
        ([2, 2, 2, -1], "k must be at least 1 .CLS is always kept., got -1"),
    ],
)
def test_a_k_that_cannot_be(k, message):
    hidden, mask, _ = random_rows(6)
    with pytest.raises(PyramidError, match=f"^{message}$"):
        k_center_greedy(hidden, mask, k)


@pytest.mark.parametrize("n", [40, 300])  # in one strip, and in three
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("m", [1, 2, 0.1, "all"])
def test_compiled_and_torch_loops_agree_to_the_last_tie(m, seed, dtype, n):
    """On vectors with few distinct values there are ties everywhere."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randint(-1, 2, (6, n, 3), generator=generator).to(dtype)
    hidden[::2] += torch.randn(3, n, 3, generator=generator)  # and on some without
    counts = torch.randint(1, n - 5, (6,), generator=generator).tolist()
    geometry = Geometry.of(hidden)
    uncovered = geometry.to_cls
    uncovered[:, n - 5 :] = -1.0
    uncovered[:, 0] = -torch.inf
    steps = [centers_in_a_step(m, count) for count in counts]
    slow = _one_at_a_time if m == 1 else partial(_in_batches, steps=steps)
    slow_index, slow_radius = slow(geometry.distances, uncovered.clone(), counts)
    fast_index, fast_radius = compiled.greedy(geometry.for_loops, uncovered.numpy().copy(), counts, steps)
    assert fast_radius.tolist() == slow_radius.tolist()
    for row, count in enumerate(counts):
        assert fast_index[row, :count].tolist() == slow_index[row, :count].tolist()


@pytest.mark.parametrize("m", [1, 3])
def test_compiled_loops_choose_the_same_in_threads(m, monkeypatch):
    hidden = torch.randn(40, 200, 4, generator=torch.Generator().manual_seed(0))
    geometry = Geometry.of(hidden)
    start, counts, steps = geometry.to_cls, [1 + row for row in range(40)], [m] * 40
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    found, threads = [], []
    monkeypatch.setattr(compiled, "_threads", lambda number, of=compiled._threads: threads.append(number) or of(number))
    for worth in (0, 1 << 40):
        monkeypatch.setattr(compiled, "_WORTH_THREADS", worth)
        index, radius = compiled.greedy(geometry.for_loops, start.numpy().copy(), counts, steps)
        found.append((index, radius, *compiled.nearest_kept(geometry.for_loops, index, None, skip_cls=True)))
    assert threads == [3, 3]
    assert all(np.array_equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("n", [40, 300])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("skip_cls", [False, True])
def test_compiled_and_torch_agree_on_the_nearest_kept(seed, skip_cls, n, monkeypatch):
    """With ties everywhere, empty slots, and a row that keeps CLS alone."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randint(-1, 2, (10, n, 3), generator=generator).float()
    hidden[::2] += torch.randn(5, n, 3, generator=generator)
    geometry = Geometry.of(hidden)
    counts = [1, *torch.randint(2, 12, (9,), generator=generator).tolist()]
    index, kept = torch.zeros(10, max(counts), dtype=torch.long), torch.zeros(10, max(counts), dtype=torch.bool)
    for row, count in enumerate(counts):
        others = 1 + torch.randperm(n - 1, generator=generator)[: count - 1]
        index[row, 1:count] = others.sort().values
        kept[row, :count] = True
    seen = geometry.for_loops, index.numpy(), kept.numpy()
    fast_slot, fast_squared = compiled.nearest_kept(*seen, skip_cls=skip_cls)
    monkeypatch.setattr(compiled, "available", lambda: False)
    slot, squared = nearest_kept(geometry, index, kept, skip_cls=skip_cls)
    assert np.array_equal(fast_slot, slot)
    assert np.array_equal(fast_squared, squared)


@pytest.mark.parametrize("n", [127, 128, 129, 256, 300])
def test_distances_of_long_rows_are_those_of_the_textbook(n):
    """Gram matrices of long rows are put together from parts."""
    hidden = torch.randn(9, n, 4, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    expected = torch.cdist(hidden, hidden, compute_mode="donot_use_mm_for_euclid_dist").square()
    torch.testing.assert_close(Geometry.of(hidden).distances, expected, rtol=1e-9, atol=1e-9)
