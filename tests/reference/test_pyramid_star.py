"""Remark 1 of the paper, exactly: weighing kept tokens by how many they stand for equals never having dropped any.

`pyramid_star` keeps all N tokens all the way up. Where the pyramid drops a token, it writes the nearest kept token over
it, so that tokens are duplicated instead of counted. It uses only the layers of transformers and numpy. Merging and
pooling are compared with slow code of the same kind.
"""

import numpy as np
import pytest
import torch

from pyramid_bert import Schedule, pyramidize
from pyramid_bert.core.coreset import k_center_greedy
from pyramid_bert.core.distances import Geometry
from pyramid_bert.core.reduction import Reduction

LAYERS = 4
SCHEDULE = Schedule.exponential(0.3, 3)
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
LENGTHS = {"one row": (24,), "no padding": (24, 24, 24), "padding": (24, 15, 9, 3)}


# ---- the slow code: one row at a time, loops over tokens ----


def as_numpy(hidden):
    return hidden[0].detach().double().numpy()


def farthest_first(points, candidates, k):
    """The greedy core-set of `candidates` (positions, CLS first), in position order."""
    chosen = [0]
    while len(chosen) < k:
        rest = [c for c in candidates if c not in chosen]
        chosen.append(max(rest, key=lambda c: min(np.linalg.norm(points[c] - points[s]) for s in chosen)))
    return sorted(chosen)


def nearest(points, position, centres):
    return min(centres, key=lambda centre: np.linalg.norm(points[position] - points[centre]))


def additive_mask(n, length, dtype):
    mask = torch.zeros(1, 1, 1, n, dtype=dtype)
    mask[..., length:] = torch.finfo(dtype).min
    return mask


def embed(model, batch, row):
    return model.bert.embeddings(batch["input_ids"][row : row + 1])


def head(model, hidden):
    return model.classifier(model.bert.pooler(hidden))


@torch.no_grad()
def pyramid_star(model, batch, row):
    """The logits of a row at full length, and the positions that are left at each layer."""
    hidden = embed(model, batch, row)  # (1, N, D), pads and all
    n, length = hidden.shape[1], int(batch["attention_mask"][row].sum())
    mask = additive_mask(n, length, hidden.dtype)
    alive, survivors = list(range(length)), []
    for layer, k in zip(model.bert.encoder.layer, SCHEDULE.lengths(length, LAYERS), strict=True):
        attended = layer.attention(hidden, mask)[0]
        points = as_numpy(attended)
        alive = farthest_first(points, alive, k)
        copies = [nearest(points, position, alive) for position in range(length)]
        hidden = layer.feed_forward_chunk(attended[:, copies + list(range(length, n))])
        survivors.append(alive)
    return head(model, hidden), survivors


@torch.no_grad()
def slow_merge(model, batch, row):
    """The logits of a row whose tokens are averaged into the nearest kept one but CLS, by a loop over slots."""
    length = int(batch["attention_mask"][row].sum())
    hidden = embed(model, batch, row)[:, :length]
    sizes = [1] * length
    for layer, k in zip(model.bert.encoder.layer, SCHEDULE.lengths(length, LAYERS), strict=True):
        bias = torch.tensor(sizes, dtype=torch.float64).log().to(hidden.dtype)[None, None, None]
        attended = layer.attention(hidden, bias)[0]
        points = as_numpy(attended)
        kept = farthest_first(points, list(range(len(sizes))), k)
        members = {centre: [centre] for centre in kept}
        for position in range(1, len(sizes)):
            if position not in kept and len(kept) > 1:
                members[nearest(points, position, kept[1:])].append(position)
        merged = []
        for centre in kept:
            total = sum(sizes[position] for position in members[centre])
            merged.append(sum(attended[0, position] * sizes[position] for position in members[centre]) / total)
        sizes = [sum(sizes[position] for position in members[centre]) for centre in kept]
        hidden = layer.feed_forward_chunk(torch.stack(merged)[None])
    return head(model, hidden), sizes


@torch.no_grad()
def slow_pool(model, batch, row):
    """The logits of a row whose neighbours are averaged three by three at layers 1 and 3, CLS apart."""
    length = int(batch["attention_mask"][row].sum())
    hidden = embed(model, batch, row)[:, :length]
    for number, layer in enumerate(model.bert.encoder.layer, start=1):
        tokens = list(layer.attention(hidden)[0][0])
        if number in (1, 3):
            windows = [tokens[start : start + 3] for start in range(1, len(tokens), 3)]
            tokens = [tokens[0], *(sum(window) / len(window) for window in windows)]
        hidden = layer.feed_forward_chunk(torch.stack(tokens)[None])
    return head(model, hidden)


# ---- weighted drop ----


def on_every_model(test):
    """Runs a test with both attention implementations, in both precisions, with padding and without."""
    test = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)(test)
    test = pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())(test)
    return pytest.mark.parametrize("impl", ["eager", "sdpa"])(test)


@pytest.mark.parametrize("settings", [{"reduce": "drop", "weighted": True}, {"reduce": "replace"}], ids=str)
@pytest.mark.parametrize("more", [0, 16])
@on_every_model
def test_weighted_drop_and_replacing_are_pyramid_star(
    tiny_bert, tiny_batch, logits_of, traced, impl, lengths, dtype, more, settings
):
    model, batch = tiny_bert(impl=impl).to(dtype), tiny_batch(lengths, width=max(lengths) + more)
    expected = [pyramid_star(model, batch, row) for row in range(len(lengths))]
    pyramidize(model, SCHEDULE, **settings)
    trace, logits = traced(model, batch), logits_of(model, batch)
    for row, (star, survivors) in enumerate(expected):
        for layer in trace.layers:
            kept = [position for position in layer.kept[row].tolist() if position >= 0]
            assert kept == survivors[layer.layer - 1]
        torch.testing.assert_close(logits[row], star[0], atol=TOLERANCE[dtype], rtol=0)


def test_dropping_without_weights_is_something_else(tiny_bert, tiny_batch, logits_of):
    model, batch = tiny_bert(), tiny_batch((24,))
    star, _ = pyramid_star(model, batch, 0)
    logits = logits_of(pyramidize(model, SCHEDULE, reduce="drop", weighted=False), batch)
    assert (logits - star).abs().max() > 1e-3


# ---- merging ----


@on_every_model
def test_merging_is_the_mean_of_a_group_weighted_by_its_size(
    tiny_bert, tiny_batch, logits_of, traced, impl, lengths, dtype
):
    model, batch = tiny_bert(impl=impl).to(dtype), tiny_batch(lengths)
    expected, sizes = zip(*(slow_merge(model, batch, row) for row in range(len(lengths))), strict=True)
    logits = logits_of(pyramidize(model, SCHEDULE, reduce="merge"), batch)
    torch.testing.assert_close(logits, torch.cat(expected), atol=TOLERANCE[dtype], rtol=0)
    trace = traced(model, batch)
    for row, length in enumerate(lengths):
        if SCHEDULE.lengths(length, LAYERS)[-1] > 1:  # no token is lost unless only CLS is kept
            assert sum(sizes[row]) == length
            for layer in trace.layers:
                assert (layer.home[row] >= 0).sum() == length
                assert (layer.home[row] == 0).sum() == 1  # CLS represents only itself


def merged(seed, size=None):
    """A merge of random rows: the first keeps some tokens, the second too but has pads, the third keeps only CLS."""
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(3, 10, 4, generator=generator)
    lengths, keep = [10, 7, 6], [4, 3, 1]
    mask = torch.arange(10) < torch.tensor(lengths)[:, None]
    ranked = k_center_greedy(hidden, mask, keep).indices
    reduction = Reduction.from_index(ranked, keep, mask)
    reduction, _ = reduction.with_groups(Geometry.of(hidden), mask, skip_cls=True)
    return hidden, mask, reduction.merged(mask.float() if size is None else size)


@pytest.mark.parametrize("seed", range(5))
def test_every_filled_slot_is_a_mean_and_cls_is_alone_in_its_own(seed):
    hidden, mask, _ = merged(seed)
    size = torch.randint(1, 6, (3, 10), generator=torch.Generator().manual_seed(seed)) * mask.float()
    _, _, reduction = merged(seed, size)
    mixing = reduction.apply(torch.eye(10).expand(3, 10, 10))  # (B, K, N): the weight of each token in each slot
    torch.testing.assert_close(mixing.sum(dim=2), reduction.mask.float(), atol=1e-6, rtol=0)
    assert torch.equal(mixing[:, 0], torch.eye(10)[0].expand(3, 10))  # CLS stays as it is, and is in no other mean
    assert torch.equal(mixing[:, 1:, 0], torch.zeros(3, 3))
    assert torch.equal(reduction.apply(hidden)[:, 0], hidden[:, 0])
    sizes = reduction.sizes(mask.float(), slots=4)
    assert sizes.sum(dim=1).tolist() == [10, 7, 1]  # all real tokens, but those that only CLS could take
    assert sizes[:, 0].tolist() == [1, 1, 1]
    assert ((sizes > 0) == reduction.mask).all()
    averaged = reduction.apply(hidden)
    for row in range(3):
        for slot in reduction.mask[row].nonzero()[:, 0].tolist():
            members = (reduction.group[row] == slot).nonzero()[:, 0]
            weights = size[row, members]
            expected = (hidden[row, members] * weights[:, None]).sum(0) / weights.sum()
            torch.testing.assert_close(averaged[row, slot], expected, atol=1e-5, rtol=0)


# ---- pooling ----


@on_every_model
def test_pooling_is_the_mean_of_neighbours(tiny_bert, tiny_batch, logits_of, impl, lengths, dtype):
    model, batch = tiny_bert(impl=impl).to(dtype), tiny_batch(lengths)
    expected = [slow_pool(model, batch, row) for row in range(len(lengths))]
    logits = logits_of(pyramidize(model, Schedule.strided(3, at_layers=[1, 3]), "pool"), batch)
    torch.testing.assert_close(logits, torch.cat(expected), atol=TOLERANCE[dtype], rtol=0)
