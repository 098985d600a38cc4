"""The generated pages of docs/ against the results in the repository, and how measurements are made."""

import importlib
import json
import shlex
import sys
from pathlib import Path

import pytest

from pyramid_bert.errors import UnknownNameError
from pyramid_bert.lab.pages import PAGES, write
from pyramid_bert.lab.pages.__main__ import main
from pyramid_bert.lab.pages.commands import Commands
from pyramid_bert.lab.pages.elsewhere import torch_against_torch

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("page", PAGES)
def test_the_pages_have_the_sections_commands_and_numbers_of_the_results(page, table_rows, monkeypatch):
    def sections(text):
        return [line for line in text.splitlines() if line.startswith(("#", "<a id=", "pyramid-bert ", "python "))]

    monkeypatch.setattr("pyramid_bert.lab.pages.pictures.find_spec", lambda name: None)
    made, kept = write(page, ROOT), (ROOT / "docs" / PAGES[page][0]).read_text(encoding="utf-8")
    assert len(table_rows(made)) > {"speedup": 2}.get(page, 20)
    assert table_rows(made) == table_rows(kept)
    assert sections(made) == sections(kept)


def test_the_page_that_has_no_pictures_is_the_generated_one():
    assert write("speedup", ROOT) == (ROOT / "docs" / "speedup.md").read_text(encoding="utf-8")


def measured(name, over_c, place=("openvino", "int8"), batch_size=32):
    """A measurement of `bench --runtimes`, as far as pages read it; d is in `place`."""
    slow = {"runtime": "torch", "precision": "fp32", "side": "dense", "seconds": 2.0, "over_c": 1.0}
    fast = {"runtime": place[0], "precision": place[1], "side": "dense", "seconds": 2 / over_c, "over_c": over_c}
    faster = {**fast, "side": "pyramid", "seconds": 1 / over_c, "over_c": 2 * over_c}
    machine = {"cpu": "a CPU", "capability": "AVX2", "threads": 2, "torch": "2", "transformers": "5"}
    about = {"workload": {"mean_length": 25.2}, "batch_size": batch_size, "machine": machine}
    return name, {**about, "entries": [slow, fast, faster], "command": "x"}


def test_what_d_is_over_c_is_told_where_torch_is_compared_with_torch(tmp_path, table_rows):
    found = Commands(tmp_path, "bench")
    assert torch_against_torch(tmp_path) == ""
    for name, record in (
        measured("runtimes-sst2-rest", 5.91),
        measured("runtimes-sst2-coreset", 5.38, ("onnxruntime", "int8")),
        measured("runtimes-imdb-rest", 8.62),
        measured("runtimes-one-sst2", 3.0, batch_size=1),
        ("base-512", {"entries": {}, "command": "y"}),
    ):
        found.store.write(name, record)
    for words in (torch_against_torch(tmp_path), write("speedup", tmp_path)):
        assert table_rows(words)[1:] == [
            ["e5-small, SST-2, 25 tokens", "openvino int8, onnxruntime int8", "5.4x to 5.9x"],
            ["e5-small, IMDB, 25 tokens", "openvino int8", "8.6x"],
        ]
        assert "a CPU (AVX2), 2 threads" in words


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "benchmarks").glob("*.py")))
def test_the_scripts_that_measure_can_be_imported(name, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    assert importlib.import_module(name).__doc__


def test_a_page_without_results(tmp_path):
    (tmp_path / "docs").mkdir()
    for page in ("theory", "performance", "speedup"):
        main([page, "--root", str(tmp_path)])
        assert "|" not in (tmp_path / "docs" / f"{page}.md").read_text(encoding="utf-8")


def test_the_pictures_of_the_theory_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "results").symlink_to(ROOT / "results")
    names = {f"theory-{name}" for name in ("adaptive", "bound", "certificate", "radius", "search")}
    page = write("theory", tmp_path)
    assert {path.stem for path in (tmp_path / "docs" / "images").iterdir()} == names
    assert all(f"(images/{name}.png)" in page for name in names)


def test_what_is_missing_is_measured_and_a_name_is_measured_again(tmp_path, monkeypatch, capsys):
    def prints(value):
        script = tmp_path / f"{len(list(tmp_path.glob('*.py')))}.py"
        script.write_text(f"print('''{json.dumps(value)}''')")
        return shlex.join([sys.executable, str(script)])

    monkeypatch.delenv("NOT_SET", raising=False)
    commands = {"a-1": prints({"n": 1, "machine": {}}), "a-2": prints([{"n": 2}]), "b": "python $NOT_SET"}
    Commands(tmp_path, "bench", commands).measure()
    found = Commands(tmp_path, "bench", {**commands, "a-1": prints({"n": 3})})
    assert "NOT_SET" in capsys.readouterr().err
    assert [record["n"] for record in found.made("a-")] == [1, 2]
    assert found.made("b") == []
    assert found.ran().splitlines() == [found.commands["a-1"], found.commands["a-2"]]
    found.measure()
    assert found.made("a-1")[0]["n"] == 1  # it was there
    found.measure(["a-1"])
    assert found.made("a-1")[0]["n"] == 3
    assert [record["n"] for record in Commands(tmp_path, "bench", {}).made()] == [3, 2]  # without their commands
    with pytest.raises(UnknownNameError, match="a-1"):
        found.measure(["a_1"])
