"""FAVOR+ against softmax attention, and the Performer as a transformers model."""

import json
import math

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from pyramid_bert import Schedule, pyramidize, restore, schedule_for_speedup
from pyramid_bert.bench.memory import PeakMemory
from pyramid_bert.bench.timing import Timing
from pyramid_bert.cli import main
from pyramid_bert.errors import PyramidError
from pyramid_bert.lab.performer.favor import favor_attention, orthogonal_features
from pyramid_bert.lab.performer.model import PerformerConfig, PerformerForSequenceClassification, PerformerModel
from pyramid_bert.lab.theory.measure import measure_theorem
from pyramid_bert.text.batches import Encoded
from pyramid_bert.tune import calibrate, speed

LOWEST = torch.finfo(torch.float32).min


def random(*shape, seed=0, scale=1.0):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def qkv(n=12, width=8, scale=1.0):
    return tuple(random(2, 3, n, width, seed=seed, scale=scale) for seed in range(3))


def softmax_attention(query, key, value, bias=0.0):
    return (query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1]) + bias).softmax(-1) @ value


def features(count, width=8, seed=0):
    return orthogonal_features(count, width, torch.Generator().manual_seed(seed))


SIZES = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
SIZES |= {"vocab_size": 40, "max_position_embeddings": 64, "num_features": 32, "initializer_range": 0.2}
IDS, LABELS = torch.arange(2, 26).view(2, 12), torch.tensor([0, 2])


def performer(**changes):
    torch.manual_seed(0)
    return PerformerForSequenceClassification(PerformerConfig(**{**SIZES, "num_labels": 3, **changes})).eval()


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


def errors(tries, make, scale=0.5):
    """The error of random features against softmax attention, summed over seeds."""
    query, key, value = qkv(scale=scale)
    exact = softmax_attention(query, key, value)
    found = (favor_attention(query, key, value, None, make(seed)) for seed in range(tries))
    return sum((one - exact).square().mean().item() for one in found)


def test_the_error_against_softmax_falls_with_the_features():
    by_count = [errors(8, lambda seed, count=count: features(count, seed=seed)) for count in (8, 64, 512, 4096)]
    assert by_count == sorted(by_count, reverse=True)
    assert by_count[-1] < by_count[0] / 50


def test_orthogonal_features_beat_independent_ones():
    independent = errors(100, lambda seed: random(8, 8, seed=seed))
    assert errors(100, lambda seed: features(8, seed=seed)) < 0.95 * independent


def test_a_bias_counts_a_key_several_times_and_leaves_pads_out():
    query, key, value = qkv()
    w = features(64)
    for kernel in ("softmax", "relu"):
        bias = torch.zeros(2, 1, 1, 12)
        bias[..., 3], bias[..., 9:] = math.log(3), LOWEST
        copies = [0, 1, 2, 3, 3, 3, 4, 5, 6, 7, 8]
        expected = favor_attention(query, key[:, :, copies], value[:, :, copies], None, w, kernel=kernel)
        assert torch.allclose(favor_attention(query, key, value, bias, w, kernel=kernel), expected, atol=1e-5)


def check_mean(out, *inputs):
    """Checks that an output is a mean of values, the last input, and has finite gradients."""
    out.square().sum().backward()
    assert out.isfinite().all()
    assert out.abs().max() <= inputs[-1].detach().abs().amax() * (1 + 1e-4)
    assert all(x.grad.isfinite().all() for x in inputs)


@pytest.mark.parametrize("lowest", [LOWEST, -math.inf])
@pytest.mark.parametrize(("kernel", "count"), [("softmax", 64), ("relu", 64), ("relu", 0)])
def test_a_row_without_real_keys_is_finite_and_changes_no_other(kernel, count, lowest):
    query, key, value = (x.requires_grad_() for x in qkv())
    w = features(count) if count else None
    bias = torch.zeros(2, 1, 1, 12)
    bias[0], bias[1, ..., 9:] = lowest, lowest
    out = favor_attention(query, key, value, bias, w, kernel=kernel)
    alone = favor_attention(query[1:], key[1:, :, :9], value[1:, :, :9], None, w, kernel=kernel)
    assert torch.allclose(out[1:], alone, atol=1e-5)
    check_mean(out, query, key, value)


@pytest.mark.parametrize("kernel", ["softmax", "relu"])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0, 300.0])
def test_large_and_small_numbers_stay_finite(scale, kernel):
    given = tuple(x.requires_grad_() for x in qkv(scale=scale))
    check_mean(favor_attention(*given, None, features(64), kernel=kernel), *given)


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
        ({"qkv_size": 0}, "qkv_size must be an integer of at least 1, got 0; None takes hidden_size"),
        ({"hidden_size": 0}, "hidden_size must be an integer of at least 1, got 0"),
        ({"vocab_size": 0}, "vocab_size must be an integer of at least 1, got 0"),
        ({"num_hidden_layers": -1}, "num_hidden_layers must be an integer of at least 1, got -1"),
        ({"hidden_act": "gellu"}, "unknown hidden_act 'gellu'; did you mean 'gelu'"),
    ],
)
def test_settings_that_are_refused(settings, words):
    with pytest.raises(PyramidError, match=words):
        performer(**settings)


# ---- the model ----


@pytest.mark.parametrize("settings", [{}, {"kernel": "relu"}, {"kernel": "relu", "num_features": 0}, {"qkv_size": 8}])
def test_neither_padding_nor_a_row_of_nothing_else_changes_the_others(settings):
    model = performer(**settings)
    padded = torch.cat([IDS, torch.zeros(2, 9, dtype=torch.long)], dim=1)
    mask = torch.cat([torch.ones(2, 12), torch.zeros(2, 9)], dim=1)
    with torch.no_grad():
        expected = model(IDS).logits
        assert torch.allclose(model(padded, attention_mask=mask).logits, expected, atol=1e-5)
        mask[0] = 0
        logits = model(padded, attention_mask=mask).logits
    assert logits.isfinite().all()
    assert torch.allclose(logits[1:], expected[1:], atol=1e-5)


def test_saved_and_loaded_it_is_the_same(tmp_path):
    model = performer(redraw_every=2).train()
    for _ in range(4):
        model(IDS)
    model.eval().save_pretrained(tmp_path)
    assert AutoConfig.from_pretrained(tmp_path).model_type == "performer"
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert type(loaded) is PerformerForSequenceClassification
    assert loaded.performer.steps == 4
    with torch.no_grad():
        assert torch.equal(loaded.eval()(IDS).logits, model(IDS).logits)
    assert type(AutoModel.from_pretrained(tmp_path)) is PerformerModel


def test_features_are_drawn_anew_in_training_only():
    def after(passes, train):
        model = performer(redraw_every=3).train(train)
        for _ in range(passes):
            model(IDS)
        return [layer.attention.projection for layer in model.performer.encoder.layer]

    one, two = first = after(0, False)
    assert not torch.equal(one, two)  # each layer has its own features
    for same in (after(5, False), after(3, True)):
        assert all(map(torch.equal, same, first))
    assert not any(map(torch.equal, after(4, True), first))
    assert all(map(torch.equal, after(4, True), after(4, True)))


def test_gradients_of_two_passes_survive_new_features():
    """The second pass draws new features; the first still needs those that it was computed with."""
    together, apart = (performer(hidden_dropout_prob=0.0, redraw_every=1).train() for _ in range(2))
    sum(together(IDS, labels=LABELS).loss for _ in range(2)).backward()
    for _ in range(2):
        apart(IDS, labels=LABELS).loss.backward()
    pairs = zip(together.parameters(), apart.parameters(), strict=True)
    assert all(torch.allclose(a.grad, b.grad, atol=1e-6) for a, b in pairs)


def test_checkpointing_gives_the_same_gradients():
    plain, checkpointed = (performer(hidden_dropout_prob=0.0, redraw_every=1).train() for _ in range(2))
    checkpointed.gradient_checkpointing_enable()
    for model in (plain, checkpointed):
        for _ in range(3):
            model.zero_grad()
            model(IDS, labels=LABELS).loss.backward()
    pairs = zip(plain.parameters(), checkpointed.parameters(), strict=True)
    assert all(torch.allclose(a.grad, b.grad, atol=1e-6) for a, b in pairs)


def test_tuples_and_hidden_states_can_be_asked_for():
    model = performer()
    expected = model(IDS, output_hidden_states=True)
    assert [tuple(x.shape) for x in expected.hidden_states] == [(2, 12, 16)] * 3
    model.config.return_dict = False
    (logits,) = model(IDS)
    assert torch.equal(logits, expected.logits)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"input_ids": torch.ones(1, 65, dtype=torch.long)}, "the input has 65 tokens and the model 64 positions"),
        ({"position_ids": torch.arange(53, 65)[None]}, r"position_ids must be from 0 to 63, got 53 to 64; .*=65"),
        ({"position_ids": torch.arange(-1, 11)[None]}, "position_ids must be from 0 to 63, got -1 to 10"),
        ({"position_ids": torch.arange(9)[None]}, r"position_ids must name 12 positions a row, got shape \(1, 9\)"),
        ({"attention_mask": torch.ones(2, 9)}, r"attention_mask must be of the input's shape \(2, 12\), got \(2, 9\)"),
        ({"input_ids": torch.ones(2, 0, dtype=torch.long)}, r"at least one token a row, got shape \(2, 0\)"),
        ({"input_ids": torch.ones(12, dtype=torch.long)}, r"input_ids must be \(rows, tokens\) .*, got shape \(12,\)"),
        ({"input_ids": None, "inputs_embeds": torch.ones(2, 0, 16)}, r"inputs_embeds must .* shape \(2, 0, 16\)"),
    ],
)
def test_inputs_that_are_refused(given, words):
    model = performer(redraw_every=1).train()
    with pytest.raises(PyramidError, match=words):
        model(**{"input_ids": IDS, **given})
    assert model.performer.steps == 0


# ---- where a pyramid is timed and measured ----


@pytest.fixture
def clock(monkeypatch):
    """Runs everything once; a part of a pass takes a second a token, and pyramids are measured at 1.2x."""

    def timed(runs, **_):
        for run in runs.values():
            run()
        whole = {"dense": 1.2, "pyramid": 1.0}
        words = {name: name.split() for name in runs}
        return Timing({name: [whole.get(part, float(n))] for name, (part, n) in words.items()})

    monkeypatch.setattr(speed, "time_interleaved", timed)


def test_a_performer_is_calibrated_solved_for_and_measured_by_the_theorem(clock):
    model = performer(num_hidden_layers=4)
    assert calibrate(pyramidize(performer(), Schedule.constant(0.5)), 8, batch_size=2).lengths[-1] == 8
    assert schedule_for_speedup(model, 1.2, lengths=[48] * 16).lengths(48, 4)[-1] < 48
    items = [Encoded(row, [0] * len(row)) for row in IDS.tolist()]  # token types, which a Performer does not have
    report = measure_theorem(pyramidize(model, Schedule.exponential(0.5, 2)), items)
    with torch.no_grad():
        logits = restore(model)(input_ids=IDS).logits
    losses = F.cross_entropy(logits, logits.argmax(1), reduction="none").tolist()
    assert [row.loss for row in report.rows] == pytest.approx(losses, abs=1e-5)


def test_a_saved_performer_is_timed_by_bench(tmp_path, capsys, clock):
    performer(num_hidden_layers=4).save_pretrained(tmp_path)
    assert main(["bench", "--model", str(tmp_path), *"--n 48 --rows 4 --rounds 1 --speedup 1.2 --json".split()]) == 0
    assert json.loads(capsys.readouterr().out)[0]["solution"]["wanted"] == 1.2
