"""The contract of a model family, for every row of the table: `pyramid_bert.testing`, check by check."""

import pytest

import pyramid_bert.lab.performer  # noqa: F401  adds its row
from pyramid_bert.families import FAMILIES
from pyramid_bert.testing import CHECKS, check_family


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.model_type)
def test_it_keeps_the_contract(family, check, family_config):
    check_family(family, config=family_config(family), only=[check])
