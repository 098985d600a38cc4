"""The compiled reduction step against the torch one, and what a reduction leaves in `Tokens`."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from pyramid_bert.core import compiled
from pyramid_bert.core.loop import Covering, Exactly, Step
from pyramid_bert.core.reducer import Reducer, Space
from pyramid_bert.core.selectors import get_selector
from pyramid_bert.core.tokens import Tokens
from pyramid_bert.errors import PyramidError

KNOBS = {"centers_per_step": 1, "within": None, "window": 2}
COUNTS, KEEP, WIDTH = [14, 9, 5, 1], (6, 4, 1, 1), 14
WAYS = [
    *itertools.product(["coreset"], ["drop", "weigh", "merge"], [{}, {"centers_per_step": 0.4}]),
    *itertools.product(["cls-attention", "first"], ["weigh", "merge"], [{}]),
    *itertools.product(["cluster"], ["merge"], [{}, {"within": 2}]),
]


@pytest.fixture
def tokens():
    """Rows of 14, 9, 5 and 1 real tokens, of which some are equal, and sizes that differ."""

    def make(dtype=torch.float32, grad=False):
        generator = torch.Generator().manual_seed(0)
        hidden = torch.randn(4, WIDTH, 6, generator=generator).to(dtype)
        hidden[0, 5] = hidden[0, 3]
        size = 1.0 + torch.randint(3, (4, WIDTH), generator=generator)
        size[:, 0] = 1
        mask = torch.arange(WIDTH) < torch.tensor(COUNTS)[:, None]
        received = torch.rand(4, WIDTH, generator=generator)
        size = size.to(torch.promote_types(dtype, torch.float32))
        return Tokens(hidden.requires_grad_(grad), COUNTS, mask, size=size, received=received)

    return make


def reduced(tokens, selector, how, knobs, metric="euclidean", keep=None):
    reducer = Reducer(get_selector(selector), {**KNOBS, **knobs}, Space(metric), how)
    decision = reducer(tokens, Step(1, "attention", keep=keep or Exactly(KEEP)))
    return decision, tokens.reduced(decision)


def by_torch(monkeypatch, *args, **kwargs):
    with monkeypatch.context() as patch:
        patch.setattr(compiled, "available", lambda: False)
        return reduced(*args, **kwargs)


@pytest.mark.skipif(not compiled.available(), reason="numba is not installed: pip install 'pyramid-bert[fast]'")
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("selector", "how", "knobs"), WAYS, ids=str)
def test_compiled_and_torch_steps_are_one(tokens, selector, how, knobs, dtype, metric, monkeypatch):
    fast, after_fast = reduced(tokens(dtype), selector, how, knobs, metric)
    slow, after_slow = by_torch(monkeypatch, tokens(dtype), selector, how, knobs, metric)
    assert fast.counts == slow.counts == list(KEEP)
    for row, keep in enumerate(KEEP):
        assert fast.reduction.index[row, :keep].tolist() == slow.reduction.index[row, :keep].tolist()
        assert after_fast.positions[row, :keep].tolist() == after_slow.positions[row, :keep].tolist()
        torch.testing.assert_close(after_fast.hidden[row, :keep], after_slow.hidden[row, :keep])
    assert torch.equal(fast.grouped.group, slow.grouped.group)
    assert torch.equal(after_fast.mask, after_slow.mask)
    if how == "drop":
        assert after_fast.size is after_slow.size is None
    else:
        torch.testing.assert_close(after_fast.size * after_fast.mask, after_slow.size * after_slow.mask)
    torch.testing.assert_close(fast.radius, slow.radius)


def as_numpy(tokens):
    """The same tokens as numpy arrays."""
    fields = {name: getattr(tokens, name) for name in ("hidden", "mask", "size", "received")}
    return Tokens(counts=tokens.counts, **{name: value.numpy() for name, value in fields.items()})


EVERY = [*WAYS, *itertools.product(["attention", "random"], ["drop", "weigh", "merge"], [{}])]
EVERY += [("bipartite", "merge", {}), ("coreset", "merge", {"centers_per_step": "all"})]


@pytest.mark.parametrize("adaptive", [False, True], ids=["exactly", "adaptive"])
@pytest.mark.parametrize("compiles", [False, True], ids=["plain", "compiled"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize(("selector", "how", "knobs"), EVERY, ids=str)
def test_numpy_arrays_are_reduced_like_tensors(tokens, selector, how, knobs, metric, compiles, adaptive, monkeypatch):
    if adaptive and selector == "bipartite":
        pytest.skip("bipartite merging cannot tell how many tokens a text needs")
    monkeypatch.setattr(compiled, "available", lambda of=compiled.available: compiles and of())
    options = tuple(tuple(min(option, n) for option in (2, 4, 6, 14)) for n in COUNTS)
    keep = Covering(options, 0.9, relative=True) if adaptive else Exactly(KEEP)
    decision, after = reduced(tokens(), selector, how, knobs, metric, keep)
    found, left = reduced(as_numpy(tokens()), selector, how, knobs, metric, keep)
    assert found.counts == decision.counts
    assert found.grouped.group.tolist() == decision.grouped.group.tolist()
    for row, count in enumerate(decision.counts):
        assert left.positions[row, :count].tolist() == after.positions[row, :count].tolist()
        assert left.hidden[row, :count] == pytest.approx(after.hidden[row, :count].numpy(), abs=1e-6)
    assert (left.mask is None) == (after.mask is None)
    assert left.key_bias() == pytest.approx(after.key_bias().numpy(), abs=1e-6)
    assert found.radius == pytest.approx(decision.radius.numpy(), abs=1e-5)


@pytest.mark.parametrize("window", [2, 3])
def test_numpy_arrays_are_pooled_like_tensors(tokens, window):
    keep = Exactly(tuple(1 + -(-(n - 1) // window) for n in COUNTS))
    _, after = reduced(tokens(), "pool", "drop", {"window": window}, keep=keep)
    _, left = reduced(as_numpy(tokens()), "pool", "drop", {"window": window}, keep=keep)
    assert left.hidden == pytest.approx(after.hidden.numpy(), abs=1e-6)


def test_gaps_in_a_mask_and_resting_tokens_as_numpy_arrays():
    mask, hidden = np.array([[True, False, True, True, False]]), np.arange(5.0).reshape(1, 5, 1)
    tokens = Tokens.of(hidden, mask)
    assert (tokens.hidden.ravel().tolist(), tokens.positions.tolist()) == ([0, 2, 3], [[0, 2, 3]])
    resting = replace(tokens, hidden=tokens.hidden[:, :1] + 7, resting=tokens.hidden[:, 1:])
    assert resting.rejoined().hidden.ravel().tolist() == [7, 2, 3]
    with pytest.raises(PyramidError, match="row 0 masks its first token"):
        Tokens.of(hidden, ~mask)


@pytest.mark.parametrize(("selector", "how", "knobs"), WAYS, ids=str)
def test_gradients_flow_through_the_vectors_and_are_those_of_torch(tokens, selector, how, knobs, monkeypatch):
    gradients = []
    for step in (reduced, lambda *args: by_torch(monkeypatch, *args)):
        given = tokens(torch.float64, grad=True)
        _, after = step(given, selector, how, knobs)
        (after.hidden * after.mask[:, :, None]).square().sum().backward()
        gradients.append(given.hidden.grad)
    torch.testing.assert_close(*gradients)
    assert gradients[0].abs().sum() > 0


def test_positions_are_those_of_the_input_after_several_reductions(tokens):
    first_decision, first = reduced(tokens(), "coreset", "merge", {})
    second_decision, second = reduced(first, "coreset", "merge", {}, keep=Exactly((3, 2, 1, 1)))
    for row, keep in enumerate((3, 2, 1, 1)):
        expected = [first_decision.reduction.index[row, slot].item() for slot in second_decision.reduction.index[row]]
        assert second.positions[row, :keep].tolist() == expected[:keep]
        assert second.positions[row, 0] == 0


def test_gaps_in_a_mask_are_in_the_positions():
    mask = torch.tensor([[True, False, True, True, False]])
    tokens = Tokens.of(torch.arange(5.0).view(1, 5, 1), mask)
    assert tokens.hidden.flatten().tolist() == [0, 2, 3]
    assert tokens.positions.tolist() == [[0, 2, 3]]


def test_when_every_token_is_needed_nothing_is_decided(tokens):
    options = tuple((n, n) for n in COUNTS)
    reducer = Reducer(get_selector("coreset"), KNOBS, Space(), "drop")
    assert reducer(tokens(), Step(1, "attention", keep=Covering(options, 0.5, relative=True))) is None
