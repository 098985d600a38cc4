"""Every task that lies under PYRAMID_DATA (glue/TASK/*.tsv.gz, imdb/*.tsv.gz) loads, whole."""

import os
from pathlib import Path

import pytest

from pyramid_bert.lab.glue.tasks import TASKS, load_task

DATA = os.environ.get("PYRAMID_DATA")
pytestmark = pytest.mark.skipif(DATA is None, reason="PYRAMID_DATA is not set: no real GLUE tasks")

ROWS = {
    ("cola", "train"): 8_551,
    ("cola", "dev"): 1_043,
    ("sst2", "train"): 67_349,
    ("sst2", "dev"): 872,
    ("mrpc", "train"): 3_668,
    ("mrpc", "dev"): 408,
    ("stsb", "train"): 5_749,
    ("stsb", "dev"): 1_500,
    ("qqp", "train"): 27_866,
    ("qqp", "dev"): 5_000,
    ("mnli", "train"): 9_999,
    ("mnli", "dev"): 9_815,
    ("mnli", "dev_mismatched"): 1_000,
    ("qnli", "train"): 9_999,
    ("qnli", "dev"): 5_463,
    ("rte", "train"): 2_490,
    ("rte", "dev"): 277,
    ("imdb", "train"): 25_000,
    ("imdb", "dev"): 25_000,
}


@pytest.mark.parametrize(("name", "split"), ROWS)
def test_real_tasks(name, split):
    folder = "imdb" if name == "imdb" else f"glue/{name}"
    if not Path(DATA, folder).is_dir():
        pytest.skip(f"no {folder} in PYRAMID_DATA")
    table = load_task(name, DATA, split)
    assert len(table.texts) == len(table.labels) == ROWS[name, split]
    classes = TASKS[name].classes
    if classes is None:
        assert (min(table.labels), max(table.labels)) == (0.0, 5.0)
    else:
        assert set(table.labels) == set(range(len(classes)))
    assert isinstance(table.texts[0], tuple) == TASKS[name].pair
