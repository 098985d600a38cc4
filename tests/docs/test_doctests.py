"""The examples in docstrings."""

import doctest
import pkgutil
from importlib import import_module

import pytest

import pyramid_bert

MODULES = [
    module.name
    for module in pkgutil.walk_packages(pyramid_bert.__path__, "pyramid_bert.")
    if "__main__" not in module.name
]


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    result = doctest.testmod(import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.failed == 0


def test_some_docstrings_have_examples():
    finder = doctest.DocTestFinder(exclude_empty=True)
    assert sum(len(test.examples) for name in MODULES for test in finder.find(import_module(name))) > 30


def test_every_public_name_is_there_and_described():
    for name in pyramid_bert.__all__:
        value = getattr(pyramid_bert, name)
        if callable(value):
            assert value.__doc__, name
