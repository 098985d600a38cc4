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
    "deberta-v2": {
        "relative_attention": True,
        "position_buckets": 8,
        "pos_att_type": ["p2c", "c2p"],
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "position_biased_input": False,
    },
    "eurobert": {"classifier_pooling": "bos", "num_key_value_heads": 1},
    "modernbert": {"local_attention": 8},
    "performer": {"num_features": 32},
}
# Models of a family that differ in more than their sizes.
VARIANTS = {
    "deberta-v2, own projections": ("deberta-v2", {"share_att_key": False, "position_buckets": -1}),
    "eurobert, mean": ("eurobert", {"classifier_pooling": "mean"}),
    "modernbert, mean": ("modernbert", {"classifier_pooling": "mean"}),
}
CASES = {family.model_type: (family.model_type, {}) for family in FAMILIES} | VARIANTS


@pytest.mark.parametrize("check", CHECKS)
@pytest.mark.parametrize("case", CASES)
def test_it_keeps_the_contract(case, check):
    model_type, further = CASES[case]
    family = next(family for family in FAMILIES if family.model_type == model_type)
    check_family(family, config={**CONFIGS.get(model_type, {}), **further}, only=[check])
