"""Runtime, precision and pyramid chosen together, on a clock that says what the test says."""

import json
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from pyramid_bert import PyramidClassifier, PyramidConfig, Schedule
from pyramid_bert.bench.timing import Timing
from pyramid_bert.cli import main
from pyramid_bert.cli.fronts import front_figure
from pyramid_bert.errors import DataError, MissingExtraError
from pyramid_bert.export.classifier import ExportedClassifier, is_exported
from pyramid_bert.families import is_pyramid
from pyramid_bert.runtimes.places import places_of
from pyramid_bert.runtimes.registry import get_runtime
from pyramid_bert.text.sampling import shuffled
from pyramid_bert.text.tables import read_table
from pyramid_bert.tune import runtimes
from pyramid_bert.tune.candidates import Method
from pyramid_bert.tune.options import Option
from pyramid_bert.tune.runtimes import RuntimeFinder, RuntimeSearch, find_runtime
from pyramid_bert.tune.strategy import Deadline

needed = "not installed: pip install 'pyramid-bert[openvino,onnx]'"
pytest.importorskip("openvino", reason=needed)
pytest.importorskip("nncf", reason=needed)
pytest.importorskip("onnxruntime", reason=needed)

FIRST = [Method("first", "drop")]


@pytest.fixture
def call(dense_dir, rows_file, tmp_path):
    """The words of a call that writes to `fast`, without the speed-up."""
    words = f"speedup {dense_dir} --data {rows_file} --out {tmp_path / 'fast'} --minutes 5"
    return words.split()


@pytest.fixture
def clock(monkeypatch):
    """Seconds by runtime and precision; a pyramid is twice as fast, or as many times as is listed, search by search.

    `searched` holds the ideal speed-ups that were searched for. Searches are short.
    """
    seconds, faster, searched = {"torch fp32": 1.0}, [2.0], []
    search = runtimes.find_pyramid

    def timed(runs, **_):
        found = {}
        for name, run in runs.items():
            run()
            place = " ".join(name.split()[:2])
            pyramid = len(name.split()) > 2
            found[name] = [seconds[place] / (faster[min(len(searched), len(faster)) - 1] if pyramid else 1)]
        return Timing(found)

    def spy(classifier, ideal, *args, **how):
        searched.append(ideal)
        return search(classifier, ideal, *args, **{**how, "methods": FIRST, "minutes": 0.02})

    monkeypatch.setattr(runtimes, "time_interleaved", timed)
    monkeypatch.setattr(runtimes, "find_pyramid", spy)
    seconds.update({"searched": searched, "faster": faster})
    return seconds


def held_out(path, rows):
    """The texts and labels that the choice is made on."""
    table = read_table(path)
    order = shuffled(len(table.texts), 0)[-rows:]
    return [table.texts[i] for i in order], [table.labels[i] for i in order]


def test_a_pyramid_brings_what_the_runtime_lacks(call, clock, dense_dir, rows_file, tmp_path, capsys):
    clock["openvino fp32"] = 0.5
    assert main([*call, "--runtime", "openvino", "--precision", "fp32", "--speedup", "2.4", "--json"]) == 0
    assert clock["searched"] == pytest.approx([1.2 * 1.15])
    report = json.loads(capsys.readouterr().out)
    assert [(one["runtime"], one["settings"] is None, one["over_c"]) for one in report["options"]] == [
        ("torch", True, 1.0),
        ("openvino", True, 2.0),
        ("openvino", False, 4.0),
    ]
    assert report["fastest"] == ["openvino", "fp32"]
    assert [one["chosen"] for one in report["options"]] == [False, False, True]
    assert report["chosen"]["over_d"] == 2.0
    made, dense = ExportedClassifier.load(tmp_path / "fast"), PyramidClassifier.load(dense_dir, device="cpu")
    assert made.settings.to_dict() == report["chosen"]["settings"]
    assert made.record.measured["over_c"] == 4.0
    texts, labels = held_out(rows_file, report["rows"])
    assert report["chosen"]["agreement"] == np.mean(made.predict(texts) == dense.predict(texts))
    assert report["chosen"]["metrics"] == made.evaluate(texts, labels)


def test_a_pyramid_that_is_too_slow_is_corrected_once(call, clock, tmp_path, capsys):
    clock["openvino fp32"] = 0.5
    clock["faster"][:] = [1.1, 1.3]
    call += ["--runtime", "openvino", "--precision", "fp32", "--json"]
    assert main([*call, "--speedup", "2.4"]) == 0
    first, second = clock["searched"]
    assert second == pytest.approx(first * 2.4 / 2.2 * 1.03, abs=0.011)
    assert [one["over_c"] for one in json.loads(capsys.readouterr().out)["options"]] == pytest.approx([1, 2, 2.2, 2.6])
    clock["searched"].clear()
    clock["faster"][:] = [1.1]
    assert main([*call, "--speedup", "2.4", "--overwrite"]) == 1
    assert len(clock["searched"]) == 2
    said = capsys.readouterr().err
    assert "nothing that was found is 2.4x as fast" in said
    assert "the fastest is 2.20x: openvino fp32, first, drop" in said


def test_without_time_to_write_it_no_pyramid_is_searched(call, clock, tmp_path, monkeypatch, capsys):
    clock["openvino fp32"] = 0.5
    monkeypatch.setattr(Deadline, "left", 0.0)
    call += ["--runtime", "openvino", "--precision", "fp32"]
    assert main([*call, "--speedup", "2.4"]) == 1
    assert "ask for less, or allow more time" in capsys.readouterr().err
    assert main([*call, "--speedup", "1.5"]) == 0
    assert "minutes were over" not in capsys.readouterr().err  # the dense model is fast enough
    assert clock["searched"] == []


def test_places_are_taken_as_long_as_there_is_time_to_write_for_all_of_them():
    finder = object.__new__(RuntimeFinder)
    finder._writing = {("openvino", "fp32"): 60.0, ("onnxruntime", "fp32"): 60.0, ("torch", "fp32"): 0.0}
    finder._deadline = SimpleNamespace(left=100.0, was_short=False)
    places = [("openvino", "fp32"), ("openvino", "bf16"), ("onnxruntime", "fp32"), ("torch", "fp32")]
    assert finder._in_time(places) == [places[0], places[1], places[3]]  # bf16 runs the graphs of fp32
    assert finder._deadline.was_short


def test_what_cannot_be_reached_writes_nothing(call, clock, tmp_path, capsys):
    clock["openvino fp32"] = 0.5
    call += ["--runtime", "openvino", "--precision", "fp32", "--speedup", "90"]
    assert main(call) == 1
    assert clock["searched"] == []  # no pyramid is 45x as fast
    assert "the fastest is 2.00x: openvino fp32, no pyramid, agreement 100.0" in capsys.readouterr().err
    assert [path.name for path in tmp_path.glob("*fast*")] == []


def test_where_the_dense_model_is_fast_enough_there_is_no_pyramid(call, clock, tmp_path, capsys):
    """Among every runtime and precision of this machine; int8 in OpenVINO has too few texts for its scales."""
    places = places_of()
    clock.update({" ".join(place): 0.9 for place in places} | {"torch fp32": 1.0, "onnxruntime fp32": 0.25})
    picture = tmp_path / "front.png"
    assert main([*call, "--runtime", "auto", "--speedup", "3", "--plot", str(picture)]) == 0
    assert clock["searched"] == []
    shown = capsys.readouterr()
    (row,) = (line for line in shown.out.splitlines() if "→" in line and "4.00x" in line)
    assert "onnxruntime fp32" in row
    assert "openvino int8 was left out: int8 needs at least 50 texts" in shown.err
    made = ExportedClassifier.load(tmp_path / "fast")
    assert (made.record.runtime, made.record.precision, made.settings) == ("onnxruntime", "fp32", None)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_8_bits_with_a_pyramid(dense_dir, clock, sentiment, tmp_path):
    """Their scales come from rows that nothing is measured on."""
    clock["openvino int8"] = 0.5
    dense = PyramidClassifier.load(dense_dir, device="cpu")
    texts, labels = sentiment(120, seed=2)
    how = {"runtime": "openvino", "precisions": ["int8"], "minutes": 5, "held_out": 0.3}
    found = find_runtime(dense, 2.5, texts, labels, folder=tmp_path / "fast", **how)
    assert (found.chosen.precision, found.rows) == ("int8", 36)
    made = ExportedClassifier.load(tmp_path / "fast")
    assert made.settings == found.chosen.settings
    assert made.record.precision == "int8"
    unseen = [texts[i] for i in shuffled(120, 0)[-36:]]
    assert found.chosen.agreement == np.mean(made.predict(unseen) == dense.predict(unseen))
    assert found.front[-1] is found.chosen


def test_a_model_in_torch_replaces_an_exported_one(call, clock, tmp_path, capsys):
    clock.update({"openvino fp32": 0.5, "torch packed": 0.4})
    assert main([*call, "--runtime", "openvino", "--precision", "fp32", "--speedup", "1.5"]) == 0
    assert is_exported(tmp_path / "fast")
    again = [*call, "--runtime", "auto", "--precision", "packed", "--speedup", "3"]
    assert main(again) == 1
    assert "--overwrite" in capsys.readouterr().err
    assert main([*again, "--overwrite"]) == 0
    assert "it is this fast with --optimize packed" in capsys.readouterr().err
    assert not is_exported(tmp_path / "fast")
    assert is_pyramid(PyramidClassifier.load(tmp_path / "fast").model)


def test_without_labels_agreement_decides(call, clock, rows_file, capsys):
    clock["openvino fp32"] = 0.5
    assert main([*call, "--runtime", "openvino", "--precision", "fp32", "--speedup", "1.5", "--no-labels"]) == 0
    assert "accuracy" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("--plot front.png", 2, "--plot needs --runtime auto, or one of openvino, onnxruntime"),
        ("--precision fp32", 2, "--precision needs --runtime auto"),
        ("--runtime auto --ideal", 2, "--ideal counts multiply-accumulates"),
        ("--runtime auto --device cuda", 2, "leave out --device cuda"),
        ("--runtime auto --plot front.txt", 2, "--plot must end in .png, .svg, .pdf, got front.txt"),
        ("--runtime auto --precision fp8", 2, "unknown precision 'fp8'"),
        ("--runtime onnxruntime --precision bf16", 2, "unknown precision 'bf16'"),
        ("--runtime openvino --precision int8", 1, "int8 needs at least 50 texts"),
        ("--runtime auto --held-out 0.1", 2, "must be 25 to 55 of 80 texts"),
        ("--runtime auto --speedup 0", 2, "speedup must be a number"),
    ],
)
def test_wrong_calls(call, clock, tmp_path, capsys, monkeypatch, words, code, message):
    monkeypatch.setattr(runtimes, "write_folder", None)  # no work may begin
    assert main([*call, "--speedup", "1.5", *words.split()]) == code
    assert message in " ".join(capsys.readouterr().err.split())
    assert [path.name for path in tmp_path.glob("*fast*")] == []


def test_what_is_not_installed_is_named_before_any_work(call, clock, capsys, monkeypatch):
    monkeypatch.setattr(runtimes, "write_folder", None)
    for package, words, line in (
        ("openvino", "--runtime openvino", "pip install 'pyramid-bert[openvino]'"),
        ("nncf", "--runtime openvino --precision int8", "pip install 'pyramid-bert[openvino]'"),
        ("onnxscript", "--runtime onnxruntime", "pip install 'pyramid-bert[onnx]'"),
        ("matplotlib.figure", "--runtime auto --plot front.png", "pip install 'pyramid-bert[plot]'"),
    ):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, package, None)
            assert main([*call, "--speedup", "1.5", *words.split()]) != 0
            assert line in capsys.readouterr().err


def test_what_is_not_installed_is_left_out_of_all(monkeypatch):
    every = places_of()
    monkeypatch.setitem(sys.modules, "openvino", None)
    assert places_of() == [place for place in every if place[0] != "openvino"]
    for asked in (lambda: places_of("openvino"), lambda: get_runtime("openvino").check("fp32")):
        with pytest.raises(MissingExtraError):
            asked()


def test_few_rows_are_refused(dense_dir, sentiment, tmp_path):
    dense = PyramidClassifier.load(dense_dir, device="cpu")
    with pytest.raises(DataError, match="at least 50 texts, got 49"):
        find_runtime(dense, 2, sentiment(49)[0], folder=tmp_path / "fast")


def test_the_picture_shows_everything_that_was_measured():
    pyramid = PyramidConfig(schedule=Schedule.exponential(0.25, 2))
    measured = [("torch", "fp32", None, 1.0, 1.0), ("openvino", "int8", None, 3.0, 0.97)]
    measured += [("openvino", "int8", pyramid, 6.2, 0.95), ("onnxruntime", "fp32", pyramid, 6.0, 0.9)]
    every = tuple(Option(*place, speed, speed / 3, same, (same - 0.02, 1.0)) for *place, speed, same in measured)
    search = RuntimeSearch(every[2], every, ("openvino", "int8"), 6.0, None, 100, (), True, 60.0)
    (panel,) = (picture := front_figure(search)).axes
    points = [tuple(map(float, line.get_xydata()[0])) for line in panel.lines if line.get_linestyle() == "None"]
    assert points == [(1, 100), (3, 97), (6.2, 95), (6, 90), (6.2, 95)]  # the chosen one has a ring
    hollow = [line.get_markerfacecolor() in ("white", "none") for line in panel.lines[:4]]
    assert hollow == [True, True, False, False]
    front, wanted = (line.get_xdata() for line in panel.lines[4:6])
    assert list(front) == [1, 3, 6.2]
    assert list(wanted) == [6, 6]
    (legend,) = picture.legends
    said = [text.get_text() for text in legend.get_texts()]
    assert {"openvino", "int8", "hollow: dense", "filled: pyramid", "chosen", "6x wanted"} <= set(said)
    assert "bf16" not in said
