"""What an exported folder may not be: damaged, of another release or family, of another model. One line each."""

import json
import shutil
from pathlib import Path

import pytest
from helpers import run

import pyramid_bert
from pyramid_bert import ExportedClassifier, PyramidError
from pyramid_bert.runtimes.registry import get_runtime

pytest.importorskip("openvino", reason="OpenVINO is not installed: pip install 'pyramid-bert[openvino]'")


@pytest.fixture
def copied(exported_dir, tmp_path):
    """A copy of the exported folder, to be damaged."""
    return Path(shutil.copytree(exported_dir, tmp_path / "copied"))


def edit(folder, **changes):
    """Changes values of exported.json, and lets it know the sizes of what is there."""
    path = folder / "exported.json"
    sizes = {file.name: file.stat().st_size for file in folder.glob("stretch-*")}
    path.write_text(json.dumps({**json.loads(path.read_text()), "sizes": sizes, **changes}))


def refused(folder, message):
    with pytest.raises(PyramidError, match=message) as caught:
        ExportedClassifier.load(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("exported.json", lambda text: text[:-20], "exported.json is damaged"),
        ("exported.json", lambda text: text.replace("openvino", "else"), "unknown runtime 'else'"),
        (
            "exported.json",
            lambda text: text.replace('"sizes"', '"seizes"'),
            "exported.json is damaged: 'sizes'; export",
        ),
        (
            "stretch-0.xml",
            lambda text: text[:200],
            r"stretch-0\.xml is damaged: 200 bytes, exported with \d+; exp",
        ),
        ("stretch-1.xml", None, "lacks stretch-1.xml"),
        ("stretch-1.bin", None, "lacks stretch-1.bin"),
        ("tokenizer.json", lambda text: "{}", "tokenizer.json is damaged"),
        (
            "classifier.json",
            lambda text: text.replace('"pos"', '"pos", "so"'),
            "is of another model: it names 3 classes: neg, pos, so, and the graphs give 2 numbers; export",
        ),
    ],
)
def test_a_damaged_folder(copied, file, change, message):
    path = copied / file
    if change is None:
        path.unlink()
    else:
        path.write_text(change(path.read_text()))
    refused(copied, message)


def test_it_says_what_wrote_it(exported_dir):
    found, here = json.loads((exported_dir / "exported.json").read_text()), get_runtime("openvino").version
    assert found["made_with"] == {"pyramid_bert": pyramid_bert.__version__, "openvino": here}
    assert (found["family"], found["width"], found["outputs"]) == ("bert", 32, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": 3}, r"release '0\.2\.0' wrote it in format 3, this one reads 2; pip install -U pyramid-bert"),
        ({"format": 1, "made_with": None}, "an older release wrote it in format 1, this one reads 2; export the model"),
        ({"format": "2"}, "format must be an integer of at least 1, got '2'; export the model again"),
        ({"family": ["bert"]}, r"it names the family \['bert'\]; export the model again"),
    ],
)
def test_a_folder_of_another_release(copied, capsys, changes, message):
    edit(copied, **changes)
    refused(copied, message)
    assert run("predict", copied, "a fine film") == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_another_version_of_the_runtime_reads_it_if_it_can(trained, copied):
    clf, texts, _ = trained
    edit(copied, made_with={"openvino": "2024.1"})
    assert ExportedClassifier.load(copied).predict_logits(texts[:9]) == pytest.approx(
        clf.predict_logits(texts[:9]), abs=1e-4
    )
    graph = copied / "stretch-1.xml"
    graph.write_text(graph.read_text().replace('type="MatMul"', 'type="MatMu2"', 1))
    here = get_runtime("openvino").version
    refused(
        copied,
        rf"stretch-1\.xml was written with openvino 2024\.1 and cannot be read by {here}, or is damaged: .*MatMu2; pip "
        "install openvino==2024.1, or export the model again",
    )
    edit(copied, made_with={"openvino": here})
    refused(copied, r"stretch-1\.xml is damaged: .*MatMu2; export the model again")


def test_graphs_that_belong_to_another_model(copied):
    edit(copied, width=48)
    refused(copied, r"stretch-0\.xml is a graph of another model: from bias, given, types it makes vectors of 32")
    edit(copied, width=32, outputs=5)
    (copied / "classifier.json").write_text(json.dumps({"classes": list("abcde")}))
    refused(copied, r"stretch-2\.xml is a graph of another model: .* vectors of 2, 32 numbers, and .* vectors of 5, 32")
    for suffix in (".xml", ".bin"):
        shutil.copy((copied / "stretch-0").with_suffix(suffix), (copied / "stretch-1").with_suffix(suffix))
    edit(copied)
    refused(copied, r"stretch-1\.xml is a graph of another model: from bias, given, types it .* says from bias, given")


def test_graphs_that_do_not_fit_their_pyramid(copied):
    (way,) = json.loads((copied / "exported.json").read_text())["ways"]
    first, second, last = way["stretches"]
    for stretches in ([first, second], [second, first, last], [first, [2, "layer", second[2]], last]):
        edit(copied, ways=[{**way, "stretches": stretches}])
        refused(copied, r"exported\.json is damaged: no pass of this pyramid ends at \[.*\]; export the")
    edit(copied, ways=[{**way, "stretches": [second, last]}])
    refused(copied, "is a graph of another model")
    edit(copied, ways=[{**way, "pyramid": {**way["pyramid"], "placement": "end"}}])
    with pytest.raises(PyramidError, match="after the feed_forward of layer 1, where no graph ends; export the"):
        ExportedClassifier.load(copied).predict(["a fine film of the world"])


def test_in_onnx_runtime_too(trained, tmp_path):
    pytest.importorskip("onnxruntime", reason="not installed: pip install 'pyramid-bert[onnx]'")
    pytest.importorskip("onnxscript", reason="not installed: pip install 'pyramid-bert[onnx]'")
    trained[0].export(tmp_path, runtime="onnxruntime", precision="int8", texts=trained[1], force=True)
    ExportedClassifier.load(tmp_path)
    edit(tmp_path, width=48)
    refused(tmp_path, r"stretch-0\.onnx is a graph of another model")
    graph = tmp_path / "stretch-0.onnx"
    graph.write_bytes(graph.read_bytes()[:-1])
    edit(tmp_path, width=32)
    refused(tmp_path, r"stretch-0\.onnx is damaged: .*Protobuf.*; export the model again")
