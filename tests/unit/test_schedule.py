import dataclasses
import json
import re

import pytest

from pyramid_bert.errors import PyramidError, UnknownNameError
from pyramid_bert.schedule.base import Schedule
from pyramid_bert.schedule.paper_table import PAPER_TABLE

ALL_KINDS = [
    Schedule.exponential(0.25, 3),
    Schedule.exponential(0.5, 4, first_layer=2, rounding="floor", min_tokens=7),
    Schedule.constant(0.5),
    Schedule.constant(0.3, first_layer=4, rounding="floor", min_tokens=2),
    Schedule.input_only(0.3),
    Schedule.input_only(0.3, rounding="floor", min_tokens=3),
    Schedule.custom([80, 50, 32, 32]),
    Schedule.custom([80, 50, 32, 32], n=128, min_tokens=4),
    Schedule.random(3),
    Schedule.random(3, rounding="floor", min_tokens=9),
    Schedule.strided(2, at_layers=[1, 3]),
    Schedule.strided(6, at_layers=[4]),
]


def raises_saying(message, error=PyramidError):
    return pytest.raises(error, match=f"^{re.escape(message)}$")


# ---- worked examples ----


@pytest.mark.parametrize(
    ("schedule", "n", "layers", "expected"),
    [
        (Schedule.exponential(0.25, 3), 128, 6, (81, 51, 32, 32, 32, 32)),
        (Schedule.exponential(0.25, 3, rounding="floor"), 128, 6, (80, 50, 32, 32, 32, 32)),
        (Schedule.exponential(0.25, 6, first_layer=4), 64, 6, (64, 64, 64, 41, 26, 16)),
        (Schedule.exponential(0.25, 2, first_layer=2), 64, 3, (64, 16, 16)),
        (Schedule.exponential(1.0, 2), 17, 3, (17, 17, 17)),
        (Schedule.exponential(0.5, 1), 9, 2, (5, 5)),
        (Schedule.constant(0.5), 10, 3, (5, 5, 5)),
        (Schedule.constant(0.5, first_layer=2), 10, 3, (10, 5, 5)),
        (Schedule.constant(0.34), 10, 2, (4, 4)),
        (Schedule.constant(0.34, rounding="floor"), 10, 2, (3, 3)),
        (Schedule.input_only(0.3), 1000, 2, (300, 300)),
        (Schedule.input_only(0.5, rounding="floor"), 7, 2, (3, 3)),
        (Schedule.custom([80, 50, 32]), 128, 3, (80, 50, 32)),
        (Schedule.custom([80, 50, 32]), 64, 3, (64, 50, 32)),
        (Schedule.custom([80, 50, 32], n=128), 64, 3, (40, 25, 16)),
        (Schedule.custom([80, 50, 32], n=128), 256, 3, (160, 100, 64)),
        (Schedule.custom([80, 50, 32], n=128), 10, 3, (7, 4, 3)),  # 6.25, 3.9, 2.5, rounded up
        (Schedule.strided(2, at_layers=[1, 3]), 129, 4, (65, 65, 33, 33)),
        (Schedule.strided(3, at_layers=[2]), 12, 3, (12, 5, 5)),  # CLS and ⌈11 / 3⌉ windows
        (Schedule.strided(2, at_layers=[3, 1]), 9, 3, (5, 5, 3)),
    ],
)
def test_worked_example(schedule, n, layers, expected):
    assert schedule.lengths(n, layers) == expected


@pytest.mark.parametrize("schedule", ALL_KINDS)
def test_one_token_is_always_kept(schedule):
    assert schedule.lengths(1, layers=4) == (1, 1, 1, 1)


def test_lengths_are_a_tuple_of_plain_ints():
    lengths = Schedule.exponential(0.3, 2).lengths(50, 4)
    assert type(lengths) is tuple
    assert [type(length) for length in lengths] == [int] * 4


# ---- rounding and its float guard ----


@pytest.mark.parametrize("rounding", ["ceil", "floor"])
@pytest.mark.parametrize(
    ("n", "keep_ratio", "exact"), [(90, 0.7, 63), (100, 0.07, 7), (100, 0.29, 29), (1000, 0.3, 300)]
)
def test_a_float_error_neither_costs_nor_adds_a_token(rounding, n, keep_ratio, exact):
    assert Schedule.constant(keep_ratio, rounding=rounding).lengths(n, 1) == (exact,)


def test_the_guard_is_needed():
    assert 90 * 0.7 < 63
    assert 100 * 0.07 > 7


@pytest.mark.parametrize("rounding", ["ceil", "floor"])
def test_whole_powers_are_exact_on_the_way_down(rounding):
    # 64 -> 32 -> 16 -> 8, a factor of one half a layer.
    assert Schedule.exponential(0.125, 3, rounding=rounding).lengths(64, 3) == (32, 16, 8)


# ---- min_tokens ----


@pytest.mark.parametrize(
    ("schedule", "n", "expected"),
    [
        (Schedule.exponential(0.1, 2, min_tokens=20), 100, (32, 20, 20)),
        (Schedule.exponential(0.1, 2, min_tokens=20), 25, (20, 20, 20)),
        (Schedule.exponential(0.1, 2, min_tokens=20), 12, (12, 12, 12)),
        (Schedule.constant(0.1, min_tokens=20), 12, (12, 12, 12)),
        (Schedule.input_only(0.1, min_tokens=4), 20, (4, 4, 4)),
        (Schedule.custom([9, 5, 2], min_tokens=4), 20, (9, 5, 4)),
    ],
)
def test_short_inputs_keep_min_tokens_or_what_they_have(schedule, n, expected):
    assert schedule.lengths(n, 3) == expected


# ---- random ----


def test_random_is_the_same_for_the_same_seed_and_different_for_another():
    first = Schedule.random(0).lengths(128, 12)
    assert Schedule.random(0).lengths(128, 12) == first
    assert Schedule.random(1).lengths(128, 12) != first


def test_random_gives_the_same_shares_at_every_length():
    short, long = Schedule.random(5).lengths(100, 12), Schedule.random(5).lengths(10_000, 12)
    assert all(abs(100 * a - b) <= 100 for a, b in zip(short, long, strict=True))


def test_random_falls_through_the_layers():
    lengths = Schedule.random(0).lengths(1000, 12)
    assert list(lengths) == sorted(lengths, reverse=True)
    assert len(set(lengths)) == 12


# ---- as data ----


@pytest.mark.parametrize("schedule", ALL_KINDS)
def test_round_trip_through_json(schedule):
    data = json.loads(json.dumps(schedule.to_dict()))
    again = Schedule.from_dict(data)
    assert again == schedule
    assert type(again) is type(schedule)
    assert again.to_dict() == data


def test_the_dict_names_the_kind_and_every_field():
    assert Schedule.exponential(0.25, 3).to_dict() == {
        "kind": "exponential",
        "rounding": "ceil",
        "min_tokens": 1,
        "keep_ratio": 0.25,
        "last_layer": 3,
        "first_layer": 1,
    }


def test_from_dict_leaves_its_argument_alone():
    data = Schedule.constant(0.5).to_dict()
    Schedule.from_dict(data)
    assert data["kind"] == "constant"


def test_fields_may_be_left_to_their_defaults():
    assert Schedule.from_dict({"kind": "constant", "keep_ratio": 0.5}) == Schedule.constant(0.5)


def test_schedules_are_values():
    assert Schedule.constant(0.5) == Schedule.constant(0.5)
    assert Schedule.constant(0.5) != Schedule.constant(0.6)
    assert Schedule.constant(0.5) != Schedule.input_only(0.5)
    assert len({Schedule.constant(0.5), Schedule.constant(0.5), Schedule.input_only(0.5)}) == 2
    with pytest.raises(dataclasses.FrozenInstanceError):
        Schedule.constant(0.5).min_tokens = 3


def test_only_input_only_selects_at_the_input():
    assert [schedule.kind for schedule in ALL_KINDS if schedule.selects_at_input] == ["input_only"] * 2


def test_the_paper_table_is_in_reach():
    assert len(PAPER_TABLE) == 30


# ---- errors: the value given, what is allowed, what to do ----


@pytest.mark.parametrize("ratio", [0, 0.0, -0.1, 1.5, 2, True, "0.5", None, float("nan")])
@pytest.mark.parametrize("make", [lambda p: Schedule.exponential(p, 2), Schedule.constant, Schedule.input_only])
def test_keep_ratio_out_of_range(make, ratio):
    with raises_saying(f"keep_ratio must be in (0, 1], got {ratio!r}; the paper uses 0.1-0.75"):
        make(ratio)


@pytest.mark.parametrize("value", [0, -1, 1.0, True, "2"])
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("last_layer", lambda v: Schedule.exponential(0.5, v)),
        ("first_layer", lambda v: Schedule.exponential(0.5, 3, first_layer=v)),
        ("first_layer", lambda v: Schedule.constant(0.5, first_layer=v)),
    ],
)
def test_layers_are_counted_from_one(name, make, value):
    with raises_saying(f"{name} must be an integer of at least 1, got {value!r}; layers are counted from 1"):
        make(value)


@pytest.mark.parametrize("value", [0, -3, 2.0, True])
@pytest.mark.parametrize(
    "make",
    [
        lambda v: Schedule.exponential(0.5, 2, min_tokens=v),
        lambda v: Schedule.constant(0.5, min_tokens=v),
        lambda v: Schedule.input_only(0.5, min_tokens=v),
        lambda v: Schedule.custom([3], min_tokens=v),
        lambda v: Schedule.random(0, min_tokens=v),
    ],
)
def test_min_tokens_is_at_least_one(make, value):
    message = f"min_tokens must be an integer of at least 1, got {value!r}; how many tokens short inputs keep at least"
    with raises_saying(message):
        make(value)


def test_first_layer_must_not_come_after_last_layer():
    with raises_saying(
        "first_layer must be at most last_layer=3, got 4; tokens are dropped from first_layer to last_layer"
    ):
        Schedule.exponential(0.5, 3, first_layer=4)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Schedule.exponential(0.5, 2, rounding="cell"),
        lambda: Schedule.constant(0.5, rounding="cell"),
        lambda: Schedule.input_only(0.5, rounding="cell"),
        lambda: Schedule.random(0, rounding="cell"),
    ],
)
def test_unknown_rounding(make):
    with raises_saying("unknown rounding 'cell'; did you mean 'ceil'? Known: ceil, floor", UnknownNameError):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Schedule.custom([]), "a custom schedule needs one length a layer, got an empty list"),
        (
            lambda: Schedule.custom([3, 0]),
            "each custom length must be an integer of at least 1, got 0; CLS is always kept",
        ),
        (
            lambda: Schedule.custom([3, 2.5]),
            "each custom length must be an integer of at least 1, got 2.5; CLS is always kept",
        ),
        (lambda: Schedule.custom([3, 4]), "custom lengths must not grow from layer to layer, got [3, 4]"),
        (
            lambda: Schedule.custom([8, 4], n=7),
            "n must be an integer of at least 8, got 7; lengths must not exceed the input's",
        ),
        (
            lambda: Schedule.strided(1, [1]),
            "window must be an integer of at least 2, got 1; the paper pools windows of 2 to 6 tokens",
        ),
        (lambda: Schedule.strided(2, []), "at_layers needs at least one layer and no layer twice, got []"),
        (
            lambda: Schedule.strided(2, [3, 1, 3]),
            "at_layers needs at least one layer and no layer twice, got [1, 3, 3]",
        ),
        (
            lambda: Schedule.strided(2, [0, 2]),
            "each of at_layers must be an integer of at least 1, got 0; layers are counted from 1",
        ),
        (Schedule, "Schedule is abstract; use Schedule.exponential(...) or another constructor"),
    ],
)
def test_what_custom_and_strided_refuse(make, message):
    with raises_saying(message):
        make()


@pytest.mark.parametrize(
    ("schedule", "layers", "message"),
    [
        (Schedule.exponential(0.5, 5), 4, "last_layer must be in 1-4, got 5; the model has 4 layers"),
        (Schedule.constant(0.5, first_layer=5), 4, "first_layer must be in 1-4, got 5; the model has 4 layers"),
        (Schedule.strided(2, [1, 5]), 4, "at_layers must be in 1-4, got 5; the model has 4 layers"),
        (
            Schedule.custom([8, 4]),
            3,
            "the model has 3 layers and the custom schedule 2 lengths: [8, 4]; give one length a layer",
        ),
        (
            Schedule.constant(0.5),
            0,
            "layers must be an integer of at least 1, got 0; the number of encoder layers of the model",
        ),
    ],
)
def test_a_schedule_that_does_not_fit_the_model(schedule, layers, message):
    with raises_saying(message):
        schedule.check(layers)
    with raises_saying(message):
        schedule.lengths(16, layers)


@pytest.mark.parametrize("schedule", ALL_KINDS)
def test_check_accepts_a_model_that_fits(schedule):
    assert schedule.check(4) is None


@pytest.mark.parametrize("n", [0, -1, 8.0, True])
def test_an_input_has_at_least_one_token(n):
    with raises_saying(f"n must be an integer of at least 1, got {n!r}; an input has at least its CLS token"):
        Schedule.constant(0.5).lengths(n, 2)


def test_from_dict_with_an_unknown_kind():
    with raises_saying(
        "unknown schedule kind 'exponental'; did you mean 'exponential'? "
        "Known: adaptive, constant, custom, exponential, input_only, random, strided",
        UnknownNameError,
    ):
        Schedule.from_dict({"kind": "exponental", "keep_ratio": 0.5})


def test_from_dict_without_a_kind():
    with pytest.raises(UnknownNameError, match=r"^unknown schedule kind None; "):
        Schedule.from_dict({"keep_ratio": 0.5})


def test_from_dict_with_a_field_too_many():
    with raises_saying(
        "a schedule of kind 'constant' has no last_layer, ratio; "
        "it has ['first_layer', 'keep_ratio', 'min_tokens', 'rounding']"
    ):
        Schedule.from_dict({"kind": "constant", "keep_ratio": 0.5, "ratio": 0.5, "last_layer": 3})


@pytest.mark.parametrize(
    ("kind", "missing"),
    [("exponential", "last_layer"), ("constant", "keep_ratio"), ("custom", "layer_lengths"), ("random", "seed")],
)
def test_from_dict_with_a_field_too_few_names_it(kind, missing):
    given = {schedule.kind: schedule.to_dict() for schedule in ALL_KINDS}[kind]
    del given[missing]
    with pytest.raises(PyramidError, match=missing):
        Schedule.from_dict(given)


def test_pooling_has_no_min_tokens():
    data = {**Schedule.strided(2, [1]).to_dict(), "min_tokens": 5}
    with raises_saying("pooling takes whole windows: min_tokens must be 1, got 5"):
        Schedule.from_dict(data)


def test_from_dict_checks_values():
    with raises_saying("keep_ratio must be in (0, 1], got 3; the paper uses 0.1-0.75"):
        Schedule.from_dict({"kind": "constant", "keep_ratio": 3})


@pytest.mark.parametrize("seed", [None, 0.5, "0"])
def test_random_takes_whole_seeds_only(seed):
    # None in particular would draw new shares in every process.
    with pytest.raises(PyramidError, match=f"seed must be an integer.*got {seed!r}"):
        Schedule.random(seed)


@pytest.mark.parametrize("n", ["16", 16.5])
def test_the_reference_length_is_a_whole_number(n):
    with pytest.raises(PyramidError, match=f"n must be an integer.*got {n!r}"):
        Schedule.custom([8, 4], n=n)
