"""The checks that all settings share."""

import numpy as np
import pytest

from pyramid_bert.checks import check_choice, check_flag, check_number
from pyramid_bert.errors import DataError, PyramidError, UnknownNameError


@pytest.mark.parametrize("value", [1, 5, 10, np.int64(3), 2.5, np.float32(1.5)])
def test_numbers_within_their_limits(value):
    check_number("x", value, 1, 10)


@pytest.mark.parametrize("value", [0, 11, -1, True, "3", None, float("nan"), float("inf"), 1j, [2]])
def test_what_is_no_number_within_them(value):
    with pytest.raises(PyramidError, match=r"^x must be a number in 1-10, got "):
        check_number("x", value, 1, 10)


@pytest.mark.parametrize("value", [2.5, 3.0, np.float64(2), False])
def test_what_is_no_integer(value):
    with pytest.raises(DataError, match=r"^x must be an integer of at least 1, got .*; count from 1$"):
        check_number("x", value, 1, hint="count from 1", whole=True, error=DataError)


def test_a_lower_limit_that_is_not_allowed_itself():
    check_number("x", 1, 0, 1, above=True)
    with pytest.raises(PyramidError, match=r"^x must be in \(0, 1\], got 0$"):
        check_number("x", 0, 0, 1, above=True)
    with pytest.raises(PyramidError, match=r"^x must be a number above 0, got 0$"):
        check_number("x", 0, above=True)


def test_flags_and_names():
    check_flag("x", True)
    check_choice("x", "ceil", ("ceil", "floor"))
    with pytest.raises(PyramidError, match="x must be true or false, got 1"):
        check_flag("x", 1)
    with pytest.raises(UnknownNameError, match="unknown x 'cell'; did you mean 'ceil'"):
        check_choice("x", "cell", ("ceil", "floor"))
