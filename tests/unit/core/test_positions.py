"""Positions travel with tokens: every reduction, mask and array library."""

import numpy as np
import pytest
import torch

from pyramid_bert.core.loop import Exactly, Step
from pyramid_bert.core.reducer import Reducer, Space
from pyramid_bert.core.selectors import get_selector
from pyramid_bert.core.tokens import Tokens

KNOBS = {"centers_per_step": 1, "within": None, "window": None}
EVERY_LIBRARY = pytest.mark.parametrize("as_given", [torch.tensor, lambda x: x], ids=["torch", "numpy"])


def reduced(tokens, keep, how="drop", selector="first"):
    reducer = Reducer(get_selector(selector), KNOBS, Space(), how)
    return tokens.reduced(reducer(tokens, Step(1, "attention", keep=Exactly(keep))))


def on_a_line(as_given, *rows):
    """Tokens (B, N, 1) at these places; equal places are nearest to each other."""
    return as_given(np.array(rows, dtype=np.float32)[:, :, None])


@EVERY_LIBRARY
def test_every_token_begins_at_its_own(as_given):
    tokens = Tokens.of(on_a_line(as_given, [0, 1, 2], [0, 3, 4]), None)
    assert tokens.positions is None
    assert tokens.places().tolist() == [[0, 1, 2]]


@EVERY_LIBRARY
def test_they_are_those_of_the_input_after_two_reductions(as_given):
    tokens = Tokens.of(on_a_line(as_given, [0, 1, 9, 2, 5], [0, 9, 2, 1, 5]), None)
    once = reduced(tokens, (4, 4), selector="coreset")
    twice = reduced(once, (3, 3), selector="coreset")
    assert once.positions.tolist() == [[0, 2, 3, 4], [0, 1, 2, 4]]
    assert twice.positions.tolist() == twice.places().tolist() == [[0, 2, 4], [0, 1, 4]]


@EVERY_LIBRARY
def test_padding_in_the_middle_does_not_shift_them(as_given):
    mask = as_given(np.array([[True, False, True, True]]))
    tokens = Tokens.of(on_a_line(as_given, [0, 7, 1, 2]), mask)
    assert tokens.places().tolist() == [[0, 2, 3]]
    assert reduced(tokens, (2,)).positions.tolist() == [[0, 2]]


@EVERY_LIBRARY
def test_a_merged_token_has_the_position_of_the_one_that_is_kept(as_given):
    tokens = reduced(Tokens.of(on_a_line(as_given, [0, 5, 9, 8.5, 5.1]), None), (3,), how="merge", selector="coreset")
    assert tokens.positions.tolist() == [[0, 2, 4]] or tokens.positions.tolist() == [[0, 1, 2]]
    assert tokens.size.tolist() == [[1, 2, 2]]


@EVERY_LIBRARY
def test_the_mean_of_a_group_has_the_position_of_its_first_token(as_given):
    tokens = reduced(Tokens.of(on_a_line(as_given, [0, 5, 9, 9, 5]), None), (3,), how="merge", selector="cluster")
    assert tokens.positions.tolist() == [[0, 1, 2]]


@EVERY_LIBRARY
def test_copies_have_the_position_of_their_original(as_given):
    tokens = Tokens.of(on_a_line(as_given, [0, 5, 9, 9, 5]), None, replaces=True)
    once = reduced(tokens, (3,), how="weigh", selector="coreset")
    assert once.positions.tolist() in ([[0, 1, 2, 2, 1]], [[0, 4, 2, 2, 4]], [[0, 1, 3, 3, 1]], [[0, 4, 3, 3, 4]])
    twice = reduced(once, (2,), how="weigh", selector="coreset")
    assert len(set(twice.positions.flatten().tolist()) - {0}) == 1


@EVERY_LIBRARY
def test_the_owner_is_handed_on(as_given):
    owner = object()
    for replaces in (False, True):
        tokens = Tokens.of(on_a_line(as_given, [0, 1, 2]), None, replaces=replaces, owner=owner)
        assert reduced(tokens, (2,), how="weigh" if replaces else "drop", selector="coreset").owner is owner
