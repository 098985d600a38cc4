"""Distances out of tables are those of the embeddings themselves, and choose the same tokens."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from transformers import BigBirdConfig

from pyramid_bert import Schedule, pyramidize, restore
from pyramid_bert.core import compiled
from pyramid_bert.core.coreset import k_center_greedy
from pyramid_bert.core.covering import nearest_kept
from pyramid_bert.core.distances import Geometry
from pyramid_bert.core.tables import Summands, Sums
from pyramid_bert.families import base_model
from pyramid_bert.families.table import family_of
from pyramid_bert.lab.performer.model import PerformerConfig

TOKENS, VALUES, WIDTH = 60, 20, 16
FULL = {"type_vocab_size": 1, "attention_type": "original_full"}


@pytest.fixture
def make(tiny_of):
    """Makes models whose embeddings are normalized as after training: no longer with ones and zeros."""

    def make(config=PerformerConfig, **changes):
        model = tiny_of(family_of(config()), **{"vocab_size": VALUES, **changes})
        norm, generator = base_model(model).embeddings.LayerNorm, torch.Generator().manual_seed(0)
        with torch.no_grad():
            norm.weight.uniform_(0.5, 2, generator=generator)
            norm.bias.normal_(0, 3, generator=generator)
        return model

    return make


@pytest.fixture
def performer(make):
    """A Performer that selects half of the tokens at the input."""
    return pyramidize(make(), Schedule.input_only(0.5))


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


@pytest.mark.parametrize(
    ("config", "changes"),
    [(PerformerConfig, {}), (BigBirdConfig, FULL), (BigBirdConfig, {**FULL, "rescale_embeddings": True})],
)
def test_tables_give_the_distances_of_the_embeddings(make, config, changes):
    model = pyramidize(make(config, **changes), Schedule.input_only(0.5)).double()
    hidden = embedded(model, input_ids=ids())
    sums, geometry = tables_of(hidden), Geometry.of(hidden)
    torch.testing.assert_close(sums.distances, geometry.distances, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(sums.to_cls, geometry.to_cls, rtol=1e-9, atol=1e-9)
    hidden = embedded(model.float(), input_ids=ids())
    torch.testing.assert_close(tables_of(hidden).distances, Geometry.of(hidden).distances, rtol=1e-4, atol=1e-3)


def test_an_equal_of_cls_is_at_distance_zero(performer):
    with torch.no_grad():
        base_model(performer).embeddings.position_embeddings.weight[:] = 0.1
    hidden = embedded(performer, input_ids=torch.tensor([[1, 5, 1, 7]]))
    to_cls = tables_of(hidden).to_cls[0]
    assert to_cls[[0, 2]].tolist() == [0, 0]
    assert (to_cls[[1, 3]] > 0).all()


@pytest.mark.parametrize("m", [1, 0.2])
def test_compiled_loops_read_the_tables_as_torch_does(performer, m, monkeypatch):
    hidden = embedded(performer.double(), input_ids=ids())
    sums = tables_of(hidden)
    counts = [7, 30, 59, 1, 12]
    found = k_center_greedy(hidden, None, counts, centers_per_step=m, geometry=sums)
    kept = found.indices[1:2, :30].sort(1).values.expand(5, -1).contiguous()
    nearest = nearest_kept(sums, kept, None)
    monkeypatch.setattr(compiled, "available", lambda: False)
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
def test_logits_are_the_same_with_and_without_tables(make, settings, longest, monkeypatch):
    """With padding; in one case no row is as wide as the batch."""
    model = pyramidize(make(), Schedule.input_only(0.3), **settings).double()
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


@pytest.mark.parametrize("settings", [{"metric": "cosine"}, {"selector": "cluster"}, {}], ids=str)
def test_other_ways_to_choose_and_gaps_in_the_mask_use_no_tables(performer, settings, monkeypatch):
    """With gaps, CLS is first, then pads, then the rest: positions are no longer those of the tables."""
    model = pyramidize(performer, Schedule.input_only(0.3), **settings)
    real = torch.ones(5, TOKENS, dtype=torch.long)
    real[:, 1:10] = 1 if settings else 0
    monkeypatch.setattr(Sums, "of", lambda made_of: pytest.fail("used tables"))
    with torch.no_grad():
        model(input_ids=ids(), attention_mask=real)


def test_tokens_too_close_together_are_told_apart_by_a_gram_matrix(performer):
    """The values share a vector that is large beside their differences: in fp32, tables would lose the differences."""
    model = pyramidize(performer, Schedule.input_only(0.3), reduce="drop")
    with torch.no_grad():
        base_model(model).embeddings.word_embeddings.weight += 100 * torch.randn(1, WIDTH)
        found = model(input_ids=ids()).logits
        torch.testing.assert_close(found, copy.deepcopy(model).double()(input_ids=ids()).logits.float())


@pytest.mark.parametrize(
    ("config", "changes", "inputs"),
    [
        (PerformerConfig, {}, {"inputs_embeds": torch.randn(2, TOKENS, WIDTH)}),
        (PerformerConfig, {}, {"input_ids": ids(), "position_ids": torch.arange(TOKENS).flip(0)[None]}),
        (PerformerConfig, {"vocab_size": 2000}, {"input_ids": ids()}),
        (BigBirdConfig, {**FULL, "type_vocab_size": 2}, {"input_ids": ids()}),
    ],
    ids=["vectors", "positions", "vocabulary", "types"],
)
def test_other_embeddings_have_no_tables(make, config, changes, inputs):
    model = pyramidize(make(config, **changes), Schedule.input_only(0.5))
    assert Summands.taken_from(embedded(model, **inputs)) is None


def test_written_embeddings_dropout_or_no_numba_leave_no_tables(performer, monkeypatch):
    hidden = embedded(performer, input_ids=ids())
    hidden += 1
    assert Summands.taken_from(hidden) is None
    base_model(performer).embeddings.dropout = torch.nn.Dropout(0.5)  # put back by hand
    assert Summands.taken_from(embedded(performer.train(), input_ids=ids())) is None
    assert Summands.taken_from(embedded(performer.eval(), input_ids=ids())) is not None
    monkeypatch.setattr(compiled, "available", lambda: False)
    assert Summands.taken_from(embedded(performer, input_ids=ids())) is None


CHANGES = {
    "noisy words": lambda parts: parts.word_embeddings.register_forward_hook(lambda module, args, out: out + 1),
    "replaced": lambda parts: parts.register_forward_hook(lambda module, args, out: out + 1),
    "no weights": lambda parts: setattr(parts, "LayerNorm", nn.LayerNorm(WIDTH, elementwise_affine=False)),
    "root mean square": lambda parts: setattr(parts, "LayerNorm", nn.RMSNorm(WIDTH)),
    "another kind": lambda parts: setattr(parts, "word_embeddings", nn.Sequential(parts.word_embeddings)),
    "half precision": lambda parts: parts.bfloat16(),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
@pytest.mark.parametrize("before", [True, False])
def test_changed_embeddings_have_no_tables(make, change, before):
    model = make()
    if before:
        change(base_model(model).embeddings)
    pyramidize(model, Schedule.input_only(0.5))
    if not before:
        change(base_model(model).embeddings)
    assert Summands.taken_from(embedded(model, input_ids=ids())) is None


def test_the_encoder_leaves_nothing_with_the_embeddings(performer, logits_of):
    seen = []
    base_model(performer).encoder.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    logits_of(performer, {"input_ids": ids()})
    assert not seen[0].__dict__


def test_hooks_come_and_go_with_the_pyramid(performer):
    for each in (performer, copy.deepcopy(performer)):
        hooks = base_model(each).embeddings._forward_hooks
        assert len(hooks) == 1
        pyramidize(each, Schedule.input_only(0.3))
        assert len(hooks) == 1
        pyramidize(each, Schedule.constant(0.5))
        assert not hooks
        pyramidize(each, Schedule.input_only(0.3))
        restore(each)
        assert not hooks
