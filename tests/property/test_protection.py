"""Protected tokens survive every selector and every reduction, in torch and in graphs of other runtimes."""

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForSequenceClassification, RobertaConfig, RobertaForSequenceClassification

from pyramid_bert import PyramidConfig, Schedule, pyramid_settings, pyramidize, restore
from pyramid_bert.core.loop import Exactly, Pass, Step
from pyramid_bert.core.protection import Protection
from pyramid_bert.core.record import Trace
from pyramid_bert.core.reducer import Reducer, Space
from pyramid_bert.core.selectors import Grouper, get_selector, selector_names
from pyramid_bert.core.tokens import Protected, Tokens
from pyramid_bert.errors import PyramidError, UnknownNameError, UnsupportedModelError
from pyramid_bert.families import FAMILIES
from pyramid_bert.text.inference import kept_of

sys.path.append(str(Path(__file__).parents[1] / "integration"))
from helpers import graphs_of

CLS, SEP = 2, 3
HALVING = Schedule.exponential(0.3, last_layer=3, min_tokens=2)
SCHEDULES = {"pool": Schedule.strided(2, (1, 3)), "input-first": Schedule.input_only(0.4)}
WAYS = [
    (name, reduce, {})
    for name in selector_names()
    for reduce in (
        ["merge" if get_selector(name).weighs else "drop"]
        if isinstance(get_selector(name), Grouper)
        else ["drop", "merge", "replace"]
    )
]
WAYS += [
    ("coreset", "drop", {"weighted": True}),
    ("coreset", "merge", {"centers_per_step": "all", "metric": "cosine"}),
    ("coreset", "merge", {"placement": "end"}),
    ("cluster", "merge", {"within": 2}),
    ("coreset", "merge", {"schedule": Schedule.adaptive(0.9)}),
    ("cluster", "merge", {"schedule": Schedule.adaptive(0.9)}),
]
PAIRS = [(5, 20), (2, 9), (12, 3), (1, 1), (3, 30)]  # tokens of query and document
ways = pytest.mark.parametrize(("selector", "reduce", "more"), WAYS, ids=str)


def batch_of(pairs, width=None, seed=0):
    """`[CLS] query [SEP] document [SEP] [PAD] ...`, with types; row i is the same whatever the others are."""
    longest = max(query + document + 3 for query, document in pairs)
    shape = len(pairs), width or longest
    ids, types, mask = (torch.zeros(shape, dtype=torch.long) for _ in range(3))
    for row, (query, document) in enumerate(pairs):
        n, words = query + document + 3, torch.Generator().manual_seed(1000 * seed + query + 50 * document)
        ids[row, :n] = torch.randint(5, 200, (n,), generator=words)
        ids[row, 0], ids[row, query + 1], ids[row, n - 1] = CLS, SEP, SEP
        types[row, query + 2 : n] = 1
        mask[row, :n] = 1
    return {"input_ids": ids, "token_type_ids": types, "attention_mask": mask}


def pyramid(tiny_bert, selector, reduce, more, protect=("query", "separators"), **others):
    schedule = SCHEDULES.get(selector, HALVING)
    how = {"schedule": schedule, "selector": selector, "reduce": reduce, "protect": protect, **more, **others}
    return pyramidize(tiny_bert(), config=PyramidConfig(**how))


def protected_of(query, document, protect):
    n = query + document + 3
    parts = {"query": range(query + 2), "separators": (query + 1, n - 1)}
    return {place for part in protect for place in parts[part]}


@ways
@pytest.mark.parametrize("protect", [("query", "separators"), ("query",), ("separators",)], ids=str)
def test_protected_tokens_are_neither_dropped_nor_merged(tiny_bert, both_ways, selector, reduce, more, protect):
    model, trace = pyramid(tiny_bert, selector, reduce, more, protect), Trace()
    with torch.no_grad():
        model(**batch_of(PAIRS), pyramid_pass=Pass(trace, whole=True))
    assert trace.layers
    lost = 0
    for layer, (row, (query, document)) in itertools.product(trace.layers, enumerate(PAIRS)):
        kept = {place for place in layer.kept[row].tolist() if place >= 0}
        apart = protected_of(query, document, protect)
        assert apart <= kept
        home = layer.home[row].tolist()
        assert all(home[place] == place for place in apart | {0})
        if reduce == "merge" or get_selector(selector).name == "pool":
            others = set(range(query + document + 3)) - apart - {0}
            assert not {home[place] for place in others} & (apart | {0})
        lost += query + document + 3 - len(kept)
    assert lost > 0  # something is reduced


@ways
def test_as_many_tokens_stay_as_the_schedule_says_where_that_is_enough(tiny_bert, selector, reduce, more):
    if selector == "pool" or "schedule" in more:
        return  # windows and radii decide
    model, trace = pyramid(tiny_bert, selector, reduce, more), Trace()
    with torch.no_grad():
        model(**batch_of(PAIRS), pyramid_pass=Pass(trace, whole=True))
    for layer in trace.layers:
        for row, (query, document) in enumerate(PAIRS):
            n, kept = query + document + 3, sum(place >= 0 for place in layer.kept[row].tolist())
            wanted = SCHEDULES.get(selector, HALVING).lengths(n, 4)[max(layer.layer, 1) - 1]
            assert kept == max(wanted, 1 + len(protected_of(query, document, ("query", "separators")) - {0}))


@ways
def test_graphs_of_other_runtimes_protect_alike(tiny_bert, selector, reduce, more):
    if reduce == "replace":
        return  # saves nothing and is not exported
    model, batch, expected, found = pyramid(tiny_bert, selector, reduce, more), batch_of(PAIRS), Trace(), Trace()
    with torch.no_grad():
        logits = model(**batch, pyramid_pass=Pass(expected)).logits.numpy()
        graphs = graphs_of(model, 64, in_torch)
        counts = batch["attention_mask"].sum(1).tolist()
        made, _ = graphs(batch["input_ids"].numpy(), batch["token_type_ids"].numpy(), counts, found)
    np.testing.assert_allclose(made, logits, atol=1e-5)
    for one, other in zip(expected.layers, found.layers, strict=True):
        np.testing.assert_array_equal(one.kept.numpy(), other.kept)


def in_torch(stretch, _):
    def run(arrays):
        given = {name: torch.from_numpy(np.array(array)) for name, array in arrays.items()}
        return [part.detach().numpy() for part in stretch.eval()(**given)]

    return run


@ways
def test_batch_mates_and_padding_change_nothing(tiny_bert, selector, reduce, more):
    model, whole = pyramid(tiny_bert, selector, reduce, more), batch_of(PAIRS, width=40)
    with torch.no_grad():
        together = model(**whole).logits
        for row, pair in enumerate(PAIRS):
            torch.testing.assert_close(model(**batch_of([pair])).logits[0], together[row], atol=1e-5, rtol=1e-5)


@settings(max_examples=30)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 12)), min_size=1, max_size=4), st.booleans())
def test_sides_are_the_same_by_types_and_by_separators(pairs, on_arrays):
    batch = batch_of(pairs, width=30)
    ids, types, real = batch["input_ids"], batch["token_type_ids"], batch["attention_mask"] != 0
    if on_arrays:
        ids, types, real = ids.numpy(), types.numpy(), real.numpy()
    for protect in (("query", "separators"), ("query",), ("separators",)):
        expected = [protected_of(*pair, protect) for pair in pairs]
        for protection in (Protection(protect), Protection(protect, SEP)):
            found = protection.of(ids, types, real)
            assert [set(np.flatnonzero(np.asarray(row)).tolist()) for row in found] == expected


def test_two_separators_between_the_texts_as_in_roberta():
    ids = torch.tensor([[0, 9, 2, 2, 7, 8, 2, 1]])
    found = Protection(("query", "separators"), 2).of(ids, None, ids != 1)
    assert found.tolist() == [[True, True, True, True, False, False, True, False]]


def test_a_text_alone_has_nothing_to_protect(tiny_bert, tiny_batch):
    batch = tiny_batch([20, 9])
    batch["token_type_ids"] = torch.zeros_like(batch["input_ids"])
    for more in ({}, {"separator": SEP}):
        with torch.no_grad():
            found = pyramid(tiny_bert, "coreset", "merge", more)(**batch).logits
            expected = pyramid(tiny_bert, "coreset", "merge", {}, ())(**batch).logits
        assert torch.equal(found, expected)


def test_a_model_without_token_types_is_protected_by_separators(tmp_path):
    sizes = {"vocab_size": 200, "hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2}
    config = RobertaConfig(
        **sizes, intermediate_size=24, type_vocab_size=1, eos_token_id=SEP, pad_token_id=0, initializer_range=0.2
    )
    model = pyramidize(RobertaForSequenceClassification(config).eval(), HALVING, protect="query")
    assert pyramid_settings(model).separator == SEP
    batch, trace = batch_of(PAIRS), Trace()
    del batch["token_type_ids"]
    with torch.no_grad():
        model(**batch, pyramid_pass=Pass(trace))
        logits = model(**batch).logits
    for row, (query, _) in enumerate(PAIRS):
        assert set(range(query + 2)) <= set(trace.layers[-1].kept[row].tolist())
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert pyramid_settings(loaded) == pyramid_settings(model)
    with torch.no_grad():
        assert torch.equal(loaded(**batch).logits, logits)
    config.eos_token_id = None
    with pytest.raises(UnsupportedModelError, match=r"give separator=tokenizer\.sep_token_id"):
        pyramidize(RobertaForSequenceClassification(config), HALVING, protect="query")


@pytest.mark.parametrize("selector", ["coreset", "cluster"])
def test_selectors_compare_what_a_family_gives_them_to_compare(selector):
    generator = torch.Generator().manual_seed(0)
    hidden, compared = torch.randn(2, 2, 12, 6, generator=generator)
    knobs = {"centers_per_step": 1, "within": None}
    reducer = Reducer(get_selector(selector), knobs, Space(), "merge")
    apart = Protected.of(torch.arange(12).repeat(2, 1) % 5 == 2)
    step = Step(1, "attention", keep=Exactly((6, 6)))
    found, expected = (
        reducer(Tokens(x, [12, 12], compared=y, protected=apart), step).reduction
        for x, y in ((hidden, compared), (compared, None))
    )
    assert torch.equal(found.index, expected.index)
    assert torch.equal(found.group, expected.group)


def test_tokens_that_stay_are_counted_as_they_are(tiny_bert, items_of):
    model, batch = pyramid(tiny_bert, "coreset", "merge", {"separator": SEP}), batch_of([(12, 3), (3, 30)])
    items, record = items_of(batch), Trace()
    with torch.no_grad():
        model(**batch, pyramid_pass=Pass(record))
    kept = kept_of(model, items, 0, batch_size=2)
    assert [row[2] for row in kept] == [sum(p >= 0 for p in row) for row in record.layers[-1].kept.tolist()]
    assert kept[0][2] > HALVING.lengths(18, 4)[2]


def test_what_cannot_be_protected_is_refused(tiny_bert):
    with pytest.raises(UnknownNameError, match="unknown part to protect 'document'"):
        PyramidConfig(schedule=HALVING, protect=("document",))
    with pytest.raises(PyramidError, match="protect must be a list of query, separators, got 3"):
        PyramidConfig(schedule=HALVING, protect=3)
    batch = batch_of(PAIRS)
    del batch["token_type_ids"]
    with pytest.raises(PyramidError, match="which it knows by token_type_ids, and none were given"):
        pyramid(tiny_bert, "coreset", "merge", {})(**batch)


@pytest.mark.parametrize(
    "model_type", ["roberta", "distilbert", "albert", "mpnet", "deberta-v2", "modernbert", "nomic_bert"]
)
def test_every_kind_of_family_protects(model_type):
    """One for each way in which a family runs its layers and takes the options of a call."""
    family = next(family for family in FAMILIES if family.model_type == model_type)
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 24}
    sizes |= {"vocab_size": 200, "max_position_embeddings": 64, "initializer_range": 0.2, "pad_token_id": 0}
    if model_type == "distilbert":
        sizes |= {"dim": 16, "n_layers": 3, "n_heads": 2, "hidden_dim": 24}
    if model_type == "modernbert":
        sizes |= {"bos_token_id": CLS, "cls_token_id": CLS, "eos_token_id": SEP, "sep_token_id": SEP}
    model = family.classifier(family.config(**sizes)).eval()
    pyramidize(model, HALVING, protect=("query", "separators"), separator=SEP)
    batch, trace = batch_of(PAIRS), Trace()
    del batch["token_type_ids"]
    with torch.no_grad():
        recorded = model(**batch, pyramid_pass=Pass(trace)).logits
        assert torch.equal(model(**batch).logits, recorded)  # also where no options are given
    for row, pair in enumerate(PAIRS):
        kept = set(trace.layers[-1].kept[row].tolist())
        assert protected_of(*pair, ("query", "separators")) <= kept
    assert len(kept) < sum(PAIRS[-1]) + 3
    restore(model)
    assert not model.base_model._forward_pre_hooks
