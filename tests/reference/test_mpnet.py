"""MPNet's buckets of distances, which exported graphs hold as constants, are those of transformers at any distance."""

import torch
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

from pyramid_bert.families.mpnet import _BUCKETS, _FARTHEST


def test_farther_tokens_share_the_bucket_of_the_farthest():
    distances = torch.arange(-4098, 4099)
    ours = torch.tensor(_BUCKETS)[distances.clamp(-_FARTHEST, _FARTHEST) + _FARTHEST]
    assert torch.equal(ours, MPNetEncoder.relative_position_bucket(distances))
