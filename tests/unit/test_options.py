"""Which runtime, precision and pyramid is taken, of measured ones."""

import argparse
import math
from types import SimpleNamespace

import pytest

from pyramid_bert import PyramidConfig, Schedule
from pyramid_bert.cli.fronts import doubt
from pyramid_bert.cli.options import add_pyramid_options, pyramid_settings_from
from pyramid_bert.errors import OutOfReachError
from pyramid_bert.tune.options import Option, choose, pareto_front, pyramids_needed, searches

PYRAMID = PyramidConfig(schedule=Schedule.exponential(0.25, 2))


def option(over_c, agreement, accuracy=None, precision="fp32", settings=None, low=None):
    interval = (agreement - 0.03 if low is None else low, 1.0)
    metrics = None if accuracy is None else {"accuracy": accuracy}
    return Option("openvino", precision, settings, over_c, over_c / 2, agreement, interval, metrics)


def test_of_what_is_fast_enough_the_nearest_is_taken():
    slow, near, fast = option(2.99, 1.0), option(3.0, 0.95), option(9.0, 0.9)
    assert choose([slow, fast, near], 3) is near
    assert choose([slow, fast, near], 3.01) is fast
    assert choose([slow, fast, near], 2) is slow


def test_the_faster_of_two_that_agree_equally_is_taken():
    slower, faster = option(3.0, 0.95), option(3.5, 0.95)
    assert choose([slower, faster], 2) is choose([faster, slower], 2) is faster


def test_the_metric_decides_within_the_interval_of_the_nearest():
    near, within, beyond = option(3, 0.97, 0.90), option(3, 0.95, 0.92), option(3, 0.93, 0.99)
    every = [beyond, within, near]
    assert choose(every, 2) is near
    assert choose(every, 2, "accuracy") is within
    assert choose([near, option(3, 0.95, math.nan)], 2, "accuracy") is near


def test_out_of_reach_names_the_fastest():
    with pytest.raises(OutOfReachError, match=r"6x as fast.*4\.20x: openvino int8, coreset.*agreement 91\.0; ask for"):
        choose([option(1.0, 1.0), option(4.2, 0.91, precision="int8", settings=PYRAMID)], 6)


def test_the_front_is_what_nothing_beats_in_both():
    best, equal, beaten, fast = option(2, 0.98), option(2, 0.98), option(1.9, 0.97), option(3, 0.9)
    front = pareto_front([fast, beaten, best, equal])
    assert [(one.over_c, one.agreement) for one in front] == [(2, 0.98), (3, 0.9)]
    assert front[0] is best


@pytest.mark.parametrize(
    ("dense", "wanted", "needed"),
    [
        ({"fp32": (2.0, 1.0), "bf16": (3.0, 0.96)}, 6, {"fp32": 3.0, "bf16": 2.0}),
        ({"fp32": (2.0, 1.0), "bf16": (3.0, 0.98)}, 6, {"bf16": 2.0}),  # agrees as much, within the interval
        ({"fp32": (2.0, 1.0), "bf16": (3.0, 1.0)}, 6, {"bf16": 2.0}),  # much faster, and agrees as much
        ({"fp32": (2.0, 1.0), "bf16": (2.4, 1.0)}, 6, {"fp32": 3.0, "bf16": 2.5}),  # a little faster only
        ({"fp32": (2.0, 1.0), "int8": (7.0, 0.9)}, 6, {"fp32": 3.0}),  # fast enough, but agrees less
        ({"fp32": (5.9, 1.0), "int8": (6.0, 1.0)}, 6, {}),
        ({"fp32": (6.5, 1.0), "int8": (2.0, 0.9)}, 6, {}),  # nothing is nearer than what is the same
    ],
)
def test_where_a_pyramid_is_worth_a_search(dense, wanted, needed):
    options = [option(*measured, precision=precision) for precision, measured in dense.items()]
    found = pyramids_needed(options, wanted)
    assert {precision: need for (_, precision), need in found.items()} == pytest.approx(needed)


def test_searches_are_shared_and_stay_within_what_can_be_reached():
    needed = {("torch", "fp32"): 4.0, ("openvino", "fp32"): 2.0, ("openvino", "bf16"): 1.95, ("openvino", "int8"): 1.2}
    found = searches(needed, margin=1.1, most=6.0)
    assert list(found) == pytest.approx([1.32, 2.2, 4.4])
    assert found[list(found)[1]] == [("openvino", "fp32"), ("openvino", "bf16")]
    assert list(searches(needed, margin=1.1, most=4.2)) == pytest.approx([1.32, 2.2, 4.2])
    assert list(searches(needed, margin=1.1, most=4.0)) == pytest.approx([1.32, 2.2])
    assert searches({}, margin=1.1, most=4.0) == {}


def test_a_word_is_said_if_what_is_fast_enough_gives_other_answers():
    near, nearer, lost = option(6.8, 0.97), option(5.6, 0.99), option(8.6, 0.55)
    search = SimpleNamespace(front=[nearer, near, lost], chosen=lost, wanted=8.0)
    assert "8x as fast has an agreement of only 55.0" in doubt(search)
    assert "the fastest with 90 or more is 6.80x" in doubt(search)
    assert doubt(SimpleNamespace(front=[nearer, near], chosen=near, wanted=6.0)) is None
    assert doubt(SimpleNamespace(front=[lost], chosen=lost, wanted=8.0)) is None


def test_what_is_protected_comes_from_one_option():
    parser = argparse.ArgumentParser()
    add_pyramid_options(parser)
    assert pyramid_settings_from(parser.parse_args(["--protect", "query,separators"])) == {
        "protect": ("query", "separators")
    }
    assert pyramid_settings_from(parser.parse_args([])) == {}
