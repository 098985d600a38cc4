"""The contract of a model family, for every row of the table.

All families can select at the input, so the contract is tested there. Selection between layers is tested in
tests/reference/test_against_transformers.py.
"""

import copy

import pytest
import torch
from torch import nn
from transformers import AutoModelForSequenceClassification

import pyramid_bert.lab.performer  # noqa: F401  adds its row
from pyramid_bert import PyramidError, Schedule, is_pyramid, pyramid_settings, pyramidize, restore
from pyramid_bert.core.selectors import get_selector, selector_names
from pyramid_bert.core.tokens import Tokens
from pyramid_bert.export.record import FAMILIES as EXPORTED
from pyramid_bert.families import base_model
from pyramid_bert.families.table import FAMILIES

N = 40
METHODS = {
    **{name: {"selector": name} for name in selector_names() if name != "pool" and not get_selector(name).voters},
    "all": {"centers_per_step": "all", "reduce": "drop"},
    "one": {"reduce": "drop"},
    "tenth": {"centers_per_step": 0.1, "reduce": "drop"},
}
every_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.model_type)
every_method = pytest.mark.parametrize("method", METHODS)


def ids(rows=3, n=N):
    return torch.randint(3, 60, (rows, n), generator=torch.Generator().manual_seed(0))


def embedded(model, tokens=None):
    return base_model(model).embeddings(ids() if tokens is None else tokens, None, None)


def chosen_at_the_input(model, tokens=None, mask=None):
    """The tokens after the selection at the input."""
    encoder, tokens = base_model(model).encoder, Tokens.of(embedded(model, tokens), mask)
    step = next(encoder.plan.steps(tokens.counts))
    return tokens.reduced(encoder.reducer(tokens, step))


@every_family
@every_method
def test_the_layers_see_only_the_kept_tokens(tiny_of, logits_of, family, method):
    """As if the embeddings of the kept tokens, with their own positions, had been given to the dense model."""
    model = pyramidize(tiny_of(family), Schedule.input_only(0.5), **METHODS[method])
    seen = []
    query = next(part for part in base_model(model).encoder.layer[0].modules() if isinstance(part, nn.Linear))
    query.register_forward_pre_hook(lambda part, given: seen.append(given[0]))
    logits_of(model, {"input_ids": ids()})
    (kept,), whole = seen, embedded(model)
    assert kept.shape[1] == N // 2
    assert torch.equal(kept[:, 0], whole[:, 0])  # CLS
    if pyramid_settings(model).reduce != "merge":
        for row, some in zip(whole, kept, strict=True):
            places = [int(torch.where((row == token).all(1))[0]) for token in some]
            assert places == sorted(set(places))


@every_family
def test_keeping_everything_is_the_dense_model(tiny_of, logits_of, family):
    model, batch = tiny_of(family).train(), {"input_ids": ids()}  # BigBird's random blocks are those of training
    dense = logits_of(model, batch)
    kept = logits_of(pyramidize(model, Schedule.input_only(1.0), "first"), batch)
    torch.testing.assert_close(kept, dense, atol=1e-5, rtol=0)


@every_family
@pytest.mark.parametrize("reduce", ["drop", "merge"])
def test_neither_padding_nor_other_rows_change_what_is_chosen(tiny_of, logits_of, family, reduce):
    model = pyramidize(tiny_of(family), Schedule.input_only(0.6), reduce=reduce)
    mask = torch.arange(N) < torch.tensor([N, 30, 35])[:, None]
    together = chosen_at_the_input(model, ids() * mask, mask)
    logits = logits_of(model, {"input_ids": ids() * mask, "attention_mask": mask.long()})
    for row, n in enumerate((N, 30, 35)):
        alone = chosen_at_the_input(model, ids()[row : row + 1, :n])
        torch.testing.assert_close(together.hidden[row, : alone.counts[0]], alone.hidden[0])
        assert together.positions[row, : alone.counts[0]].tolist() == alone.positions[0].tolist()
        if family.model_type != "big_bird":  # its blocks depend on the width
            own = logits_of(model, {"input_ids": ids()[row : row + 1, :n]})
            torch.testing.assert_close(logits[row], own[0], atol=1e-5, rtol=0)


@every_family
@pytest.mark.parametrize("checkpointing", [None, True, False])
def test_embeddings_learn_through_the_selection(tiny_of, family, checkpointing):
    model, tokens = tiny_of(family).train(), ids(rows=2)
    if checkpointing is not None:
        model.gradient_checkpointing_enable({"use_reentrant": checkpointing})
    pyramidize(model, Schedule.input_only(0.5), "first")
    model(tokens, labels=torch.tensor([0, 1])).loss.backward()
    gradient = model.get_input_embeddings().weight.grad
    kept, dropped = (set(part.flatten().tolist()) for part in tokens.split(N // 2, dim=1))
    assert all(gradient[token].abs().sum() > 0 for token in kept)
    assert all(gradient[token].abs().sum() == 0 for token in dropped - kept)


@every_family
@every_method
def test_saved_and_loaded_it_is_the_same(tiny_of, logits_of, family, method, tmp_path):
    model = pyramidize(tiny_of(family), Schedule.input_only(0.5), **METHODS[method])
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert pyramid_settings(loaded) == pyramid_settings(model)
    assert torch.equal(logits_of(loaded, {"input_ids": ids()}), logits_of(model, {"input_ids": ids()}))
    with pytest.raises((KeyError, PyramidError), match="pyramid-bert"):
        family.classifier.from_pretrained(tmp_path)


@every_family
def test_restoring_leaves_nothing_behind(tiny_of, logits_of, family):
    model, batch = tiny_of(family), {"input_ids": ids()}
    before = logits_of(model, batch)
    pyramidize(model, Schedule.input_only(0.5))
    assert not torch.allclose(logits_of(model, batch), before)
    restore(model)
    assert torch.equal(logits_of(model, batch), before)
    assert not is_pyramid(model)
    assert (type(model), type(model.config)) == (family.classifier, family.config)


@every_family
def test_dropout_does_not_affect_the_choice(tiny_of, family, tmp_path):
    """Neither here nor after saving and loading; it comes back with the dense model."""
    model = pyramidize(tiny_of(family, hidden_dropout_prob=0.3), Schedule.input_only(0.5), reduce="drop")
    pyramidize(model, Schedule.input_only(0.4), reduce="drop")  # new settings
    model.save_pretrained(tmp_path)
    for pyramid in (model, copy.deepcopy(model), AutoModelForSequenceClassification.from_pretrained(tmp_path)):
        base = base_model(pyramid)
        assert torch.equal(*(chosen_at_the_input(pyramid.train(mode)).hidden for mode in (True, False)))
        assert any(part.p == 0.3 for part in base.encoder.layer.modules() if isinstance(part, nn.Dropout))
        restore(pyramid)
        assert base.embeddings.dropout.p == 0.3
        assert not torch.equal(embedded(pyramid.train()), embedded(pyramid))
        assert not base.embeddings._forward_hooks
        assert not base._forward_pre_hooks
        if family.model is not None:  # a pyramid that does not select at the input keeps it
            assert base_model(pyramidize(pyramid, Schedule.exponential(0.25, 2))).embeddings.dropout.p == 0.3


@every_family
def test_what_runs_without_torch_knows_how_a_family_runs_a_layer(family):
    """Exported models are loaded where the table of families cannot be."""
    assert EXPORTED.get(family.model_type, family.halves.halves) == family.halves.halves


def test_exported_families_have_a_row():
    assert set(EXPORTED) <= {family.model_type for family in FAMILIES}
