"""Selection at the input: what only Performers, only BigBirds and the models of Long Range Arena do."""

import copy
import threading
from functools import partial

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification, BigBirdConfig, BigBirdModel

from pyramid_bert import PyramidError, Schedule, is_pyramid, pyramid_settings, pyramidize, restore
from pyramid_bert.errors import UnsupportedModelError
from pyramid_bert.families import base_model
from pyramid_bert.families.table import family_of
from pyramid_bert.lab.lra.models import make_model
from pyramid_bert.lab.lra.presets import load_presets
from pyramid_bert.lab.performer.model import PerformerConfig

N = 40


@pytest.fixture
def performer(tiny_of):
    return tiny_of(family_of(PerformerConfig()))


@pytest.fixture
def bigbird(tiny_of):
    return partial(tiny_of, family_of(BigBirdConfig()))


def ids(rows=3, n=N):
    return torch.randint(3, 60, (rows, n), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", ["performer-cifar10", "bigbird-cifar10"])
@pytest.mark.parametrize("keep", [None, 0.5])
def test_models_of_long_range_arena_are_loaded_without_dropout_at_the_input(name, keep, tmp_path):
    preset = load_presets()[name]
    make_model(preset, None if keep is None else Schedule.input_only(keep), seed=0).save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert loaded.config.hidden_dropout_prob == preset.dropout > 0
    assert isinstance(base_model(loaded).embeddings.dropout, torch.nn.Identity)
    with pytest.raises(PyramidError, match=r"without a schedule .* got selector, seed_of; give Schedule\.input_only"):
        make_model(preset, None, seed=0, selector="first", seed_of=1)


def test_a_performer_may_also_shrink_in_its_layers_but_not_by_attention(performer):
    pyramidize(performer, Schedule.exponential(0.25, last_layer=2))
    with torch.no_grad():
        states = performer(ids(), output_hidden_states=True).hidden_states
    assert [x.shape[1] for x in states] == [40, 20, 10]
    with pytest.raises(UnsupportedModelError, match="'attention' ranks tokens by an attention matrix"):
        pyramidize(performer, Schedule.exponential(0.5, last_layer=2), "attention")


# ---- BigBird only ----


@pytest.mark.parametrize("attention", ["block_sparse", "original_full"])
@pytest.mark.parametrize("n", [40, 39])  # 39 are filled up to whole blocks
@pytest.mark.parametrize("checkpointing", [False, True])
def test_computing_only_cls_in_bigbirds_last_layer_changes_nothing(bigbird, attention, n, checkpointing):
    mask = torch.ones(3, n, dtype=torch.long)
    mask[1, 30:] = 0
    found = []
    for cls_only in (True, False):
        model = bigbird(attention_type=attention).train()
        if checkpointing:
            model.gradient_checkpointing_enable()
        pyramidize(model, Schedule.input_only(0.7), reduce="drop", cls_only=cls_only)
        outputs = model(ids(n=n), attention_mask=mask, labels=torch.tensor([0, 1, 2]))
        outputs.loss.backward()
        top = model.bert.encoder.layer[-1]
        found.append([outputs.logits, top.attention.self.key.weight.grad, model.get_input_embeddings().weight.grad])
    for alone, all_tokens in zip(*found, strict=True):
        assert all_tokens.abs().sum() > 0
        assert torch.allclose(alone, all_tokens, atol=1e-5)


def test_dropout_of_attention_where_bigbird_has_it(bigbird):
    """Full attention drops weights in training; block-sparse attention does not."""
    for attention, differs in (("original_full", True), ("block_sparse", False)):
        model = bigbird(attention_type=attention, attention_probs_dropout_prob=0.5, num_hidden_layers=1).train()
        pyramidize(model, Schedule.input_only(0.7), "first")
        with torch.no_grad():
            assert torch.equal(model(ids()).logits, model(ids()).logits) != differs


def test_lengths_snap_to_blocks(bigbird):
    """Also for rows of few tokens, which keep their share of them; all hidden states are of that width."""
    model = pyramidize(bigbird(), Schedule.input_only(0.5), "first")
    mask = (torch.arange(N) < 9).long().expand(3, N)
    with torch.no_grad():
        assert model(ids(), attention_mask=mask).logits.isfinite().all()
    states = model(ids(), output_hidden_states=True).hidden_states
    assert states[-1].shape[1] == states[1].shape[1] > 1
    model = pyramidize(bigbird(block_size=4, num_random_blocks=1), Schedule.input_only(0.85))
    assert pyramid_settings(model).schedule.multiple_of == 4
    assert pyramid_settings(model).schedule.lengths(N, 2) == (36, 36)  # 34, in blocks of 4


def test_full_attention_needs_no_blocks(bigbird):
    model = pyramidize(bigbird(attention_type="original_full"), Schedule.input_only(0.1), "first")
    with torch.no_grad():
        cut = restore(copy.deepcopy(model))(ids()[:, :4]).logits
        assert torch.allclose(model(ids()).logits, cut, atol=1e-5)


def test_evaluation_reads_the_random_blocks_of_training(bigbird):
    model = bigbird()
    pyramid = pyramidize(copy.deepcopy(model), Schedule.input_only(1.0), "first")
    with torch.no_grad():
        assert torch.equal(pyramid.train()(ids()).logits, pyramid.eval()(ids()).logits)
        assert not torch.allclose(model.eval()(ids()).logits, pyramid(ids()).logits)


def test_threads_may_share_a_bigbird(bigbird):
    """A pass that ends must not take the blocks of training from another that is in the middle of its layers."""
    model = pyramidize(bigbird(), Schedule.input_only(0.5))
    with torch.no_grad():
        expected = model(ids()).logits
    inside = {name: threading.Event() for name in ("first", "second")}
    ended, found = threading.Event(), {}

    def after_a_layer(layer, given, out):
        inside[threading.current_thread().name].set()
        if threading.current_thread().name == "first":
            inside["second"].wait(timeout=1)  # times out if passes wait for each other
        else:
            ended.wait(timeout=60)

    def first():
        with torch.no_grad():
            found["first"] = model(ids()).logits
        ended.set()

    def second():
        inside["first"].wait(timeout=60)
        with torch.no_grad():
            found["second"] = model(ids()).logits

    model.bert.encoder.layer[0].register_forward_hook(after_a_layer)
    threads = [threading.Thread(target=run, name=run.__name__) for run in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(found[name], expected) for name in ("first", "second"))
    assert not any(part.training for part in model.modules())


@pytest.mark.parametrize("reentrant", [None, False, True])
def test_numpys_generator_is_left_alone(bigbird, reentrant):
    """Also by the layers that gradient checkpointing runs a second time."""
    model = pyramidize(bigbird().train(), Schedule.input_only(0.5))
    if reentrant is not None:
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    np.random.seed(7)
    expected = np.random.RandomState(7)
    loss = model(ids(), labels=torch.tensor([0, 1, 2])).loss
    assert np.random.rand() == expected.rand()
    loss.backward()
    assert np.random.rand() == expected.rand()


@pytest.mark.parametrize(("block", "n", "keep", "kept"), [(8, 200, 0.5, 104), (64, 1001, 0.8, 832)])
def test_blocks_of_the_papers_sizes(bigbird, block, n, keep, kept):
    """As if the dense model had been given only the kept tokens: 13 blocks, one more than needed."""
    sizes = {"block_size": block, "num_random_blocks": 3, "max_position_embeddings": 1024, "hidden_size": 8}
    model = bigbird(**sizes).train()
    row = ids(rows=1, n=n)
    with torch.no_grad():
        dense = model(row[:, :kept]).logits
        pyramid = pyramidize(model, Schedule.input_only(keep), "first")
        assert pyramid_settings(pyramid).schedule.lengths(n, 2) == (kept, kept)
        assert torch.allclose(pyramid(row).logits, dense, atol=1e-5)


def test_a_keep_ratio_that_leaves_too_few_blocks(bigbird):
    for block, keep, n, message in (
        (2, 0.2, 40, r"leaves 8 of 40 tokens, 4 blocks of 2, .* least 8 blocks, 16"),
        (2, 0.02, 40, "leaves 1 of 40 tokens, less than a block of 2"),
        (4, 0.2, 37, "leaves 8 of 37 tokens, 2 blocks of 4"),  # 37, not what fills up a block
    ):
        model = pyramidize(bigbird(block_size=block), Schedule.input_only(keep))
        with pytest.raises(PyramidError, match=message):
            model(ids(n=n))


def test_an_input_too_short_for_blocks_changes_nothing(bigbird, monkeypatch):
    logged = []
    monkeypatch.setattr("transformers.models.big_bird.modeling_big_bird.logger.warning", logged.append)
    model = pyramidize(bigbird(), Schedule.input_only(0.5))
    short = model.get_input_embeddings()(ids(n=12))
    with torch.no_grad():
        before = model(ids()).logits
        for given in ({"input_ids": ids(n=12)}, {"inputs_embeds": short}):
            with pytest.raises(PyramidError, match=r"has 12 tokens, 6 blocks of 2, .* at least 8 blocks, 16 tokens"):
                model(**given)
        with pytest.raises(PyramidError, match="keeps its attention_type 'block_sparse', got 'original_full'"):
            model.bert.set_attention_type("original_full")
        assert torch.equal(model(ids()).logits, before)
        least = pyramidize(bigbird(), Schedule.input_only(1.0), "first")
        assert least(ids(n=15)).logits.isfinite().all()  # 8 blocks, the last of them filled up
    assert not any("Changing attention type" in line for line in logged)
    spoiled = bigbird()
    spoiled(ids(n=12))
    with pytest.raises(UnsupportedModelError, match="turned to full attention because of a short input"):
        pyramidize(spoiled, Schedule.input_only(0.5))


@pytest.mark.parametrize(
    ("schedule", "settings", "words"),
    [
        (Schedule.exponential(0.5, 2), {}, "BigBird can select only at the input, got placement='middle'"),
        (Schedule.input_only(0.5), {"weighted": True, "reduce": "drop"}, "weighted=True has no meaning"),
        (Schedule.input_only(0.5), {"reduce": "replace"}, "reduce='replace' has no meaning"),
        (Schedule.input_only(0.5), {"rest_from": 2}, "its tokens cannot rest, got rest_from=2"),
    ],
)
def test_what_bigbird_refuses(bigbird, schedule, settings, words):
    model = bigbird()
    with pytest.raises(UnsupportedModelError, match=words):
        pyramidize(model, schedule, **settings)
    assert not is_pyramid(model)
    with pytest.raises(UnsupportedModelError, match="BigBirdModel gives more than the CLS vector"):
        pyramidize(BigBirdModel(model.config), Schedule.input_only(0.5))
