"""How a search spends its time, with judges that know the best candidate and a simulated clock."""

from dataclasses import replace

import pytest
import torch

from pyramid_bert import PyramidConfig, Schedule
from pyramid_bert.tune import strategy
from pyramid_bert.tune.candidates import Method, following
from pyramid_bert.tune.judge import Trial, winner
from pyramid_bert.tune.strategy import Deadline, halve, walk

# ---- successive halving ----

POOL = [PyramidConfig(schedule=Schedule.constant(0.5), seed=seed) for seed in range(40)]


@pytest.fixture
def clock(monkeypatch):
    """A clock that judges move on; one second a row."""
    now = [0.0]
    monkeypatch.setattr(strategy.time, "monotonic", lambda: now[0])
    return now


class SeedJudge:
    """Finds a candidate the nearer to the dense model the larger its seed."""

    def __init__(self, clock):
        self.clock, self.trials = clock, {}

    def __call__(self, settings, rows):
        before = self.trials[settings].rows if settings in self.trials else 0
        self.clock[0] += rows - before
        self.trials[settings] = Trial(settings, rows, torch.full((rows,), 1 / (1 + settings.seed)), None)
        return self.trials[settings]


@pytest.mark.parametrize(("seconds", "short"), [(1e6, False), (1800, True)])
def test_a_short_search_tries_fewer_and_both_judge_the_last_on_all_rows(clock, seconds, short):
    judge, deadline = SeedJudge(clock), Deadline(seconds)
    last = halve(judge, POOL, 256, deadline)
    assert {trial.rows for trial in last} == {256}
    assert winner(last).settings == max(judge.trials, key=lambda settings: settings.seed)
    assert deadline.was_short == short
    assert 1 < len(judge.trials) <= len(POOL)
    assert (len(judge.trials) < len(POOL)) == short
    assert clock[0] < seconds, "a part is left for what comes after"


def trial(seed, divergences, metric):
    return Trial(POOL[seed], len(divergences), torch.tensor(divergences), metric)


def test_the_metric_chooses_among_those_that_cannot_be_told_from_the_nearest():
    nearest = trial(0, [0.0, 0.1, 0.0, 0.1], 0.90)
    near = trial(1, [0.1, 0.0, 0.2, 0.0], 0.92)  # farther by 0.025 on average, standard error 0.06
    far = trial(2, [0.1, 0.2, 0.1, 0.2], 0.95)  # farther by 0.1, in every row
    assert winner([far, near, nearest]) is near
    assert winner([far, nearest]) is nearest
    assert winner([trial(1, [0.1, 0.0, 0.2, 0.0], 0.90), nearest]) is nearest, "a tie"
    not_a_number = trial(0, [0.0, 0.1, 0.0, 0.1], float("nan"))
    assert winner([not_a_number, near]) is near, "the correlation of constant outputs is the worst"
    assert winner([trial(1, [0.1], None), trial(0, [0.05], None)]).settings == POOL[0]


# ---- the walk ----

LAYERS, ROWS = 12, 40
PLACES = (3, 5, 8, 12, None)
START = Method("cluster", metric="cosine", rest_from=11)
AWAY = {"within": PLACES.index, "rest_from": lambda layer: layer or LAYERS}


def fixed(method, first, last):
    return method.settings(Schedule.exponential(0.3, last, first_layer=first))


class StepJudge:
    """Every step away from the best candidate is a divergence of 1; notes each candidate and number of rows."""

    def __init__(self, best):
        self.best, self.asked = best, []

    def __call__(self, settings, rows):
        shape, best = settings.schedule, self.best.schedule
        steps = sum(abs(at(getattr(settings, name)) - at(getattr(self.best, name))) for name, at in AWAY.items())
        steps += abs(shape.first_layer - best.first_layer)
        if best.is_adaptive:
            steps += abs(round(10 * (shape.growth - best.growth)))
        else:
            steps += abs(shape.last_layer - best.last_layer)
        self.asked.append((settings, rows))
        return Trial(settings, rows, torch.full((rows,), float(steps)), metric=None)


BEST = Method("cluster", metric="cosine", within=8, rest_from=10)
FIXED = fixed(BEST, 2, 6)
FOLLOWING = BEST.settings(replace(following(FIXED, LAYERS).schedule, growth=1.3))


def solve(candidate, near):
    strength = {"radius": 0.5 if near is None else near} if candidate.schedule.is_adaptive else {"keep_ratio": 0.3}
    return candidate.replace(schedule=replace(candidate.schedule, **strength))


def walked(best=FOLLOWING, solve=solve, seconds=60.0):
    judge, start = StepJudge(best), fixed(START, 1, 9)
    start = following(start, LAYERS) if best.schedule.is_adaptive else start
    known = None if best.schedule.is_adaptive else judge(start, ROWS)
    judge.asked.clear()
    trials = walk(judge, start, known, solve, layers=LAYERS, rows=ROWS, deadline=Deadline(seconds))
    return judge, trials


@pytest.mark.parametrize("best", [FIXED, FOLLOWING], ids=["fixed", "following"])
def test_it_finds_what_is_several_steps_away(best):
    judge, trials = walked(best)
    nearest = min(trials, key=lambda trial: trial.divergence)
    assert nearest.divergence == 0
    assert Method.of(nearest.settings) == BEST
    assert all(trial.rows == ROWS for trial in trials)
    on_all = [settings for settings, rows in judge.asked if rows == ROWS]
    on_few = [settings for settings, rows in judge.asked if rows == ROWS // 4]
    assert len(on_all) == len(set(on_all)) == len(trials), "no candidate is tried twice"
    assert len(on_few) == len(set(on_few)) > len(on_all), "the farther ones on few rows only"
    assert {rows for _, rows in judge.asked} == {ROWS, ROWS // 4}


def test_a_radius_is_looked_for_where_the_last_was_found():
    given = []

    def noted(candidate, near):
        given.append(near)
        return solve(candidate, 0.25)

    walked(solve=noted)
    assert given[0] is None
    assert set(given[1:]) == {0.25}


def test_what_is_not_fast_enough_is_passed_over():
    first = []

    def not_the_first(candidate, near):
        first.append(candidate)
        return None if candidate == first[0] else solve(candidate, near)

    for some, least in (
        (lambda candidate, near: None if candidate.rest_from == 10 else solve(candidate, near), 1),
        (not_the_first, 0),
    ):
        assert min(trial.divergence for trial in walked(solve=some)[1]) == least
    assert walked(solve=lambda candidate, near: None)[1] == []


def test_without_time_nothing_is_tried():
    judge, trials = walked(seconds=0.0)
    assert trials == judge.asked == []


def test_scales():
    for metric in ("euclidean", "cosine"):
        schedule = following(fixed(Method("cluster", metric=metric), 1, 2), 6).schedule
        assert schedule.relative == (metric == "euclidean")
        assert schedule.last_layer == 5
    assert not Method("attention").may_follow
