"""Selection at the input: of Performers and BigBirds."""

import copy
import threading

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForSequenceClassification,
    BigBirdConfig,
    BigBirdForSequenceClassification,
    BigBirdModel,
)

from pyramid_bert import PyramidError, Schedule, is_pyramid, pyramid_settings, pyramidize, restore
from pyramid_bert.core.tokens import Tokens
from pyramid_bert.errors import UnsupportedModelError
from pyramid_bert.families import base_model, pyramid_encoder
from pyramid_bert.lab.lra.models import make_model
from pyramid_bert.lab.lra.presets import load_presets
from pyramid_bert.lab.performer.model import PerformerConfig, PerformerForSequenceClassification

N = 40
METHODS = {
    "first": {"selector": "first"},
    "random": {"selector": "random"},
    "all": {"selector": "coreset", "centers_per_step": "all", "reduce": "drop"},
    "one": {"selector": "coreset", "reduce": "drop"},
    "tenth": {"selector": "coreset", "centers_per_step": 0.1, "reduce": "drop"},
    "merge": {"selector": "coreset", "reduce": "merge"},
}


@pytest.fixture
def make():
    sizes = {
        "vocab_size": 60,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "max_position_embeddings": 64,
        "initializer_range": 0.2,
        "hidden_dropout_prob": 0.0,
        "num_labels": 3,
    }

    def performer(**changes):
        torch.manual_seed(0)
        return PerformerForSequenceClassification(PerformerConfig(**{**sizes, "num_features": 32, **changes})).eval()

    def bigbird(**changes):
        torch.manual_seed(0)
        blocks = {"block_size": 2, "num_random_blocks": 1}
        return BigBirdForSequenceClassification(BigBirdConfig(**{**sizes, **blocks, **changes})).eval()

    return {"performer": performer, "bigbird": bigbird}


def ids(rows=3, n=N, seed=0):
    return torch.randint(3, 60, (rows, n), generator=torch.Generator().manual_seed(seed))


both = pytest.mark.parametrize("family", ["performer", "bigbird"])
every_method = pytest.mark.parametrize("method", METHODS)


@both
@every_method
def test_the_layers_see_the_kept_tokens_alone(make, family, method):
    """As if the embeddings of the kept tokens, with their own positions, had been given to the dense model."""
    model = make[family]()
    pyramidize(model, Schedule.input_only(0.5), **METHODS[method])
    base, seen = base_model(model), []
    hook = base.encoder.layer[0].register_forward_hook(lambda layer, given, out: seen.append(given[0]))
    whole = _embedded(base)
    with torch.no_grad():
        model(ids())
    hook.remove()
    (kept,) = seen
    assert kept.shape[1] == N // 2
    assert torch.equal(kept[:, 0], whole[:, 0])  # CLS
    if method != "merge":
        for row, some in zip(whole, kept, strict=True):
            places = [int(torch.where((row == token).all(1))[0]) for token in some]
            assert places == sorted(set(places))


@both
def test_keeping_everything_is_the_dense_model(make, family):
    model = make[family]().train()  # random blocks are those of training
    with torch.no_grad():
        dense = model(ids()).logits
        kept = pyramidize(model, Schedule.input_only(1.0), "first")(ids()).logits
    assert torch.allclose(dense, kept, atol=1e-5)


@both
def test_embeddings_learn_through_the_selection(make, family):
    model = pyramidize(make[family]().train(), Schedule.input_only(0.5), "first")
    model(ids(rows=2), labels=torch.tensor([0, 1])).loss.backward()
    gradient = model.get_input_embeddings().weight.grad
    kept, dropped = set(ids(rows=2)[:, : N // 2].flatten().tolist()), set(ids(rows=2)[:, N // 2 :].flatten().tolist())
    assert all(gradient[token].abs().sum() > 0 for token in kept)
    assert all(gradient[token].abs().sum() == 0 for token in dropped - kept)


@both
@every_method
def test_saved_and_loaded_it_is_the_same(make, family, method, tmp_path):
    model = pyramidize(make[family](), Schedule.input_only(0.5), **METHODS[method])
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert pyramid_settings(loaded) == pyramid_settings(model)
    with torch.no_grad():
        assert torch.equal(loaded(ids()).logits, model(ids()).logits)
    with pytest.raises((KeyError, PyramidError), match="pyramid-bert"):
        type(restore(copy.deepcopy(model))).from_pretrained(tmp_path)


@both
def test_restoring_leaves_nothing_behind(make, family):
    model = make[family]()
    kind, config = type(model), type(model.config)
    with torch.no_grad():
        before = model(ids()).logits
        pyramidize(model, Schedule.input_only(0.5))
        assert not torch.allclose(model(ids()).logits, before)
        restore(model)
        assert torch.equal(model(ids()).logits, before)
    assert not is_pyramid(model)
    assert (type(model), type(model.config)) == (kind, config)


def chosen_at_the_input(encoder, hidden, mask=None):
    """The tokens that reach the first layer."""
    tokens = Tokens.of(hidden, mask)
    step = next(encoder.plan.steps(tokens.counts))
    return tokens.reduced(encoder.reducer(tokens, step)).hidden


@both
def test_dropout_has_no_say_in_the_choice(make, family, tmp_path):
    """Neither here nor after saving and loading; it comes back with the dense model."""
    model = pyramidize(make[family](hidden_dropout_prob=0.3), Schedule.input_only(0.5), reduce="drop")
    pyramidize(model, Schedule.input_only(0.4), reduce="drop")  # new settings
    model.save_pretrained(tmp_path)
    for pyramid in (model, copy.deepcopy(model), AutoModelForSequenceClassification.from_pretrained(tmp_path)):
        base = base_model(pyramid)
        chosen = [chosen_at_the_input(base.encoder, _embedded(base.train(mode))) for mode in (True, False)]
        assert torch.equal(*chosen)
        assert any(part.p == 0.3 for part in base.encoder.layer.modules() if isinstance(part, torch.nn.Dropout))
        restore(pyramid)
        assert base.embeddings.dropout.p == 0.3
        assert not torch.equal(_embedded(base.train()), _embedded(base))
        assert not base.embeddings._forward_hooks
        assert not base._forward_pre_hooks
        if family == "performer":  # a pyramid that does not select at the input keeps it
            assert pyramidize(pyramid, Schedule.exponential(0.25, 2)).performer.embeddings.dropout.p == 0.3


def _embedded(base):
    return base.embeddings(ids(), None, None)


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


@both
def test_padding_does_not_change_what_is_chosen(make, family):
    model = pyramidize(make[family](), Schedule.input_only(0.6), reduce="drop")
    short = ids(rows=1, n=30)
    padded = torch.cat([short, torch.zeros(1, 10, dtype=torch.long)], dim=1)
    mask = (torch.arange(N) < 30).long()[None]
    encoder = pyramid_encoder(model)
    found = []
    for batch, real in ((short, None), (padded, mask)):
        hidden = model.get_input_embeddings()(batch)
        found.append(chosen_at_the_input(encoder, hidden, None if real is None else real.bool()))
    assert torch.equal(*found)


def test_a_performer_may_also_shrink_in_its_layers(make):
    model = pyramidize(make["performer"](), Schedule.exponential(0.25, last_layer=2))
    with torch.no_grad():
        states = model(ids(), output_hidden_states=True).hidden_states
    assert [x.shape[1] for x in states] == [40, 20, 10]


def test_a_performer_ranks_by_no_attention(make):
    with pytest.raises(UnsupportedModelError, match="'attention' ranks tokens by an attention matrix"):
        pyramidize(make["performer"](), Schedule.exponential(0.5, last_layer=2), "attention")


# ---- BigBird's own ----


@pytest.mark.parametrize("attention", ["block_sparse", "original_full"])
@pytest.mark.parametrize("n", [40, 39])  # 39 are filled up to whole blocks
@pytest.mark.parametrize("checkpointing", [False, True])
def test_cls_alone_in_bigbirds_last_layer_changes_nothing(make, attention, n, checkpointing):
    mask = torch.ones(3, n, dtype=torch.long)
    mask[1, 30:] = 0
    found = []
    for cls_only in (True, False):
        model = make["bigbird"](attention_type=attention, attention_probs_dropout_prob=0.0).train()
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


def test_dropout_of_attention_where_bigbird_has_it(make):
    """Full attention drops weights in training; block-sparse attention does not."""
    for attention, differs in (("original_full", True), ("block_sparse", False)):
        model = make["bigbird"](attention_type=attention, attention_probs_dropout_prob=0.5, num_hidden_layers=1).train()
        pyramidize(model, Schedule.input_only(0.7), "first")
        with torch.no_grad():
            assert torch.equal(model(ids()).logits, model(ids()).logits) != differs


def test_lengths_snap_to_blocks(make):
    """Also for rows of few tokens, which keep their share of them; all hidden states are of that width."""
    model = pyramidize(make["bigbird"](), Schedule.input_only(0.5), "first")
    mask = (torch.arange(N) < 9).long().expand(3, N)
    with torch.no_grad():
        assert model(ids(), attention_mask=mask).logits.isfinite().all()
    states = model(ids(), output_hidden_states=True).hidden_states
    assert states[-1].shape[1] == states[1].shape[1] > 1
    model = pyramidize(make["bigbird"](block_size=4, num_random_blocks=1), Schedule.input_only(0.85))
    assert pyramid_settings(model).schedule.multiple_of == 4
    assert pyramid_settings(model).schedule.lengths(N, 2) == (36, 36)  # 34, in blocks of 4


def test_full_attention_needs_no_blocks(make):
    model = pyramidize(make["bigbird"](attention_type="original_full"), Schedule.input_only(0.1), "first")
    with torch.no_grad():
        cut = restore(copy.deepcopy(model))(ids()[:, :4]).logits
        assert torch.allclose(model(ids()).logits, cut, atol=1e-5)


def test_evaluation_reads_the_random_blocks_of_training(make):
    model = make["bigbird"]()
    pyramid = pyramidize(copy.deepcopy(model), Schedule.input_only(1.0), "first")
    with torch.no_grad():
        assert torch.equal(pyramid.train()(ids()).logits, pyramid.eval()(ids()).logits)
        assert not torch.allclose(model.eval()(ids()).logits, pyramid(ids()).logits)


def test_threads_may_share_a_bigbird(make):
    """A pass that ends must not take the blocks of training from another that is in the middle of its layers."""
    model = pyramidize(make["bigbird"](), Schedule.input_only(0.5))
    with torch.no_grad():
        expected = model(ids()).logits
    inside = {name: threading.Event() for name in ("first", "second")}
    ended, found = threading.Event(), {}

    def after_a_layer(layer, given, out):
        inside[threading.current_thread().name].set()
        if threading.current_thread().name == "first":
            inside["second"].wait(timeout=1)  # in vain, if passes wait for each other
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
def test_numpys_generator_is_left_alone(make, reentrant):
    """Also by the layers that gradient checkpointing runs a second time."""
    model = pyramidize(make["bigbird"]().train(), Schedule.input_only(0.5))
    if reentrant is not None:
        model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    np.random.seed(7)
    expected = np.random.RandomState(7)
    loss = model(ids(), labels=torch.tensor([0, 1, 2])).loss
    assert np.random.rand() == expected.rand()
    loss.backward()
    assert np.random.rand() == expected.rand()


@pytest.mark.parametrize(("block", "n", "keep", "kept"), [(8, 200, 0.5, 104), (64, 1001, 0.8, 832)])
def test_blocks_of_the_papers_sizes(make, block, n, keep, kept):
    """As if the dense model had been given the kept tokens alone; 13 blocks, one more than needed."""
    sizes = {"block_size": block, "num_random_blocks": 3, "max_position_embeddings": 1024, "hidden_size": 8}
    model = make["bigbird"](**sizes).train()
    row = ids(rows=1, n=n)
    with torch.no_grad():
        dense = model(row[:, :kept]).logits
        pyramid = pyramidize(model, Schedule.input_only(keep), "first")
        assert pyramid_settings(pyramid).schedule.lengths(n, 2) == (kept, kept)
        assert torch.allclose(pyramid(row).logits, dense, atol=1e-5)


def test_a_keep_ratio_that_leaves_too_few_blocks(make):
    for block, keep, n, message in (
        (2, 0.2, 40, r"leaves 8 of 40 tokens, 4 blocks of 2, .* least 8 blocks, 16"),
        (2, 0.02, 40, "leaves 1 of 40 tokens, less than a block of 2"),
        (4, 0.2, 37, "leaves 8 of 37 tokens, 2 blocks of 4"),  # 37, not what fills up a block
    ):
        model = pyramidize(make["bigbird"](block_size=block), Schedule.input_only(keep))
        with pytest.raises(PyramidError, match=message):
            model(ids(n=n))


def test_an_input_too_short_for_blocks_changes_nothing(make, monkeypatch):
    logged = []
    monkeypatch.setattr("transformers.models.big_bird.modeling_big_bird.logger.warning", logged.append)
    model = pyramidize(make["bigbird"](), Schedule.input_only(0.5))
    short = model.get_input_embeddings()(ids(n=12))
    with torch.no_grad():
        before = model(ids()).logits
        for given in ({"input_ids": ids(n=12)}, {"inputs_embeds": short}):
            with pytest.raises(PyramidError, match=r"has 12 tokens, 6 blocks of 2, .* at least 8 blocks, 16 tokens"):
                model(**given)
        with pytest.raises(PyramidError, match="keeps its attention_type 'block_sparse', got 'original_full'"):
            model.bert.set_attention_type("original_full")
        assert torch.equal(model(ids()).logits, before)
        least = pyramidize(make["bigbird"](), Schedule.input_only(1.0), "first")
        assert least(ids(n=15)).logits.isfinite().all()  # 8 blocks, the last of them filled up
    assert not any("Changing attention type" in line for line in logged)
    spoiled = make["bigbird"]()
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
def test_what_bigbird_refuses(make, schedule, settings, words):
    model = make["bigbird"]()
    with pytest.raises(UnsupportedModelError, match=words):
        pyramidize(model, schedule, **settings)
    assert not is_pyramid(model)
    with pytest.raises(UnsupportedModelError, match="BigBirdModel gives more than the CLS vector"):
        pyramidize(BigBirdModel(model.config), Schedule.input_only(0.5))
