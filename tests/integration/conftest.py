"""A small sentiment task that a tiny model can learn, and a way to read trained weights."""

import random

import pytest
import torch
from safetensors.torch import load_file

from pyramid_bert import PyramidClassifier, Schedule, cores

GOOD = "fine good great brilliant sweet perfect funny clever happy".split()
BAD = "dull boring weak poor sad worst slow cold tired".split()
FILLER = "the film is a story and it has some music for you in this world".split()


@pytest.fixture(scope="session")
def sentiment():
    """Makes (texts, labels): a few filler words around one that decides the label."""

    def make(rows, seed=0):
        draw = random.Random(seed)
        texts, labels = [], []
        for _ in range(rows):
            label = draw.choice(["neg", "pos"])
            words = draw.choices(FILLER, k=draw.randint(2, 20))
            words.insert(draw.randrange(len(words)), draw.choice(GOOD if label == "pos" else BAD))
            texts.append(" ".join(words))
            labels.append(label)
        return texts, labels

    return make


@pytest.fixture(scope="session")
def sentiment_files(sentiment, tmp_path_factory):
    """train.csv and dev.csv of the sentiment task."""
    folder = tmp_path_factory.mktemp("data")
    for name, rows, seed in (("train", 256, 0), ("dev", 64, 1)):
        lines = [f"{text},{label}" for text, label in zip(*sentiment(rows, seed), strict=True)]
        (folder / f"{name}.csv").write_text("\n".join(["text,label", *lines]) + "\n")
    return folder


@pytest.fixture(scope="session")
def weights_in():
    """The weights in a model folder, by name."""
    return lambda folder: load_file(folder / "model.safetensors")


@pytest.fixture(scope="session")
def learner_dir(tmp_path_factory, tiny_bert, tokenizer):
    """A folder with a tiny encoder and its tokenizer that can learn the task: small weights, no dropout."""
    folder = tmp_path_factory.mktemp("learner")
    model = tiny_bert(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "LayerNorm" not in name and "embeddings" not in name:
                parameter.mul_(0.3)
    model.bert.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def dense_dir(learner_dir, sentiment, tmp_path_factory):
    """A dense classifier that has learned the task."""
    texts, labels = sentiment(256)
    classifier = PyramidClassifier.from_pretrained(learner_dir, "dense")
    classifier.fit(texts, labels, epochs=8, learning_rate=2e-3, batch_size=16, progress=False)
    folder = tmp_path_factory.mktemp("dense") / "model"
    classifier.save(folder)
    return folder


@pytest.fixture(scope="session")
def trained(learner_dir, sentiment):
    """A small pyramid that has learned the task, and texts and labels that it has not seen. Not to be changed."""
    schedule = Schedule.exponential(0.5, 2)
    clf = PyramidClassifier(learner_dir, schedule=schedule, selector="cluster", rest_from=3, max_length=24)
    clf.fit(*sentiment(256, 0), epochs=6, learning_rate=2e-3, batch_size=16, progress=False)
    return clf, *sentiment(120, 1)


@pytest.fixture(scope="session")
def exported_dir(trained, tmp_path_factory):
    """The folder of `trained` in OpenVINO, in fp32. Not to be changed."""
    folder = tmp_path_factory.mktemp("exported") / "fast"
    trained[0].export(folder)
    return folder


@pytest.fixture
def rows_file(sentiment, tmp_path):
    """A file with 80 rows of the task."""
    lines = [f"{text},{label}" for text, label in zip(*sentiment(80, seed=5), strict=True)]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["text,label", *lines]) + "\n")
    return path


@pytest.fixture
def without_vnni(tmp_path, monkeypatch):
    """A processor that has no 8-bit instructions, as far as the system tells."""
    (tmp_path / "cpuinfo").write_text("flags : fpu avx2")
    monkeypatch.setattr(cores, "CPUINFO", tmp_path / "cpuinfo")
    cores.instructions.cache_clear()
    yield
    cores.instructions.cache_clear()
