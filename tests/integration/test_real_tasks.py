"""The tasks under PYRAMID_DATA (glue/TASK/*.tsv.gz, imdb/*.tsv.gz, cifar10/, pathfinder32/) load, whole."""

import os
from pathlib import Path

import numpy as np
import pytest

from pyramid_bert.lab.glue.tasks import TASKS, load_task
from pyramid_bert.lab.lra.data import LRA_TASKS, load_lra

DATA = os.environ.get("PYRAMID_DATA")
pytestmark = pytest.mark.skipif(DATA is None, reason="PYRAMID_DATA is not set: no real tasks")
FOLDERS = {"cifar10": "cifar10", "text": "imdb", "imdb": "imdb", "pathfinder32": "pathfinder32"}
ROWS = {
    "cola": {"train": 8_551, "dev": 1_043},
    "sst2": {"train": 67_349, "dev": 872},
    "mrpc": {"train": 3_668, "dev": 408},
    "stsb": {"train": 5_749, "dev": 1_500},
    "qqp": {"train": 27_866, "dev": 5_000},
    "mnli": {"train": 9_999, "dev": 9_815, "dev_mismatched": 1_000},
    "qnli": {"train": 9_999, "dev": 5_463},
    "rte": {"train": 2_490, "dev": 277},
    "imdb": {"train": 25_000, "dev": 25_000},
}


def skip_without(name):
    folder = FOLDERS.get(name, f"glue/{name}")
    if not Path(DATA, folder).is_dir():
        pytest.skip(f"no {folder} in PYRAMID_DATA")


@pytest.mark.parametrize(("name", "split"), [(name, split) for name in ROWS for split in ROWS[name]])
def test_glue_and_imdb(name, split):
    skip_without(name)
    table = load_task(name, DATA, split)
    assert len(table.texts) == len(table.labels) == ROWS[name][split]
    classes = TASKS[name].classes
    if classes is None:
        assert (min(table.labels), max(table.labels)) == (0.0, 5.0)
    else:
        assert set(table.labels) == set(range(len(classes)))
    assert isinstance(table.texts[0], tuple) == TASKS[name].pair


@pytest.mark.parametrize("split", ["train", "dev"])
@pytest.mark.parametrize("name", LRA_TASKS)
def test_long_range_arena(name, split):
    skip_without(name)
    task, data = LRA_TASKS[name], load_lra(name, DATA, split)
    rows = len(data.labels)
    assert data.ids.shape == (rows, task.length)
    assert (data.lengths.min() > 0, data.lengths.max()) == (True, task.length)
    beyond = np.arange(task.length) >= data.lengths[:, None]
    assert np.array_equal(data.ids == -1, beyond)
    assert data.ids.max() < task.vocabulary
    shares = np.bincount(data.labels, minlength=task.classes) / rows
    assert shares == pytest.approx(1 / task.classes, rel=0.1)
    some = load_lra(name, DATA, split, rows=100)
    assert np.bincount(some.labels) / 100 == pytest.approx(shares, abs=0.01)
