"""The schedules and their cost against the figures that the paper prints and implies (BERT-base, N = 128)."""

import pytest

from pyramid_bert.cost import Cost, space_reduction
from pyramid_bert.schedule.base import Schedule
from pyramid_bert.schedule.paper_table import PAPER_TABLE

N, LAYERS, HIDDEN = 128, 12, 768

# keep_ratio: {last_layer: dense over reduced multiply-accumulates with the printed lengths}
IDEAL_SPEEDUPS = {
    0.75: {11: 1.18, 9: 1.20, 1: 1.33},
    0.50: {11: 1.45, 9: 1.53, 5: 1.72, 3: 1.84, 1: 1.97},
    0.25: {11: 2.00, 9: 2.21, 5: 2.80, 3: 3.23, 2: 3.47, 1: 3.74},
    0.20: {4: 3.54, 3: 3.87},
    0.15: {3: 4.70},
    0.10: {3: 6.33},
}
CASES = [(last, ratio, speedup) for ratio, found in IDEAL_SPEEDUPS.items() for last, speedup in found.items()]


def lengths(last_layer, keep_ratio, rounding):
    return Schedule.exponential(keep_ratio, last_layer, rounding=rounding).lengths(N, LAYERS)


def test_the_table_has_thirty_rows_of_which_29_differ():
    assert len(PAPER_TABLE) == 30
    assert len(set(PAPER_TABLE)) == 29
    assert [(last_layer, ratio) for last_layer, ratio, _ in PAPER_TABLE].count((3, 0.25)) == 2
    assert {len(row) for _, _, row in PAPER_TABLE} == {LAYERS}


@pytest.mark.parametrize(("last_layer", "keep_ratio", "printed"), PAPER_TABLE)
def test_floor_reproduces_the_printed_row(last_layer, keep_ratio, printed):
    assert lengths(last_layer, keep_ratio, "floor") == printed


def test_ceil_matches_four_rows():
    matches = [(i, p) for i, p, printed in PAPER_TABLE if lengths(i, p, "ceil") == printed]
    assert matches == [(1, 0.25), (2, 0.25), (1, 0.50), (1, 0.75)]


@pytest.mark.parametrize(("last_layer", "keep_ratio", "expected"), CASES)
def test_ideal_speedup(last_layer, keep_ratio, expected):
    cost = Cost.of(lengths(last_layer, keep_ratio, "floor"), N, HIDDEN)
    assert round(cost.ideal_speedup, 2) == expected


def test_there_are_eighteen_ideal_speedups_and_all_are_of_the_table():
    assert len(CASES) == 18
    assert {case[:2] for case in CASES} <= {(last_layer, ratio) for last_layer, ratio, _ in PAPER_TABLE}


@pytest.mark.parametrize(("reading", "saved"), [("printed", 0.785), ("attention_input", 0.716)])
def test_the_two_readings_of_the_space_formula(reading, saved):
    assert round(space_reduction(lengths(3, 0.20, "floor"), N, HIDDEN, reading=reading), 3) == saved
