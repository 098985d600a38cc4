"""Selection at the input, which all families have: for every row of the table.

The rest of their contract is in tests/reference/test_every_family.py.
"""

import copy

import pytest
import torch
import transformers
from torch import nn
from transformers import AutoModelForSequenceClassification

import pyramid_bert.lab.performer  # noqa: F401  adds its row
from pyramid_bert import Schedule, families, pyramid_settings, pyramidize, restore
from pyramid_bert.core.selectors import get_selector, selector_names
from pyramid_bert.core.tokens import Tokens
from pyramid_bert.families import FAMILIES, Where, base_model
from pyramid_bert.families.table import _if_known

N = 40
METHODS = {
    **{name: {"selector": name} for name in selector_names() if name != "pool" and not get_selector(name).voters},
    "all": {"centers_per_step": "all", "reduce": "drop"},
    "one": {"reduce": "drop"},
    "tenth": {"centers_per_step": 0.1, "reduce": "drop"},
}


def dropouts(module):
    """The probabilities of dropout in a module."""
    found = {part.p for part in module.modules() if isinstance(part, nn.Dropout)}
    return found | {part.attention_dropout for part in module.modules() if hasattr(part, "attention_dropout")}


every_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.model_type)
every_method = pytest.mark.parametrize("method", METHODS)


def ids(rows=3, n=N):
    return torch.randint(3, 60, (rows, n), generator=torch.Generator().manual_seed(0))


def embedded(model, tokens=None):
    return families.embedded(model, ids() if tokens is None else tokens)


def chosen_at_the_input(model, tokens=None, mask=None):
    """The tokens after the selection at the input."""
    encoder, tokens = families.encoder_of(model), Tokens.of(embedded(model, tokens), mask)
    step = next(encoder.plan.steps(tokens.counts))
    return tokens.reduced(encoder.reducer(tokens, step))


@every_family
@every_method
def test_kept_tokens_are_those_of_the_input_in_order(tiny_of, family, method):
    model = pyramidize(tiny_of(family), Schedule.input_only(0.5), **METHODS[method])
    whole, chosen = embedded(model), chosen_at_the_input(model)
    assert chosen.hidden.shape[1] == N // 2
    assert torch.equal(chosen.hidden[:, 0], whole[:, 0])  # CLS
    assert (chosen.positions.diff(dim=1) > 0).all()
    if pyramid_settings(model).reduce != "merge":
        assert torch.equal(chosen.hidden, torch.stack([row[i] for row, i in zip(whole, chosen.positions, strict=True)]))


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
    if checkpointing is not None and not model.supports_gradient_checkpointing:
        pytest.skip(f"transformers has no gradient checkpointing for {family.model_type}")
    if checkpointing is not None:
        model.gradient_checkpointing_enable({"use_reentrant": checkpointing})
    pyramidize(model, Schedule.input_only(0.5), "first")
    model(tokens, labels=torch.tensor([0, 1])).loss.backward()
    gradient = model.get_input_embeddings().weight.grad
    kept, dropped = (set(part.flatten().tolist()) for part in tokens.split(N // 2, dim=1))
    assert all(gradient[token].abs().sum() > 0 for token in kept)
    assert all(gradient[token].abs().sum() == 0 for token in dropped - kept)


@every_family
def test_dropout_does_not_affect_the_choice(tiny_of, family, tmp_path):
    """Neither here nor after saving and loading; it comes back with the dense model."""
    model = pyramidize(tiny_of(family, dropout=0.3), Schedule.input_only(0.5), reduce="drop")
    pyramidize(model, Schedule.input_only(0.4), reduce="drop")  # new settings
    model.save_pretrained(tmp_path)
    for pyramid in (model, copy.deepcopy(model), AutoModelForSequenceClassification.from_pretrained(tmp_path)):
        assert torch.equal(*(chosen_at_the_input(pyramid.train(mode)).hidden for mode in (True, False)))
        assert 0.3 in dropouts(families.encoder_of(pyramid))
        restore(pyramid)
        embeddings = families.embeddings_of(pyramid)
        assert torch.equal(embedded(pyramid.train()), embedded(pyramid)) == (not dropouts(embeddings))
        assert not embeddings._forward_hooks
        assert not base_model(pyramid)._forward_pre_hooks
        if family.model is not None and dropouts(embeddings):  # a pyramid that selects elsewhere keeps it
            pyramidize(pyramid, Schedule.exponential(0.25, 2))
            assert 0.3 in dropouts(families.embeddings_of(pyramid))


def test_a_release_of_transformers_without_a_family_has_no_row_for_it():
    row = {"model_type": "nomic_bert", "where": Where(base="nomic_bert"), "how": FAMILIES[0].how}
    assert [family.config for family in _if_known("NomicBert", **row)] == [transformers.NomicBertConfig]
    assert _if_known("OfALaterRelease", **row) == []
