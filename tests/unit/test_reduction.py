import dataclasses
import re

import pytest
import torch

from pyramid_bert.core.covering import nearest_kept
from pyramid_bert.core.distances import Geometry, squared_distances, to_radius
from pyramid_bert.core.reduction import Reduction
from pyramid_bert.errors import UnknownNameError

X = torch.tensor([[10.0, 11.0, 12.0, 13.0, 14.0], [20.0, 21.0, 22.0, 23.0, 24.0]])  # (B, N)
FIVE = torch.ones(2, 5, dtype=torch.bool)


def on_a_line(*points):
    """(1, N, 1) tokens at these places, and their squared distances."""
    tokens = torch.tensor([[[float(point)] for point in points]])
    return tokens, Geometry.of(tokens)


# ---- from_index ----


def test_from_index_keeps_position_order():
    reduction = Reduction.from_index(torch.tensor([[0, 3, 1], [0, 2, 4]]), [3, 3])
    assert reduction.index.tolist() == [[0, 1, 3], [0, 2, 4]]
    assert reduction.mask is None
    assert reduction.group is None
    assert reduction.apply(X).tolist() == [[10, 11, 13], [20, 22, 24]]


def test_from_index_takes_what_the_rank_puts_first_in_each_row():
    reduction = Reduction.from_index(torch.tensor([[0, 3, 1], [0, 4, 2]]), [3, 2])
    assert reduction.index.tolist() == [[0, 1, 3], [0, 4, 0]]
    assert reduction.mask.tolist() == [[True, True, True], [True, True, False]]


def test_from_index_keeps_no_pad():
    mask = torch.tensor([[True, True, False, False, False], [True, True, True, True, True]])
    reduction = Reduction.from_index(torch.tensor([[0, 1, 2], [0, 4, 2]]), [3, 3], mask)
    assert reduction.index.tolist() == [[0, 1, 0], [0, 2, 4]]
    assert reduction.mask.tolist() == [[True, True, False], [True, True, True]]


def test_from_index_leaves_its_arguments_alone():
    ranked, mask = torch.tensor([[0, 3, 1]]), FIVE[:1].clone()
    Reduction.from_index(ranked, [2], mask)
    assert ranked.tolist() == [[0, 3, 1]]
    assert mask.all()


# ---- apply ----


def test_apply_gathers_any_per_token_tensor():
    reduction = Reduction.from_index(torch.tensor([[0, 3, 1], [0, 2, 4]]), [3, 3])
    wide = torch.stack([X, -X], dim=2)  # (B, N, 2)
    assert reduction.apply(wide).tolist() == [
        [[10, -10], [11, -11], [13, -13]],
        [[20, -20], [22, -22], [24, -24]],
    ]
    assert reduction.apply(X.long()).dtype == torch.long
    assert reduction.apply(X > 12).tolist() == [[False, False, True], [True, True, True]]


def test_apply_averages_where_there_are_shares():
    reduction = Reduction.from_group(torch.tensor([[0, 1, 1, 2, 2], [0, 1, 1, 1, -1]]), slots=3)
    assert reduction.apply(X).tolist() == [[10, 11.5, 13.5], [20, 22, 0]]
    assert reduction.apply(X[:, :, None]).tolist() == [[[10], [11.5], [13.5]], [[20], [22], [0]]]
    assert reduction.apply(X.bfloat16()).dtype == torch.bfloat16


def test_apply_passes_gradients_to_the_kept_tokens_alone():
    x = X.clone().requires_grad_()
    Reduction.from_index(torch.tensor([[0, 3], [0, 2]]), [2, 2]).apply(x).sum().backward()
    assert x.grad.tolist() == [[1, 0, 0, 1, 0], [1, 0, 1, 0, 0]]


def test_apply_passes_gradients_to_all_averaged_tokens():
    x = X.clone().requires_grad_()
    Reduction.from_group(torch.tensor([[0, 1, 1, 1, 1], [0, 0, 1, -1, -1]]), slots=2).apply(x).sum().backward()
    assert x.grad.tolist() == [[1, 0.25, 0.25, 0.25, 0.25], [0.5, 0.5, 1, 0, 0]]


# ---- from_group ----


def test_from_group_weighs_by_size():
    group, size = torch.tensor([[0, 1, 1, 1, -1]]), torch.tensor([[1.0, 1.0, 2.0, 5.0, 7.0]])
    reduction = Reduction.from_group(group, slots=2, size=size)
    assert reduction.apply(X[:1]).tolist() == [[10, (11 + 2 * 12 + 5 * 13) / 8]]


def test_from_group_marks_slots_that_nobody_went_to():
    reduction = Reduction.from_group(torch.tensor([[0, 1, 1, 3, -1]]), slots=4)
    assert reduction.mask.tolist() == [[True, True, False, True]]
    assert reduction.apply(torch.ones(1, 5)).tolist() == [[1, 1, 0, 1]]
    assert reduction.index.tolist() == [[0, 1, 0, 3]]  # the first token of each


# ---- nearest kept tokens ----


def test_every_token_goes_to_its_nearest_kept_one():
    _, distances = on_a_line(0, 1, 5, 6, 10)
    slot, squared = nearest_kept(distances, torch.tensor([[0, 2, 4]]), None)
    assert slot.tolist() == [[0, 0, 1, 1, 2]]
    assert squared.tolist() == [[0, 1, 0, 1, 0]]


def test_a_tie_goes_to_the_earlier_position():
    _, distances = on_a_line(0, 2, 4)
    slot, _ = nearest_kept(distances, torch.tensor([[0, 2]]), None)
    assert slot.tolist() == [[0, 0, 1]]


def test_a_kept_token_stays_itself_among_equals():
    _, distances = on_a_line(0, 3, 3, 3)
    slot, squared = nearest_kept(distances, torch.tensor([[0, 1, 3]]), None)
    assert slot.tolist() == [[0, 1, 1, 2]]
    assert squared.tolist() == [[0, 0, 0, 0]]


def test_an_empty_slot_takes_nobody():
    _, distances = on_a_line(0, 1, 2, 9)
    slot, _ = nearest_kept(distances, torch.tensor([[0, 3, 0]]), torch.tensor([[True, True, False]]))
    assert slot.tolist() == [[0, 0, 0, 1]]


def test_skip_cls_sends_nobody_to_cls_but_itself():
    _, distances = on_a_line(0, 1, 5, 9)
    slot, squared = nearest_kept(distances, torch.tensor([[0, 3]]), None, skip_cls=True)
    assert slot.tolist() == [[0, 1, 1, 1]]
    assert squared.tolist() == [[0, 64, 16, 0]]


# ---- groups, sizes, provenance ----


def test_with_groups_leaves_pads_out():
    _, distances = on_a_line(0, 1, 5, 6, 100)
    mask = torch.tensor([[True, True, True, True, False]])
    reduction, squared = Reduction.from_index(torch.tensor([[0, 2]]), [2], mask).with_groups(distances, mask)
    assert reduction.group.tolist() == [[0, 0, 1, 1, -1]]
    assert squared.tolist() == [[0, 1, 0, 1, 0]]


def test_with_groups_where_cls_alone_is_kept():
    _, distances = on_a_line(0, 1, 5)
    alone = Reduction.from_index(torch.tensor([[0]]), [1])
    assert alone.with_groups(distances, None)[0].group.tolist() == [[0, 0, 0]]
    reduction, squared = alone.with_groups(distances, None, skip_cls=True)
    assert reduction.group.tolist() == [[0, -1, -1]]
    assert squared.tolist() == [[0, 0, 0]]


def test_with_groups_where_cls_alone_is_kept_in_one_row_of_two():
    tokens = torch.tensor([[[0.0], [1.0], [5.0]], [[0.0], [1.0], [5.0]]])
    reduction = Reduction.from_index(torch.tensor([[0, 2], [0, 2]]), [2, 1])
    reduction, _ = reduction.with_groups(Geometry.of(tokens), None, skip_cls=True)
    assert reduction.group.tolist() == [[0, 1, 1], [0, -1, -1]]
    merged = reduction.merged(torch.ones(2, 3))
    assert merged.apply(tokens).tolist() == [[[0], [3]], [[0], [0]]]
    assert merged.sizes(torch.ones(2, 3), 2).tolist() == [[1, 2], [1, 0]]


def test_merged_averages_by_size_and_keeps_index_and_mask():
    tokens, distances = on_a_line(0, 1, 5, 6, 10)
    reduction, _ = Reduction.from_index(torch.tensor([[0, 2, 4]]), [3]).with_groups(distances, None, skip_cls=True)
    merged = reduction.merged(torch.tensor([[1.0, 2.0, 1.0, 4.0, 1.0]]))
    assert merged.index.tolist() == [[0, 2, 4]]
    assert merged.group.tolist() == [[0, 1, 1, 1, 2]]
    assert merged.apply(tokens)[0, :, 0].tolist() == [0, pytest.approx((2 * 1 + 5 + 4 * 6) / 7), 10]


def test_sizes_add_up_over_layers():
    reduction = Reduction(index=None, group=torch.tensor([[0, 1, 1, 2, -1]]))
    assert reduction.sizes(torch.ones(1, 5), slots=3).tolist() == [[1, 2, 1]]
    assert reduction.sizes(torch.tensor([[1.0, 2.0, 3.0, 4.0, 5.0]]), slots=3).tolist() == [[1, 5, 4]]


def test_follow_composes_to_provenance():
    first = Reduction(index=None, group=torch.tensor([[0, 1, 1, 2, -1]]))
    second = Reduction(index=None, group=torch.tensor([[0, -1, 1]]))
    slot = torch.arange(5)[None]
    assert first.follow(slot).tolist() == [[0, 1, 1, 2, -1]]
    assert second.follow(first.follow(slot)).tolist() == [[0, -1, -1, 1, -1]]


def test_a_reduction_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Reduction(index=None).index = torch.zeros(1, 1, dtype=torch.long)


# ---- distances ----


def test_squared_distances_by_hand():
    tokens = torch.tensor([[[0.0, 0.0], [3.0, 4.0], [3.0, 0.0]]])
    assert squared_distances(tokens).tolist() == [[[0, 25, 9], [25, 0, 16], [9, 16, 0]]]


def test_cosine_distances_by_hand():
    tokens = torch.tensor([[[2.0, 0.0], [0.0, 5.0], [-1.0, 0.0], [3.0, 0.0]]])
    radius = to_radius(squared_distances(tokens, "cosine"), "cosine")
    torch.testing.assert_close(radius[0, 0], torch.tensor([0.0, 1.0, 2.0, 0.0]), atol=1e-6, rtol=0)


def test_euclidean_radius_is_the_root():
    assert to_radius(torch.tensor([0.0, 9.0]), "euclidean").tolist() == [0, 3]


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("seed", range(10))
def test_equal_tokens_far_from_the_origin_are_at_distance_zero(seed, metric):
    # Without care, the products of so few and so wide vectors leave some 1e-4 between equal ones.
    tokens = 1000 + torch.randn(1, 6, 768, generator=torch.Generator().manual_seed(seed))
    tokens[0, 3:] = tokens[0, :3]
    distances = squared_distances(tokens, metric)[0]
    assert (distances == 0).nonzero().tolist() == [[i, j] for i in range(6) for j in range(6) if i % 3 == j % 3]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_tokens_get_full_precision_distances(dtype):
    generator = torch.Generator().manual_seed(0)
    tokens = (10 + torch.randn(2, 5, 16, generator=generator)).to(dtype)
    distances = squared_distances(tokens)
    assert distances.dtype == torch.float32
    exact = (tokens.double()[:, :, None] - tokens.double()[:, None]).square().sum(-1)
    torch.testing.assert_close(distances.double(), exact, atol=1e-4, rtol=1e-5)


def test_distances_are_of_full_precision_under_autocast():
    tokens = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        under_autocast = squared_distances(tokens)
    assert torch.equal(under_autocast, squared_distances(tokens))


def test_double_tokens_get_double_distances():
    assert squared_distances(torch.ones(1, 2, 3, dtype=torch.float64)).dtype == torch.float64


def test_no_gradient_flows_through_distances():
    assert not squared_distances(torch.randn(1, 3, 2, requires_grad=True)).requires_grad


def test_unknown_metric():
    message = re.escape("unknown metric 'euclid'; did you mean 'euclidean'? Known: cosine, euclidean")
    with pytest.raises(UnknownNameError, match=f"^{message}$"):
        squared_distances(torch.ones(1, 2, 3), "euclid")
