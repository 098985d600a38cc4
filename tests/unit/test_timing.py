"""The clock and what is computed from it; no timing is asserted."""

import pytest

from pyramid_bert.bench.timing import Timing, time_interleaved
from pyramid_bert.errors import PyramidError


def test_runs_take_turns_and_warm_up_does_not_count():
    calls, told = [], []
    runs = {"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}
    timing = time_interleaved(runs, rounds=3, warmup=2, after_each=lambda: told.append(1))
    assert calls == ["a", "b"] * 5
    assert len(told) == 10
    assert {name: len(seconds) for name, seconds in timing.seconds.items()} == {"a": 3, "b": 3}


def test_speedup_is_the_median_of_the_ratios_of_each_round():
    timing = Timing({"a": [2.0, 20.0, 3.0], "b": [1.0, 10.0, 1.0]})  # the second round was slow for both
    assert timing.speedup("b", over="a") == 2.0
    assert timing.median("a") == 3.0


@pytest.mark.parametrize(("rounds", "warmup"), [(0, 1), (1, -1)])
def test_senseless_rounds_are_refused(rounds, warmup):
    with pytest.raises(PyramidError, match="rounds must be at least 1"):
        time_interleaved({}, rounds=rounds, warmup=warmup)
