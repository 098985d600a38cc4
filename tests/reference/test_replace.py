"""reduce="replace" (the paper's pyramid*) and weighted attention are the same at every layer: Remark 1 of the paper.

`test_pyramid_star` compares the mode with slow code. Here the modes are compared with each other: every vector that
weighted attention has left, after every layer, is the vector at the same position of the full-length run.
"""

import itertools

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from pyramid_bert import PyramidClassifier, Schedule, pyramid_settings, pyramidize
from pyramid_bert.core.loop import Pass
from pyramid_bert.core.record import Trace
from pyramid_bert.core.reduction import Reduction
from pyramid_bert.core.selectors import Ranker, get_selector, selector_names
from pyramid_bert.errors import PyramidError

LAYERS = 4
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-10}
SHRINKING = Schedule.exponential(0.3, 3)
SCHEDULES = {"middle": SHRINKING, "end": SHRINKING, "input": Schedule.input_only(0.4)}
LENGTHS = (24, 15, 24, 9, 3, 1)


def run(model, batch, **settings):
    """The hidden states after each layer, the logits, and the trace."""
    pyramidize(model, **settings)
    trace = Trace()
    with torch.no_grad():
        output = model(**batch, output_hidden_states=True, pyramid_pass=Pass(trace, whole=True))
        logits = model(**batch).logits
    return output.hidden_states[1:], logits, trace


def kept_after(trace, layer):
    """(B, K) positions left after a layer, -1 for empty slots; None before the first reduction."""
    found = [entry.kept for entry in trace.layers if entry.layer <= layer]
    return found[-1] if found else None


def both_ways(model, batch, **settings):
    star = run(model, batch, reduce="replace", **settings)
    drop = run(model, batch, reduce="drop", weighted=True, **settings)
    return star, drop


def assert_same_at_every_layer(star, drop, tolerance):
    (whole, star_logits, star_trace), (left, drop_logits, drop_trace) = star, drop
    assert len(whole) == len(left) == LAYERS
    for layer in range(1, LAYERS + 1):
        kept = kept_after(drop_trace, layer)
        assert torch.equal(kept, kept_after(star_trace, layer))
        here, there = whole[layer - 1], left[layer - 1]
        assert here.shape[1] == max(LENGTHS)  # pads are cut off, nothing else
        at_kept = Reduction(kept.clamp(min=0)).apply(here)
        difference = (at_kept - there).abs().amax(dim=2).masked_fill(kept < 0, 0)
        assert difference.max() < tolerance, f"layer {layer}"
        assert (at_kept[:, 0] - there[:, 0]).abs().max() < tolerance  # CLS
    torch.testing.assert_close(star_logits, drop_logits, atol=tolerance, rtol=0)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
@pytest.mark.parametrize("m", [1, 3, 0.4, "all"])
@pytest.mark.parametrize("placement", SCHEDULES)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_replacing_is_weighted_attention_at_every_layer(tiny_bert, tiny_batch, dtype, placement, m, metric):
    model, batch = tiny_bert().to(dtype), tiny_batch(LENGTHS, width=30)
    settings = {"schedule": SCHEDULES[placement], "placement": placement, "centers_per_step": m, "metric": metric}
    assert_same_at_every_layer(*both_ways(model, batch, **settings), TOLERANCE[dtype])


CHOOSERS = [name for name in selector_names() if isinstance(get_selector(name), Ranker)]


@pytest.mark.parametrize("impl", ["eager", "sdpa"])
@pytest.mark.parametrize(("name", "placement"), list(itertools.product(CHOOSERS, SCHEDULES)))
def test_replacing_is_weighted_attention_for_every_selector(tiny_bert, tiny_batch, name, placement, impl):
    at_input = placement == "input"
    if (get_selector(name).voters and at_input) or (name == "input-first" and not at_input):
        pytest.skip("the selector does not take this placement")
    settings = {"schedule": SCHEDULES[placement], "placement": placement, "selector": name}
    for seed in range(5 if name == "attention" else 1):  # copies do not vote, and an original receives for them
        model, batch = tiny_bert(impl=impl, seed=seed).double(), tiny_batch(LENGTHS, seed=seed)
        assert_same_at_every_layer(*both_ways(model, batch, **settings), 1e-10)


def test_a_mask_with_holes(tiny_bert, tiny_batch):
    model, batch = tiny_bert().double(), tiny_batch((24, 24))
    batch["attention_mask"][0, [3, 4, 11]] = 0
    batch["attention_mask"][1, 20:] = 0
    (_, star, _), (_, drop, _) = both_ways(model, batch, schedule=SHRINKING)
    torch.testing.assert_close(star, drop, atol=1e-10, rtol=0)


def test_a_replaced_token_stays_equal_to_its_centre(tiny_bert, tiny_batch):
    model, batch = tiny_bert().double(), tiny_batch((24, 15))
    states, _, trace = run(model, batch, schedule=SHRINKING, reduce="replace")
    for layer, hidden in enumerate(states, start=1):
        home = [entry.home for entry in trace.layers if entry.layer <= layer][-1]
        centres = Reduction(home.clamp(min=0)).apply(hidden)
        gap = (hidden - centres).abs().amax(dim=2).masked_fill(home < 0, 0)
        assert gap.max() < 1e-12
        distinct = {tuple(vector) for vector in hidden[0].round(decimals=9).tolist()}
        assert len(distinct) == SHRINKING.lengths(24, LAYERS)[layer - 1]


def test_gradients_are_the_same(tiny_bert, tiny_batch):
    batch = {**tiny_batch((24, 9)), "labels": torch.tensor([0, 1])}
    found = []
    for settings in ({"reduce": "replace"}, {"reduce": "drop", "weighted": True}):
        model = pyramidize(tiny_bert().double(), SHRINKING, **settings)
        model(**batch).loss.backward()
        found.append([weight.grad for weight in model.parameters()])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, atol=1e-10, rtol=0)


# ---- as a user has it ----


def test_saved_and_loaded(tiny_bert, tiny_batch, logits_of, tmp_path):
    model, batch = pyramidize(tiny_bert(), SHRINKING, reduce="replace"), tiny_batch((24, 9))
    before = logits_of(model, batch)
    model.save_pretrained(tmp_path)
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    assert pyramid_settings(again).reduce == "replace"
    torch.testing.assert_close(logits_of(again, batch), before, atol=1e-6, rtol=0)


def test_a_classifier_predicts_and_explains(tiny_model_dir):
    text = "a good film with a strong story and a very funny cast"
    star, drop = (
        PyramidClassifier.from_pretrained(tiny_model_dir, SHRINKING, placement="end", **settings)
        for settings in ({"reduce": "replace"}, {"reduce": "drop", "weighted": True})
    )
    assert abs(star.predict_proba([text]) - drop.predict_proba([text])).max() < 1e-5
    shown, other = star.explain(text), drop.explain(text)
    assert [view.kept for view in shown.layers] == [view.kept for view in other.layers]
    assert [view.home for view in shown.layers] == [view.home for view in other.layers]


@pytest.mark.parametrize("how", ["measure", "measure_training", "solve_speedup", "calibrate"])
def test_no_benchmark_claims_a_speed_up_for_it(tiny_bert, how):
    from pyramid_bert import bench, tune

    dense, star = tiny_bert(), pyramidize(tiny_bert(), SHRINKING, reduce="replace")
    calls = {
        "measure": lambda: bench.measure(dense, star, bench.Workload.synthetic([4], vocabulary=200), batch_size=1),
        "measure_training": lambda: bench.measure_training(dense, star, 8, batch_size=2),
        "solve_speedup": lambda: tune.solve_speedup(star, 1.5, [8, 9]),
        "calibrate": lambda: tune.calibrate(star, 8, batch_size=1),
    }
    with pytest.raises(PyramidError, match="reduce='replace' keeps the full length"):
        calls[how]()
