"""Stretches of a model as graphs of another runtime: the same tokens and logits as in torch."""

import numpy as np
import pytest
import torch
from helpers import graphs_of

from pyramid_bert import PyramidConfig, Schedule, measure_sensitivity, pyramidize
from pyramid_bert.core.record import Kept, Trace
from pyramid_bert.families import FAMILIES, pyramid_encoder
from pyramid_bert.runtimes.registry import get_runtime
from pyramid_bert.runtimes.stretches import cut
from pyramid_bert.testing import batch_of, tiny_model

LENGTHS = [17, 12, 9, 3]
HALVING = Schedule.exponential(0.4, 2)
# Settings -> how many stretches they cut 4 layers into.
WAYS = {
    "coreset": ({"schedule": HALVING}, 3),
    "clusters that rest": (
        {"schedule": HALVING, "selector": "cluster", "metric": "cosine", "within": 5, "rest_from": 3},
        3,
    ),
    "resting alone": ({"schedule": Schedule.constant(1.0), "selector": "cluster", "rest_from": 2}, 1),
    "attention": ({"schedule": HALVING, "selector": "attention"}, 3),
    "attention of CLS": ({"schedule": HALVING, "selector": "cls-attention", "weighted": True}, 3),
    "adaptive": ({"schedule": Schedule.adaptive(0.6, last_layer=2), "selector": "cluster", "metric": "cosine"}, 3),
    "pool": ({"schedule": Schedule.strided(2, [2]), "selector": "pool"}, 2),
    "at the input": ({"schedule": Schedule.input_only(0.5)}, 2),
    "at the end": ({"schedule": HALVING, "placement": "end", "reduce": "drop", "selector": "random"}, 3),
    "fewer layers": ({"schedule": HALVING, "selector": "bipartite", "skip": (2,)}, 3),
    "dense": ({"schedule": Schedule.constant(1.0), "cls_only": False}, 1),
}


@pytest.fixture(params=["openvino", "onnxruntime"])
def compiled(request, tmp_path):
    """Makes a graph of a runtime out of a stretch and an example of its inputs."""
    pytest.importorskip(request.param, reason="not installed: pip install 'pyramid-bert[openvino,onnx]'")
    runtime = get_runtime(request.param)

    def make(stretch, example):
        file = tmp_path / f"stretch-{stretch.parts[-1].number}{runtime.suffix}"
        runtime.functions.write(stretch, example, file)
        return runtime.functions.load(file, threads=1)

    return make


def in_torch(stretch, example):
    """A stretch as it is, called like a graph."""

    def run(given):
        with torch.no_grad():
            return [found.numpy() for found in stretch(**{name: torch.from_numpy(given[name]) for name in given})]

    return run


@pytest.mark.parametrize("way", WAYS)
def test_graphs_give_the_logits_of_torch(tiny_bert, tiny_batch, logits_of, traced, compiled, way):
    settings, stretches = WAYS[way]
    model, batch = pyramidize(tiny_bert(), config=PyramidConfig(**settings)), tiny_batch(LENGTHS)
    batch["token_type_ids"] = torch.arange(batch["input_ids"].shape[1]).expand_as(batch["input_ids"]) // 6 % 2
    graphs = graphs_of(model, 64, compiled)
    assert len(graphs.stretches) == stretches
    trace, ids, types = Trace(), batch["input_ids"].numpy(), batch["token_type_ids"].numpy()
    logits, cls = graphs(ids, types, LENGTHS, trace)
    assert logits == pytest.approx(logits_of(model, batch).numpy(), abs=1e-5)
    assert cls.shape == (4, model.config.hidden_size)
    for mine, theirs in zip(trace.layers, traced(model, batch).layers, strict=False):
        assert mine.kept.tolist() == theirs.kept.tolist()
        assert mine.home.tolist() == theirs.home.tolist()
    for row, n in enumerate(LENGTHS):  # alone, without padding and other rows
        alone, _ = graphs(ids[row : row + 1, :n], types[row : row + 1, :n], [n])
        assert alone[0] == pytest.approx(logits[row], abs=1e-5)


READ_POSITIONS = {
    "modernbert": {"local_attention": 6},
    "eurobert": {"classifier_pooling": "mean"},
    "deberta-v2": {"relative_attention": True, "position_buckets": 8, "pos_att_type": ["p2c", "c2p"]},
    "mpnet": {},
}


@pytest.mark.parametrize("model_type", READ_POSITIONS)
def test_graphs_take_the_positions_of_the_tokens_that_are_left(logits_of, traced, compiled, model_type):
    family = next(family for family in FAMILIES if family.model_type == model_type)
    assert family.how.reads_positions
    model = tiny_model(family, {**READ_POSITIONS[model_type], "num_hidden_layers": 3})
    pyramidize(model, Schedule.exponential(0.4, 2), "attention", weighted=True)
    batch = batch_of(model, LENGTHS)
    graphs, trace = graphs_of(model, 32, compiled), Trace()
    assert graphs.positions
    logits, _ = graphs(batch["input_ids"].numpy(), None, LENGTHS, trace)
    assert logits == pytest.approx(logits_of(model, batch).numpy(), abs=1e-5)
    for mine, theirs in zip(trace.layers, traced(model, batch).layers, strict=False):
        assert mine.kept.tolist() == theirs.kept.tolist()


def test_sensitivity_is_read_without_torch(tiny_bert, tiny_batch, items_of, logits_of):
    batch = tiny_batch(LENGTHS)
    model = tiny_bert()
    measure_sensitivity(model, items_of(batch) * 8)
    pyramidize(model, HALVING, "cluster", metric="sensitivity")
    graphs = graphs_of(model, 64, in_torch)
    logits, _ = graphs(batch["input_ids"].numpy(), None, LENGTHS)
    assert logits == pytest.approx(logits_of(model, batch).numpy(), abs=1e-5)


def test_a_pass_records_what_it_keeps(tiny_bert, tiny_batch):
    batch, record = tiny_batch(LENGTHS), Kept(4)
    graphs_of(pyramidize(tiny_bert(), HALVING), 64, in_torch)(batch["input_ids"].numpy(), None, LENGTHS, record)
    assert record.kept.tolist() == [[*HALVING.lengths(n, 4)[:3], HALVING.lengths(n, 4)[2]] for n in LENGTHS]


@pytest.mark.parametrize(("longest", "stretches"), [(64, 3), (2, 1)])
def test_texts_that_lose_no_token_need_no_cut(tiny_bert, longest, stretches):
    schedule = Schedule.exponential(0.4, 2, min_tokens=2)
    plan = pyramid_encoder(pyramidize(tiny_bert(), schedule)).plan
    parts = cut(plan, longest)
    assert len(parts) == stretches
    assert [part.number for some in parts for part in some] == list(np.repeat(range(1, 5), 2))
