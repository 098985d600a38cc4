"""The promises of the tiny models, on a real 12-layer encoder and real sentences.

Needs PYRAMID_MODEL (a folder with a BERT encoder) and PYRAMID_DATA (a folder with glue/sst2/dev.tsv.gz).
"""

import os
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from pyramid_bert import Schedule, pyramidize, restore
from pyramid_bert.families.loading import load_model
from pyramid_bert.text.batches import encode
from pyramid_bert.text.inference import collate
from pyramid_bert.text.tables import read_table

MODEL, DATA = os.environ.get("PYRAMID_MODEL"), os.environ.get("PYRAMID_DATA")
pytestmark = [
    pytest.mark.skipif(MODEL is None, reason="PYRAMID_MODEL is not set: no real 12-layer BERT encoder"),
    pytest.mark.skipif(DATA is None, reason="PYRAMID_DATA is not set: no real sentences"),
]
SCHEDULE = Schedule.exponential(0.25, last_layer=6, first_layer=4, min_tokens=4)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return load_model(MODEL)[0]


@pytest.fixture(scope="module")
def items():
    sentences = read_table(Path(DATA) / "glue/sst2/dev.tsv.gz", text_column="sentence").texts[:32]
    return encode(AutoTokenizer.from_pretrained(MODEL), sentences, positions=512)


def logits(model, items, length=None):
    with torch.no_grad():
        return model(**collate(items, 0, length)).logits


def test_keeping_everything_is_the_dense_model_and_restore_is_exact(model, items):
    dense = logits(model, items)
    for reduce in ("drop", "merge"):
        pyramidize(model, Schedule.constant(1.0), reduce=reduce)
        assert (logits(model, items) - dense).abs().max() < 1e-5
    assert torch.equal(logits(restore(model), items), dense)


@pytest.mark.parametrize("reduce", ["drop", "merge"])
@pytest.mark.parametrize("selector", ["coreset", "attention", "random", "first"])
def test_neither_padding_nor_batch_mates_matter(model, items, selector, reduce):
    pyramidize(model, SCHEDULE, selector, reduce=reduce)
    together = logits(model, items)
    assert (logits(model, items, length=128) - together).abs().max() < 1e-5
    alone = torch.cat([logits(model, [item]) for item in items])
    assert (alone - together).abs().max() < 1e-5
    restore(model)
