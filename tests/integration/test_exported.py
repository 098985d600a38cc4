"""Classifiers exported to OpenVINO: the answers of torch, in a process that has neither torch nor transformers."""

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from pyramid_bert import ExportedClassifier, PyramidClassifier, PyramidError, Schedule
from pyramid_bert.core import compiled, distances
from pyramid_bert.core.loop import Recorder
from pyramid_bert.errors import CheckpointError, DataError, UnknownNameError

pytest.importorskip("openvino", reason="OpenVINO is not installed: pip install 'pyramid-bert[openvino]'")

WITHOUT_TORCH = """
import sys
from concurrent.futures import ThreadPoolExecutor
sys.modules["torch"] = sys.modules["transformers"] = None
from pyramid_bert import ExportedClassifier
clf = ExportedClassifier.load(sys.argv[1], threads=1)
print(clf.predict_logits(sys.argv[2:]).tolist())
"""


def test_it_answers_as_the_model_that_was_exported(trained, exported_dir):
    clf, texts, _ = trained
    fast = ExportedClassifier.load(exported_dir, threads=1)
    assert fast.predict_logits(texts) == pytest.approx(clf.predict_logits(texts), abs=1e-5)
    assert fast.predict(texts[:5]).tolist() == clf.predict(texts[:5]).tolist()
    assert fast.predict_proba(texts[:5]) == pytest.approx(clf.predict_proba(texts[:5]), abs=1e-5)
    assert fast.classes_.tolist() == clf.classes_.tolist()
    assert (fast.settings, fast.max_length) == (clf.settings, 24)
    pairs = [("a fine film", "it is"), ("dull " * 40, "yes")]  # cut, from the longer one
    assert [one.input_ids for one in fast.encode(pairs)] == [one.input_ids for one in clf.encode(pairs)]
    assert [one.token_type_ids for one in fast.encode(pairs)] == [one.token_type_ids for one in clf.encode(pairs)]


def test_without_torch_and_transformers(trained, exported_dir):
    clf, texts, _ = trained
    words = [sys.executable, "-c", WITHOUT_TORCH, str(exported_dir), *texts[:3]]
    out = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert np.array(json.loads(out)) == pytest.approx(clf.predict_logits(texts[:3]), abs=1e-5)


COMMAND = """
import sys
sys.modules["torch"] = sys.modules["transformers"] = None
from pyramid_bert.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_commands_without_torch(dense_dir, exported_dir, trained, tmp_path):
    def call(*words):
        return subprocess.run([sys.executable, "-c", COMMAND, *map(str, words)], capture_output=True, text=True)

    done = call("predict", exported_dir, "a fine film", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert trained[0].predict(["a fine film"])[0] in done.stdout
    for words in (["predict", dense_dir, "a fine film"], ["export", dense_dir, "--out", tmp_path / "new"]):
        done = call(*words)
        assert (done.returncode, done.stdout) == (1, "")
        line = r"pyramid-bert: this needs (torch|transformers): pip install \1; without it, only exported models run\n"
        assert re.fullmatch(line, done.stderr)


def test_a_dense_model_is_one_graph(trained, tmp_path):
    clf, texts, _ = trained
    clf.save(tmp_path / "saved")
    dense = PyramidClassifier.from_pretrained(tmp_path / "saved", "dense")
    fast = dense.export(tmp_path / "dense").classifier
    assert len(list((tmp_path / "dense").glob("*.xml"))) == 1
    assert fast.predict_logits(texts) == pytest.approx(dense.predict_logits(texts), abs=1e-5)


def test_a_core_set_has_its_radius(trained, tmp_path):
    clf, texts, _ = trained
    clf.save(tmp_path / "saved")
    some = PyramidClassifier.from_pretrained(tmp_path / "saved", Schedule.exponential(0.5, 2), "coreset")
    fast = some.export(tmp_path / "fast").classifier
    labels, radius = fast.predict(texts, return_radius=True)
    expected, radii = some.predict(texts, return_radius=True)
    assert labels.tolist() == expected.tolist()
    assert radius == pytest.approx(radii, abs=1e-4)


def test_random_tokens_are_those_of_the_seed(trained, tmp_path):
    clf, texts, _ = trained
    clf.save(tmp_path / "saved")
    some = PyramidClassifier.from_pretrained(tmp_path / "saved", Schedule.constant(0.3), "random", seed=7)
    fast = some.export(tmp_path / "fast").classifier
    assert fast.predict_logits(texts) == pytest.approx(some.predict_logits(texts), abs=1e-5)


def test_the_only_score_that_is_left_is_deprecated_here_too(trained, exported_dir):
    _, texts, _ = trained
    fast = ExportedClassifier.load(exported_dir)
    with pytest.warns(DeprecationWarning, match="confidence is the only score"):
        found = fast.answers(texts[:5], score="confidence")
    assert found.logits.tolist() == fast.predict_logits(texts[:5]).tolist()
    with pytest.raises(PyramidError, match="the score must be 'confidence', got 'radius'"):
        fast.predict(texts[:5], score="radius")


def test_what_cannot_be(trained, exported_dir, tmp_path):
    clf, texts, _ = trained
    fast = ExportedClassifier.load(exported_dir)
    with pytest.raises(UnknownNameError, match="unknown precision of openvino 'int4'"):
        clf.export(tmp_path / "new", precision="int4")
    clf.save(tmp_path / "saved")
    with pytest.raises(PyramidError, match="only models in float32 on the CPU are exported, this one is in"):
        PyramidClassifier.load(tmp_path / "saved", dtype="bfloat16").export(tmp_path / "new")
    assert not (tmp_path / "new").exists()
    with pytest.raises(PyramidError, match="cannot run again with all tokens"):
        fast.predict(texts, fallback=0.1)
    with pytest.raises(PyramidError, match="has a covering radius"):
        fast.predict(texts, return_radius=True)
    with pytest.raises(PyramidError, match="runs on the CPU as it was exported; leave out device='cuda'"):
        PyramidClassifier.load(exported_dir, device="cuda")
    with pytest.raises(CheckpointError, match="holds no exported model"):
        ExportedClassifier.load(tmp_path)
    fast.max_length = None
    with pytest.raises(DataError, match="has 602 tokens and the model reads at most 128"):
        fast.predict(["film " * 600])


def test_a_folder_of_something_else_is_not_replaced(trained, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(PyramidError, match=r"notes\.txt"):
        trained[0].export(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_threads_share_it(trained, exported_dir):
    """Each gets its own answers, though a runtime keeps the memory of its outputs."""
    clf, texts, _ = trained
    fast, expected = ExportedClassifier.load(exported_dir, threads=1), clf.predict_logits(texts)
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            found = pool.map(lambda i: fast.predict_logits([texts[i]])[0], range(len(texts)))
            assert np.array(list(found)) == pytest.approx(expected, abs=1e-4)


class Watching(Recorder):
    """Notes how many threads BLAS may use when something is recorded."""

    def __init__(self):
        self.seen = []

    def reduced(self, *_):
        self.seen += [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]


@pytest.mark.parametrize(("threads", "loops", "blas"), [(1, set(), {1}), (3, {3}, {1}), (None, {2}, {2})])
def test_threads_are_those_of_choosing_too(trained, exported_dir, monkeypatch, threads, loops, blas):
    clf, texts, _ = trained
    expected = clf.predict_logits(texts)
    used, start = set(), compiled._threads
    monkeypatch.setattr(compiled, "_threads", lambda number: used.add(number) or start(number))
    monkeypatch.setattr(compiled, "_WORTH_THREADS", 0)
    monkeypatch.setattr(distances, "_NUMBERS_AT_A_TIME", 1)  # every row is work for a thread
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    fast, watching = ExportedClassifier.load(exported_dir, threads=threads), Watching()
    with threadpool_limits(2, user_api="blas"):
        assert fast.predict_logits(texts) == pytest.approx(expected, abs=1e-4)
        fast._logits(fast.encode(texts[:4]), watching)
    if not watching.seen:
        pytest.skip("numpy's BLAS cannot be told its threads")
    assert (used, set(watching.seen)) == (loops, blas)


@pytest.mark.parametrize("threads", [0, 1.5, "all"])
def test_wrong_threads(exported_dir, threads):
    with pytest.raises(PyramidError, match="threads must be an integer of at least 1"):
        ExportedClassifier.load(exported_dir, threads=threads)
