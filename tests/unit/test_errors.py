import pytest

from pyramid_bert import errors
from pyramid_bert.errors import MissingExtraError, PyramidError, UnknownNameError


def test_every_error_is_a_pyramid_error_and_so_a_value_error():
    defined = [thing for thing in vars(errors).values() if isinstance(thing, type) and issubclass(thing, Exception)]
    assert len(defined) > 5
    assert issubclass(PyramidError, ValueError)
    assert all(issubclass(error, PyramidError) for error in defined)
    assert issubclass(MissingExtraError, ImportError)  # its message is tested by its docstring


def test_unknown_name_gives_the_nearest_name_and_then_all_in_order():
    error = UnknownNameError("selector", "corset", ["first", "coreset", "attention"])
    assert str(error) == "unknown selector 'corset'; did you mean 'coreset'? Known: attention, coreset, first"


@pytest.mark.parametrize("name", ["zzz", None, 3, ""])
def test_an_unknown_name_may_be_anything_and_without_a_near_one_nothing_is_guessed(name):
    error = UnknownNameError("rounding", name, ("ceil", "floor"))
    assert str(error) == f"unknown rounding {name!r}; Known: ceil, floor"
