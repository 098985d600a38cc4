"""PyramidReranker beside CrossEncoder, saved, exported, and what it refuses."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from sentence_transformers import CrossEncoder
from transformers import DistilBertConfig, DistilBertForSequenceClassification

from pyramid_bert import PyramidClassifier, PyramidReranker, Schedule, pyramidize
from pyramid_bert.core.loop import Pass
from pyramid_bert.core.record import Trace
from pyramid_bert.errors import CheckpointError, DataError, PyramidError, UnknownNameError, UnsupportedModelError
from pyramid_bert.text.batches import encode
from pyramid_bert.text.inference import call, collate
from pyramid_bert.text.pairs import Pairs

HALF = Schedule.exponential(0.3, last_layer=3, min_tokens=3)
QUERY = "what is a good film ?"
DOCUMENTS = [
    "a fine film about love , and the man who made it",
    "the plot is thin",
    "no",
    "young people play a brilliant part in it , and the music is perfect ; but the end is sad , so it will not sell",
    "the plot is thin",
]
ACTIVATIONS = {"sigmoid": torch.nn.Sigmoid(), "identity": torch.nn.Identity(), "tanh": torch.nn.Tanh()}
WITHOUT_TORCH = """
import json, sys
sys.modules["torch"] = sys.modules["transformers"] = None
from pyramid_bert import PyramidReranker
print(json.dumps(PyramidReranker.load(sys.argv[1]).rank(sys.argv[2], sys.argv[3:])))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_bert, tokenizer):
    """A dense reranker as transformers saves it."""
    folder = tmp_path_factory.mktemp("reranker")
    tiny_bert(labels=1).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def same(found, expected):
    assert [(hit["corpus_id"], hit["text"]) for hit in found] == [(hit["corpus_id"], hit["text"]) for hit in expected]
    assert [hit["score"] for hit in found] == pytest.approx([hit["score"] for hit in expected], abs=1e-5)


@pytest.mark.parametrize("kind", ["dense", "pyramid"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_it_ranks_as_the_cross_encoder_of_the_same_folder(folder, tmp_path, kind, activation):
    ce = CrossEncoder(str(folder), activation_fn=ACTIVATIONS[activation], device="cpu")
    if kind == "pyramid":
        pyramidize(ce, HALF)
    ce.save_pretrained(str(tmp_path / "ce"))
    rr = PyramidReranker.load(tmp_path / "ce")
    assert (rr.settings is not None) == (kind == "pyramid")
    same(rr.rank(QUERY, DOCUMENTS, top_k=3), ce.rank(QUERY, DOCUMENTS, top_k=3, return_documents=True))
    same(rr.rank(QUERY, DOCUMENTS, top_k=None), ce.rank(QUERY, DOCUMENTS, return_documents=True))
    np.testing.assert_allclose(
        rr.score(QUERY, DOCUMENTS, batch_size=2), ce.predict([(QUERY, text) for text in DOCUMENTS]), atol=1e-5
    )
    rr.save(tmp_path / "own")  # as CrossEncoder and PyramidReranker both read it
    for again in (PyramidReranker.load(tmp_path / "own"), CrossEncoder(str(tmp_path / "own"), device="cpu")):
        hits = again.rank(QUERY, DOCUMENTS, top_k=5)
        assert [hit["score"] for hit in hits] == pytest.approx(
            [hit["score"] for hit in rr.rank(QUERY, DOCUMENTS)], abs=1e-5
        )


def test_a_folder_without_an_activation_has_cross_encoders_default(folder):
    same(
        PyramidReranker.load(folder).rank(QUERY, DOCUMENTS),
        CrossEncoder(str(folder), device="cpu").rank(QUERY, DOCUMENTS, return_documents=True),
    )


def test_equal_scores_keep_the_order_of_the_documents(folder):
    hits = PyramidReranker.load(folder).rank(QUERY, DOCUMENTS, top_k=None)
    equal = [hit["corpus_id"] for hit in hits if hit["text"] == "the plot is thin"]
    assert equal == [1, 4]


@pytest.mark.parametrize("longest", [128, 30, 12, 6])
@pytest.mark.parametrize("query", ["no", QUERY, "a " * 200])
def test_pairs_are_those_of_the_tokenizer(tokenizer, longest, query):
    documents = [*DOCUMENTS, "the " * 300]
    expected = encode(tokenizer, [(query, text) for text in documents], positions=128, max_length=longest)
    found = Pairs(tokenizer.backend_tokenizer, longest, types=True)(query, documents)
    assert found == expected
    assert max(map(len, found)) == (longest if longest < 128 else 128)


def test_the_query_is_tokenized_once(tokenizer):
    asked = []

    class Counting:
        def __init__(self, inner=tokenizer.backend_tokenizer):
            self.inner = inner

        def __getattr__(self, name):
            return getattr(self.inner, name)

        @classmethod
        def from_str(cls, text):
            return cls(type(tokenizer.backend_tokenizer).from_str(text))

        def encode(self, text, **how):
            asked.append(text)
            return self.inner.encode(text, **how)

    Pairs(Counting(), 64, types=True)(QUERY, DOCUMENTS)
    assert asked == [QUERY]


def test_documents_run_in_batches_by_true_length(folder, monkeypatch):
    rr, seen = PyramidReranker.load(folder), []
    forward = rr.classifier.model.forward
    monkeypatch.setattr(
        rr.classifier.model, "forward", lambda **batch: (seen.append(batch["input_ids"].shape), forward(**batch))[1]
    )
    rr.score(QUERY, DOCUMENTS, batch_size=2)
    lengths = sorted((len(item) for item in rr.encode(QUERY, DOCUMENTS)), reverse=True)
    assert seen == [(2, lengths[0]), (2, lengths[2]), (1, lengths[4])]


def test_max_length_is_saved_and_cuts(folder, tmp_path):
    rr = PyramidReranker.load(folder)
    assert rr.max_length == 128  # the tokenizer's
    rr.max_length = 14
    rr.save(tmp_path / "short")
    again = PyramidReranker.load(tmp_path / "short")
    assert again.max_length == 14
    assert max(map(len, again.encode(QUERY, DOCUMENTS))) == 14
    with pytest.raises(DataError, match="max_length must be an integer in 2-128, got 200"):
        rr.max_length = 200


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_an_exported_one_ranks_alike_without_torch(folder, tmp_path, precision):
    pytest.importorskip("openvino", reason="OpenVINO is not installed: pip install 'pyramid-bert[openvino]'")
    rr = PyramidReranker.from_pretrained(folder, HALF, "cluster", activation="tanh")
    rr.classifier.tokenizer.model_max_length = 25  # an exported tokenizer does not know it
    words = QUERY.split()
    lists = [
        (" ".join(words[n:] + words[:n]), [f"{one} {two}" for one in DOCUMENTS[:4] for two in words]) for n in range(5)
    ]
    report = rr.export(tmp_path / "fast", precision=precision, lists=lists)
    assert (report.precision, report.rows > 0) == (precision, True)
    words = [sys.executable, "-c", WITHOUT_TORCH, str(tmp_path / "fast"), QUERY, *DOCUMENTS]
    out = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    fast = PyramidReranker.load(tmp_path / "fast")
    assert (fast.settings, fast.max_length, fast.activation) == (rr.settings, 25, "tanh")
    same(out, fast.rank(QUERY, DOCUMENTS))
    if precision == "fp32":
        same(out, rr.rank(QUERY, DOCUMENTS))
    for verb in ("save", "export"):
        with pytest.raises(PyramidError, match="an exported model has no 'model'"):
            getattr(fast, verb)(tmp_path / "other")


def test_a_new_head_has_to_be_trained(tmp_path, tiny_bert, tokenizer):
    tiny_bert().bert.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="holds an encoder without a trained classifier"):
        PyramidReranker.load(tmp_path)
    with pytest.raises(PyramidError, match="has no trained classifier yet"):
        PyramidReranker.from_pretrained(tmp_path).score(QUERY, DOCUMENTS)


@pytest.mark.parametrize("types", [True, False])
def test_the_query_is_protected_with_and_without_token_types(tmp_path, tokenizer, tiny_bert, types):
    if types:
        tiny_bert(labels=1).save_pretrained(tmp_path)
    else:
        sizes = {"dim": 16, "n_layers": 3, "n_heads": 2, "hidden_dim": 24, "max_position_embeddings": 128}
        config = DistilBertConfig(**sizes, vocab_size=len(tokenizer), num_labels=1, initializer_range=0.2)
        DistilBertForSequenceClassification(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    if not types:  # as DistilBERT's says
        file = tmp_path / "tokenizer_config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "model_input_names": ["input_ids"]}))
    rr, trace = PyramidReranker.from_pretrained(tmp_path, HALF, protect=("query", "separators")), Trace()
    assert rr.settings.separator == (None if types else tokenizer.sep_token_id)
    item = rr.encode(QUERY, DOCUMENTS[3:4])[0]
    with torch.no_grad():
        call(rr.classifier.model, collate([item], 0), Pass(trace))
    asked, n = len(tokenizer.tokenize(QUERY)), len(item)
    kept = set(trace.layers[-1].kept[0].tolist())
    assert {*range(asked + 2), n - 1} <= kept
    assert len(kept) < n
    rr.save(tmp_path / "saved")
    same(PyramidReranker.load(tmp_path / "saved").rank(QUERY, DOCUMENTS), rr.rank(QUERY, DOCUMENTS))


def test_what_gives_no_score_is_refused_by_name(tiny_model_dir, folder, tmp_path):
    with pytest.raises(UnsupportedModelError, match="a head that gives no score: it predicts 2 classes"):
        PyramidReranker.load(tiny_model_dir)
    with pytest.raises(UnsupportedModelError, match="gives no score"):
        PyramidReranker(PyramidClassifier.load(tiny_model_dir))
    ce = CrossEncoder(str(folder), device="cpu", prompts={"q": "query: "}, default_prompt_name="q")
    ce.save_pretrained(str(tmp_path / "prompted"))
    with pytest.raises(UnsupportedModelError, match="puts the prompt 'q' before texts"):
        PyramidReranker.load(tmp_path / "prompted")
    ce = CrossEncoder(str(folder), device="cpu", activation_fn=torch.nn.ReLU())
    ce.save_pretrained(str(tmp_path / "relu"))
    with pytest.raises(UnknownNameError, match=r"unknown activation in .*'relu'"):
        PyramidReranker.load(tmp_path / "relu")
    modules = [{"type": "a.Transformer"}, {"type": "b.Pooling"}, {"type": "c.Dense"}]
    (tmp_path / "relu" / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(UnsupportedModelError, match=r"modular CrossEncoder \(Transformer, Pooling, Dense\)"):
        PyramidReranker.load(tmp_path / "relu")
    (tmp_path / "relu" / "modules.json").write_text("[3]")
    with pytest.raises(CheckpointError, match=r"modules\.json is damaged"):
        PyramidReranker.load(tmp_path / "relu")


@pytest.mark.parametrize(
    ("query", "documents", "message"),
    [
        ("", DOCUMENTS, "the query is empty"),
        (QUERY, [], "the list of documents is empty"),
        (QUERY, ["a", None], "document 1 is not a text"),
        (QUERY, ["a", "\ud800"], "half of a character"),
    ],
)
def test_bad_lists_are_refused_in_one_line(folder, query, documents, message):
    rr = PyramidReranker.load(folder)
    for verb in (rr.rank, rr.score):
        with pytest.raises(DataError, match=message):
            verb(query, documents)
    with pytest.raises(DataError, match="top_k must be an integer of at least 1, got 0; None returns all"):
        rr.rank(QUERY, DOCUMENTS, top_k=0)
