"""Attention of only CLS, computed without keys and values, gives what transformers gives."""

import pytest
import torch
from accelerate import cpu_offload
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from pyramid_bert import PyramidConfig, Schedule, optimize, pyramidize
from pyramid_bert.cost import Cost
from pyramid_bert.families import sizes_of
from pyramid_bert.families.reading import SelfAttention, can_read_without_keys, read_without_keys
from pyramid_bert.lab.performer.model import PerformerConfig

LAYERS, LENGTHS = 4, (24, 17, 9, 2, 1)
TOLERANCES = [(torch.float64, 1e-12), (torch.float32, 1e-5), (torch.bfloat16, 0.1)]


@pytest.fixture
def biased_bert(tiny_bert):
    """Makes BERTs whose keys and values have biases, as trained ones do."""

    def make(**settings):
        model = tiny_bert(**settings)
        generator = torch.Generator().manual_seed(1)
        for layer in model.bert.encoder.layer:
            for part in (layer.attention.self.key, layer.attention.self.value):
                part.bias.data.normal_(generator=generator)
        return model

    return make


@pytest.mark.parametrize("impl", ["eager", "sdpa"])
@pytest.mark.parametrize(("dtype", "tolerance"), TOLERANCES, ids=["fp64", "fp32", "bf16"])
@pytest.mark.parametrize("rest_from", [None, 3])
def test_the_logits_are_those_with_keys_and_values(
    biased_bert, tiny_batch, logits_of, impl, dtype, tolerance, rest_from
):
    """With gradients, keys and values are made of every token; masks and sizes are there in both."""
    model = pyramidize(
        biased_bert(impl=impl).to(dtype), Schedule.exponential(0.4, 2), "first", rest_from=rest_from, weighted=True
    )
    batch = tiny_batch(LENGTHS, width=30)
    with_keys = model(**batch).logits
    assert with_keys.requires_grad
    torch.testing.assert_close(logits_of(model, batch), with_keys.detach(), atol=tolerance, rtol=0)


def parts_of(attention):
    names = (attention.query, attention.key, attention.value)
    return SelfAttention(attention, *names, attention.num_attention_heads, attention.scaling, attention.dropout.p)


@pytest.mark.parametrize("heads", [1, 4, 8])
@torch.no_grad()
def test_context_and_weights_are_those_of_transformers(biased_bert, heads):
    attention = biased_bert(impl="eager", heads=heads).double().bert.encoder.layer[0].attention.self
    hidden = torch.randn(3, 7, 32, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    bias = hidden.new_zeros(3, 1, 1, 7)
    bias[1, ..., 4:] = torch.finfo(torch.float64).min
    bias[2, ..., 1] = 1.5
    context, weights = read_without_keys(parts_of(attention), hidden, bias)
    expected, all_weights = attention(hidden, attention_mask=bias)
    torch.testing.assert_close(context, expected[:, :1], atol=1e-12, rtol=0)
    torch.testing.assert_close(weights, all_weights[:, :, :1], atol=1e-12, rtol=0)


@pytest.mark.parametrize("rest_from", [None, 3])
def test_the_count_is_what_is_multiplied(tiny_bert, rest_from):
    settings = PyramidConfig(schedule=Schedule.exponential(0.4, 2), selector="first", rest_from=rest_from)
    model = tiny_bert(impl="eager")
    cost = settings.cost(settings.schedule.lengths(24, LAYERS), 24, sizes_of(model))
    assert macs_of(model.bert.encoder) == cost.dense_macs
    assert macs_of(pyramidize(model, config=settings).bert.encoder) == cost.macs


def macs_of(encoder):
    """Multiply-accumulates for one row of 24 tokens, as torch counts them: two operations each."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        encoder(torch.randn(1, 24, 32))
    return counter.get_total_flops() / 2


def test_reading_costs_as_much_for_one_token_and_a_head_each():
    """By hand: d = 4, f = 16, n = 3, H = 2. Query, key, value and output of one vector 4d², tokens 2nHd, then 2df."""
    assert Cost.of((3,), 3, 4, 16, cls_layers=1, heads=2).macs == 64 + 48 + 128
    assert Cost.of((1,), 1, 4, 16, cls_layers=1, heads=1) == Cost.of((1,), 1, 4, 16, cls_layers=1)


def test_other_families_make_keys_and_values(tiny_bert):
    assert sizes_of(tiny_bert(heads=8)).heads == 8
    assert sizes_of(PerformerConfig()).heads is None


def test_who_listens_to_keys_hears_them(biased_bert, tiny_batch, logits_of):
    model, heard = pyramidize(biased_bert(), Schedule.constant(1.0), rest_from=3), []
    batch = tiny_batch((24, 9))
    expected = logits_of(model, batch)
    for layer in model.bert.encoder.layer:
        layer.attention.self.key.register_forward_hook(lambda _, given, keys: heard.append(keys.shape))
    torch.testing.assert_close(logits_of(model, batch), expected, atol=1e-5, rtol=0)
    assert heard == [(2, 24, 32)] * LAYERS


def test_who_listens_to_attention_may_change_what_it_gives(biased_bert, tiny_batch, logits_of):
    model, batch, heard = pyramidize(biased_bert(impl="eager"), Schedule.constant(1.0)), tiny_batch((24, 9)), []
    expected = logits_of(model, batch)

    def hook(module, given, output):
        heard.append(output[1].shape)
        return (0 * output[0], output[1])

    handle = model.bert.encoder.layer[-1].attention.self.register_forward_hook(hook)
    assert not torch.allclose(logits_of(model, batch), expected, atol=1e-3)
    assert heard == [(2, 4, 1, 24)]
    handle.remove()
    torch.testing.assert_close(logits_of(model, batch), expected)


class Scaled(nn.Linear):
    """A linear layer that is not what its weights say, as adapters and 8-bit layers are not."""

    def forward(self, x):
        return 2 * super().forward(x)


def test_layers_that_do_more_than_multiply_are_asked_themselves(biased_bert, tiny_batch, logits_of):
    model, batch = pyramidize(biased_bert(), Schedule.constant(1.0), rest_from=3), tiny_batch(LENGTHS)
    plain = logits_of(model, batch)
    model.bert.encoder.layer[-1].attention.self.value.__class__ = Scaled
    changed = logits_of(model, batch)
    assert not torch.allclose(changed, plain, atol=1e-3)
    torch.testing.assert_close(changed, model(**batch).logits.detach(), atol=1e-5, rtol=0)


def test_weights_that_are_fetched_for_a_call_are_not_read_behind_its_back(biased_bert, tiny_batch, logits_of):
    """accelerate puts another `forward` on the instance, and the weights are nowhere until it is called."""
    model, batch = pyramidize(biased_bert(), Schedule.constant(1.0), rest_from=3), tiny_batch(LENGTHS)
    expected = logits_of(model, batch)
    torch.testing.assert_close(logits_of(cpu_offload(model), batch), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(("how", "reads"), [("packed", True), ("bf16", False), ("int8", False)])
@torch.no_grad()
def test_packed_weights_read_without_keys_and_rounded_ones_with_them(can_optimize, tiny_bert, how, reads):
    can_optimize(how)
    model = optimize(tiny_bert(), how)
    attention = model.bert.encoder.layer[0].attention.self
    assert can_read_without_keys(parts_of(attention), torch.randn(1, 3, 32)) is reads


def test_training_runs_as_it_did(tiny_bert):
    attention, hidden = tiny_bert().bert.encoder.layer[0].attention.self, torch.randn(1, 3, 32)
    assert not can_read_without_keys(parts_of(attention), hidden)  # its weights learn
    with torch.no_grad():
        assert can_read_without_keys(parts_of(attention), hidden)
        assert not can_read_without_keys(parts_of(attention.train()), hidden)  # dropout
    attention.eval().requires_grad_(False)
    assert can_read_without_keys(parts_of(attention), hidden)
    assert not can_read_without_keys(parts_of(attention), hidden.requires_grad_())
