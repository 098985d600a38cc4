"""Pyramids inside real CrossEncoders of sentence-transformers: sequence classifiers, and modular ones."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules import Dense, Transformer
from sentence_transformers.sentence_transformer.modules import Pooling

from pyramid_bert import Schedule, is_pyramid, pyramid_settings, pyramidize, restore
from pyramid_bert.core.loop import Pass
from pyramid_bert.core.record import Trace
from pyramid_bert.errors import PyramidError, UnsupportedModelError

ALL, HALF = Schedule.constant(1.0), Schedule.exponential(0.3, last_layer=3, min_tokens=3)
QUERY = "what is a good film ?"
DOCUMENTS = [
    "a fine film about love , and the man who made it",
    "the plot is thin",
    "no",
    "young people play a brilliant part in it , and the music is perfect ; but the end is sad , so it will not sell",
]
PAIRS = [(QUERY, document) for document in DOCUMENTS]


@pytest.fixture
def classifier(tmp_path, tiny_bert, tokenizer):
    """Makes a CrossEncoder that is a sequence classifier."""

    def make(labels=1, **settings):
        tiny_bert(labels=labels).save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        return CrossEncoder(str(tmp_path), device="cpu", **settings)

    return make


@pytest.fixture
def modular(tmp_path, tiny_bert, tokenizer):
    """Makes a CrossEncoder of a bare encoder, a pooling and a dense layer."""

    def make(pooling="mean", labels=1, **dense):
        tiny_bert().bert.save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        width = 32 * (1 if isinstance(pooling, str) else len(pooling))
        torch.manual_seed(1)
        parts = [
            Transformer(str(tmp_path)),
            Pooling(32, pooling_mode=pooling),
            Dense(width, labels, module_output_name="scores", **dense),
        ]
        return CrossEncoder(modules=parts, device="cpu")

    return make


@pytest.mark.parametrize("kind", ["one label", "three labels", "cls", "mean", "cls and mean"])
def test_keep_everything_gives_the_scores_of_the_dense_model(kind, classifier, modular):
    ce = {
        "one label": lambda: classifier(),
        "three labels": lambda: classifier(labels=3),
        "cls": lambda: modular("cls"),
        "mean": lambda: modular("mean"),
        "cls and mean": lambda: modular(("cls", "mean"), labels=2),
    }[kind]()
    before = ce.predict(PAIRS)
    ranked = ce.rank(QUERY, DOCUMENTS, return_documents=True) if ce.num_labels == 1 else None
    assert pyramidize(ce, ALL) is ce
    assert is_pyramid(ce.model)
    np.testing.assert_allclose(ce.predict(PAIRS), before, atol=1e-5)
    if ranked is not None:
        again = ce.rank(QUERY, DOCUMENTS, return_documents=True)
        assert [(one["corpus_id"], one["text"]) for one in again] == [(one["corpus_id"], one["text"]) for one in ranked]
    pyramidize(ce, HALF)
    assert np.abs(ce.predict(PAIRS) - before).max() > 1e-4  # it does drop tokens
    assert restore(ce) is ce
    np.testing.assert_array_equal(ce.predict(PAIRS), before)


def test_the_model_inside_can_be_given_itself(classifier):
    ce = classifier()
    before = ce.predict(PAIRS)
    pyramidize(ce.model, HALF)
    inside = ce.predict(PAIRS)
    pyramidize(restore(ce), HALF)
    np.testing.assert_array_equal(ce.predict(PAIRS), inside)
    assert np.abs(inside - before).max() > 1e-4


@pytest.mark.parametrize("activation", [torch.nn.Identity(), torch.nn.Tanh(), torch.nn.Sigmoid()])
def test_activation_functions_are_kept(classifier, activation, tmp_path):
    ce = classifier(activation_fn=activation)
    logits = ce.predict(PAIRS, activation_fn=torch.nn.Identity())
    pyramidize(ce, ALL)
    expected = activation(torch.tensor(logits)).numpy()
    np.testing.assert_allclose(ce.predict(PAIRS), expected, atol=1e-5)
    ce.save_pretrained(str(tmp_path / "saved"))
    loaded = CrossEncoder(str(tmp_path / "saved"), device="cpu")
    assert type(loaded.activation_fn) is type(activation)
    np.testing.assert_allclose(loaded.predict(PAIRS), expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["classifier", "cls", "mean"])
def test_a_saved_one_loads_as_the_same_pyramid(kind, classifier, modular, tmp_path):
    ce = pyramidize(classifier(labels=1) if kind == "classifier" else modular(kind), HALF, "cluster")
    scores = ce.predict(PAIRS)
    ce.save_pretrained(str(tmp_path / "saved"))
    loaded = CrossEncoder(str(tmp_path / "saved"), device="cpu")
    assert pyramid_settings(loaded.model) == pyramid_settings(ce.model)
    assert pyramid_settings(loaded.model).spread == (kind == "mean")
    np.testing.assert_allclose(loaded.predict(PAIRS), scores, atol=1e-6)


@pytest.mark.parametrize("kind", ["classifier", "mean"])
def test_without_the_import_loading_fails_by_name(kind, classifier, modular, tmp_path):
    saved = str(tmp_path / "saved")
    pyramidize(classifier() if kind == "classifier" else modular(kind), HALF).save_pretrained(saved)
    code = f"from sentence_transformers import CrossEncoder; CrossEncoder({saved!r})"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.returncode
    assert "import pyramid_bert" in found.stderr


@pytest.mark.parametrize("kind", ["classifier", "mean"])
def test_batch_mates_change_no_score(kind, classifier, modular):
    ce = pyramidize(classifier() if kind == "classifier" else modular(kind), HALF)
    one_by_one = np.array([ce.predict(pair) for pair in PAIRS])
    np.testing.assert_allclose(ce.predict(PAIRS, batch_size=4), one_by_one, atol=1e-5)


@pytest.mark.filterwarnings("ignore:a pyramid of BertModel")
@pytest.mark.parametrize(
    ("selector", "reduce"),
    [
        *itertools.product(("coreset", "attention", "first"), ("drop", "merge", "replace")),
        ("cluster", "merge"),
        ("bipartite", "merge"),
    ],
)
def test_spread_gives_each_token_the_vector_of_the_one_that_represents_it(tiny_bert, tiny_batch, selector, reduce):
    batch, trace = tiny_batch([9, 30, 4], width=33), Trace()
    left, spread = (
        pyramidize(tiny_bert().bert, HALF, selector, reduce=reduce, spread=spread) for spread in (False, True)
    )
    with torch.no_grad():
        kept = left(**batch, pyramid_pass=Pass(trace)).last_hidden_state
        found = spread(**batch).last_hidden_state
    assert found.shape == (3, 33, 32)
    assert len(trace.layers) == 3
    for row, length in enumerate((9, 30, 4)):
        slots = trace.layers[-1].kept[row].tolist()
        for place in range(length):
            home = trace.layers[-1].home[row, place].item()
            if home < 0:  # where only CLS is left, merging sends no token to it
                assert slots[1:] == [-1] * len(slots[1:])
                home = 0
            expected = kept[row, place if reduce == "replace" else slots.index(home)]
            torch.testing.assert_close(found[row, place], expected)


@pytest.mark.parametrize("pooling", ["max", "lasttoken", "weightedmean", ("cls", "max")])
def test_other_poolings_are_refused_by_name(modular, pooling):
    ce = modular(pooling)
    name = pooling if isinstance(pooling, str) else "max"
    with pytest.raises(UnsupportedModelError, match=f"pools tokens by '{name}'"):
        pyramidize(ce, HALF)
    assert not is_pyramid(ce.model)


def test_other_modules_are_refused_by_name(modular, classifier, tmp_path):
    ce = modular("cls")
    reads_tokens = CrossEncoder(
        modules=[ce[0], ce[1], Dense(32, 1, module_input_name="token_embeddings", module_output_name="scores")]
    )
    with pytest.raises(UnsupportedModelError, match="Dense of this CrossEncoder reads all tokens"):
        pyramidize(reads_tokens, HALF)
    with pytest.raises(UnsupportedModelError, match="Dense behind a bare encoder; a Pooling is needed"):
        pyramidize(CrossEncoder(modules=[ce[0], ce[2]]), HALF)
    with pytest.raises(UnsupportedModelError, match="Dense behind a BertForSequenceClassification"):
        pyramidize(CrossEncoder(modules=[classifier()[0], ce[2]]), HALF)


def test_spread_is_for_models_without_a_head(tiny_bert):
    with pytest.raises(PyramidError, match="spread=True is for models without a head"):
        pyramidize(tiny_bert(), HALF, spread=True)
