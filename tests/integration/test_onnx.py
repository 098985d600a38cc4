"""Graphs of ONNX Runtime: in 8 bits, without torch, damaged. `test_graphs.py` compares them with torch."""

import logging
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
from helpers import FAST, SCHEDULE, graphs_of

from pyramid_bert import PyramidClassifier, Schedule, pyramidize
from pyramid_bert.cores import has_vnni, instructions
from pyramid_bert.errors import MissingExtraError, UnknownNameError
from pyramid_bert.runtimes.onnx import load, quantize, write
from pyramid_bert.runtimes.registry import get_runtime
from pyramid_bert.text.batches import padded

needed = "not installed: pip install 'pyramid-bert[onnx]'"
onnx = pytest.importorskip("onnx", reason=needed)
pytest.importorskip("onnxruntime", reason=needed)

LENGTHS = [17, 12, 9, 3]
WITHOUT_TORCH = """
import sys
sys.modules.update(dict.fromkeys(("torch", "transformers", "onnx", "onnxscript")))
import numpy as np
from pyramid_bert.runtimes.onnx import load
ids = np.full((2, 3), 7)
logits, cls = load(sys.argv[1], threads=1)({"given": ids, "types": ids * 0, "bias": np.zeros((2, 3), np.float32)})
print(logits.shape, cls.shape)
"""


@pytest.fixture
def files(tmp_path):
    """Makes a graph of a stretch with `quantize`, and says where it and its source are."""
    made = []

    def make(stretch, example):
        source = tmp_path / f"stretch-{len(made)}.onnx"
        target = source.with_stem(f"{source.stem}-int8")
        write(stretch, example, source)
        quantize(source, target)
        made.append((source, target))
        return load(target, "int8", threads=1)

    make.made = made
    return make


@pytest.fixture(scope="module")
def dense_file(tiny_bert, tmp_path_factory):
    """A dense model of two layers as one graph."""
    file = tmp_path_factory.mktemp("dense") / "stretch-0.onnx"
    graphs_of(pyramidize(tiny_bert(layers=2), Schedule.constant(1.0)), 64, lambda *given: write(*given, file))
    return file


def bytes_of(file, kind):
    """The bytes of the weights of a kind in a graph."""
    weights = [onnx.numpy_helper.to_array(weight) for weight in onnx.load(file).graph.initializer]
    return sum(weight.nbytes for weight in weights if weight.dtype == kind)


def test_8_bits_give_nearly_the_same_answers(learner_dir, sentiment, files):
    texts, labels = sentiment(300)
    clf = PyramidClassifier.from_pretrained(learner_dir, SCHEDULE).fit(texts, labels, **FAST)
    graphs, items = graphs_of(clf.model, 64, files), clf.encode(texts[:64])
    batch, counts = padded(items, 0), [len(item) for item in items]
    logits, cls = graphs(batch["input_ids"], batch["token_type_ids"], counts)
    expected = clf.predict_logits(texts[:64])
    assert np.ptp(expected.argmax(1)) == 1  # both answers are given
    assert (logits.argmax(1) == expected.argmax(1)).mean() >= 0.95
    assert 0 < abs(logits - expected).max() < 0.1 * np.ptp(expected)
    assert cls.shape == (64, clf.model.config.hidden_size)


def test_8_bits_are_a_quarter_of_the_linear_weights(tiny_bert, files):
    model = pyramidize(tiny_bert(hidden=64), Schedule.constant(1.0))
    graphs_of(model, 64, files)
    [(source, target)] = files.made
    sizes = {name: weight.numel() for name, weight in model.named_parameters() if weight.dim() == 2}
    by_head = ("layer.3.attention.self.key", "layer.3.attention.self.value")  # CLS of the last layer reads without keys
    linear = sum(size for name, size in sizes.items() if not any(part in name for part in ("embeddings", *by_head)))
    assert bytes_of(target, np.int8) == pytest.approx(linear, rel=0.02)
    assert bytes_of(source, np.float32) - bytes_of(target, np.float32) == pytest.approx(4 * linear, rel=0.02)
    tables = {weight.name: weight.data_type for weight in onnx.load(target).graph.initializer}
    assert [tables[name] for name in tables if "word_embeddings" in name] == [onnx.TensorProto.FLOAT]
    weights = {weight.name: onnx.numpy_helper.to_array(weight) for weight in onnx.load(target).graph.initializer}
    largest = max(abs(weight.astype(int)).max() for weight in weights.values() if weight.dtype == np.int8)
    assert largest == (127 if has_vnni(instructions()) else 64)
    scales = [weight for name, weight in weights.items() if name.endswith("_scale")]
    assert min(scale.shape[-1] for scale in scales if scale.ndim) > 1  # one for each output


def test_weights_have_7_bits_where_two_products_are_added_in_16(dense_file, tmp_path, without_vnni):
    quantize(dense_file, tmp_path / "small.onnx")
    found = [onnx.numpy_helper.to_array(weight) for weight in onnx.load(tmp_path / "small.onnx").graph.initializer]
    assert max(abs(weight.astype(int)).max() for weight in found if weight.dtype == np.int8 and weight.ndim == 2) == 64


def test_weights_beside_a_graph(dense_file, tmp_path):
    """What is too large for one file stays so in 8 bits."""
    apart, small = tmp_path / "apart.onnx", tmp_path / "small.onnx"
    where = {"save_as_external_data": True, "location": "apart.onnx.data", "size_threshold": 1000}
    onnx.save(onnx.load(dense_file), apart, **where)
    given = {"given": np.full((2, 3), 7), "types": np.zeros((2, 3), int), "bias": np.zeros((2, 3), np.float32)}
    assert load(apart)(given)[0] == pytest.approx(load(dense_file)(given)[0])
    quantize(apart, small)
    assert (tmp_path / "small.onnx.data").exists()
    assert np.isfinite(load(small, "int8")(given)[0]).all()


def test_attention_reads_shapes_only_once(dense_file):
    kinds = Counter(node.op_type for node in onnx.load(dense_file).graph.node)
    assert kinds["Softmax"] == 2
    assert kinds["Shape"] == 2  # rows and tokens


def test_without_torch(dense_file):
    words = [sys.executable, "-c", WITHOUT_TORCH, str(dense_file)]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout == "(2, 2) (2, 32)\n"


def test_nothing_is_printed(tiny_bert, files, capfd, caplog, recwarn):
    level = logging.getLogger("torch.onnx").level
    graphs_of(pyramidize(tiny_bert(layers=1), Schedule.constant(1.0)), 64, files)
    assert capfd.readouterr() == ("", "")
    assert [str(warning.message) for warning in recwarn] == []
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert logging.getLogger("torch.onnx").level == level


@pytest.mark.parametrize("kept", [0, 300, -100])
def test_a_damaged_file(dense_file, tmp_path, kept):
    file = tmp_path / "stretch-0.onnx"
    file.write_bytes(dense_file.read_bytes()[:kept])
    with pytest.raises(Exception, match=r"stretch-0\.onnx|ModelProto"):
        load(file)


def test_what_cannot_be(dense_file, tmp_path, monkeypatch):
    with pytest.raises(UnknownNameError, match="unknown precision of onnxruntime 'bf16'"):
        get_runtime("onnxruntime").check("bf16")
    for package, call in {
        "onnxruntime": lambda: load(dense_file),
        "onnxscript": lambda: write(None, {}, tmp_path / "x.onnx"),
    }.items():
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(MissingExtraError, match=rf"needs {package}: pip install 'pyramid-bert\[onnx\]'"):
            call()
