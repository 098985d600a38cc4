"""Distances out of tables are those of the embeddings themselves, and choose the same tokens."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from transformers import BigBirdConfig, BigBirdForSequenceClassification

from pyramid_bert import Schedule, pyramidize, restore
from pyramid_bert.core import compiled
from pyramid_bert.core.coreset import k_center_greedy
from pyramid_bert.core.covering import nearest_kept
from pyramid_bert.core.distances import Geometry
from pyramid_bert.core.tables import Summands, Sums
from pyramid_bert.families import base_model
from pyramid_bert.lab.performer.model import PerformerConfig, PerformerForSequenceClassification

TOKENS, VALUES = 60, 20
SIZES = {"vocab_size": VALUES, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
SIZES |= {"intermediate_size": 32, "max_position_embeddings": 64, "hidden_dropout_prob": 0.0}


def make(family, **changes):
    torch.manual_seed(0)
    if family == "performer":
        model = PerformerForSequenceClassification(PerformerConfig(**{**SIZES, **changes}))
    else:
        options = {"type_vocab_size": 1, "attention_type": "original_full", **SIZES, **changes}
        model = BigBirdForSequenceClassification(BigBirdConfig(**options))
    norm = base_model(model).embeddings.LayerNorm
    with torch.no_grad():  # as after training: no longer ones and zeros
        norm.weight.uniform_(0.5, 2)
        norm.bias.normal_(0, 3)
    return model.eval()


def ids(rows=5):
    found = torch.randint(2, VALUES, (rows, TOKENS), generator=torch.Generator().manual_seed(1))
    found[:, 0] = 1
    return found


def embedded(model, **inputs):
    """The embeddings, as the encoder gets them."""
    names = ("input_ids", "inputs_embeds", "position_ids")
    with torch.no_grad():
        return base_model(model).embeddings(**{**dict.fromkeys(names), **inputs})


def tables_of(hidden, parts=3):
    return Geometry(Sums.of(Summands.taken_from(hidden)).split(parts))


@pytest.mark.parametrize("family", ["performer", "bigbird"])
@pytest.mark.parametrize("changes", [{}, {"rescale_embeddings": True}])
def test_tables_give_the_distances_of_the_embeddings(family, changes):
    if family == "performer" and changes:
        pytest.skip("a Performer does not rescale")
    model = pyramidize(make(family, **changes), Schedule.input_only(0.5)).double()
    hidden = embedded(model, input_ids=ids())
    sums, geometry = tables_of(hidden), Geometry.of(hidden)
    torch.testing.assert_close(sums.distances, geometry.distances, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(sums.to_cls, geometry.to_cls, rtol=1e-9, atol=1e-9)
    hidden = embedded(model.float(), input_ids=ids())
    torch.testing.assert_close(tables_of(hidden).distances, Geometry.of(hidden).distances, rtol=1e-4, atol=1e-3)


def test_an_equal_of_cls_is_at_distance_zero():
    model = make("performer")
    with torch.no_grad():
        base_model(model).embeddings.position_embeddings.weight[:] = 0.1
    hidden = embedded(pyramidize(model, Schedule.input_only(0.5)), input_ids=torch.tensor([[1, 5, 1, 7]]))
    to_cls = tables_of(hidden).to_cls[0]
    assert to_cls[[0, 2]].tolist() == [0, 0]
    assert (to_cls[[1, 3]] > 0).all()


@pytest.mark.parametrize("m", [1, 0.2])
def test_compiled_loops_read_the_tables_as_torch_does(m, monkeypatch):
    model = pyramidize(make("performer"), Schedule.input_only(0.5)).double()
    hidden = embedded(model, input_ids=ids())
    sums = tables_of(hidden)
    counts = [7, 30, 59, 1, 12]
    found = k_center_greedy(hidden, None, counts, centers_per_step=m, geometry=sums)
    kept = found.indices[1:2, :30].sort(1).values.expand(5, -1).contiguous()
    nearest = nearest_kept(sums, kept, None)
    monkeypatch.setattr(compiled, "can_run", lambda geometry: False)
    expected = k_center_greedy(hidden, None, counts, centers_per_step=m, geometry=sums)
    torch.testing.assert_close(found.radius, expected.radius)
    for row, count in enumerate(counts):
        assert found.indices[row, :count].tolist() == expected.indices[row, :count].tolist()
    slot, squared = nearest_kept(sums, kept, None)
    assert torch.equal(nearest[0], slot)
    torch.testing.assert_close(nearest[1], squared)


WAYS = [
    {"reduce": "drop"},
    {"reduce": "drop", "centers_per_step": 0.3},
    {"reduce": "drop", "weighted": True},
    {"reduce": "merge"},
    {"reduce": "merge", "centers_per_step": "all"},
    {"reduce": "merge", "selector": "first"},
    {"reduce": "replace"},
]


@pytest.mark.parametrize("longest", [TOKENS, 45])
@pytest.mark.parametrize("settings", WAYS, ids=str)
def test_a_model_says_the_same_with_and_without_tables(settings, longest, monkeypatch):
    """With padding, which leaves no row as wide as the batch in one case."""
    model = pyramidize(make("performer"), Schedule.input_only(0.3), **settings).double()
    real = torch.arange(TOKENS) < torch.tensor([longest, 40, 3, 41, 21])[:, None]
    inputs = {"input_ids": ids(), "attention_mask": real.long()}
    used = []
    monkeypatch.setattr(Sums, "of", lambda made_of, of=Sums.of: used.append(made_of) or of(made_of))
    with torch.no_grad():
        with_tables = model(**inputs).logits
        assert len(used) == 1
        monkeypatch.setattr(Summands, "taken_from", lambda hidden: None)
        torch.testing.assert_close(with_tables, model(**inputs).logits)
    assert len(used) == 1


@pytest.mark.parametrize("settings", [{"metric": "cosine"}, {"selector": "cluster"}], ids=str)
def test_other_ways_to_choose_use_no_tables(settings, monkeypatch):
    model = pyramidize(make("performer"), Schedule.input_only(0.3), **settings)
    monkeypatch.setattr(Sums, "of", lambda made_of: pytest.fail("used tables"))
    with torch.no_grad():
        model(input_ids=ids())


def test_tokens_too_close_together_are_told_apart_by_a_gram_matrix():
    """What all values share is large beside their differences: in fp32, tables would lose these."""
    model = make("performer")
    with torch.no_grad():
        base_model(model).embeddings.word_embeddings.weight += 100 * torch.randn(1, SIZES["hidden_size"])
    model = pyramidize(model, Schedule.input_only(0.3), reduce="drop")
    with torch.no_grad():
        found = model(input_ids=ids()).logits
        torch.testing.assert_close(found, copy.deepcopy(model).double()(input_ids=ids()).logits.float())


@pytest.mark.parametrize(
    ("family", "changes", "inputs"),
    [
        ("performer", {}, {"inputs_embeds": torch.randn(2, TOKENS, SIZES["hidden_size"])}),
        ("performer", {}, {"input_ids": ids(), "position_ids": torch.arange(TOKENS).flip(0)[None]}),
        ("performer", {"vocab_size": 2000}, {"input_ids": ids()}),
        ("bigbird", {"type_vocab_size": 2}, {"input_ids": ids()}),
    ],
    ids=["vectors", "positions", "vocabulary", "types"],
)
def test_other_embeddings_have_no_tables(family, changes, inputs):
    model = pyramidize(make(family, **changes), Schedule.input_only(0.5))
    assert Summands.taken_from(embedded(model, **inputs)) is None


def test_embeddings_that_were_written_to_and_those_without_numba_have_no_tables(monkeypatch):
    model = pyramidize(make("performer"), Schedule.input_only(0.5))
    hidden = embedded(model, input_ids=ids())
    hidden += 1
    assert Summands.taken_from(hidden) is None
    monkeypatch.setattr(compiled, "available", lambda: False)
    assert Summands.taken_from(embedded(model, input_ids=ids())) is None


CHANGES = {
    "noisy words": lambda parts: parts.word_embeddings.register_forward_hook(lambda module, args, out: out + 1),
    "replaced": lambda parts: parts.register_forward_hook(lambda module, args, out: out + 1),
    "no weights": lambda parts: setattr(
        parts, "LayerNorm", nn.LayerNorm(SIZES["hidden_size"], elementwise_affine=False)
    ),
    "root mean square": lambda parts: setattr(parts, "LayerNorm", nn.RMSNorm(SIZES["hidden_size"])),
    "another kind": lambda parts: setattr(parts, "word_embeddings", nn.Sequential(parts.word_embeddings)),
    "half precision": lambda parts: parts.bfloat16(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.parametrize("before", [True, False])
def test_changed_embeddings_have_no_tables(change, before):
    model = make("performer")
    if before:
        change(base_model(model).embeddings)
    pyramidize(model, Schedule.input_only(0.5))
    if not before:
        change(base_model(model).embeddings)
    assert Summands.taken_from(embedded(model, input_ids=ids())) is None


def test_the_encoder_leaves_nothing_with_the_embeddings():
    model = pyramidize(make("performer"), Schedule.input_only(0.5))
    seen = []
    base_model(model).encoder.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    with torch.no_grad():
        model(input_ids=ids())
    assert not seen[0].__dict__


def test_dropout_before_the_choice_leaves_no_tables():
    model = pyramidize(make("performer"), Schedule.input_only(0.5)).train()
    base_model(model).embeddings.dropout = torch.nn.Dropout(0.5)  # put back by hand
    assert Summands.taken_from(embedded(model, input_ids=ids())) is None
    assert Summands.taken_from(embedded(model.eval(), input_ids=ids())) is not None


def test_gaps_in_the_mask_are_chosen_from_the_embeddings_themselves(monkeypatch):
    """CLS is first, then pads, then the rest: positions are no longer those of the tables."""
    model = pyramidize(make("performer"), Schedule.input_only(0.5))
    real = torch.ones(5, TOKENS, dtype=torch.long)
    real[:, 1:10] = 0
    monkeypatch.setattr(Sums, "of", lambda made_of: pytest.fail("used tables"))
    with torch.no_grad():
        model(input_ids=ids(), attention_mask=real)


def test_hooks_come_and_go_with_the_pyramid():
    model = pyramidize(make("performer"), Schedule.input_only(0.5))
    twin = copy.deepcopy(model)
    for each in (model, twin):
        hooks = base_model(each).embeddings._forward_hooks
        assert len(hooks) == 1
        pyramidize(each, Schedule.input_only(0.3))
        assert len(hooks) == 1
        pyramidize(each, Schedule.constant(0.5))
        assert not hooks
        pyramidize(each, Schedule.input_only(0.3))
        restore(each)
        assert not hooks
