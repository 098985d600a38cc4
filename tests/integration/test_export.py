"""`pyramid-bert export` and `clf.export`: what is measured, what is refused, int8, every speed of an elastic model."""

import copy
import json
import os
import shutil
import subprocess
import sys
import time
import warnings
from contextlib import contextmanager
from importlib.metadata import distribution
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import output, run
from rich.console import Console

import pyramid_bert
from pyramid_bert import ExportedClassifier, PyramidClassifier, PyramidError, Schedule, pyramidize
from pyramid_bert.bench.workload import Workload
from pyramid_bert.cli.ledgers import runtime_tables
from pyramid_bert.errors import DataError, MissingExtraError
from pyramid_bert.export import calibration, ledger, report, writing
from pyramid_bert.export.calibration import arrivals
from pyramid_bert.export.classifier import GraphFolder
from pyramid_bert.export.ledger import RuntimeLedger, Timed, measure_runtimes
from pyramid_bert.export.ready import BatchRunner
from pyramid_bert.export.writing import write_graphs
from pyramid_bert.front import Front, Point
from pyramid_bert.runtimes import openvino
from pyramid_bert.runtimes.registry import get_runtime
from pyramid_bert.text.labels import Labels

pytest.importorskip("openvino", reason="OpenVINO is not installed: pip install 'pyramid-bert[openvino]'")

HALVING = Schedule.exponential(0.5, 2)  # of `trained`
EXPORTED = "fast holds an exported model, which only predicts; give the model that was exported"


@pytest.fixture(scope="module")
def saved(trained, tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved") / "model"
    trained[0].save(folder)
    return folder


@pytest.fixture
def bars(monkeypatch):
    """The bars of a call in their order: title, steps in all, and steps that were taken."""
    shown = []

    @contextmanager
    def watched(title, total, **_):
        shown.append([title, total, 0])

        def step():
            shown[-1][2] += 1

        yield step

    for module in (writing, report, ledger):
        monkeypatch.setattr(module, "steps_shown", watched)
    return shown


def test_what_changed_is_measured(trained, tmp_path):
    clf, texts, labels = trained
    report = clf.export(tmp_path / "fast", texts=texts, labels=labels)
    assert (report.runtime, report.precision, report.rows) == ("openvino", "fp32", 120)
    assert report.agreement == 1
    assert 0 < report.largest_change < 1e-4
    assert report.before == report.after == clf.evaluate(texts, labels)
    assert report.before["accuracy"] > 0.7
    assert report.speedup > 0
    assert report.classifier.record.measured == report.to_dict()
    without = clf.export(tmp_path / "fast").to_dict()  # replaced, and nothing to measure on
    assert (without["rows"], without["agreement"], without["speedup"]) == (0, None, None)


def test_int8(trained, tmp_path, bars):
    pytest.importorskip("nncf", reason="NNCF is not installed: pip install 'pyramid-bert[openvino]'")
    clf, texts, labels = trained
    report = clf.export(tmp_path / "small", precision="int8", texts=texts, labels=labels, force=True)
    assert bars == [["writing graphs", 6, 6], ["measuring, in turn", 8, 8]]
    assert report.rows == 60  # the other half told the scales
    assert report.agreement > 0.9
    assert 1e-4 < report.largest_change < 1  # it is another precision, and no other model
    clf.export(tmp_path / "whole")
    logits = clf.predict_logits(texts)
    assert np.abs(report.classifier.predict_logits(texts) - logits).mean() < 0.1 * np.abs(logits).mean()
    sizes = [sum(file.stat().st_size for file in (tmp_path / name).glob("*.bin")) for name in ("small", "whole")]
    assert sizes[0] < sizes[1]
    assert sorted(path.name for path in (tmp_path / "small").iterdir()) == sorted(
        path.name for path in (tmp_path / "whole").iterdir()
    )


@pytest.mark.parametrize(("bytes_at_once", "runs"), [(1 << 20, 1), (0, 3)])
def test_scales_are_measured_on_what_reaches_a_graph(trained, tmp_path, monkeypatch, bytes_at_once, runs):
    """In one run over the texts for all graphs, or in one for each where memory is short."""
    clf, texts, _ = trained
    clf.export(tmp_path / "whole")
    made, items, loaded = ExportedClassifier.load(tmp_path / "whole").record, clf.encode(texts[:4]), []
    monkeypatch.setattr(calibration, "GraphFolder", lambda *given: loaded.append(0) or GraphFolder(*given))
    width = clf.model.config.hidden_size
    reached = dict(arrivals(tmp_path / "whole", made, items, width, bytes_at_once))
    assert len(loaded) == runs
    assert list(reached) == made.files
    assert [given["given"].tolist() for given in reached[made.files[0]]] == [[item.input_ids] for item in items]
    for number, layer in ((1, 1), (2, 2)):  # one graph per reduction, and the last one
        kept = [HALVING.lengths(len(item), clf.model.config.num_hidden_layers)[layer - 1] for item in items]
        assert [given["given"].shape for given in reached[made.files[number]]] == [(1, n, width) for n in kept]
        assert [given["bias"].shape for given in reached[made.files[number]]] == [(1, n) for n in kept]


@pytest.mark.skipif("BF16" not in openvino._capabilities(), reason="this processor has no bf16")
def test_bf16(trained, exported_dir, tmp_path):
    """Its graphs are those of fp32; how they are run differs, by what bf16 rounds and no more."""
    clf, texts, labels = trained
    report = clf.export(tmp_path / "fast", precision="bf16", texts=texts, labels=labels, tolerance=2)
    expected, found = clf.predict_logits(texts), report.classifier.predict_logits(texts)
    assert report.agreement == (found.argmax(1) == expected.argmax(1)).mean() > 0.95
    assert report.largest_change == pytest.approx(np.abs(found - expected).max(), rel=1e-3)
    assert 1e-4 < np.abs(found - expected).mean() < 2**-7 * np.ptp(expected)  # fp32 differs by 1e-6, bf16 has 8 bits
    known = expected.max(1) - expected.min(1) > 4 * report.largest_change
    assert known.mean() > 0.9
    assert found[known].argmax(1).tolist() == expected[known].argmax(1).tolist()
    sizes = [
        sorted((file.name, file.stat().st_size) for file in at.glob("*.bin"))
        for at in (tmp_path / "fast", exported_dir)
    ]
    assert sizes[0] == sizes[1]
    again = ExportedClassifier.load(tmp_path / "fast")
    assert again.record.precision == "bf16"
    assert again.predict_logits(texts) == pytest.approx(found, abs=1e-6)


def test_without_bf16(trained, exported_dir, tmp_path, monkeypatch):
    copied = Path(shutil.copytree(exported_dir, tmp_path / "copied"))
    record = copied / "exported.json"
    record.write_text(record.read_text().replace('"precision": "fp32"', '"precision": "bf16"'))
    monkeypatch.setattr(openvino, "_capabilities", lambda: frozenset({"FP32"}))
    with pytest.raises(PyramidError, match=r"this processor has no bf16 instructions .* use precision fp32 or int8"):
        trained[0].export(tmp_path / "fast", precision="bf16")
    with pytest.raises(PyramidError, match="this processor has no bf16 instructions"):
        PyramidClassifier.load(copied)


def test_without_vnni(trained, exported_dir, saved, sentiment_files, tmp_path, without_vnni, capsys):
    pytest.importorskip("nncf", reason="NNCF is not installed: pip install 'pyramid-bert[openvino]'")
    slow = "this processor has no 8-bit instructions (VNNI or AMX): int8 can be slower than fp32 here"
    fast, dev = tmp_path / "fast", sentiment_files / "dev.csv"
    words = ["--precision", "int8", "--out", fast, "--data", dev, "--force"]
    assert run("export", saved, *words) == 0
    assert capsys.readouterr().err.count(slow) == 1
    assert run("predict", fast, "a fine film") == 0
    assert capsys.readouterr().err == f"{slow}\n"
    record = json.loads((fast / "exported.json").read_text())
    assert record["instructions"] == []
    record["instructions"] = ["avx512_vnni"]
    (fast / "exported.json").write_text(json.dumps(record))
    with pytest.warns(UserWarning, match="and sums can overflow: it was exported on one that has them. Measure it"):
        assert PyramidClassifier.load(fast).predict(["a fine film"]).shape == (1,)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ExportedClassifier.load(exported_dir)  # in fp32


def test_a_loss_is_refused(trained, tmp_path, monkeypatch):
    clf, texts, labels = trained
    right = ExportedClassifier._logits
    monkeypatch.setattr(ExportedClassifier, "_logits", lambda self, *given: -right(self, *given))
    with pytest.raises(PyramidError, match=r"fp32 in openvino costs \d+\.\d points of accuracy on 120 texts"):
        clf.export(tmp_path / "fast", texts=texts, labels=labels)
    assert not (tmp_path / "fast").exists()
    assert clf.export(tmp_path / "fast", texts=texts, labels=labels, tolerance=100).agreement == 0
    assert clf.export(tmp_path / "fast", texts=texts, labels=labels, force=True).agreement == 0


def test_an_elastic_model_keeps_its_speeds(trained, tmp_path):
    clf, texts, _ = trained
    clf = PyramidClassifier(copy.deepcopy(clf.model), clf.tokenizer, labels=clf.labels, max_length=24)
    ways = [clf.settings.replace(schedule=Schedule.constant(1.0), rest_from=None), clf.settings]
    ways += [clf.settings.replace(schedule=Schedule.exponential(0.3, 2))]
    clf.front = Front(tuple(Point(speed, speed, 1.0, way) for speed, way in zip((1.0, 2.0, 3.0), ways, strict=True)))
    clf.speed = 2.0
    fast = clf.export(tmp_path / "fast").classifier
    assert (fast.speed, fast.front) == (2.0, clf.front)
    assert len(fast.record.files) < sum(len(way.stretches) for way in fast.record.ways)  # equal stretches are one file
    for speed in (1, 2, 3, 1.5):
        fast.speed = clf.speed = speed
        assert fast.settings == clf.settings
        assert fast.predict_logits(texts) == pytest.approx(clf.predict_logits(texts), abs=1e-4)
    with pytest.raises(PyramidError, match="speed must be a number in 1-3, got 4"):
        fast.speed = 4


def test_it_explains_what_it_can(trained, tmp_path):
    clf, texts, _ = trained
    fast = clf.export(tmp_path / "fast").classifier
    mine, theirs = fast.explain(texts[0]), clf.explain(texts[0])
    assert (mine.tokens, mine.layers, mine.prediction) == (theirs.tokens, theirs.layers, theirs.prediction)
    assert (mine.dense_prediction, mine.dense_probabilities) == (None, {})
    assert "dense: not known" in str(mine)


# 64 texts of hardly any known word
STRANGE = ["東 " * before + "film" + " 東" * after for before in range(8) for after in range(6, 14)]


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"precision": "int8"}, DataError, r"int8 needs at least 50 texts .* got 0"),
        ({"precision": "int8", "texts": ["a film"] * 49}, DataError, "got 49"),
        (
            {"precision": "int8", "texts": STRANGE},
            DataError,
            "are unknown to the model",
        ),
        ({"labels": ["pos"]}, DataError, "labels need texts"),
        ({"texts": ["a film"], "labels": ["bad"]}, DataError, "bad"),
        ({"texts": ["a film"], "tolerance": -1}, PyramidError, "tolerance must be"),
        ({"runtime": "tensorflow"}, PyramidError, "unknown runtime 'tensorflow'"),
    ],
)
def test_bad_input_writes_nothing(trained, tmp_path, how, error, message):
    with pytest.raises(error, match=message):
        trained[0].export(tmp_path / "fast", **how)
    assert not list(tmp_path.iterdir())


def test_int8_without_nncf_is_refused_before_any_graph_is_written(trained, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "nncf", None)
    monkeypatch.setattr(openvino, "write", None)
    with pytest.raises(MissingExtraError, match=r"int8 in OpenVINO needs nncf: pip install 'pyramid-bert\[openvino\]'"):
        trained[0].export(tmp_path / "fast", precision="int8", texts=trained[1])
    assert not list(tmp_path.iterdir())


def test_a_metric_that_is_not_a_number_counts_0(tiny_bert, tokenizer, sentiment, tmp_path):
    """A regressor that always says the same has no correlation with anything."""
    model = tiny_bert(labels=1)
    torch.nn.init.zeros_(model.classifier.weight)
    clf = PyramidClassifier(model, tokenizer, labels=Labels(None))
    texts, _ = sentiment(12)
    with pytest.warns(Warning, match="constant"):
        report = clf.export(tmp_path / "fast", texts=texts, labels=[float(i) for i in range(12)])
    assert report.before == report.after == {"spearman": 0, "pearson": 0, "rmse": pytest.approx(6.49, abs=0.1)}
    assert report.agreement == 1  # the same number for each text, before and after
    assert json.loads((tmp_path / "fast" / "exported.json").read_text())["measured"]["after"]["spearman"] == 0


def test_the_command(saved, sentiment_files, tmp_path, capsys):
    dev = sentiment_files / "dev.csv"
    assert run("export", saved, "--data", dev, "--out", tmp_path / "fast") == 0
    assert "agreement" in capsys.readouterr().out
    assert output(capsys, "evaluate", tmp_path / "fast", "--data", dev, "--json") == output(
        capsys, "evaluate", saved, "--data", dev, "--json"
    )
    mine = output(capsys, "predict", tmp_path / "fast", "--data", dev)
    assert mine == output(capsys, "predict", saved, "--data", dev)
    assert run("predict", tmp_path / "fast", "--data", dev, "--out", tmp_path / "labelled.csv") == 0
    assert len((tmp_path / "labelled.csv").read_text().splitlines()) == 65
    assert run("explain", tmp_path / "fast", "a fine film", "--html", tmp_path / "film.html") == 0
    assert "not known" in (tmp_path / "film.html").read_text()
    clf = PyramidClassifier.load(tmp_path / "fast")
    assert isinstance(clf, ExportedClassifier)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("export {model} --out {new} --precision int8", "--precision int8 needs --data"),
        ("export {model} --out {model}", "holds something already; name another folder, or pass --overwrite"),
        ("export {model} --out {new} --tolerance -1", "--tolerance must be"),
        ("export {model} --out {new} --device cuda", "--runtime openvino runs on the CPU; leave out --device cuda"),
        ("export {fast} --out {new}", EXPORTED),
        ("certify {fast} --data {dev}", EXPORTED),
        ("speedup {fast} --data {dev} --speedup 2 --out {new}", EXPORTED),
        ("train --model {fast} --train {dev} --out {new}", EXPORTED),
        ("train --teacher {fast} --train {dev} --out {new}", EXPORTED),
        ("bench --model {fast} --data {dev}", EXPORTED),
        (
            "bench --model {model} --data {dev} --runtimes --device cuda",
            "every optimization; leave out --device cuda",
        ),
        ("predict {fast} film --device cuda", "runs on the CPU"),
        ("predict {fast} film --optimize int8", "--optimize is for models in torch"),
        ("evaluate {fast} --data {dev} --speed 2", "this model has one speed"),
    ],
)
def test_bad_calls(trained, saved, sentiment_files, tmp_path, capsys, words, message):
    if "{fast}" in words:
        trained[0].export(tmp_path / "fast")
    paths = {"model": saved, "new": tmp_path / "new", "fast": tmp_path / "fast", "dev": sentiment_files / "dev.csv"}
    assert run(*words.format(**paths).split()) in (1, 2)
    error = capsys.readouterr().err
    assert message in error
    assert error.strip().count("\n") == 0
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("package", "words", "line"),
    [
        ("openvino", "", "needs openvino: pip install 'pyramid-bert[openvino]'"),
        ("nncf", "--precision int8 --data {dev}", "needs nncf: pip install 'pyramid-bert[openvino]'"),
        ("onnxruntime", "--runtime onnxruntime", "needs onnxruntime: pip install 'pyramid-bert[onnx]'"),
    ],
)
def test_a_package_that_is_missing(saved, sentiment_files, tmp_path, capsys, monkeypatch, package, words, line):
    monkeypatch.setitem(sys.modules, package, None)
    words = words.format(dev=sentiment_files / "dev.csv")
    assert run("export", saved, "--out", tmp_path / "new", *words.split()) == 2
    error = capsys.readouterr().err
    assert line in error
    assert error.strip().count("\n") == 0
    assert not (tmp_path / "new").exists()


# What an exported model needs beside this package, with what these packages need themselves.
ENOUGH = ("numpy", "numba", "llvmlite", "tokenizers")  # and the runtime
ALONE = """
import sys
sys.path.insert(0, sys.argv[1])
from pyramid_bert import ExportedClassifier
print(ExportedClassifier.load(sys.argv[2]).predict_logits(sys.argv[3:]).tolist())
assert not {"torch", "transformers", "rich", "safetensors"} & set(sys.modules), sorted(sys.modules)
"""


@pytest.mark.parametrize("runtime", ["openvino", "onnxruntime"])
def test_in_an_environment_with_nothing_else(trained, tmp_path, runtime):
    """Python finds only links to the packages in ENOUGH, the runtime, and this one."""
    pytest.importorskip(runtime)
    clf, texts, _ = trained
    clf.export(tmp_path / "fast", runtime=runtime)
    packages = tmp_path / "packages"
    packages.mkdir()
    for name in (*ENOUGH, runtime):
        found = distribution(name)
        for top in {Path(file).parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            (packages / top).symlink_to(found.locate_file(top))
    (packages / "pyramid_bert").symlink_to(Path(pyramid_bert.__file__).parent)
    words = [sys.executable, "-I", "-S", "-c", ALONE, packages, tmp_path / "fast", *texts[:3]]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
    assert done.returncode == 0, done.stderr
    assert np.array(json.loads(done.stdout)) == pytest.approx(clf.predict_logits(texts[:3]), abs=1e-4)


def test_int8_where_only_cls_is_left_to_compute(tiny_bert, tmp_path):
    """NNCF scales what reaches a product; a product of rank 2 then came out with rank 3, for more than one row."""
    pytest.importorskip("nncf", reason="NNCF is not installed: pip install 'pyramid-bert[openvino]'")
    model = pyramidize(tiny_bert(layers=2), Schedule.exponential(0.3, 1))
    rows = Workload.synthetic([16] * 60, vocabulary=model.config.vocab_size).items
    made = write_graphs(model, tmp_path, get_runtime("openvino"), "int8", rows)
    graphs = GraphFolder(tmp_path, made).graphs(made.ways[0])
    ids = np.array([item.input_ids for item in rows[:5]])
    logits, _ = graphs(ids, None, [16] * 5)
    alone = [graphs(ids[i : i + 1], None, [16])[0][0] for i in range(5)]
    assert logits == pytest.approx(np.array(alone), abs=0.05)
    assert logits.shape == (5, 2)


def test_percentiles_of_single_texts(monkeypatch):
    """A clock that each call advances by its batch; a pass with a recorder does not count."""
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    run = BatchRunner(
        lambda seconds, record: clock.__setitem__(0, clock[0] + seconds), [(n / 1000,) for n in range(1, 101)]
    )
    for record in (None, None, None, "a recorder"):
        run(record)
    assert len(run.seconds) == 300
    assert run.latency() == pytest.approx({"p50": 0.0505, "p95": 0.0955, "p99": 0.0995}, abs=1e-3)
    run.seconds[:100] = [9.0] * 100  # the first round warms up
    assert run.latency()["p99"] < 0.1
    places = ("torch", "fp32"), ("onnxruntime", "fp32")
    sides = [Timed(*at, side, 12, 10, 10, 10, 0.1, run.latency()) for at in places for side in ("dense", "pyramid")]
    facts = {"workload": {"rows": 100, "mean_length": 9, "source": "a file"}, "machine": {"cpu": "x", "threads": 1}}
    ledger = RuntimeLedger(
        tuple(sides), ("torch", "fp32"), 2.0, batch_size=1, rounds=2, settings={}, seconds={}, **facts
    )
    console = Console(width=80, record=True, file=StringIO())
    for table in runtime_tables(ledger):
        console.print(table)
    shown = console.export_text()
    assert "50.5" in shown
    assert "onnxruntime fp32 12,000 10.00x 10.00x  12,000 10.00x 10.00x   10.00x  10.0%" in shown
    assert "…" not in shown


def test_all_runtimes_are_measured_in_turn(tiny_bert, bars):
    dense = tiny_bert(layers=2)
    pyramid = pyramidize(copy.deepcopy(dense), Schedule.exponential(0.3, 1))
    rows = Workload.synthetic([12, 20] * 30, vocabulary=dense.config.vocab_size)
    ledger = measure_runtimes(dense, pyramid, rows, batch_size=20, rounds=2)
    assert [title for title, *_ in bars] == ["writing graphs", "measuring, in turn"]
    assert all(total == taken for _, total, taken in bars)
    found = {(entry.runtime, entry.precision, entry.side): entry for entry in ledger.entries}
    assert {("torch", "fp32"), ("openvino", "fp32")} <= {name[:2] for name in found}
    assert len(found) == len(ledger.entries) == 2 * len({name[:2] for name in found})
    assert all(len(times) == 2 for times in ledger.seconds.values())
    assert found["torch", "fp32", "dense"].over_c == found[*ledger.fastest, "dense"].over_d == 1
    assert (
        min(entry.seconds for entry in ledger.entries if entry.side == "dense")
        == found[*ledger.fastest, "dense"].seconds
    )
    assert 1 < ledger.ideal < 3
    assert all((entry.selecting is None) == (entry.side == "dense") for entry in ledger.entries)
    console = Console(width=200, record=True, file=StringIO())
    (table,) = runtime_tables(ledger)
    console.print(table)
    assert " ".join(ledger.fastest) in console.export_text()
    assert {entry.latency for entry in ledger.entries} == {None}
    with pytest.raises(PyramidError, match="a dense model and a pyramid, in this order"):
        measure_runtimes(pyramid, dense, rows, batch_size=20)
