"""Adaptive schedules: the fewest tokens whose covering radius is small enough, for each text and layer."""

import json
import math

import numpy as np
import pytest
import torch

from pyramid_bert import Cost, PyramidError, Schedule, adaptive_schedule_for_speedup, pyramidize
from pyramid_bert.bench.ideal import ideal_speedup, kept_lengths
from pyramid_bert.bench.ledger import measure
from pyramid_bert.bench.workload import Workload
from pyramid_bert.core.coreset import k_center_greedy, radius_curve
from pyramid_bert.core.covering import shortest_cover
from pyramid_bert.core.distances import Geometry
from pyramid_bert.core.loop import Pass
from pyramid_bert.errors import DataError
from pyramid_bert.families import set_sensitivity
from pyramid_bert.tune.schedules import solve_adaptive
from pyramid_bert.tune.solver import smallest

LENGTHS = [17, 9, 25, 3, 1]


# ---- the schedule ----


def test_it_has_options_and_no_lengths():
    schedule = Schedule.adaptive(0.5, steps=4, first_layer=2, last_layer=3, min_tokens=4)
    assert schedule.is_adaptive
    assert schedule.options(10, 2) == (4, 5, 8, 10)
    assert schedule.options(2, 3) == (2, 2, 2, 2)
    assert schedule.options(10, 1) == schedule.options(10, 4) == (10,) * 4
    with pytest.raises(PyramidError, match="no lengths before a text is run"):
        schedule.lengths(10, 4)
    assert Schedule.constant(0.5).options(10, 1) is None


def test_it_round_trips_through_json():
    fixed = Schedule.adaptive(0.5, relative=False, steps=3, first_layer=2, last_layer=4, min_tokens=2)
    for schedule in (fixed, Schedule.adaptive(0.5, growth=1.5)):
        assert Schedule.from_dict(json.loads(json.dumps(schedule.to_dict()))) == schedule
        assert ("growth" in schedule.to_dict()) == (schedule is not fixed)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        *(({"radius": r}, r"radius must be in \(0, 1\]") for r in (0, -1, 1.5, math.nan, math.inf, True, "half")),
        ({"radius": 0.0, "relative": False}, "above 0, got 0.0"),
        ({"radius": 0.5, "steps": 0}, "steps must be an integer in 1-65536"),
        ({"radius": 0.5, "first_layer": 3, "last_layer": 2}, "last_layer must be an integer of at least 3"),
        ({"radius": 0.5, "min_tokens": 0}, "min_tokens"),
        ({"radius": 0.5, "growth": 0}, r"growth must be in \(0, 10\], got 0"),
        ({"radius": 0.5, "growth": "fast"}, "got 'fast'"),
    ],
)
def test_what_is_refused(fields, message):
    with pytest.raises(PyramidError, match=message):
        Schedule.adaptive(**fields)


def test_it_must_fit_the_model_and_the_selector(tiny_bert):
    for settings, message in (
        ({"schedule": Schedule.adaptive(0.5, first_layer=5)}, "first_layer must be in 1-4, got 5"),
        ({"selector": "pool"}, "'pool' takes"),
        ({"placement": "input"}, "do not fit"),
    ):
        with pytest.raises(PyramidError, match=message):
            pyramidize(tiny_bert(), **{"schedule": Schedule.adaptive(0.5), **settings})


# ---- the shortest cover ----


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("padded", [False, True])
def test_it_is_where_the_radius_curve_falls_below_the_limit(metric, padded):
    torch.manual_seed(0)
    hidden = torch.randn(6, 12, 5)
    real = [12, 7, 12, 1, 4, 9] if padded else [12] * 6
    mask = torch.arange(12) < torch.tensor(real)[:, None]
    curve = radius_curve(hidden, mask, metric=metric)
    limit = curve[:, :1].squeeze(1) * torch.linspace(0.2, 1.0, 6)
    ranked = k_center_greedy(hidden, mask, real, metric=metric).indices
    options = [tuple(min(k, n) for k in range(1, 13)) for n in real]
    geometry = Geometry.of(hidden, metric)
    keep, radius = shortest_cover(geometry, ranked, mask if padded else None, options, limit)
    for row, n in enumerate(real):
        expected = next(k for k in range(1, n + 1) if curve[row, k - 1] <= limit[row] or k == n)
        assert keep[row] == expected
        assert radius[row] == pytest.approx(float(curve[row, expected - 1]), abs=1e-4)


# ---- in the encoder ----


@pytest.mark.parametrize("settings", [{"reduce": "merge"}, {"reduce": "drop"}, {"reduce": "drop", "weighted": True}])
@pytest.mark.parametrize("selector", ["coreset", "attention", "random"])
def test_every_layer_keeps_within_the_radius_and_no_more_than_it_must(
    tiny_bert, tiny_batch, covers_of, traced, selector, settings
):
    schedule = Schedule.adaptive(0.6, steps=8, first_layer=2, last_layer=3, min_tokens=2)
    model = pyramidize(tiny_bert(), schedule, selector, **settings)
    _, covers = covers_of(model, tiny_batch(LENGTHS))
    assert (covers.relative <= 0.6 + 1e-5).all()
    for row, n in enumerate(LENGTHS):
        kept = covers.kept[row].tolist()
        assert kept == sorted(kept, reverse=True)
        assert kept[0] == n
        assert kept[-1] >= min(n, 2)
        assert set(kept) <= set(schedule.options(n, 2))
    assert covers.kept[2, 2] < 25
    for entry in traced(model, tiny_batch(LENGTHS)).layers:
        assert covers.radius[:, entry.layer - 1] == pytest.approx(entry.radius.numpy(), abs=1e-4)


def test_a_larger_radius_keeps_fewer_and_a_tiny_one_everything(tiny_bert, tiny_batch, logits_of, covers_of):
    batch = tiny_batch(LENGTHS)
    dense = logits_of(tiny_bert(), batch)
    kept = []
    for radius in (1e-6, 0.7, 0.85, 1.0):
        model = pyramidize(tiny_bert(), Schedule.adaptive(radius))
        logits, covers = covers_of(model, batch)
        assert torch.allclose(logits_of(model, batch, Pass(dense=True)), dense, atol=1e-5)
        kept.append(int(covers.kept[:, 0].sum()))
        if radius == 1e-6:
            assert torch.allclose(logits, dense, atol=1e-5)
    assert kept == sorted(kept, reverse=True)
    assert kept[0] == sum(LENGTHS) > kept[1] > kept[-1] >= len(LENGTHS)


def test_a_radius_that_grows(tiny_bert, tiny_batch, covers_of):
    batch = tiny_batch(LENGTHS)
    _, covers = covers_of(pyramidize(tiny_bert(), Schedule.adaptive(0.5, growth=1.25, first_layer=2)), batch)
    allowed = 0.5 * np.array([0.0, 1.0, 1.25, 1.25**2])
    assert (covers.relative <= allowed + 1e-5).all()
    assert (covers.relative > allowed / 1.25 + 1e-5).any(axis=0)[2]


def test_an_absolute_radius(tiny_bert, tiny_batch, covers_of):
    _, free = covers_of(pyramidize(tiny_bert(), Schedule.adaptive(1.0)), tiny_batch(LENGTHS))
    limit = float(free.alone[0, 0]) / 2
    _, covers = covers_of(pyramidize(tiny_bert(), Schedule.adaptive(limit, relative=False)), tiny_batch(LENGTHS))
    assert (covers.radius <= limit + 1e-5).all()
    assert covers.kept[0, 0] < 17


# ---- what it costs ----


@pytest.fixture
def items(tiny_batch, items_of):
    return items_of(tiny_batch([5 + 7 * i % 40 for i in range(60)]))


def test_the_radius_for_a_speedup(tiny_bert, items):
    model = tiny_bert()
    found = solve_adaptive(model, 1.5, items)
    assert found.ideal == pytest.approx(1.5, rel=0.1)
    assert found.ideal >= 1.5
    pyramid = pyramidize(tiny_bert(), found.schedule)
    kept = kept_lengths(pyramid, items, batch_size=8)
    assert ideal_speedup(pyramid, items, kept) == pytest.approx(found.ideal, rel=1e-6)
    assert found.mean_lengths[0] == pytest.approx(sum(row[0] for row in kept) / 60)
    assert adaptive_schedule_for_speedup(model, 1.5, items) == found.schedule
    with pytest.warns(DeprecationWarning, match="use pyramid_bert.adaptive_schedule_for_speedup"):
        assert Schedule.adaptive_for_speedup(model, 1.5, items) == found.schedule
    assert not hasattr(model.config, "pyramid")
    json.dumps(found.to_dict())


def test_what_cannot_be_solved(tiny_bert, items):
    for speedup, settings, message in (
        (50, {}, r"cannot be reached on these texts: at most \d"),
        (0.5, {}, r"at least 1, got 0\.5"),
        (1.5, {"relative": False}, r"relative must be True, got False.*leave it out"),
    ):
        with pytest.raises(PyramidError, match=message):
            solve_adaptive(tiny_bert(), speedup, items, **settings)
    with pytest.raises(DataError, match="at least 50 texts, got 49"):
        solve_adaptive(tiny_bert(), 1.5, items[:49])


def test_an_encoder_without_a_head_is_refused_by_name(tiny_bert, items):
    encoder = tiny_bert().bert
    with pytest.raises(PyramidError, match=r"got BertModel, which has no head; give AutoModelForSequence"):
        adaptive_schedule_for_speedup(encoder, 1.5, items)
    with pytest.raises(PyramidError, match="got BertModel, which has no head"):
        kept_lengths(pyramidize(encoder, Schedule.adaptive(0.5)), items)


def test_the_ledger_counts_what_was_kept(tiny_bert, items):
    pyramid = pyramidize(tiny_bert(), Schedule.adaptive(0.7))
    kept = kept_lengths(pyramid, items)
    ledger = measure(tiny_bert(), pyramid, Workload(items, 44, "test"), batch_size=1, rounds=1, warmup=0)
    macs = [Cost.of(k, len(i), 32, 64, cls_layers=1, heads=4).macs for k, i in zip(kept, items, strict=True)]
    assert ledger.entries["pyramid"].macs == sum(macs)


def test_fixed_schedules_are_asked(tiny_bert, items):
    pyramid = pyramidize(tiny_bert(), Schedule.constant(0.5))
    assert kept_lengths(pyramid, items)[0] == Schedule.constant(0.5).lengths(len(items[0]), 4)
    with pytest.raises(PyramidError, match="takes a pyramid"):
        kept_lengths(tiny_bert(), items)


@pytest.mark.parametrize("start", [0.001, 0.05, 1.0])
@pytest.mark.parametrize("scale", [0.001, 0.03, 0.3])
@pytest.mark.parametrize("speedup", [1.2, 2.0, 3.0])
def test_the_radius_is_found_on_any_scale(speedup, scale, start):
    """Work falls from 1 to a quarter over a range of radii, and most of what is tried lies on a plateau."""
    tried = []

    def reached(radius):
        tried.append(radius)
        return 1 / (0.25 + 0.75 * math.exp(-radius / scale))

    radius = smallest(reached, speedup, low=1e-9, high=1.0, start=start)
    assert speedup <= reached(radius) <= 1.01 * speedup
    assert len(tried) < 18


def test_a_step_is_found_and_what_cannot_be_reached_is_told():
    bounds = {"low": 1e-9, "high": 1.0, "start": 1.0}
    assert smallest(lambda x: 2.5 if x >= 0.2 else 1.5, 2.0, **bounds) == pytest.approx(0.2, rel=0.01)
    assert smallest(lambda x: 1.9, 2.0, **bounds) is None
    assert smallest(lambda x: 1.9, 2.0, **bounds | {"start": 0.01}) is None
    assert smallest(lambda x: 2.5, 2.0, **bounds) == 1e-9  # by resting, whatever the radius


def test_by_sensitivity_a_radius_has_no_largest_value(tiny_bert, items):
    """A regressor's may be large: it has the scale of its answers."""
    model = tiny_bert(labels=1)
    set_sensitivity(model.bert, 1000 * torch.eye(32).repeat(4, 1, 1))
    how = {"selector": "cluster", "metric": "sensitivity"}
    found = solve_adaptive(model, 1.8, items, settings=how, relative=False, steps=32)
    assert found.schedule.radius > 1
    assert 1.8 <= found.ideal < 2.0
    with pytest.raises(PyramidError, match="near must be a number above 0, got 0"):
        solve_adaptive(model, 1.8, items, settings=how, relative=False, near=0)
