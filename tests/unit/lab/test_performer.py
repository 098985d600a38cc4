"""FAVOR+ against softmax attention, and the Performer as a transformers model."""

import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from pyramid_bert.bench.memory import PeakMemory
from pyramid_bert.errors import PyramidError
from pyramid_bert.lab.performer.favor import favor_attention, orthogonal_features
from pyramid_bert.lab.performer.model import PerformerConfig, PerformerForSequenceClassification, PerformerModel

LOWEST = torch.finfo(torch.float32).min


def random(*shape, seed=0, scale=1.0):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def qkv(n=12, width=8, scale=1.0):
    return tuple(random(2, 3, n, width, seed=seed, scale=scale) for seed in range(3))


def softmax_attention(query, key, value, bias=0.0):
    return (query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1]) + bias).softmax(-1) @ value


def features(count, width=8, seed=0):
    return orthogonal_features(count, width, torch.Generator().manual_seed(seed))


@pytest.fixture
def performer():
    def make(**changes):
        sizes = {
            "vocab_size": 40,
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "intermediate_size": 24,
            "max_position_embeddings": 64,
            "num_features": 32,
            "initializer_range": 0.2,
            "num_labels": 3,
        }
        torch.manual_seed(0)
        return PerformerForSequenceClassification(PerformerConfig(**{**sizes, **changes})).eval()

    return make


# ---- the features ----


def test_features_are_orthogonal_in_blocks_and_long_as_gaussians():
    found = features(6 * 16 + 3, 16)
    assert found.shape == (99, 16)
    for start in range(0, 99, 16):
        block = found[start : start + 16]
        products = block @ block.T
        assert torch.allclose(products, products.diagonal().diag(), atol=1e-4)
    lengths = features(4096, 16).norm(dim=1)
    assert lengths.square().mean().item() == pytest.approx(16, rel=0.05)
    assert lengths.std() > 0.3  # of Gaussian vectors, not all the same


def test_the_error_against_softmax_falls_with_the_features():
    query, key, value = qkv(scale=0.5)
    exact = softmax_attention(query, key, value)
    errors = []
    for count in (8, 64, 512, 4096):
        tries = [favor_attention(query, key, value, None, features(count, seed=seed)) for seed in range(8)]
        errors.append(sum((found - exact).square().mean().item() for found in tries))
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < errors[0] / 50


def test_orthogonal_features_beat_independent_ones():
    query, key, value = qkv(scale=0.5)
    exact = softmax_attention(query, key, value)

    def error(make):
        tries = [favor_attention(query, key, value, None, make(seed)) for seed in range(100)]
        return sum((found - exact).square().mean().item() for found in tries)

    assert error(lambda seed: features(8, seed=seed)) < 0.95 * error(lambda seed: random(8, 8, seed=seed))


def test_a_bias_counts_a_key_several_times_and_leaves_pads_out():
    query, key, value = qkv()
    w = features(64)
    for kernel in ("softmax", "relu"):
        bias = torch.zeros(2, 1, 1, 12)
        bias[..., 3], bias[..., 9:] = math.log(3), LOWEST
        copies = [0, 1, 2, 3, 3, 3, 4, 5, 6, 7, 8]
        expected = favor_attention(query, key[:, :, copies], value[:, :, copies], None, w, kernel=kernel)
        assert torch.allclose(favor_attention(query, key, value, bias, w, kernel=kernel), expected, atol=1e-5)


@pytest.mark.parametrize("lowest", [LOWEST, -math.inf])
@pytest.mark.parametrize(("kernel", "count"), [("softmax", 64), ("relu", 64), ("relu", 0)])
def test_a_row_without_real_keys_is_finite_and_changes_no_other(kernel, count, lowest):
    query, key, value = (x.requires_grad_() for x in qkv())
    w = features(count) if count else None
    bias = torch.zeros(2, 1, 1, 12)
    bias[0], bias[1, ..., 9:] = lowest, lowest
    out = favor_attention(query, key, value, bias, w, kernel=kernel)
    out.square().sum().backward()
    alone = favor_attention(query[1:], key[1:, :, :9], value[1:, :, :9], None, w, kernel=kernel)
    assert torch.allclose(out[1:], alone, atol=1e-5)
    assert out.isfinite().all()
    assert out.abs().max() <= value.detach().abs().amax() * (1 + 1e-4)  # a mean of values
    assert all(x.grad.isfinite().all() for x in (query, key, value))


@pytest.mark.parametrize("kernel", ["softmax", "relu"])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 300.0])
def test_large_and_small_numbers_stay_finite(scale, kernel):
    query, key, value = (x.requires_grad_() for x in qkv(scale=scale))
    out = favor_attention(query, key, value, None, features(64), kernel=kernel)
    out.square().sum().backward()
    largest = value.detach().abs().amax() * (1 + 1e-4)
    assert out.isfinite().all()
    assert out.abs().max() <= largest  # a mean of values
    assert all(x.grad.isfinite().all() for x in (query, key, value))


def test_in_half_precision_the_features_are_still_made_in_full():
    query, key, value = qkv()
    w = features(64)
    full = favor_attention(query, key, value, None, w)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(favor_attention(query, key, value, None, w), full)


def test_time_and_memory_are_linear_in_the_tokens():
    w = features(16)

    def cost(n):
        query, key, value = (x.requires_grad_() for x in qkv(n=n))
        with FlopCounterMode(display=False) as counter, PeakMemory() as memory:
            favor_attention(query, key, value, None, w).sum().backward()
        return counter.get_total_flops(), memory.peak

    small, large = cost(64), cost(512)
    assert large[0] == 8 * small[0]
    assert 7 < large[1] / small[1] <= 8


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"kernel": "softmaxx"}, "did you mean 'softmax'"),
        ({"num_features": 0}, "num_features must be .* at least 1, got 0; 0 only with kernel='relu'"),
        ({"redraw_every": -1}, "redraw_every must be an integer of at least 0, got -1"),
        ({"qkv_size": 10}, "multiple of the 4 heads, got 10"),
        ({"num_attention_heads": 0}, "num_attention_heads must be an integer of at least 1, got 0"),
        ({"qkv_size": -4}, "qkv_size must be an integer of at least 1, got -4; None takes hidden_size"),
        ({"qkv_size": 0}, "qkv_size must be an integer of at least 1, got 0; None takes hidden_size"),
        ({"hidden_size": 0}, "hidden_size must be an integer of at least 1, got 0"),
        ({"vocab_size": 0}, "vocab_size must be an integer of at least 1, got 0"),
        ({"num_hidden_layers": -1}, "num_hidden_layers must be an integer of at least 1, got -1"),
    ],
)
def test_what_a_config_refuses(settings, words):
    with pytest.raises(PyramidError, match=words):
        PerformerConfig(**{"hidden_size": 16, "num_attention_heads": 4, **settings})


def test_an_unknown_activation_is_refused():
    with pytest.raises(PyramidError, match="unknown hidden_act 'gellu'; did you mean 'gelu'"):
        PerformerModel(PerformerConfig(hidden_size=16, num_attention_heads=4, hidden_act="gellu"))


# ---- the model ----


@pytest.mark.parametrize("settings", [{}, {"kernel": "relu"}, {"kernel": "relu", "num_features": 0}, {"qkv_size": 8}])
def test_padding_changes_nothing(performer, settings):
    model = performer(**settings)
    ids = torch.arange(2, 26).view(2, 12)
    padded = torch.cat([ids, torch.zeros(2, 9, dtype=torch.long)], dim=1)
    mask = torch.cat([torch.ones(2, 12), torch.zeros(2, 9)], dim=1)
    with torch.no_grad():
        assert torch.allclose(model(ids).logits, model(padded, attention_mask=mask).logits, atol=1e-5)


def test_saved_and_loaded_it_is_the_same(performer, tmp_path):
    model = performer(redraw_every=2)
    ids = torch.arange(2, 26).view(2, 12)
    model.train()
    for _ in range(4):
        model(ids)
    model.eval().save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).model_type == "performer"
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert type(loaded) is PerformerForSequenceClassification
    assert loaded.performer.steps == 4
    with torch.no_grad():
        assert torch.equal(loaded.eval()(ids).logits, model(ids).logits)
    assert type(AutoModel.from_pretrained(tmp_path)) is PerformerModel


def test_features_are_drawn_anew_in_training_alone(performer):
    model = performer(redraw_every=3)
    ids = torch.arange(2, 14)[None]
    attention = model.performer.encoder.layer[1].attention
    first = attention.projection.clone()
    for _ in range(5):
        model(ids)
    assert torch.equal(attention.projection, first)
    model.train()
    for _ in range(3):
        model(ids)
    assert torch.equal(attention.projection, first)
    model(ids)
    second = attention.projection.clone()
    assert not torch.equal(second, first)
    again = performer(redraw_every=3).train()
    for _ in range(4):
        again(ids)
    assert torch.equal(again.performer.encoder.layer[1].attention.projection, second)


def test_gradients_of_two_passes_survive_new_features(performer):
    """The second pass draws anew; the first still needs what it was computed with."""
    ids, labels = torch.arange(2, 26).view(2, 12), torch.tensor([0, 2])

    together, apart = (performer(hidden_dropout_prob=0.0, redraw_every=1).train() for _ in range(2))
    sum(together(ids, labels=labels).loss for _ in range(2)).backward()
    for _ in range(2):
        apart(ids, labels=labels).loss.backward()
    for one, other in zip(together.parameters(), apart.parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad, atol=1e-6)


def test_a_config_may_ask_for_tuples(performer):
    model, ids = performer(), torch.arange(2, 14)[None]
    expected = model(ids).logits
    model.config.return_dict = False
    (logits,) = model(ids)
    assert torch.equal(logits, expected)


def test_layers_have_features_of_their_own(performer):
    one, two = (layer.attention.projection for layer in performer().performer.encoder.layer)
    assert not torch.equal(one, two)


def test_checkpointing_gives_the_same_gradients(performer):
    ids, labels = torch.arange(2, 26).view(2, 12), torch.tensor([0, 2])
    gradients = []
    for checkpointing in (False, True):
        model = performer(hidden_dropout_prob=0.0, redraw_every=1).train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        for _ in range(3):
            model.zero_grad()
            model(ids, labels=labels).loss.backward()
        gradients.append([p.grad for p in model.parameters()])
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(*gradients, strict=True))


def test_hidden_states_can_be_asked_for(performer):
    out = performer()(torch.arange(2, 14)[None], output_hidden_states=True)
    assert [tuple(x.shape) for x in out.hidden_states] == [(1, 12, 16)] * 3


def test_a_longer_input_than_positions_is_refused(performer):
    with pytest.raises(PyramidError, match="the input has 65 tokens and the model 64 positions"):
        performer()(torch.ones(1, 65, dtype=torch.long))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"position_ids": torch.arange(53, 65)[None]}, r"position_ids must be from 0 to 63, got 53 to 64; .*=65"),
        ({"position_ids": torch.arange(-1, 11)[None]}, "position_ids must be from 0 to 63, got -1 to 10"),
        ({"position_ids": torch.arange(9)[None]}, r"position_ids must name 12 positions a row, got shape \(1, 9\)"),
        ({"attention_mask": torch.ones(2, 9)}, r"attention_mask must be of the input's shape \(2, 12\), got \(2, 9\)"),
        ({"input_ids": torch.ones(2, 0, dtype=torch.long)}, r"at least one token a row, got shape \(2, 0\)"),
        ({"input_ids": torch.ones(12, dtype=torch.long)}, r"input_ids must be \(rows, tokens\) .*, got shape \(12,\)"),
        ({"input_ids": None, "inputs_embeds": torch.ones(2, 0, 16)}, r"inputs_embeds must .* shape \(2, 0, 16\)"),
    ],
)
def test_inputs_that_are_refused(performer, given, words):
    model = performer(redraw_every=1).train()
    with pytest.raises(PyramidError, match=words):
        model(**{"input_ids": torch.arange(2, 26).view(2, 12), **given})
    assert model.performer.steps == 0


@pytest.mark.parametrize("kernel", ["softmax", "relu"])
def test_a_row_of_padding_alone_is_finite(performer, kernel):
    model, ids = performer(kernel=kernel), torch.arange(2, 26).view(2, 12)
    mask = torch.ones(2, 12)
    mask[0] = 0
    with torch.no_grad():
        logits = model(ids, attention_mask=mask).logits
        assert logits.isfinite().all()
        assert torch.allclose(logits[1:], model(ids[1:]).logits, atol=1e-5)
