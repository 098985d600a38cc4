"""docs/lra.md: its Python runs, its commands parse, its numbers are those of the presets."""

import math
import re
import shlex
from pathlib import Path

import pytest

from pyramid_bert import Schedule, is_pyramid
from pyramid_bert.cli import _parser
from pyramid_bert.lab.lra.presets import load_presets
from pyramid_bert.lab.lra.run import describe

PAGE = (Path(__file__).parents[2] / "docs" / "lra.md").read_text(encoding="utf-8")
COLUMNS = (("performer-cifar10", 1025), ("performer-pathfinder32", 1025), ("performer-text", 1001))


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", PAGE, flags=re.DOTALL)


def test_the_python_runs(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    scope = {}
    for code in blocks("python"):
        exec(code, scope)
    assert scope["model"].config.pyramid["schedule"]["keep_ratio"] == 0.5
    assert is_pyramid(scope["again"])
    assert scope["logits"].shape == (1, 10)


@pytest.mark.parametrize("line", blocks("sh")[0].splitlines())
def test_the_commands_parse(line):
    program, *words = shlex.split(line)
    assert program == "pyramid-bert"
    assert callable(_parser().parse_args(words).run)


def test_the_table_is_what_the_presets_save():
    rows = re.findall(r"^\| (0\.\d) \| (\d+) % \| (\d+) % \| (\d+) % \| (\d+) % \|$", PAGE, flags=re.MULTILINE)
    assert len(rows) == 4
    for keep, *shown in rows:
        for (name, n), share in zip(COLUMNS, shown, strict=False):
            saved = load_presets()[name].space_saved(math.ceil(float(keep) * n), n)
            assert round(100 * saved["printed"]) == int(share)
        assert int(shown[-1]) == round(100 * (1 - float(keep)))
    facts = describe(load_presets()["bigbird-text"], Schedule.input_only(0.8))
    kept, saved = re.search(r"for text at 0.8 it keeps (\d+) tokens and saves (\d+) %", PAGE).groups()
    assert (facts["kept"], round(100 * facts["space"]["printed"])) == (int(kept), int(saved))
