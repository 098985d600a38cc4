"""Which tokens matter, by the rank that a core-set gives them."""

import copy
import math

import pytest
import torch

from pyramid_bert import PyramidError, Schedule, is_pyramid, pyramidize
from pyramid_bert.core.coreset import k_center_greedy
from pyramid_bert.lab.theory.importance import mutual_information, token_importance


@pytest.fixture
def tiny_classifier(tiny_bert):
    return tiny_bert(labels=3)


@pytest.fixture
def texts(tiny_batch, items_of):
    return items_of(tiny_batch((9, 6, 12, 7, 8, 6, 10)))


def by_hand(model, text, layer, rank, m):
    """The prediction without the token of a rank: the tokens go through transformers' own layers, one text alone."""
    seen = {}
    at = model.bert.encoder.layer[layer - 1].attention
    handle = at.register_forward_hook(lambda *given: seen.update(x=given[-1][0]))
    ids = torch.tensor([text.input_ids])
    states = model(input_ids=ids, output_hidden_states=True).hidden_states
    handle.remove()
    token = int(k_center_greedy(seen["x"], None, rank, centers_per_step=m).indices[0, rank - 1])
    hidden = states[layer]
    hidden = torch.cat([hidden[:, :token], hidden[:, token + 1 :]], 1)
    for module in model.bert.encoder.layer[layer:]:
        hidden = module(hidden)
        hidden = hidden[0] if isinstance(hidden, tuple) else hidden
    return int(model.classifier(model.bert.pooler(hidden)).argmax())


@pytest.mark.parametrize("m", [1, "all"])
def test_predictions_are_those_of_the_layers_above_without_the_token(tiny_classifier, texts, m):
    model, before = tiny_classifier, copy.deepcopy(tiny_classifier.state_dict())
    with torch.no_grad():
        plain = [int(model(input_ids=torch.tensor([t.input_ids])).logits.argmax()) for t in texts]
        for layer in range(1, model.config.num_hidden_layers):
            (found,) = token_importance(model, texts, layers=[layer], ranks=6, centers_per_step=[m], batch_size=3)
            for place, rank in enumerate(found.ranks):
                without = [by_hand(model, text, layer, rank, m) for text in texts]
                same = sum(a == b for a, b in zip(plain, without, strict=True)) / len(texts)
                assert found.agreement[place] == pytest.approx(same)
                assert found.information[place] == pytest.approx(mutual_information(plain, without))
    assert not is_pyramid(model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert found.ranks == (2, 3, 4, 5, 6)
    assert found.texts == len(texts)
    assert math.isnan(found.spearman) == (len(set(found.information)) == 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": [0]}, "layers must be in 1-"),
        ({"layers": [99]}, r"got \[99\]; nothing attends after"),
        ({"ranks": 2}, "ranks must be at least 3"),
        ({"ranks": 7}, "a text has 6 tokens, so none of rank 7"),
        ({"items": []}, "no texts given"),
        ({"schedule": Schedule.constant(0.5)}, "this one is a pyramid"),
    ],
)
def test_refused(tiny_classifier, texts, changes, message):
    given = {"items": texts, "layers": [1], "ranks": 4, **changes}
    if "schedule" in given:
        pyramidize(tiny_classifier, given.pop("schedule"))
    with pytest.raises(PyramidError, match=message):
        token_importance(tiny_classifier, **given)
