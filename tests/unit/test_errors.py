import pytest

from pyramid_bert import errors
from pyramid_bert.errors import (
    CheckpointError,
    DataError,
    MissingExtraError,
    PyramidError,
    UnknownNameError,
    UnsupportedModelError,
)


def test_every_error_is_a_pyramid_error_and_so_a_value_error():
    defined = [thing for thing in vars(errors).values() if isinstance(thing, type) and issubclass(thing, Exception)]
    assert {PyramidError, UnsupportedModelError, DataError, CheckpointError} <= set(defined)
    assert issubclass(PyramidError, ValueError)
    for error in defined:
        assert issubclass(error, PyramidError), error


@pytest.mark.parametrize("error", [UnsupportedModelError, DataError, CheckpointError])
def test_a_message_stays_as_it_is(error):
    assert str(error("what is wrong")) == "what is wrong"


def test_unknown_name_gives_the_nearest_name_and_then_all_in_order():
    error = UnknownNameError("selector", "corset", ["first", "coreset", "attention"])
    assert str(error) == "unknown selector 'corset'; did you mean 'coreset'? Known: attention, coreset, first"
    assert isinstance(error, PyramidError)


def test_unknown_name_without_a_near_one_guesses_nothing():
    error = UnknownNameError("selector", "zzz", ["first", "coreset"])
    assert str(error) == "unknown selector 'zzz'; Known: coreset, first"


@pytest.mark.parametrize("name", [None, 3, ""])
def test_unknown_name_may_be_anything(name):
    assert (
        str(UnknownNameError("rounding", name, ("ceil", "floor"))) == f"unknown rounding {name!r}; Known: ceil, floor"
    )


def test_missing_extra_is_an_import_error_with_the_pip_line():
    error = MissingExtraError("pyarrow", "data", "reading Parquet")
    assert str(error) == "reading Parquet needs pyarrow: pip install 'pyramid-bert[data]'"
    assert isinstance(error, ImportError)
    assert isinstance(error, PyramidError)
