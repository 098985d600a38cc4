"""MPNet's buckets of distances, which exported graphs hold as constants, are those of transformers."""

import pytest
import torch
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

from pyramid_bert.families.mpnet import buckets_of_distances


@pytest.mark.parametrize("farthest", [1, 64, 514, 4098])
def test_buckets_are_those_of_transformers(farthest):
    distances = torch.arange(-farthest, farthest + 1)
    assert buckets_of_distances(farthest) == MPNetEncoder.relative_position_bucket(distances).tolist()
