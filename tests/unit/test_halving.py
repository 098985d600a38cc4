"""Successive halving within a budget, on a clock of its own."""

import pytest
import torch

from pyramid_bert import PyramidConfig, Schedule
from pyramid_bert.tune import deadline as budget_module
from pyramid_bert.tune.deadline import Budget
from pyramid_bert.tune.halving import Trial, halve, winner

POOL = [PyramidConfig(schedule=Schedule.constant(0.5), seed=seed) for seed in range(40)]


@pytest.fixture
def clock(monkeypatch):
    """A clock that judges move on; one second a row."""
    now = [0.0]
    monkeypatch.setattr(budget_module.time, "monotonic", lambda: now[0])
    return now


class Judge:
    """Finds a candidate the nearer to the dense model the larger its seed."""

    def __init__(self, clock):
        self.clock, self.trials = clock, {}

    def __call__(self, settings, rows):
        before = self.trials[settings].rows if settings in self.trials else 0
        self.clock[0] += rows - before
        self.trials[settings] = Trial(settings, rows, torch.full((rows,), 1 / (1 + settings.seed)), None)
        return self.trials[settings]


def test_with_time_all_are_tried_and_the_best_on_all_rows(clock):
    judge, budget = Judge(clock), Budget(1e6)
    last = halve(judge, POOL, 256, budget, lambda: None)
    assert len(judge.trials) == len(POOL)
    assert {trial.rows for trial in last} == {256}
    assert winner(last).settings == POOL[-1]
    assert not budget.was_short


def test_a_short_search_looks_at_fewer_but_judges_the_last_on_all_rows(clock):
    judge, budget = Judge(clock), Budget(1800)
    last = halve(judge, POOL, 256, budget, lambda: None)
    assert budget.was_short
    assert 1 < len(judge.trials) < len(POOL)
    assert {trial.rows for trial in last} == {256}
    assert winner(last).settings == max(judge.trials, key=lambda settings: settings.seed)
    assert clock[0] < 1800, "a part is left for what comes after"


def trial(seed, divergences, metric):
    return Trial(POOL[seed], len(divergences), torch.tensor(divergences), metric)


def test_the_metric_chooses_among_those_that_cannot_be_told_from_the_nearest():
    nearest = trial(0, [0.0, 0.1, 0.0, 0.1], 0.90)
    near = trial(1, [0.1, 0.0, 0.2, 0.0], 0.92)  # farther by 0.025 on average, standard error 0.06
    far = trial(2, [0.1, 0.2, 0.1, 0.2], 0.95)  # farther by 0.1, in every row
    assert winner([far, near, nearest]) is near
    assert winner([far, nearest]) is nearest
    assert winner([trial(1, [0.1, 0.0, 0.2, 0.0], 0.90), nearest]) is nearest, "a tie"
    assert winner([trial(1, [0.1], None), trial(0, [0.05], None)]).settings == POOL[0]
