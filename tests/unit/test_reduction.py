import pytest
import torch

from pyramid_bert.core.covering import nearest_kept
from pyramid_bert.core.distances import Geometry, squared_distances, to_radius
from pyramid_bert.core.reduction import Reduction
from pyramid_bert.errors import UnknownNameError

X = torch.tensor([[10.0, 11.0, 12.0, 13.0, 14.0], [20.0, 21.0, 22.0, 23.0, 24.0]])  # (B, N)


def on_a_line(*points):
    """The geometry of tokens at these places."""
    return Geometry.of(torch.tensor([[[float(point)] for point in points]]))


# ---- which tokens are kept ----


@pytest.mark.parametrize(
    ("ranked", "counts", "real", "index", "filled"),
    [
        ([[0, 3, 1], [0, 2, 4]], [3, 3], None, [[0, 1, 3], [0, 2, 4]], None),  # in position order
        ([[0, 3, 1], [0, 4, 2]], [3, 2], None, [[0, 1, 3], [0, 4, 0]], [[1, 1, 1], [1, 1, 0]]),  # the first of a rank
        ([[0, 1, 2], [0, 4, 2]], [3, 3], [2, 5], [[0, 1, 0], [0, 2, 4]], [[1, 1, 0], [1, 1, 1]]),  # no pads
    ],
)
def test_from_index(ranked, counts, real, index, filled):
    mask = None if real is None else torch.arange(5) < torch.tensor(real)[:, None]
    given = torch.tensor(ranked)
    before = None if mask is None else mask.clone()
    reduction = Reduction.from_index(given, counts, mask)
    assert reduction.index.tolist() == index
    assert (None if reduction.mask is None else reduction.mask.int().tolist()) == filled
    assert reduction.group is None
    assert given.tolist() == ranked
    assert mask is None or torch.equal(mask, before)


# ---- apply ----


def test_apply_gathers_any_per_token_tensor_and_gradients_reach_the_kept_tokens():
    reduction = Reduction.from_index(torch.tensor([[0, 3, 1], [0, 2, 4]]), [3, 3])
    assert reduction.apply(X).tolist() == [[10, 11, 13], [20, 22, 24]]
    wide = torch.stack([X, -X], dim=2)  # (B, N, 2)
    assert reduction.apply(wide).tolist() == [[[10, -10], [11, -11], [13, -13]], [[20, -20], [22, -22], [24, -24]]]
    assert reduction.apply(X.long()).dtype == torch.long
    assert reduction.apply(X > 12).tolist() == [[False, False, True], [True, True, True]]
    x = X.clone().requires_grad_()
    reduction.apply(x).sum().backward()
    assert x.grad.tolist() == [[1, 1, 0, 1, 0], [1, 0, 1, 0, 1]]


def test_apply_averages_groups_and_gradients_reach_all_their_tokens():
    reduction = Reduction.from_group(torch.tensor([[0, 1, 1, 2, 2], [0, 1, 1, 1, -1]]), slots=3)
    assert reduction.apply(X).tolist() == [[10, 11.5, 13.5], [20, 22, 0]]
    assert reduction.apply(X[:, :, None]).tolist() == [[[10], [11.5], [13.5]], [[20], [22], [0]]]
    assert reduction.apply(X.bfloat16()).dtype == torch.bfloat16
    x = X.clone().requires_grad_()
    Reduction.from_group(torch.tensor([[0, 1, 1, 1, 1], [0, 0, 1, -1, -1]]), slots=2).apply(x).sum().backward()
    assert x.grad.tolist() == [[1, 0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 1, 0, 0]]


def test_from_group_weighs_by_size_and_marks_empty_slots():
    group, size = torch.tensor([[0, 1, 1, 1, -1]]), torch.tensor([[1.0, 1.0, 2.0, 5.0, 7.0]])
    assert Reduction.from_group(group, 2, size).apply(X[:1]).tolist() == [[10, (11 + 2 * 12 + 5 * 13) / 8]]
    reduction = Reduction.from_group(torch.tensor([[0, 1, 1, 3, -1]]), slots=4)
    assert reduction.mask.tolist() == [[True, True, False, True]]
    assert reduction.apply(torch.ones(1, 5)).tolist() == [[1, 1, 0, 1]]
    assert reduction.index.tolist() == [[0, 1, 0, 3]]  # the first token of each


# ---- nearest kept tokens ----


@pytest.mark.parametrize(
    ("points", "index", "filled", "skip_cls", "slot", "squared"),
    [
        ((0, 1, 5, 6, 10), [0, 2, 4], None, False, [0, 0, 1, 1, 2], [0, 1, 0, 1, 0]),
        ((0, 2, 4), [0, 2], None, False, [0, 0, 1], [0, 4, 0]),  # a tie goes to the earlier position
        ((0, 3, 3, 3), [0, 1, 3], None, False, [0, 1, 1, 2], [0, 0, 0, 0]),  # a kept one stays itself among equals
        ((0, 1, 2, 9), [0, 3, 0], [True, True, False], False, [0, 0, 0, 1], [0, 1, 4, 0]),  # an empty slot
        ((0, 1, 5, 9), [0, 3], None, True, [0, 1, 1, 1], [0, 64, 16, 0]),  # nobody goes to CLS but itself
    ],
)
def test_every_token_goes_to_its_nearest_kept_one(both_ways, points, index, filled, skip_cls, slot, squared):
    filled = None if filled is None else torch.tensor([filled])
    found = nearest_kept(on_a_line(*points), torch.tensor([index]), filled, skip_cls=skip_cls)
    assert [x.tolist() for x in found] == [[slot], [squared]]


def test_groups_have_no_pads():
    mask = torch.tensor([[True, True, True, True, False]])
    reduction = Reduction.from_index(torch.tensor([[0, 2]]), [2], mask)
    reduction, squared = reduction.with_groups(on_a_line(0, 1, 5, 6, 100), mask)
    assert reduction.group.tolist() == [[0, 0, 1, 1, -1]]
    assert squared.tolist() == [[0, 1, 0, 1, 0]]


def test_groups_where_only_cls_is_kept():
    tokens = torch.tensor([[[0.0], [1.0], [5.0]], [[0.0], [1.0], [5.0]]])
    alone = Reduction.from_index(torch.tensor([[0]]), [1])
    assert alone.with_groups(Geometry.of(tokens[:1]), None)[0].group.tolist() == [[0, 0, 0]]
    reduction, squared = alone.with_groups(Geometry.of(tokens[:1]), None, skip_cls=True)
    assert (reduction.group.tolist(), squared.tolist()) == ([[0, -1, -1]], [[0, 0, 0]])
    reduction = Reduction.from_index(torch.tensor([[0, 2], [0, 2]]), [2, 1])  # in one of two rows
    reduction, _ = reduction.with_groups(Geometry.of(tokens), None, skip_cls=True)
    assert reduction.group.tolist() == [[0, 1, 1], [0, -1, -1]]
    merged = reduction.merged(torch.ones(2, 3))
    assert merged.apply(tokens).tolist() == [[[0], [3]], [[0], [0]]]
    assert merged.sizes(torch.ones(2, 3), 2).tolist() == [[1, 2], [1, 0]]


def test_sizes_add_up_and_slots_compose_over_layers():
    first = Reduction(index=None, group=torch.tensor([[0, 1, 1, 2, -1]]))
    assert first.sizes(torch.ones(1, 5), slots=3).tolist() == [[1, 2, 1]]
    assert first.sizes(torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0]]), slots=3).tolist() == [[1, 5, 4]]
    slot = first.follow(torch.arange(5)[None])
    assert slot.tolist() == [[0, 1, 1, 2, -1]]
    second = Reduction(index=None, group=torch.tensor([[0, -1, 1]]))
    assert second.follow(slot).tolist() == [[0, -1, -1, 1, -1]]


# ---- distances ----


def test_distances_by_hand():
    tokens = torch.tensor([[[0.0, 0.0], [3.0, 4.0], [3.0, 0.0]]])
    assert squared_distances(tokens).tolist() == [[[0, 25, 9], [25, 0, 16], [9, 16, 0]]]
    assert to_radius(torch.tensor([0.0, 9.0]), "euclidean").tolist() == [0, 3]
    tokens = torch.tensor([[[2.0, 0.0], [0.0, 5.0], [-1.0, 0.0], [3.0, 0.0]]])
    radius = to_radius(squared_distances(tokens, "cosine"), "cosine")
    torch.testing.assert_close(radius[0, 0], torch.tensor([0.0, 1.0, 2.0, 0.0]), atol=1e-6, rtol=0)
    with pytest.raises(UnknownNameError, match=r"^unknown metric 'euclid'; did you mean 'euclidean'\? Known: cosine"):
        squared_distances(tokens, "euclid")


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("seed", range(10))
def test_equal_tokens_far_from_the_origin_are_at_distance_zero(seed, metric):
    # Without care, products of wide vectors leave about 1e-4 between equal ones.
    tokens = 1000 + torch.randn(1, 6, 768, generator=torch.Generator().manual_seed(seed))
    tokens[0, 3:] = tokens[0, :3]
    distances = squared_distances(tokens, metric)[0]
    assert (distances == 0).nonzero().tolist() == [[i, j] for i in range(6) for j in range(6) if i % 3 == j % 3]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_distances_are_of_full_precision_also_under_autocast_and_without_gradients(dtype):
    tokens = (10 + torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))).to(dtype).requires_grad_()
    distances = squared_distances(tokens)
    assert distances.dtype == torch.promote_types(dtype, torch.float32)
    assert not distances.requires_grad
    exact = (tokens.double()[:, :, None] - tokens.double()[:, None]).square().sum(-1)
    torch.testing.assert_close(distances.double(), exact.detach(), atol=1e-4, rtol=1e-5)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(squared_distances(tokens), distances)
