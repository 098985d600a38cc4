"""Distances out of tables are those of the embeddings themselves, and choose the same tokens."""

from __future__ import annotations

import copy

import pytest
import torch
from transformers import BigBirdConfig, BigBirdForSequenceClassification

from pyramid_bert import Schedule, pyramidize, restore
from pyramid_bert.adapters import base_model, pyramid_encoder
from pyramid_bert.models import PerformerConfig, PerformerForSequenceClassification
from pyramid_bert.select import Geometry, compiled, k_center_greedy
from pyramid_bert.select.summed import Summands, Sums

pytestmark = pytest.mark.skipif(
    not compiled.available(), reason="numba is not installed: pip install 'pyramid-bert[fast]'"
)

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
    seen = []
    handle = base_model(model).encoder.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(args[0] if args else kwargs["hidden_states"]), with_kwargs=True
    )
    with torch.no_grad():
        model(**inputs)
    handle.remove()
    return seen[0]


@pytest.mark.parametrize("family", ["performer", "bigbird"])
def test_tables_give_the_distances_of_the_embeddings(family):
    model = pyramidize(make(family), Schedule.input_only(0.5)).double()
    hidden = embedded(model, input_ids=ids())
    sums = Geometry(Sums.of(Summands.behind(hidden)).split(2))
    geometry = Geometry.of(hidden)
    torch.testing.assert_close(sums.distances, geometry.distances, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(sums.to_cls, geometry.to_cls, rtol=1e-9, atol=1e-9)


def test_values_can_be_rescaled():
    model = pyramidize(make("bigbird", rescale_embeddings=True), Schedule.input_only(0.5)).double()
    hidden = embedded(model, input_ids=ids())
    sums = Geometry((Sums.of(Summands.behind(hidden)),))
    torch.testing.assert_close(sums.distances, Geometry.of(hidden).distances, rtol=1e-9, atol=1e-9)


def test_compiled_loops_read_the_tables_as_torch_does():
    model = pyramidize(make("performer"), Schedule.input_only(0.5)).double()
    hidden = embedded(model, input_ids=ids())
    geometry = Geometry.of(hidden)
    sums = Geometry(Sums.of(Summands.behind(hidden)).split(2))
    counts = [7, 30, 59, 1, 12]
    expected = k_center_greedy(hidden, None, counts, geometry=geometry)
    found = k_center_greedy(hidden, None, counts, geometry=sums)
    torch.testing.assert_close(found.radius, expected.radius)
    for row, count in enumerate(counts):
        assert found.indices[row, :count].tolist() == expected.indices[row, :count].tolist()


@pytest.mark.parametrize("settings", [{}, {"reduce": "merge"}, {"weighted": True}])
def test_a_model_says_the_same_with_and_without_tables(settings, monkeypatch):
    model = pyramidize(make("performer"), Schedule.input_only(0.3), **settings).double()
    real = torch.arange(TOKENS) < torch.tensor([TOKENS, 40, 3, 50, 21])[:, None]
    inputs = {"input_ids": ids(), "attention_mask": real.long()}
    used = []
    monkeypatch.setattr(Sums, "of", lambda made_of, of=Sums.of: used.append(made_of) or of(made_of))
    with torch.no_grad():
        with_tables = model(**inputs).logits
        assert len(used) == 1
        monkeypatch.setattr(Summands, "behind", lambda hidden: None)
        torch.testing.assert_close(with_tables, model(**inputs).logits)
    assert len(used) == 1


def vectors_instead_of_ids(model):
    return {"inputs_embeds": base_model(model).embeddings.word_embeddings(ids())}


@pytest.mark.parametrize(
    ("changes", "inputs"),
    [
        ({}, vectors_instead_of_ids),
        ({}, lambda model: {"input_ids": ids(), "position_ids": torch.arange(TOKENS).flip(0)[None]}),
        ({"vocab_size": 2000}, lambda model: {"input_ids": ids()}),
    ],
)
def test_other_embeddings_have_no_tables(changes, inputs):
    model = pyramidize(make("performer", **changes), Schedule.input_only(0.5))
    with torch.no_grad():
        assert Summands.behind(embedded(model, **inputs(model))) is None


def test_dropout_before_the_choice_leaves_no_tables():
    model = pyramidize(make("performer", hidden_dropout_prob=0.5), Schedule.input_only(0.5)).train()
    assert Summands.behind(embedded(model, input_ids=ids())) is None
    assert Summands.behind(embedded(model.eval(), input_ids=ids())) is not None


def test_two_types_of_tokens_have_no_tables():
    model = pyramidize(make("bigbird", type_vocab_size=2), Schedule.input_only(0.5))
    assert Summands.behind(embedded(model, input_ids=ids())) is None


def test_left_padding_is_chosen_from_the_embeddings_themselves(monkeypatch):
    """CLS is first, then pads, then the rest: positions are no longer those of the tables."""
    model = pyramidize(make("performer"), Schedule.input_only(0.5))
    real = torch.ones(5, TOKENS, dtype=torch.long)
    real[:, 1:10] = 0
    monkeypatch.setattr(Sums, "of", lambda made_of: pytest.fail("used tables"))
    with torch.no_grad():
        model(input_ids=ids(), attention_mask=real)


def test_the_hook_goes_with_the_pyramid_and_copies_with_the_model():
    model = pyramidize(make("performer"), Schedule.input_only(0.5))
    twin = copy.deepcopy(model)
    plain = restore(model)
    assert Summands.behind(embedded(plain, input_ids=ids())) is None
    assert pyramid_encoder(twin) is not None
    assert Summands.behind(embedded(twin, input_ids=ids())) is not None
