"""Every example runs, and stays short."""

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path, tiny_model_dir, tmp_path, monkeypatch, capsys):
    assert len(path.read_text().splitlines()) < 60
    monkeypatch.setattr(sys, "argv", [str(path), str(tiny_model_dir), str(tmp_path / "out")])
    runpy.run_path(str(path), run_name="__main__")
    assert "DIFFERS" not in capsys.readouterr().out
