"""What holds for every schedule, at every input length and depth."""

import json
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyramid_bert.schedule.base import _KINDS, Schedule

RATIOS = st.floats(0.001, 1.0)
ROUNDINGS = st.sampled_from(["ceil", "floor"])
MIN_TOKENS = st.integers(1, 40)
LENGTHS = st.integers(1, 600)
ROUNDED = {"rounding": ROUNDINGS, "min_tokens": MIN_TOKENS}


@st.composite
def custom(draw, layers):
    lengths = sorted(draw(st.lists(st.integers(1, 300), min_size=layers, max_size=layers)), reverse=True)
    n = draw(st.none() | st.integers(lengths[0], 400))
    return Schedule.custom(lengths, n=n, min_tokens=draw(MIN_TOKENS))


@st.composite
def exponential(draw, layers):
    last = draw(st.integers(1, layers))
    first = st.integers(1, last)
    return draw(st.builds(Schedule.exponential, RATIOS, st.just(last), first_layer=first, **ROUNDED))


def layer_lists(layers):
    return st.lists(st.integers(1, layers), min_size=1, max_size=layers, unique=True)


KINDS = {  # layers -> strategy
    "exponential": exponential,
    "constant": lambda layers: st.builds(Schedule.constant, RATIOS, first_layer=st.integers(1, layers), **ROUNDED),
    "input_only": lambda layers: st.builds(Schedule.input_only, RATIOS, **ROUNDED),
    "custom": custom,
    "random": lambda layers: st.builds(Schedule.random, st.integers(0, 10**6), **ROUNDED),
    "strided": lambda layers: st.builds(Schedule.strided, st.integers(2, 6), layer_lists(layers)),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def draw_schedule(kind, data):
    layers = data.draw(st.integers(1, 12), label="layers")
    return data.draw(KINDS[kind](layers), label="schedule"), layers


def test_every_kind_is_tested():
    assert {*KINDS, "adaptive"} == set(_KINDS)  # adaptive schedules have no lengths: see test_adaptive


@every_kind
@given(data=st.data(), n=LENGTHS)
def test_one_length_a_layer_never_growing_never_out_of_range(kind, data, n):
    schedule, layers = draw_schedule(kind, data)
    lengths = schedule.lengths(n, layers)
    assert len(lengths) == layers
    assert all(1 <= length <= n for length in lengths)
    assert list(lengths) == sorted(lengths, reverse=True)
    assert lengths[-1] >= min(n, schedule.min_tokens)


@every_kind
@given(data=st.data(), n=LENGTHS)
def test_round_trip_through_json(kind, data, n):
    schedule, layers = draw_schedule(kind, data)
    again = Schedule.from_dict(json.loads(json.dumps(schedule.to_dict())))
    assert again == schedule
    assert hash(again) == hash(schedule)
    assert again.lengths(n, layers) == schedule.lengths(n, layers)


@pytest.mark.parametrize("kind", ["exponential", "constant", "input_only", "custom", "strided"])
@given(data=st.data(), n=LENGTHS, more=st.integers(1, 50))
def test_a_longer_input_never_keeps_fewer_tokens(kind, data, n, more):
    schedule, layers = draw_schedule(kind, data)
    shorter, longer = schedule.lengths(n, layers), schedule.lengths(n + more, layers)
    assert all(a <= b for a, b in zip(shorter, longer, strict=True))


@given(ratio=RATIOS, more=RATIOS, last=st.integers(1, 12), n=LENGTHS)
def test_a_larger_ratio_never_keeps_fewer_tokens(ratio, more, last, n):
    low, high = sorted([ratio, more])
    lengths = [Schedule.exponential(p, last).lengths(n, 12) for p in (low, high)]
    assert all(a <= b for a, b in zip(*lengths, strict=True))


@given(ratio=RATIOS, last=st.integers(1, 12), n=LENGTHS)
def test_the_two_roundings_differ_by_one_token_at_most(ratio, last, n):
    floor, ceil = (Schedule.exponential(ratio, last, rounding=r).lengths(n, 12) for r in ("floor", "ceil"))
    assert all(0 <= b - a <= 1 for a, b in zip(floor, ceil, strict=True))


@given(ratio=RATIOS, n=LENGTHS, data=st.data())
def test_nothing_is_dropped_before_the_first_layer_nor_after_the_last(ratio, n, data):
    last = data.draw(st.integers(1, 12))
    first = data.draw(st.integers(1, last))
    lengths = Schedule.exponential(ratio, last, first_layer=first).lengths(n, 12)
    assert set(lengths[: first - 1]) <= {n}
    assert len(set(lengths[last - 1 :])) == 1


@given(n=LENGTHS, layers=st.integers(1, 12))
def test_a_ratio_of_one_keeps_everything(n, layers):
    for rounding in ("ceil", "floor"):
        for make in (Schedule.constant, Schedule.input_only, partial(Schedule.exponential, last_layer=layers)):
            assert make(1.0, rounding=rounding).lengths(n, layers) == (n,) * layers
