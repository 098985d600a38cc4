"""metric="sensitivity": distances by how much the answer would change, against slow, obvious references."""

import copy

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification

import pyramid_bert.training.sensitivity as module
from pyramid_bert import (
    PyramidClassifier,
    PyramidConfig,
    PyramidError,
    Schedule,
    measure_sensitivity,
    optimize,
    pyramidize,
    restore,
)
from pyramid_bert.core.cluster import ward_groups
from pyramid_bert.core.reducer import project
from pyramid_bert.errors import CheckpointError, DataError
from pyramid_bert.families import set_sensitivity, sizes_of
from pyramid_bert.families.table import family_of
from pyramid_bert.lab.performer.model import PerformerConfig
from pyramid_bert.lab.theory.radius import RadiusCurves
from pyramid_bert.text.batches import Encoded
from pyramid_bert.text.labels import Labels

LAYERS, WIDTH = 4, 32
SHRINKING = Schedule.exponential(0.4, 2)


@pytest.fixture(scope="module")
def items():
    """Texts of different lengths, some alone in theirs."""
    generator = torch.Generator().manual_seed(3)
    lengths = [*range(4, 24), *[9] * 10]
    return [Encoded([2, *torch.randint(5, 200, (n - 2,), generator=generator).tolist(), 3]) for n in lengths]


def middle_of(model, layer, **inputs):
    """The states (B, N, D) between the halves of a layer of a dense model, and the logits."""
    states = []
    part = model.bert.encoder.layer[layer].attention.output
    hook = part.register_forward_hook(lambda part, given, state: states.append(state))
    logits = model(**inputs).logits
    hook.remove()
    return states[0], logits


def fisher_by_hand(model, items, layer):
    """The mean over tokens of the Fisher information of the outputs: text by text, class by class, in fp64."""
    model = copy.deepcopy(model).double()
    total, tokens = torch.zeros(WIDTH, WIDTH, dtype=torch.float64), 0
    for item in items:
        state, logits = middle_of(model, layer, input_ids=torch.tensor([item.input_ids]))
        log_shares = logits.log_softmax(1)[0] if logits.shape[1] > 1 else logits[0]
        for log_share in log_shares:
            (gradient,) = torch.autograd.grad(log_share, state, retain_graph=True)
            share = float(log_share.detach().exp()) if logits.shape[1] > 1 else 1.0
            gradient = gradient[0, 1:]  # but for CLS
            total += share * gradient.T @ gradient
        tokens += len(item) - 1
    return total / tokens


@pytest.mark.parametrize("labels", [1, 2])
def test_it_is_the_fisher_information(tiny_bert, items, labels):
    """Of a regressor: in units of the spread of its outputs."""
    model = measure_sensitivity(tiny_bert(labels=labels), items)
    with torch.no_grad():
        outputs = torch.cat([model(torch.tensor([item.input_ids])).logits for item in items])
    spread = 1.0 if labels > 1 else outputs.double().var(unbiased=False)
    for layer in range(LAYERS - 1):
        root = model.bert.sensitivity[layer].double()
        expected = fisher_by_hand(model, items, layer) / spread
        torch.testing.assert_close(root @ root.T, expected, atol=1e-5 * float(expected.abs().max()), rtol=1e-3)
    assert fisher_by_hand(model, items, LAYERS - 1).abs().max() == 0  # of the last layer CLS alone is read
    assert torch.equal(model.bert.sensitivity[-1], model.bert.sensitivity[-2])


def test_with_more_classes_it_is_so_on_average(tiny_bert, items, monkeypatch):
    """Signs are drawn, so one pass for all classes is right in the mean alone: here over many passes."""
    model, some = tiny_bert(labels=3), items[:2]
    monkeypatch.setattr(module, "MIN_TEXTS", 1)
    monkeypatch.setattr(module, "MOST_TEXTS", 10_000)
    measure_sensitivity(model, some * 1000)
    root = model.bert.sensitivity[1].double()
    expected = fisher_by_hand(model, some, 1)
    assert (root @ root.T - expected).norm() < 0.05 * expected.norm()


def test_only_leading_directions_are_kept(tiny_bert, items, monkeypatch):
    whole = measure_sensitivity(tiny_bert(), items).bert.sensitivity
    monkeypatch.setattr(module, "SENSITIVITY_RANK", 3)
    few = measure_sensitivity(tiny_bert(), items).bert.sensitivity
    assert few.shape == (LAYERS, WIDTH, 3)
    assert whole.shape == (LAYERS, WIDTH, WIDTH)
    torch.testing.assert_close(few, whole[..., -3:])


def test_groups_are_those_of_projected_tokens(tiny_bert, items, tiny_batch, traced):
    """What is merged at the first layer: Ward's groups of its tokens times the directions."""
    model, batch = measure_sensitivity(tiny_bert(), items), tiny_batch((16,))
    with torch.no_grad():
        state, _ = middle_of(model, 0, **batch)
    felt = state @ model.bert.sensitivity[0]
    settings = {"selector": "cluster", "metric": "sensitivity", "within": 4}
    pyramidize(model, Schedule.custom([7, 7, 7, 7]), **settings)
    (group,) = ward_groups(felt, None, 7, within=4).tolist()
    homes = traced(model, batch).layers[0].home[0].tolist()
    assert homes == [group.index(slot) for slot in group]  # a group is named after its first token
    assert ward_groups(state, None, 7, within=4).tolist() != [group]


def test_directions_that_change_no_answer_do_not_count(tiny_bert, tiny_batch, logits_of, items):
    """With all directions alike it is the Euclidean distance, and with none everything is as near as anything."""
    model, batch = tiny_bert(), tiny_batch((24, 9))
    euclidean = logits_of(pyramidize(copy.deepcopy(model), SHRINKING, "cluster"), batch)
    set_sensitivity(model.bert, torch.eye(WIDTH).repeat(LAYERS, 1, 1))
    alike = logits_of(pyramidize(model, SHRINKING, "cluster", metric="sensitivity"), batch)
    torch.testing.assert_close(alike, euclidean, atol=1e-5, rtol=0)
    measured = logits_of(measure_sensitivity(model, items), batch)
    assert not torch.allclose(measured, euclidean, atol=1e-3)


@pytest.mark.parametrize("selector", ["cluster", "coreset"])
def test_it_is_saved_with_a_pyramid_that_uses_it(tiny_bert, tiny_batch, logits_of, items, tmp_path, selector):
    model, batch = measure_sensitivity(tiny_bert(), items[:25]), tiny_batch((24, 9))
    pyramidize(model, SHRINKING, selector, metric="sensitivity", rest_from=4)
    before = model.bert.sensitivity
    measure_sensitivity(model, items)  # once more
    assert not torch.equal(model.bert.sensitivity, before)
    expected = logits_of(model, batch)
    model.save_pretrained(tmp_path)
    loaded, report = AutoModelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert torch.equal(logits_of(loaded, batch), expected)
    assert torch.equal(loaded.bert.sensitivity, model.bert.sensitivity)


def test_a_saved_pyramid_without_it_is_damaged(tiny_bert, tokenizer, items, tmp_path):
    model = measure_sensitivity(tiny_bert(), items)
    pyramidize(model, SHRINKING, "cluster", metric="sensitivity")
    PyramidClassifier(model, tokenizer, labels=Labels.of([0, 1], texts=2)).save(tmp_path / "whole")
    PyramidClassifier.load(tmp_path / "whole")
    weights = load_file(tmp_path / "whole" / "model.safetensors")
    del weights["bert.sensitivity"]
    save_file(weights, tmp_path / "whole" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CheckpointError, match=r"lacks weights that the model needs, for example bert\.sensitivity"):
        PyramidClassifier.load(tmp_path / "whole")


def test_it_goes_with_no_other_pyramid_and_leaves_with_restore(tiny_bert, items):
    untouched = tiny_bert()
    keys, parameters = list(untouched.state_dict()), sum(weight.numel() for weight in untouched.parameters())
    model = measure_sensitivity(tiny_bert(), items)
    assert list(model.state_dict()) == keys
    pyramidize(model, SHRINKING, "cluster", metric="sensitivity")
    assert set(model.state_dict()) - set(keys) == {"bert.sensitivity"}
    assert sum(weight.numel() for weight in model.parameters()) == parameters
    pyramidize(model, SHRINKING, "cluster", metric="cosine")
    assert list(model.state_dict()) == keys
    pyramidize(model, SHRINKING, "cluster", metric="sensitivity")  # still known
    restore(model)
    assert list(model.state_dict()) == keys
    assert not hasattr(model.bert, "sensitivity")
    assert not hasattr(restore(measure_sensitivity(model, items)).bert, "sensitivity")  # dense all the time


def test_measuring_changes_nothing_else(tiny_bert, tiny_batch, logits_of, items):
    batch = tiny_batch((24, 9))
    model = tiny_bert().train()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    measure_sensitivity(model, items)
    assert torch.equal(torch.rand(3), expected)
    assert model.training
    assert all(weight.requires_grad and weight.grad is None for weight in model.parameters())
    assert all(torch.equal(weight, before[name]) for name, weight in model.state_dict().items())
    pyramid = pyramidize(tiny_bert(), SHRINKING, "cluster")
    kept = logits_of(pyramid, batch)
    with torch.inference_mode():
        measure_sensitivity(pyramid, items)  # of the dense model
    assert torch.equal(pyramid.bert.sensitivity, model.bert.sensitivity)
    torch.testing.assert_close(logits_of(pyramid, batch), kept)
    packed = measure_sensitivity(optimize(tiny_bert()), items).bert.sensitivity
    torch.testing.assert_close(packed.abs(), model.bert.sensitivity.abs(), atol=1e-4, rtol=1e-2)


def test_it_learns_and_runs_in_half_precision(tiny_bert, tiny_batch, items):
    model = measure_sensitivity(tiny_bert(), items)
    pyramidize(model, SHRINKING, "cluster", metric="sensitivity")
    model(**tiny_batch((24, 9)), labels=torch.tensor([0, 1])).loss.backward()
    assert model.bert.embeddings.word_embeddings.weight.grad.abs().sum() > 0
    with torch.no_grad():
        assert model.to(torch.bfloat16)(**tiny_batch((24, 9))).logits.isfinite().all()


def test_tokens_are_projected_in_full_precision(tiny_bert, items):
    """Also under autocast, and in half precision: what tokens have in common would eat the digits."""
    sensitivity = measure_sensitivity(tiny_bert(), items).bert.sensitivity[0]
    hidden = 100 + torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(0))
    expected = hidden @ sensitivity
    with torch.autocast("cpu", torch.bfloat16):
        found = project(hidden, sensitivity)
    assert torch.equal(found, expected)
    half = project(hidden.bfloat16(), sensitivity.bfloat16())
    assert half.dtype == torch.float32


@pytest.mark.parametrize(
    ("schedule", "rest_from", "compared"),
    [
        (Schedule.custom([12, 6, 6, 3], n=24), None, 24 + 12),  # the last layer computes CLS alone
        (Schedule.custom([24, 6, 6, 6], n=24), 3, 24),
        (Schedule.adaptive(0.5, first_layer=2), None, 12 + 6),  # compares at every layer, whatever comes of it
        (Schedule.adaptive(0.5, first_layer=1, last_layer=2), 4, 24 + 12),
    ],
)
def test_projecting_is_counted(tiny_bert, schedule, rest_from, compared):
    config, kept = tiny_bert().config, (12, 6, 6, 3)
    kept = (24, 6, 6, 6) if rest_from == 3 else kept
    costs = {
        metric: PyramidConfig(schedule=schedule, selector="cluster", metric=metric, rest_from=rest_from)
        for metric in ("cosine", "sensitivity")
    }
    plain, projected = (settings.cost(kept, 24, sizes_of(config)) for settings in costs.values())
    assert projected.macs - plain.macs == compared * WIDTH * WIDTH  # as many directions as there are
    assert projected.dense_macs == plain.dense_macs


def test_a_performer_has_it_too(tiny_of, items):
    model = tiny_of(family_of(PerformerConfig()), vocab_size=300, num_hidden_layers=3)
    measure_sensitivity(model, items)
    assert model.performer.sensitivity[0].abs().max() > 0
    pyramidize(model, SHRINKING, "cluster", metric="sensitivity")


def test_radius_curves_are_of_projected_tokens(tiny_bert, items):
    dense = tiny_bert()
    by = {}
    for scale in (1.0, 2.0):
        pyramid = copy.deepcopy(dense)
        set_sensitivity(pyramid.bert, scale * torch.eye(WIDTH).repeat(LAYERS, 1, 1))
        by[scale] = RadiusCurves.of(dense, pyramidize(pyramid, SHRINKING, metric="sensitivity"), items)
    euclidean = RadiusCurves.of(dense, pyramidize(copy.deepcopy(dense), SHRINKING), items)
    assert by[1.0].curves[0] == pytest.approx(euclidean.curves[0], abs=1e-4)
    assert by[2.0].curves[0] == pytest.approx(2 * euclidean.curves[0], abs=1e-4)
    half = measure_sensitivity(tiny_bert(), items).to(torch.bfloat16)
    pyramidize(half, SHRINKING, metric="sensitivity")
    assert RadiusCurves.of(dense.to(torch.bfloat16), half, items).curves[0].shape == euclidean.curves[0].shape


def test_it_has_to_be_measured_first(tiny_bert, tiny_model_dir):
    with pytest.raises(PyramidError, match=r"has not been measured: call measure_sensitivity\(model, items\) before"):
        pyramidize(tiny_bert(), SHRINKING, metric="sensitivity")
    with pytest.raises(PyramidError, match="has not been measured"):
        PyramidClassifier.from_pretrained(tiny_model_dir, SHRINKING, metric="sensitivity")


def test_what_cannot_be_measured_is_refused(tiny_bert, items):
    with pytest.raises(DataError, match="needs at least 25 texts, got 24"):
        measure_sensitivity(tiny_bert(), items[:24])
    with pytest.raises(PyramidError, match="got BertModel, which has no head"):
        measure_sensitivity(tiny_bert().bert, items)
