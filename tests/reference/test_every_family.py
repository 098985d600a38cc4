"""The contract of a model family, for every row of the table: `pyramid_bert.testing`, check by check."""

import pytest

import pyramid_bert.lab.performer  # noqa: F401  adds its row
from pyramid_bert.families import FAMILIES
from pyramid_bert.testing import CHECKS, check_family

# What tiny models of a family need, or what shows more.
CONFIGS = {
    "albert": {"embedding_size": 8, "num_hidden_groups": 2},
    "big_bird": {"attention_type": "original_full"},  # blocks depend on the width of the batch
    "electra": {"embedding_size": 8},
    "eurobert": {"classifier_pooling": "bos"},
    "performer": {"num_features": 32},
}


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.model_type)
def test_it_keeps_the_contract(family, check):
    check_family(family, config=CONFIGS.get(family.model_type), only=[check])
