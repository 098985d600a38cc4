"""The walk over lengths that follow the text, with a judge that knows the best way beforehand."""

import torch

from pyramid_bert import Schedule
from pyramid_bert.tune.candidates import Method
from pyramid_bert.tune.deadline import Budget
from pyramid_bert.tune.halving import Trial
from pyramid_bert.tune.walk import Following, follow_texts

LAYERS, ROWS = 12, 40
BEST = Following(Method("cluster", metric="cosine", within=8, rest_from=10), first_layer=2, growth=1.3)


class FakeJudge:
    """Every step away from the best way is a divergence of 1; notes who was asked about how many rows."""

    def __init__(self, early=1.0):
        self.asked, self.early = [], early

    def __call__(self, settings, rows):
        shape = settings.schedule.to_dict()
        places = (3, 5, 8, 12, None)
        steps = abs(round(10 * (shape.get("growth", 1.0) - BEST.growth)))
        steps += abs(places.index(settings.within) - places.index(BEST.method.within))
        steps += abs((settings.rest_from or LAYERS) - BEST.method.rest_from)
        steps += abs(shape["first_layer"] - BEST.first_layer)
        self.asked.append((settings, rows))
        return Trial(settings, rows, torch.full((rows,), float(steps)) * self.early, metric=None)


def fixed(method):
    """The trial that a walk begins with."""
    return Trial(method.settings(Schedule.exponential(0.3, 9)), ROWS, torch.full((ROWS,), 9.0), metric=None)


def solve(way, near):
    return way.method.settings(Schedule.adaptive(0.5 if near is None else near, **way.shape(LAYERS)))


def walked(judge, method, solve=solve, seconds=60.0):
    return follow_texts(judge, fixed(method), LAYERS, solve, Budget(seconds), lambda: None)


def test_it_finds_what_is_several_steps_away():
    judge = FakeJudge()
    trials = walked(judge, Method("cluster", metric="cosine", rest_from=11))
    nearest = min(trials, key=lambda trial: trial.divergence)
    assert nearest.divergence == 0
    assert Method.of(nearest.settings) == BEST.method
    assert nearest.settings.schedule.to_dict()["growth"] == BEST.growth
    assert all(trial.rows == ROWS for trial in trials)


def test_nobody_is_tried_twice_and_the_farther_on_few_rows_alone():
    judge = FakeJudge()
    trials = walked(judge, Method("cluster", metric="cosine", rest_from=11))
    on_all = [settings for settings, rows in judge.asked if rows == ROWS]
    on_few = [settings for settings, rows in judge.asked if rows == ROWS // 4]
    assert len(on_all) == len(set(on_all)) == len(trials)
    assert len(on_few) == len(set(on_few)) > len(on_all)
    assert {rows for _, rows in judge.asked} == {ROWS, ROWS // 4}


def test_a_radius_is_looked_for_where_the_last_was_found():
    given = []

    def noted(way, near):
        given.append(near)
        return way.method.settings(Schedule.adaptive(0.25, **way.shape(LAYERS)))

    walked(FakeJudge(), Method("cluster", metric="cosine", rest_from=11), noted)
    assert given[0] is None
    assert set(given[1:]) == {0.25}


def test_where_no_radius_is_fast_enough_it_goes_round():
    def unless_resting_from_10(way, near):
        return None if way.method.rest_from == 10 else solve(way, near)

    trials = walked(FakeJudge(), Method("cluster", metric="cosine", rest_from=11), unless_resting_from_10)
    assert min(trial.divergence for trial in trials) == 1


def test_where_the_first_way_is_not_fast_enough_its_neighbours_are_tried():
    first = []

    def not_the_first(way, near):
        first.append(way)
        return None if way == first[0] else solve(way, near)

    trials = walked(FakeJudge(), Method("cluster", metric="cosine", rest_from=11), not_the_first)
    assert min(trial.divergence for trial in trials) == 0
    assert walked(FakeJudge(), Method("cluster", metric="cosine"), lambda way, near: None) == []


def test_without_time_nothing_is_tried():
    judge = FakeJudge()
    assert walked(judge, Method("cluster", metric="cosine"), seconds=0.0) == []
    assert judge.asked == []


def test_selectors_that_do_not_go_by_distance_have_no_such_lengths():
    assert walked(FakeJudge(), Method("attention")) == []


def test_scales():
    shapes = {name: Following(Method("cluster", metric=name), 1).shape(6) for name in ("euclidean", "cosine")}
    assert shapes["euclidean"]["relative"] is True
    assert shapes["cosine"]["relative"] is False
    assert shapes["cosine"]["last_layer"] == 5
