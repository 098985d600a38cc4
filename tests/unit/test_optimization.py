"""Faster weights for the CPU change only the speed, and the change can be undone."""

import copy

import pytest
import torch
from torch import nn

from pyramid_bert import PyramidClassifier, Schedule, pyramidize
from pyramid_bert.errors import PyramidError, UnknownNameError
from pyramid_bert.runtimes.packed import OPTIMIZATIONS, optimization_of, optimize, unoptimize


@pytest.fixture
def model(tiny_bert):
    return tiny_bert()


@pytest.fixture
def batch(tiny_batch):
    return tiny_batch([9, 16, 5])


@pytest.mark.parametrize("reduces", [False, True])
def test_packed_weights_give_the_same_logits_and_int8_nearly(model, batch, logits_of, reduces):
    if reduces:
        pyramidize(model, Schedule.exponential(0.5, 2))
    before = logits_of(model, batch)
    torch.testing.assert_close(logits_of(optimize(model), batch), before, rtol=1e-5, atol=1e-5)
    if not reduces:
        difference = float((logits_of(optimize(model, "int8"), batch) - before).abs().max())
        assert 0 < difference < 0.1 * float(before.abs().max())


@pytest.mark.parametrize("how", OPTIMIZATIONS)
def test_layers_of_the_encoder_change_weights_do_not_and_it_can_be_undone(model, batch, logits_of, how):
    before, kinds = logits_of(model, batch), [type(part) for part in model.modules()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    optimize(optimize(model, "int8"), how)
    assert optimization_of(model) == how
    assert all(type(layer) is not nn.Linear for layer in model.bert.encoder.modules() if isinstance(layer, nn.Linear))
    assert type(model.classifier) is nn.Linear
    assert list(model.state_dict()) == list(state)
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    copied = copy.deepcopy(model)
    assert torch.equal(logits_of(copied, batch), logits_of(model, batch))
    assert optimization_of(copied) == how
    unoptimize(model)
    assert torch.equal(logits_of(model, batch), before)
    assert [type(part) for part in model.modules()] == kinds
    assert optimization_of(model) is None
    assert not any("_fast" in vars(part) for part in model.modules())


@pytest.mark.parametrize("how", OPTIMIZATIONS)
def test_gradients_are_those_of_the_plain_model(model, batch, how):
    plain = copy.deepcopy(model)
    optimize(model, how)
    for each in (plain, model):
        each(**batch).logits.sum().backward()
    expected = dict(plain.named_parameters())
    assert all(torch.equal(weight.grad, expected[name].grad) for name, weight in model.named_parameters())


@pytest.mark.parametrize("how", OPTIMIZATIONS)
def test_weights_that_change_or_are_replaced_are_packed_again(model, batch, logits_of, how):
    optimize(model, how)
    logits_of(model, batch)
    with torch.no_grad():
        for weight in model.bert.encoder.parameters():
            weight.mul_(0.5)
    assert torch.equal(logits_of(model, batch), logits_of(optimize(unoptimize(copy.deepcopy(model)), how), batch))
    model.load_state_dict({name: value * 0.5 for name, value in model.state_dict().items()}, assign=True)
    assert torch.equal(logits_of(model, batch), logits_of(optimize(unoptimize(copy.deepcopy(model)), how), batch))


def test_biases_alone_can_learn(model, batch):
    for name, weight in optimize(model, "int8").named_parameters():
        weight.requires_grad_(name.endswith("bias"))
    model(**batch).logits.sum().backward()
    assert model.bert.encoder.layer[0].attention.self.query.bias.grad is not None


def test_an_optimized_classifier_saves_what_it_was(tiny_model_dir, tmp_path):
    classifier = PyramidClassifier.load(tiny_model_dir)
    texts = ["a fine film", "a dull story about nothing"]
    before = classifier.predict_logits(texts)
    classifier.optimize("int8").save(tmp_path / "saved")
    loaded = PyramidClassifier.load(tmp_path / "saved")
    assert (loaded.predict_logits(texts) == before).all()
    assert optimization_of(loaded.model) is None


def test_what_cannot_be_optimized_is_refused(model):
    with pytest.raises(UnknownNameError, match="int8"):
        optimize(model, "int4")
    with pytest.raises(PyramidError, match=r"only fp32 models on the CPU .* torch.bfloat16"):
        optimize(model.bfloat16())
    with pytest.raises(PyramidError, match="no encoder layers to optimize"):
        optimize(nn.Sequential(nn.Tanh()))
