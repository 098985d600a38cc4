"""Layers that are left out: the same as a model that does not have them."""

import pytest
import torch
from torch import nn

from pyramid_bert import PyramidConfig, PyramidError, Schedule, pyramidize
from pyramid_bert.core.loop import Pass
from pyramid_bert.cost import Cost, Sizes

LENGTHS = (24, 17, 9, 2, 1)


def without(model, skip):
    """The model with those layers taken out of its list."""
    layers = model.bert.encoder.layer
    model.bert.encoder.layer = nn.ModuleList(one for number, one in enumerate(layers, start=1) if number not in skip)
    model.config.num_hidden_layers = len(model.bert.encoder.layer)
    return model


@pytest.mark.parametrize("skip", [(1,), (2, 3), (4,), (1, 3, 4)])
@pytest.mark.parametrize("cls_only", [True, False])
def test_a_model_that_leaves_layers_out_is_one_without_them(tiny_bert, tiny_batch, logits_of, skip, cls_only):
    batch = tiny_batch(LENGTHS, width=30)
    expected = logits_of(without(tiny_bert(), skip), batch)
    model = pyramidize(tiny_bert(), Schedule.constant(1.0), skip=skip, cls_only=cls_only)
    torch.testing.assert_close(logits_of(model, batch), expected, atol=1e-5, rtol=0)
    dense = logits_of(tiny_bert(), batch)
    torch.testing.assert_close(logits_of(model, batch, Pass(dense=True)), dense, atol=1e-5, rtol=0)


@pytest.mark.parametrize("selector", ["coreset", "cluster", "attention"])
def test_the_layers_that_run_reduce_to_their_own_lengths(tiny_bert, tiny_batch, logits_of, selector):
    """Layer 1 is left out: layer 2 goes from 24 tokens to its own length at once; 3 rests, 4 is left out."""
    batch = tiny_batch((24, 24))
    shorter = {"rest_from": 2}  # the second of the two layers that are left
    expected = pyramidize(without(tiny_bert(), (1, 4)), Schedule.custom([6, 6], n=24), selector, **shorter)
    schedule = Schedule.custom([12, 6, 6, 6], n=24)
    found = pyramidize(tiny_bert(), schedule, selector, rest_from=3, skip=[4, 1])
    torch.testing.assert_close(logits_of(found, batch), logits_of(expected, batch), atol=1e-5, rtol=0)


def test_skipping_is_counted(tiny_bert):
    sizes, schedule = Sizes(4, 32, 64, heads=4), Schedule.custom([12, 6, 6, 6], n=24)
    config = PyramidConfig(schedule=schedule, rest_from=3, skip=(1, 4))
    cost = config.cost(schedule.lengths(24, 4), 24, sizes)
    assert cost.macs == Cost.of([6, 6], 24, 32, 64, cls_layers=1, heads=4).macs
    assert cost.dense_macs == Cost.of([24] * 4, 24, 32, 64).macs


def test_what_cannot_be_left_out_is_refused(tiny_bert):
    for skip, message in (
        ((5,), "skip must be in 1-4, got 5"),
        ((1, 2, 3, 4), "leaves out all 4 layers"),
        ((2, 2), "names a layer twice"),
        ((0,), "at least 1"),
        (3, "must be a list of layers, got 3"),
    ):
        with pytest.raises(PyramidError, match=message):
            pyramidize(tiny_bert(), Schedule.constant(1.0), skip=skip)
    saved = PyramidConfig(schedule=Schedule.constant(1.0), skip=(3,))
    assert PyramidConfig.from_dict(saved.to_dict()) == saved
