import re

import pytest

from pyramid_bert.cost import PLACEMENTS, Cost, attention_space, space_reduction, tokens_seen
from pyramid_bert.errors import PyramidError


def test_costs_by_hand():
    # n = 3, d = 2, f = 8: projections 4nd² = 48, scores and mixing 2n²d = 36, feed-forward 2ndf = 96.
    assert Cost.of((3,), n=3, hidden_size=2) == Cost(macs=180, dense_macs=180)
    assert Cost.of((3,), n=3, hidden_size=2, intermediate_size=5) == Cost(macs=48 + 36 + 60, dense_macs=48 + 36 + 60)
    # Layer 1: attention of 4 tokens 64 + 64, feed-forward of 2 tokens 64. Layer 2: 32 + 16, feed-forward of 1: 32.
    cost = Cost.of((2, 1), n=4, hidden_size=2)
    assert cost.macs == (64 + 64 + 64) + (32 + 16 + 32)
    assert cost.dense_macs == 2 * (64 + 64 + 128)
    assert cost.ideal_speedup == 512 / 272


def test_cls_only_computes_one_query_and_one_output_in_the_last_layer():
    # Layer 2 of two tokens: query and output of CLS 2d², key and value of both 4d², 2 · 1 · 2 · d, feed-forward of CLS.
    whole = Cost.of((2, 2), n=4, hidden_size=2)
    only = Cost.of((2, 2), n=4, hidden_size=2, cls_layers=1)
    assert whole.macs == (64 + 64 + 64) + (32 + 16 + 64)
    assert only.macs == (64 + 64 + 64) + (8 + 16 + 8 + 32)
    assert only.dense_macs == whole.dense_macs


@pytest.mark.parametrize(
    ("placement", "attention", "feed_forward"),
    [
        ("middle", [16, 8, 4], [8, 4, 4]),
        ("end", [16, 8, 4], [16, 8, 4]),
        ("input", [8, 4, 4], [8, 4, 4]),
    ],
)
def test_tokens_seen(placement, attention, feed_forward):
    found = tokens_seen((8, 4, 4), 16, placement)
    assert found == (attention, feed_forward)
    assert found[0] is not found[1]


def test_later_reduction_costs_more_and_keeping_everything_saves_nothing():
    costs = {placement: Cost.of((8, 4, 4), 16, 32, placement=placement).macs for placement in PLACEMENTS}
    assert costs["input"] < costs["middle"] < costs["end"] < Cost.of((8, 4, 4), 16, 32).dense_macs
    assert {Cost.of((16,) * 3, 16, 32, placement=placement).ideal_speedup for placement in PLACEMENTS} == {1}


@pytest.mark.parametrize(("reading", "kept"), [("printed", (16 + 40) + (4 + 20)), ("attention_input", 144 + 56)])
def test_space_by_hand(reading, kept):
    # l² + l·d of lengths 4, 2 or of what attention holds, 8, 4, with d = 10.
    assert attention_space((4, 2), 8, 10, reading=reading) == kept
    assert space_reduction((4, 2), 8, 10, reading=reading) == pytest.approx(1 - kept / 288, abs=1e-12)
    assert space_reduction((8, 8), 8, 10, reading=reading) == 0
    assert attention_space((4, 2), 8, 10) == 144 + 56  # the default


LENGTHS = "lengths must not be empty nor exceed n=8, got {}"
SIZES = "sizes must be at least 1, got hidden_size=32, intermediate_size=128, heads={}"
READING = "unknown space reading 'print'; did you mean 'printed'"
REFUSED = [
    (lambda: tokens_seen((), 8), LENGTHS.format([])),
    (lambda: tokens_seen((9, 4), 8), LENGTHS.format([9, 4])),
    (lambda: Cost.of((), 8, 32), LENGTHS.format([])),
    (lambda: Cost.of((9, 4), 8, 32), LENGTHS.format([9, 4])),
    (lambda: Cost.of((4,), 8, 32, cls_layers=1, heads=0), SIZES.format(0)),
    (lambda: Cost.of((4,), 8, 32, cls_layers=1, heads=-5), SIZES.format(-5)),
    (lambda: tokens_seen((4,), 8, "midle"), "unknown placement 'midle'; did you mean 'middle'? Known: end, inp"),
    (lambda: attention_space((4,), 8, 10, reading="print"), READING),
    (lambda: space_reduction((4,), 8, 10, reading="print"), READING),
]


@pytest.mark.parametrize(("ask", "message"), REFUSED)
def test_what_is_refused(ask, message):
    with pytest.raises(PyramidError, match=f"^{re.escape(message)}"):
        ask()
