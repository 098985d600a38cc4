import dataclasses
import re

import pytest

from pyramid_bert.errors import PyramidError
from pyramid_bert.schedule.base import Schedule

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


# ---- rounding and its float guard ----


@pytest.mark.parametrize("rounding", ["ceil", "floor"])
@pytest.mark.parametrize(
    ("n", "keep_ratio", "exact"), [(90, 0.7, 63), (100, 0.07, 7), (100, 0.29, 29), (1000, 0.3, 300)]
)
def test_a_float_error_neither_costs_nor_adds_a_token(rounding, n, keep_ratio, exact):
    assert Schedule.constant(keep_ratio, rounding=rounding).lengths(n, 1) == (exact,)
    assert Schedule.exponential(0.125, 3, rounding=rounding).lengths(64, 3) == (32, 16, 8)  # a factor of one half


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
    assert schedule.lengths(n, len(expected)) == expected


# ---- random ----


def test_random_has_the_same_shares_for_the_same_seed_at_every_length():
    first, long = Schedule.random(0).lengths(100, 12), Schedule.random(0).lengths(10_000, 12)
    assert Schedule.random(0).lengths(100, 12) == first != Schedule.random(1).lengths(100, 12)
    assert all(abs(100 * a - b) <= 100 for a, b in zip(first, long, strict=True))
    assert len(set(long)) == 12


# ---- as data ----


def test_the_dict_names_the_kind_and_every_field():
    expected = {"kind": "exponential", "rounding": "ceil", "min_tokens": 1}
    expected |= {"keep_ratio": 0.25, "last_layer": 3, "first_layer": 1}
    assert Schedule.exponential(0.25, 3).to_dict() == expected
    assert Schedule.from_dict({"kind": "constant", "keep_ratio": 0.5}) == Schedule.constant(0.5)


def test_schedules_are_values():
    made = [Schedule.constant(0.5), Schedule.constant(0.5), Schedule.constant(0.6), Schedule.input_only(0.5)]
    assert len(set(made)) == 3
    with pytest.raises(dataclasses.FrozenInstanceError):
        Schedule.constant(0.5).min_tokens = 3


# ---- errors: the value given, what is allowed, what to do ----

CONSTANT = {"kind": "constant", "keep_ratio": 0.5}
REFUSED = [
    (lambda: Schedule.exponential(0, 2), "keep_ratio must be in (0, 1], got 0; the paper uses 0.1-0.75"),
    (lambda: Schedule.constant(1.5), "keep_ratio must be in (0, 1], got 1.5"),
    (lambda: Schedule.input_only(None), "keep_ratio must be in (0, 1], got None"),
    (lambda: Schedule.exponential(0.5, 0), "last_layer must be an integer of at least 1, got 0; layers are counted"),
    (lambda: Schedule.exponential(0.5, 3, first_layer=1.0), "first_layer must be an integer of at least 1, got 1.0"),
    (lambda: Schedule.exponential(0.5, 3, first_layer=4), "first_layer must be at most last_layer=3, got 4"),
    (lambda: Schedule.constant(0.5, first_layer=-1), "first_layer must be an integer of at least 1, got -1"),
    (lambda: Schedule.random(0, min_tokens=True), "min_tokens must be an integer of at least 1, got True"),
    (lambda: Schedule.constant(0.5, rounding="cell"), "unknown rounding 'cell'; did you mean 'ceil'?"),
    (lambda: Schedule.custom([]), "a custom schedule needs one length per layer, got an empty list"),
    (lambda: Schedule.custom([3, 0]), "each of lengths must be an integer of at least 1, got 0"),
    (lambda: Schedule.custom([3, 2.5]), "each of lengths must be an integer of at least 1, got 2.5"),
    (lambda: Schedule.custom([3, 4]), "custom lengths must not grow from layer to layer, got [3, 4]"),
    (lambda: Schedule.custom([8, 4], n=7), "n must be an integer of at least 8, got 7; lengths must not exceed"),
    (lambda: Schedule.custom([8, 4], n="16"), "n must be an integer of at least 8, got '16'"),
    (lambda: Schedule.strided(1, [1]), "window must be an integer of at least 2, got 1"),
    (lambda: Schedule.strided(2, []), "at_layers needs at least one layer and no layer twice, got []"),
    (lambda: Schedule.strided(2, [3, 1, 3]), "at_layers needs at least one layer and no layer twice, got [1, 3, 3]"),
    (lambda: Schedule.strided(2, [0, 2]), "each of at_layers must be an integer of at least 1, got 0"),
    # None in particular would draw new shares in every process.
    (lambda: Schedule.random(None), "seed must be an integer of at least 0, got None"),
    (Schedule, "Schedule is abstract; use Schedule.exponential(...) or another constructor"),
    (lambda: Schedule.constant(0.5).lengths(0, 2), "n must be an integer in 1-1e+07, got 0"),
    (lambda: Schedule.constant(0.5).lengths(8.0, 2), "n must be an integer in 1-1e+07, got 8.0"),
    (lambda: Schedule.from_dict({**CONSTANT, "kind": "constnt"}), "unknown schedule kind 'constnt'; did you mean 'con"),
    (lambda: Schedule.from_dict({"keep_ratio": 0.5}), "unknown schedule kind None; "),
    (lambda: Schedule.from_dict({**CONSTANT, "last_layer": 3}), "a schedule of kind 'constant' has no last_layer; it"),
    (
        lambda: Schedule.from_dict({"kind": "exponential"}),
        "a schedule of kind 'exponential' needs keep_ratio, last_layer",
    ),
    (lambda: Schedule.from_dict({"kind": "custom"}), "a schedule of kind 'custom' needs layer_lengths; it is damaged"),
    (lambda: Schedule.from_dict({"kind": "random"}), "a schedule of kind 'random' needs seed; it is damaged"),
    (lambda: Schedule.from_dict({**CONSTANT, "keep_ratio": 3}), "keep_ratio must be in (0, 1], got 3"),
    (
        lambda: Schedule.from_dict({**Schedule.strided(2, [1]).to_dict(), "min_tokens": 5}),
        "pooling takes whole windows: min_tokens must be 1, got 5",
    ),
]


@pytest.mark.parametrize(("make", "message"), REFUSED, ids=[message for _, message in REFUSED])
def test_what_is_refused(make, message):
    with pytest.raises(PyramidError, match=f"^{re.escape(message)}"):
        make()


@pytest.mark.parametrize(
    ("schedule", "layers", "message"),
    [
        (Schedule.exponential(0.5, 5), 4, "last_layer must be in 1-4, got 5; the model has 4 layers"),
        (Schedule.constant(0.5, first_layer=5), 4, "first_layer must be in 1-4, got 5; the model has 4 layers"),
        (Schedule.strided(2, [1, 5]), 4, "at_layers must be in 1-4, got 5; the model has 4 layers"),
        (Schedule.custom([8, 4]), 3, "the model has 3 layers and the custom schedule 2 lengths: [8, 4]"),
        (Schedule.constant(0.5), 0, "layers must be an integer in 1-10000, got 0"),
    ],
)
def test_a_schedule_that_does_not_fit_the_model(schedule, layers, message):
    for ask in (lambda: schedule.check(layers), lambda: schedule.lengths(16, layers)):
        with pytest.raises(PyramidError, match=f"^{re.escape(message)}"):
            ask()


@pytest.mark.parametrize("n", [5, 16, 17, 100, 128])
def test_multiples_are_reached_from_below(n):
    plain, rounded = (Schedule.exponential(0.3, 3, first_layer=2, multiple_of=of).lengths(n, 4) for of in (1, 16))
    assert rounded[0] == n  # before the first layer nothing is rounded
    for before, length, whole in zip((n, *rounded), plain, rounded, strict=False):
        assert length <= whole < length + 16
        assert whole % 16 == 0 or whole == before  # or all tokens


def test_multiples_are_written_only_where_they_are():
    plain = Schedule.exponential(0.3, 3)
    assert "multiple_of" not in plain.to_dict()
    rounded = Schedule.exponential(0.3, 3, multiple_of=16)
    assert Schedule.from_dict(rounded.to_dict()) == rounded
    with pytest.raises(PyramidError, match="multiple_of must be an integer of at least 1, got 0"):
        Schedule.exponential(0.3, 3, multiple_of=0)
