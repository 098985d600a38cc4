"""Families with tokenizers of their own kind, from training to export: small random models, trained on a toy task."""

import copy
import json
from importlib.util import find_spec

import numpy as np
import pytest
import transformers as hf
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from pyramid_bert import (
    Certificate,
    ExportedClassifier,
    PyramidClassifier,
    Schedule,
    is_pyramid,
    measure_sensitivity,
    pyramidize,
    restore,
    unoptimize,
)
from pyramid_bert.errors import DataError
from pyramid_bert.export.words import Words
from pyramid_bert.families import FAMILIES, base_model, positions_of
from pyramid_bert.testing import tiny_model
from pyramid_bert.text.batches import encode
from pyramid_bert.text.inference import outputs_of
from pyramid_bert.tune.search import find_pyramid

OF_ROBERTA = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]  # padding is token 1
OF_BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
OF_ALBERT = ["<pad>", "<unk>", *OF_BERT[2:]]
SCHEDULE = Schedule.exponential(0.5, 2)


def words(texts, special):
    found = sorted({word for text in texts for word in text.split()})
    return {word: number for number, word in enumerate([*special, *found])}


def pieces(texts, special):
    """Pieces of words and their scores: "▁" begins a word, as in SentencePiece."""
    learned = Tokenizer(models.Unigram())
    learned.pre_tokenizer = pre_tokenizers.Metaspace()
    how = {"special_tokens": special, "unk_token": "<unk>", "show_progress": False}
    learned.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=150, **how))
    return [tuple(pair) for pair in json.loads(learned.to_str())["model"]["vocab"]]


def byte_pairs(texts, special):
    """Pairs of bytes: "Ġ" begins a word."""
    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    how = {"special_tokens": special, "initial_alphabet": pre_tokenizers.ByteLevel.alphabet(), "show_progress": False}
    learned.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=330, **how))
    made = json.loads(learned.to_str())["model"]
    return {"vocab": made["vocab"], "merges": [tuple(pair) for pair in made["merges"]]}


TOKENIZERS = {
    "roberta": lambda texts: hf.RobertaTokenizer(**byte_pairs(texts, OF_ROBERTA)),
    "xlm-roberta": lambda texts: hf.XLMRobertaTokenizer(vocab=pieces(texts, OF_ROBERTA)),
    "camembert": lambda texts: hf.CamembertTokenizer(vocab=pieces(texts, OF_ROBERTA)),
    "electra": lambda texts: hf.ElectraTokenizer(vocab=words(texts, OF_BERT)),
    "distilbert": lambda texts: hf.DistilBertTokenizer(vocab=words(texts, OF_BERT)),
    "albert": lambda texts: hf.AlbertTokenizer(vocab=pieces(texts, OF_ALBERT)),
    "mpnet": lambda texts: hf.MPNetTokenizer(vocab=words(texts, [*OF_ROBERTA[:3], "[UNK]", "<mask>", "<unk>"])),
}
PAIRS = [("a fine film", "it is"), ("dull " * 40, "the world is"), ("a sad story", "poor " * 30)]
MARKS = {"roberta": "Ġ", "xlm-roberta": "▁", "camembert": "▁", "albert": "▁"}


def some(*kinds):
    """Runs a test for some of the families."""
    return pytest.mark.parametrize("folder", kinds, indirect=True)


@pytest.fixture(scope="module", params=TOKENIZERS)
def folder(request, sentiment, tmp_path_factory):
    """A folder with a dense encoder of a family, which can learn the task, and a tokenizer of its kind."""
    family = next(row for row in FAMILIES if row.model_type == request.param)
    tokenizer = TOKENIZERS[request.param](sentiment(256)[0])
    sizes = {"vocab_size": len(tokenizer), "hidden_size": 32, "num_attention_heads": 4, "num_labels": 2}
    sizes |= {
        "pad_token_id": tokenizer.pad_token_id,
        "max_position_embeddings": 130,
        "initializer_range": 0.1,
        family.where.inner_size: 64,
    }
    sizes |= {"embedding_size": 32} if request.param == "electra" else {}
    folder = tmp_path_factory.mktemp(request.param)
    base_model(tiny_model(family, sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def dense(folder, sentiment):
    texts, labels = sentiment(256)
    clf = PyramidClassifier.from_pretrained(folder, "dense")
    return clf.fit(texts, labels, epochs=8, learning_rate=3e-3, batch_size=16, progress=False)


@pytest.fixture(scope="module")
def pyramid(dense, tmp_path_factory):
    """The dense classifier as a pyramid."""
    saved = tmp_path_factory.mktemp("dense") / "model"
    dense.save(saved)
    return PyramidClassifier.from_pretrained(saved, SCHEDULE, "cluster", max_length=30)


@some("roberta", "distilbert")
def test_the_pyramid_of_a_wanted_speed_keeps_the_answers_on_held_out_rows(dense, sentiment):
    """On rows that the search has not seen: what it says holds there."""
    found = find_pyramid(dense, 1.5, *sentiment(120, seed=2), target="ideal")
    assert found.ideal >= 1.5
    unseen = sentiment(200, seed=3)
    ours, theirs = (clf.evaluate(*unseen)["accuracy"] for clf in (found.classifier, dense))
    assert theirs > 0.9
    assert ours > theirs - 0.05
    assert np.mean(found.classifier.predict(unseen[0]) == dense.predict(unseen[0])) > 0.9


def test_it_trains_saves_and_loads(folder, sentiment, tmp_path):
    texts, labels = sentiment(64)
    clf = PyramidClassifier.from_pretrained(folder, SCHEDULE, "cluster", metric="cosine")
    clf.fit(texts, labels, epochs=1, learning_rate=1e-3, progress=False)
    clf.certificate = Certificate.fit(clf, texts)
    clf.save(tmp_path / "saved")
    loaded = PyramidClassifier.load(tmp_path / "saved")
    assert is_pyramid(loaded.model)
    assert loaded.predict_logits(texts) == pytest.approx(clf.predict_logits(texts), abs=1e-6)
    assert loaded.certificate is not None


@some("albert", "mpnet")
def test_sensitivity_is_measured(dense, sentiment):
    model = restore(copy.deepcopy(dense.model))
    measure_sensitivity(model, dense.encode(sentiment(40, seed=2)[0]), dense.tokenizer.pad_token_id)
    pyramidize(model, SCHEDULE, "cluster", metric="sensitivity")
    texts = sentiment(40, seed=3)[0]
    found = outputs_of(model, dense.encode(texts), dense.tokenizer.pad_token_id, batch_size=8).logits.numpy()
    assert np.isfinite(found).all()
    assert np.abs(found - dense.predict_logits(texts)).max() > 0


def test_texts_as_long_as_the_model_reads_are_taken_and_longer_ones_refused(pyramid):
    longest = positions_of(pyramid.model)
    item = next(iter(pyramid.encode(["fine " * 10])))
    word, ends = item.input_ids[2], len(item) - 10
    full = type(item)([item.input_ids[0], *[word] * (longest - 2), item.input_ids[-1]])
    assert np.isfinite(pyramid.predict_logits([full])).all()
    assert ends >= 2
    uncut = PyramidClassifier(pyramid.model, pyramid.tokenizer)
    with pytest.raises(DataError, match=f"the model reads at most {longest}"):
        uncut.encode(["fine " * (longest + 5)])


@pytest.mark.parametrize("how", ["packed", "int8"])
def test_optimized_it_gives_nearly_the_same(pyramid, sentiment, how):
    texts = sentiment(32, seed=4)[0]
    plain = pyramid.predict_proba(texts)
    try:
        fast = pyramid.optimize(how).predict_proba(texts)
    finally:
        unoptimize(pyramid.model)
    assert fast == pytest.approx(plain, abs=1e-4 if how == "packed" else 0.2)
    assert how == "packed" or np.abs(fast - plain).max() > 0


def test_it_explains_a_text(pyramid):
    found = pyramid.explain("the film is a fine story")
    mark = MARKS.get(pyramid.model.config.model_type.removeprefix("pyramid-"))
    assert found.tokens[0] == pyramid.tokenizer.cls_token
    assert mark is None or any(token.startswith(mark) for token in found.tokens)
    assert len(found.layers[-1].kept) < len(found.tokens)


@pytest.mark.parametrize(
    ("folder", "runtime"),
    [("roberta", "openvino"), ("albert", "onnxruntime"), ("mpnet", "openvino"), ("distilbert", "onnxruntime")],
    indirect=["folder"],
)
def test_exported_it_gives_the_same_for_texts_pairs_and_cut_texts(pyramid, sentiment, runtime, tmp_path):
    if find_spec(runtime) is None:
        pytest.skip(f"{runtime} is not installed")
    texts = sentiment(24, seed=5)[0]
    pyramid.export(tmp_path / "fast", runtime=runtime)
    fast = ExportedClassifier.load(tmp_path / "fast", threads=1)
    assert fast.predict_logits(texts) == pytest.approx(pyramid.predict_logits(texts), abs=1e-4)
    assert fast.predict_logits(PAIRS) == pytest.approx(pyramid.predict_logits(PAIRS), abs=1e-4)


def test_tokenizers_cut_and_pair_texts_without_transformers_as_with_it(pyramid, tmp_path):
    pyramid.tokenizer.backend_tokenizer.save(str(tmp_path / "tokenizer.json"))
    plain = Words(tmp_path / "tokenizer.json")
    for texts in (PAIRS, [first for first, _ in PAIRS]):
        found = encode(plain, texts, positions=130, max_length=30)
        assert [one.input_ids for one in found] == [one.input_ids for one in pyramid.encode(texts)]
        assert max(map(len, found)) == 30


@some("distilbert")
def test_exported_in_8_bits_it_agrees(pyramid, sentiment, tmp_path):
    pytest.importorskip("onnxruntime")
    texts, labels = sentiment(100, seed=6)
    how = {"runtime": "onnxruntime", "precision": "int8", "force": True}
    assert pyramid.export(tmp_path / "fast", texts=texts, labels=labels, **how).agreement > 0.9
