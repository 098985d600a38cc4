"""Faster weights for the CPU change only the speed, and the change can be undone."""

import copy

import pytest
import torch
from torch import nn

from pyramid_bert import PyramidClassifier, Schedule, pyramidize
from pyramid_bert.errors import PyramidError, UnknownNameError
from pyramid_bert.runtimes import packed
from pyramid_bert.runtimes.packed import OPTIMIZATIONS, optimization_of, optimize, unoptimize


@pytest.fixture
def model(tiny_bert):
    return tiny_bert()


@pytest.fixture
def batch(tiny_batch):
    return tiny_batch([9, 16, 5])


@pytest.mark.parametrize("reduces", [False, True])
def test_packed_weights_give_the_same_logits(model, batch, logits_of, reduces):
    if reduces:
        pyramidize(model, Schedule.exponential(0.5, 2))
    before = logits_of(model, batch)
    torch.testing.assert_close(logits_of(optimize(model), batch), before, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("how", "share"), [("bf16", 0.02), ("int8", 0.1)])
def test_rounded_weights_nearly_do(can_optimize, model, batch, logits_of, how, share):
    can_optimize(how)
    before = logits_of(model, batch)
    after = logits_of(optimize(model, how), batch)
    assert after.dtype == torch.float32
    assert 0 < float((after - before).abs().max()) < share * float(before.abs().max())


def test_bf16_rounds_weights_inputs_and_the_sum(can_optimize):
    """Against the product of rounded numbers in fp64; the bias is added before the sum is rounded."""
    can_optimize("bf16")
    torch.manual_seed(0)
    layers = nn.ModuleList([nn.Linear(24, 40)])
    x, linear = torch.randn(2, 3, 24), copy.deepcopy(layers[0])
    rounded = x.bfloat16().double() @ linear.weight.bfloat16().double().T + linear.bias.double()
    with torch.no_grad():
        out = optimize(nn.Sequential(layers), "bf16")[0][0](x)
    assert torch.equal(out, out.bfloat16().float())
    torch.testing.assert_close(out.double(), rounded, rtol=2**-8, atol=1e-6)  # one rounding
    with torch.no_grad():
        assert not torch.allclose(out, linear(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("supported", "runs"),
    [({"amx_tile"}, True), ({"avx512_bf16"}, True), ({"avx512", "vnni", "avx2"}, False), (set(), False)],
)
def test_bf16_asks_for_instructions_for_it(monkeypatch, supported, runs):
    for name in ("amx_tile", "avx512_bf16", "avx512", "vnni", "avx2"):
        monkeypatch.setattr(torch.cpu, f"_is_{name}_supported", lambda name=name: name in supported, raising=False)
    assert packed._has_bf16() is runs


def test_bf16_is_refused_where_it_would_be_emulated(monkeypatch, model, batch, logits_of):
    for name in ("amx_tile", "avx512_bf16"):
        monkeypatch.delattr(torch.cpu, f"_is_{name}_supported", raising=False)  # as in a torch that cannot tell
    before = logits_of(optimize(model, "int8"), batch)
    with pytest.raises(PyramidError, match=r"amx_bf16 or avx512_bf16.* does not have; use 'packed' .* or 'int8'"):
        optimize(model, "bf16")
    assert optimization_of(model) == "int8"
    assert torch.equal(logits_of(model, batch), before)


@pytest.mark.parametrize("how", OPTIMIZATIONS)
def test_layers_of_the_encoder_change_weights_do_not_and_it_can_be_undone(can_optimize, model, batch, logits_of, how):
    can_optimize(how)
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
def test_gradients_are_those_of_the_plain_model(can_optimize, model, batch, how):
    can_optimize(how)
    plain = copy.deepcopy(model)
    optimize(model, how)
    for each in (plain, model):
        each(**batch).logits.sum().backward()
    expected = dict(plain.named_parameters())
    assert all(torch.equal(weight.grad, expected[name].grad) for name, weight in model.named_parameters())


@pytest.mark.parametrize("how", OPTIMIZATIONS)
def test_weights_that_change_or_are_replaced_are_packed_again(can_optimize, model, batch, logits_of, how):
    can_optimize(how)
    optimize(model, how)
    logits_of(model, batch)
    with torch.no_grad():
        for weight in model.bert.encoder.parameters():
            weight.mul_(0.5)
    assert torch.equal(logits_of(model, batch), logits_of(optimize(unoptimize(copy.deepcopy(model)), how), batch))
    model.load_state_dict({name: value * 0.5 for name, value in model.state_dict().items()}, assign=True)
    assert torch.equal(logits_of(model, batch), logits_of(optimize(unoptimize(copy.deepcopy(model)), how), batch))


@pytest.mark.parametrize("how", OPTIMIZATIONS)
def test_biases_alone_can_learn(can_optimize, model, batch, how):
    can_optimize(how)
    for name, weight in optimize(model, how).named_parameters():
        weight.requires_grad_(name.endswith("bias"))
    model(**batch).logits.sum().backward()
    assert model.bert.encoder.layer[0].attention.self.query.bias.grad is not None


@pytest.mark.parametrize("how", OPTIMIZATIONS)
def test_an_optimized_classifier_saves_what_it_was(can_optimize, tiny_model_dir, tmp_path, how):
    can_optimize(how)
    classifier = PyramidClassifier.load(tiny_model_dir)
    texts = ["a fine film", "a dull story about nothing"]
    before = classifier.predict_logits(texts)
    classifier.optimize(how).save(tmp_path / "saved")
    loaded = PyramidClassifier.load(tmp_path / "saved")
    assert (loaded.predict_logits(texts) == before).all()
    assert optimization_of(loaded.model) is None


def test_what_cannot_be_optimized_is_refused(model):
    with pytest.raises(UnknownNameError, match="bf16, int8, packed"):
        optimize(model, "int4")
    with pytest.raises(PyramidError, match=r"only fp32 models on the CPU .* torch.bfloat16"):
        optimize(model.bfloat16())
    with pytest.raises(PyramidError, match="no encoder layers to optimize"):
        optimize(nn.Sequential(nn.Tanh()))
