"""Intervals of what is measured on held-out rows, against SciPy and against hand-made arithmetic."""

import numpy as np
import pytest
from scipy import stats

from pyramid_bert.tune.held_out import jackknife, paired, wilson


@pytest.mark.parametrize(("hits", "rows"), [(0, 25), (46, 50), (50, 50), (180, 200)])
def test_wilson(hits, rows):
    expected = stats.binomtest(hits, rows).proportion_ci(0.95, method="wilson")
    assert wilson(hits, rows) == pytest.approx((expected.low, expected.high), abs=1e-4)


def test_a_paired_interval_is_narrower_than_two_of_their_own_and_never_empty():
    low, high = paired(3, 1, 50)
    assert low < -2 / 50 < high
    assert high - low < sum(end[1] - end[0] for end in (wilson(45, 50), wilson(43, 50)))
    assert paired(0, 0, 50)[0] < 0 < paired(0, 0, 50)[1]


def test_the_jackknife_of_a_mean_is_its_standard_error():
    values = np.random.default_rng(0).normal(size=20)
    without = [np.delete(values, i).mean() for i in range(20)]
    half = 1.96 * stats.sem(values)
    assert jackknife(values.mean(), without) == pytest.approx((values.mean() - half, values.mean() + half))
