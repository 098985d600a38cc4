"""Tokens that rest: from a layer on only CLS is computed, and reads the others as they were."""

import pytest
import torch

from pyramid_bert import PyramidConfig, PyramidError, Schedule, pyramidize
from pyramid_bert.core.loop import Pass
from pyramid_bert.core.record import Trace
from pyramid_bert.cost import Cost, Sizes

LAYERS, LENGTHS = 4, (24, 17, 9, 2, 1)
SHRINKING = Schedule.exponential(0.4, 2)


def resting_by_hand(model, row, rest_from):
    """The logits of one unpadded row: transformers' own layers, of whose output only CLS is taken from a layer on."""
    hidden = model.bert.embeddings(input_ids=row)
    for number, layer in enumerate(model.bert.encoder.layer, start=1):
        after = layer(hidden)
        hidden = after if number < rest_from else torch.cat([after[:, :1], hidden[:, 1:]], dim=1)
    return model.classifier(model.bert.pooler(hidden))


@pytest.mark.parametrize("rest_from", [2, 3, 4])
@torch.no_grad()
def test_cls_reads_the_others_as_they_were(tiny_bert, tiny_batch, rest_from):
    model, batch = tiny_bert(), tiny_batch(LENGTHS, width=30)
    expected = [resting_by_hand(model, batch["input_ids"][i : i + 1, :n], rest_from) for i, n in enumerate(LENGTHS)]
    found = pyramidize(model, Schedule.constant(1.0), rest_from=rest_from)(**batch).logits
    torch.testing.assert_close(found, torch.cat(expected), atol=1e-5, rtol=0)


@pytest.mark.parametrize("selector", ["coreset", "cluster", "attention"])
def test_resting_in_the_last_layer_changes_no_logit(tiny_bert, tiny_batch, logits_of, selector):
    model, batch = tiny_bert(), tiny_batch(LENGTHS)
    awake = logits_of(pyramidize(model, SHRINKING, selector), batch)
    for cls_only in (True, False):
        resting = logits_of(pyramidize(model, SHRINKING, selector, rest_from=LAYERS, cls_only=cls_only), batch)
        torch.testing.assert_close(resting, awake, atol=1e-5, rtol=0)
    earlier = logits_of(pyramidize(model, SHRINKING, selector, rest_from=3), batch)
    assert not torch.allclose(earlier, awake, atol=1e-3)


@pytest.mark.parametrize("rest_from", [None, 3, 4])
def test_pyramid_star_rests_like_weighted_drop(tiny_bert, tiny_batch, logits_of, rest_from):
    """A copy of CLS goes on with CLS, as the weight on its key does."""
    batch = tiny_batch(LENGTHS)
    star = logits_of(pyramidize(tiny_bert(), SHRINKING, reduce="replace", rest_from=rest_from), batch)
    short = {"reduce": "drop", "weighted": True, "rest_from": rest_from}
    torch.testing.assert_close(logits_of(pyramidize(tiny_bert(), SHRINKING, **short), batch), star, atol=1e-5, rtol=0)


def test_hidden_states_hold_those_that_rest_and_a_trace_ends_where_they_do(tiny_bert, tiny_batch, logits_of, traced):
    model, batch = tiny_bert(), tiny_batch((24, 24))
    dense = logits_of(model, batch)
    pyramidize(model, SHRINKING, rest_from=3)
    torch.testing.assert_close(logits_of(model, batch, Pass(dense=True)), dense, atol=1e-5, rtol=0)
    traced_logits = logits_of(model, batch, Pass(Trace(), whole=True))
    torch.testing.assert_close(traced_logits, logits_of(model, batch), atol=1e-5, rtol=0)
    assert [step.layer for step in traced(model, batch).layers] == [1, 2]
    with torch.no_grad():
        output = model(**batch, output_hidden_states=True)
    assert [state.shape[1] for state in output.hidden_states] == [24, *SHRINKING.lengths(24, LAYERS)]
    _, _, before, third, last = output.hidden_states
    assert torch.equal(third[:, 1:], before[:, 1:])
    assert torch.equal(last[:, 1:], before[:, 1:])
    assert not torch.allclose(third[:, 0], before[:, 0])
    torch.testing.assert_close(output.logits, logits_of(model, batch), atol=1e-5, rtol=0)


def test_the_bare_model_gives_every_token(tiny_bert, tiny_batch):
    with torch.no_grad():
        output = pyramidize(tiny_bert().bert, SHRINKING, rest_from=3)(**tiny_batch((24, 24)))
    assert output.last_hidden_state.shape[1] == SHRINKING.lengths(24, LAYERS)[-1]


def test_gradients_reach_those_that_rest(tiny_bert, tiny_batch):
    model, batch = pyramidize(tiny_bert(), SHRINKING, rest_from=3), tiny_batch((24, 9))
    model(**batch, labels=torch.tensor([0, 1])).loss.backward()
    assert model.bert.encoder.layer[1].output.dense.weight.grad.abs().sum() > 0


def test_what_resting_costs():
    kept = (16, 8, 8, 8)
    awake, resting = (Cost.of(kept, 16, 4, 16, cls_layers=layers).macs for layers in (1, 2))
    one_layer = 4 * 8 * 16 + 2 * 8 * 8 * 4 + 2 * 8 * 4 * 16  # projections, attention, feed-forward of 8 tokens
    cls_alone = 2 * (1 + 8) * 16 + 2 * 8 * 4 + 2 * 4 * 16
    assert awake - resting == one_layer - cls_alone
    settings = PyramidConfig(schedule=Schedule.custom(kept, n=16), rest_from=3)
    assert settings.cost(kept, 16, Sizes(4, 4, 16)).macs == resting


@pytest.mark.parametrize("schedule", [SHRINKING, Schedule.constant(0.5, first_layer=2), Schedule.custom([9, 9, 9, 9])])
def test_a_schedule_that_is_done_in_time_is_taken(tiny_bert, schedule):
    pyramidize(tiny_bert(), schedule, rest_from=3)


@pytest.mark.parametrize(
    ("schedule", "rest_from", "message"),
    [
        (SHRINKING, 5, "rest_from must be in 1-4, got 5; the model has 4 layers"),
        (Schedule.exponential(0.4, 3), 3, "this one reduces up to layer 3"),
        (Schedule.random(0), 3, "done by layer 2"),
        (Schedule.adaptive(0.5), 4, "this one reduces up to layer 4"),
    ],
)
def test_what_cannot_rest_is_refused(tiny_bert, schedule, rest_from, message):
    with pytest.raises(PyramidError, match=message):
        pyramidize(tiny_bert(), schedule, rest_from=rest_from)
