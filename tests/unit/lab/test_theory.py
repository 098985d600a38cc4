"""The arithmetic of the bound, and the best cover by exhaustive search."""

import itertools
import json
from dataclasses import replace

import pytest
import torch

from pyramid_bert.core.coreset import k_center_greedy
from pyramid_bert.errors import PyramidError
from pyramid_bert.lab.theory.bound import BOUNDS, Constants, Measured, TheoremReport, right_hand_sides
from pyramid_bert.lab.theory.kcenter import covering_radius, optimal_radius, price_of_parallelism

ROW = Measured(
    n=10,
    lengths=(10, 6, 4),
    radius=(0.0, 3.0, 2.0),
    moved=(0.0, 4.0, 2.5),
    layer=(0.0, 2.0, 1.0),
    layer_random=(0.0, 1.0, 1.5),
    above=(0.0, 0.5, 0.25),
    above_random=(0.0, 0.75, 0.1),
    head=0.2,
    head_random=0.1,
    loss=0.7,
    loss_change=0.05,
)


def report(*rows):
    return TheoremReport(rows=rows, constants=Constants.seen(rows), loss="some loss", settings={}, directions=2, seed=0)


def test_the_bound_by_hand():
    constants = Constants(layer=(7.0, 2.0, 1.5), above=(9.0, 0.75, 0.25), head=0.2)
    sides = right_hand_sides(ROW, constants)
    # Nothing is replaced at layer 1; 4 tokens at layer 2, with 2 * 1.5 above; 6 at layer 3, with 1.5.
    assert sides == {
        "printed": pytest.approx(0.2 * 3 * (4 * 3 + 6 * 1.5)),
        "layer_radii": pytest.approx(0.2 * (3 * 4 * 3 + 2 * 6 * 1.5)),
        "moved": pytest.approx(0.2 * (4 * 3 + 2.5 * 1.5)),
        "direct": pytest.approx(0.2 * (4 * 0.75 + 2.5 * 0.25)),
    }
    assert set(sides) == set(BOUNDS)


def test_constants_are_the_largest_ratios_of_the_sample():
    rows = [ROW, replace(ROW, layer=(0.1, 1.0, 3.0), above_random=(0.0, 0.0, 1.0), head=0.05, head_random=0.3)]
    assert Constants.seen(rows) == Constants(layer=(0.1, 2.0, 3.0), above=(0.0, 0.75, 1.0), head=0.3)


def test_a_report_says_by_how_much_the_bound_is_loose():
    found = report(ROW, replace(ROW, loss_change=0.15))
    assert found.observed == {"mean": pytest.approx(0.1), "max": 0.15}
    printed = found.bounds()["printed"]
    assert printed["mean"] == pytest.approx(12.6)
    assert printed["loose"] == pytest.approx(126)
    assert printed["least_margin"] == pytest.approx(12.6 - 0.15)
    assert "loose by a factor of 126." in found.sentence()
    layer = found.layers()[1]
    assert layer["replaced"] == {"mean": 4.0, "max": 4}
    assert (layer["layer_from_pyramid"], layer["layer_from_random"], layer["product_above"]) == (2.0, 1.0, 3.0)
    data = json.loads(json.dumps(found.to_dict(rows=True)))
    assert (data["inputs"], data["mean_tokens"], len(data["rows"])) == (2, 10, 2)
    assert "rows" not in found.to_dict()


def test_a_loss_that_does_not_change_is_told_as_such():
    found = report(replace(ROW, loss_change=0.0))
    assert found.bounds()["direct"]["loose"] is None
    assert "did not change on these 1 inputs" in found.sentence()


# ---- the best cover ----


def points(seed, n, width=3):
    return torch.randn(n, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_all_sets(x, k, keep_first):
    sets = itertools.combinations(range(len(x)), k)
    return min(covering_radius(x, chosen) for chosen in sets if not keep_first or 0 in chosen)


@pytest.mark.parametrize("keep_first", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_the_search_finds_the_best_of_all_sets(seed, keep_first):
    x = points(seed, n=7 + seed % 3, width=1 + seed % 4)
    for k in range(1, len(x) + 1):
        assert optimal_radius(x, k, keep_first=keep_first) == by_all_sets(x, k, keep_first)


def test_points_that_are_equal_need_one_centre():
    x = torch.tensor([[0.0], [0.0], [5.0], [5.0]])
    assert (optimal_radius(x, 2), optimal_radius(x, 1)) == (0.0, 5.0)


@pytest.mark.parametrize("seed", range(25))
def test_greedy_is_within_twice_the_optimum(seed):
    x = points(seed, n=16, width=2)
    for k in (2, 4, 8):
        found = price_of_parallelism(x, k)
        assert found["free_optimum"] <= found["optimum"] <= found["radius"]["1"]
        assert found["radius"]["1"] <= 2 * found["free_optimum"]
        assert min(found["radius"].values()) >= found["optimum"]
        cover = k_center_greedy(x[None], None, k)
        assert found["radius"]["1"] == pytest.approx(float(cover.radius[0]))


def test_choosing_all_at_once_is_not_within_twice_the_optimum():
    # A far cluster takes all centres, and what lies between is left: the bound of 2 is lost with m > 1.
    x = torch.tensor([[0.0], [50.0], [100.0], [101.0], [102.0]])
    found = price_of_parallelism(x, 3)
    assert (found["optimum"], found["radius"]["1"], found["radius"]["all"]) == (1.0, 2.0, 50.0)


@pytest.mark.parametrize(("n", "k"), [(33, 2), (4, 0), (4, 5)])
def test_sets_too_large_to_search_are_refused(n, k):
    with pytest.raises(PyramidError, match=f"1 to 32 points and 1 <= k <= points, got {n} and k={k}"):
        optimal_radius(torch.zeros(n, 2), k)
