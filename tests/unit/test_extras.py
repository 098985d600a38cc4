"""The optional dependencies of the package."""

import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_whoever_runs_the_tests_has_every_extra():
    extras = PROJECT["optional-dependencies"]
    own = [line for line in extras["dev"] if line.startswith("pyramid-bert[")]
    assert [set(line.removeprefix("pyramid-bert[").removesuffix("]").split(",")) for line in own] == [
        extras.keys() - {"dev"}
    ]
