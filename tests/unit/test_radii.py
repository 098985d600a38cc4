"""The covering radius of every layer, from the pass that is made anyway."""

import numpy as np
import pytest
import torch

from pyramid_bert import PyramidError, Schedule, k_center_greedy, pyramidize
from pyramid_bert.core import reduction
from pyramid_bert.core.coreset import radius_curve
from pyramid_bert.core.distances import Geometry
from pyramid_bert.core.loop import Pass
from pyramid_bert.core.record import Radii
from pyramid_bert.lab.theory.radius import RadiusCurves
from pyramid_bert.text.batches import Encoded
from pyramid_bert.text.inference import outputs_of

SCHEDULE = Schedule.exponential(0.3, last_layer=3, first_layer=2, min_tokens=2)
LENGTHS = [17, 9, 25, 3]


@pytest.mark.parametrize("settings", [{"reduce": "merge"}, {"reduce": "drop"}, {"reduce": "drop", "weighted": True}])
@pytest.mark.parametrize("selector", ["coreset", "attention", "first", "random"])
def test_radii_are_those_of_the_trace_and_measuring_changes_no_logit(
    tiny_bert, tiny_batch, logits_of, covers_of, traced, selector, settings
):
    model, batch = pyramidize(tiny_bert(), SCHEDULE, selector, **settings), tiny_batch(LENGTHS)
    logits, covers = covers_of(model, batch)
    assert torch.equal(logits, logits_of(model, batch))
    radii = {entry.layer: entry.radius for entry in traced(model, batch).layers}
    for layer in (2, 3):
        assert covers.radius[:, layer - 1] == pytest.approx(radii[layer].numpy(), abs=1e-5)
    assert (covers.radius[:, [0, 3]] == 0).all()  # no drop, and a last layer that computes only CLS
    for row, n in enumerate(LENGTHS):
        assert covers.kept[row, :3].tolist() == list(SCHEDULE.lengths(n, 4)[:3])


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_relative_to_cls_without_any_other_token(tiny_bert, tiny_batch, covers_of, metric):
    model, batch = pyramidize(tiny_bert(), Schedule.constant(1e-9, first_layer=2), metric=metric), tiny_batch(LENGTHS)
    _, covers = covers_of(model, batch)  # keeps CLS alone
    assert covers.relative[:, 1] == pytest.approx([1] * 4, abs=1e-5)
    pyramidize(model, Schedule.constant(0.5, first_layer=2), metric=metric)
    _, covers = covers_of(model, batch)
    assert (covers.relative[:3, 1] < 1).all()
    assert (covers.radius[:3, 1] > 0).all()


@pytest.mark.parametrize("settings", [{"reduce": "merge"}, {"reduce": "drop"}])
def test_the_radius_takes_no_second_pass(tiny_bert, tiny_batch, logits_of, covers_of, monkeypatch, settings):
    """As many Gram matrices and nearest-token passes with the radius as without."""
    calls = []

    def counting(name, run):
        return lambda *args, **kwargs: calls.append(name) or run(*args, **kwargs)

    for owner, name in ((Geometry, "of"), (reduction, "nearest_kept")):
        monkeypatch.setattr(owner, name, counting(name, getattr(owner, name)))
    model, batch = pyramidize(tiny_bert(), SCHEDULE, **settings), tiny_batch(LENGTHS)
    logits_of(model, batch)
    plain = calls.copy()
    calls.clear()
    covers_of(model, batch)
    assert calls == plain
    assert "of" in plain


def test_another_pass_starts_anew_and_a_selection_at_the_input_counts_for_layer_1(tiny_bert, tiny_batch):
    model = pyramidize(tiny_bert(), Schedule.input_only(0.5))
    radii = Radii(4)
    with torch.no_grad():
        model(**tiny_batch([20]), pyramid_pass=Pass(radii))
        model(**tiny_batch([9, 12]), pyramid_pass=Pass(radii))
    assert radii.coverage.kept.tolist() == [[5] * 4, [6] * 4]
    assert (radii.coverage.radius[:, 0] > 0).all()
    assert (radii.coverage.radius[:, 1:] == 0).all()


def test_outputs_keep_the_order_of_the_texts(tiny_bert, tiny_batch, items_of):
    model, items = pyramidize(tiny_bert(), SCHEDULE), items_of(tiny_batch(LENGTHS))
    together = outputs_of(model, items, 0, batch_size=3, coverage=True).coverage
    for row, item in enumerate(items):
        alone = outputs_of(model, [item], 0, batch_size=1, coverage=True).coverage
        assert together.radius[row] == pytest.approx(alone.radius[0], abs=1e-5)
        assert together.kept[row].tolist() == alone.kept[0].tolist()


def test_who_keeps_no_token_has_no_radius(tiny_bert):
    model = pyramidize(tiny_bert(), Schedule.strided(2, [2]), "pool")
    with pytest.raises(PyramidError, match="'pool' makes new vectors"):
        outputs_of(model, [Encoded([2, 9, 3])], 0, batch_size=1, coverage=True)
    with pytest.raises(PyramidError, match="dense model drops no token"):
        outputs_of(tiny_bert(), [Encoded([2, 9, 3])], 0, batch_size=1, coverage=True)


# ---- Theorem 1's sum, from radius curves ----


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_a_radius_curve_holds_the_radius_of_every_k(metric):
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(3, 9, 4, generator=generator)
    mask = torch.arange(9) < torch.tensor([9, 6, 1])[:, None]
    curve = radius_curve(hidden, mask, metric=metric)
    for k in range(1, 10):
        expected = k_center_greedy(hidden, mask, k, metric=metric).radius
        torch.testing.assert_close(curve[:, k - 1], expected, rtol=1e-5, atol=1e-5)


def test_curves_are_measured_where_a_pyramid_chooses(tiny_bert, tiny_batch, items_of, traced):
    """The first layer of a pyramid sees what the dense model has there."""
    dense, batch = tiny_bert(), tiny_batch([14, 9])
    items = items_of(batch)
    pyramid = pyramidize(tiny_bert(), Schedule.constant(0.5), reduce="drop")
    curves = RadiusCurves.of(dense, pyramid, items)
    trace = traced(pyramid, batch)
    for row, kept in enumerate((7, 5)):
        assert curves.curves[row].shape == (4, len(items[row]))
        assert curves.curves[row][0, kept - 1] == pytest.approx(float(trace.layers[0].radius[row]), rel=1e-4)


def test_the_bound_by_hand():
    curves = RadiusCurves((np.array([[4.0, 3.0, 2.0, 0.0], [8.0, 6.0, 1.0, 0.0]]),), (10.0, 0.5))
    assert curves.bound(Schedule.custom([3, 1], n=4)) == pytest.approx(10 * (4 - 3) * 2.0 + 0.5 * (4 - 1) * 8.0)


def test_layers_weigh_by_what_a_cut_there_does_to_cls(tiny_bert, tiny_batch, items_of):
    """Half of the tokens from layer j on: the weighted terms of the layers from j on add up to how far CLS moves."""
    dense, batch = tiny_bert(), tiny_batch([14, 10])
    pyramid = pyramidize(tiny_bert(), Schedule.constant(0.9), reduce="drop")
    curves = RadiusCurves.of(dense, pyramid, items_of(batch))
    pyramidize(pyramid, Schedule.constant(0.5), reduce="drop")
    with torch.no_grad():
        moved = (pyramid.bert(**batch)[0][:, 0] - dense.bert(**batch)[0][:, 0]).norm(dim=1).mean()
    assert curves.weights[-1] == pytest.approx(0, abs=1e-4)  # it computes only CLS
    assert curves.bound(Schedule.constant(0.5)) >= float(moved) * (1 - 1e-4)  # equal where each layer adds to it
