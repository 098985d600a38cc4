"""The contract of a model family, for every row of the table: `pyramid_bert.testing`, check by check."""

import pytest

import pyramid_bert.lab.performer  # noqa: F401  adds its row
from pyramid_bert.families import FAMILIES
from pyramid_bert.testing import CHECKS, check_family

# Models of a family that differ in more than their sizes.
VARIANTS = {
    "deberta-v2, own projections": ("deberta-v2", {"share_att_key": False, "position_buckets": -1}),
    "eurobert, mean": ("eurobert", {"classifier_pooling": "mean"}),
    "modernbert, mean": ("modernbert", {"classifier_pooling": "mean"}),
}
CASES = {family.model_type: (family.model_type, {}) for family in FAMILIES} | VARIANTS


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("case", CASES)
def test_it_keeps_the_contract(case, check, family_config):
    model_type, further = CASES[case]
    family = next(family for family in FAMILIES if family.model_type == model_type)
    check_family(family, config={**family_config(family), **further}, only=[check])
