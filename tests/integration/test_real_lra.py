"""The Long Range Arena tasks that lie under PYRAMID_DATA (cifar10/, imdb/, pathfinder32/) load, whole."""

import os
from pathlib import Path

import numpy as np
import pytest

from pyramid_bert.lab.lra.data import LRA_TASKS, load_lra

DATA = os.environ.get("PYRAMID_DATA")
pytestmark = pytest.mark.skipif(DATA is None, reason="PYRAMID_DATA is not set: no real Long Range Arena tasks")
FOLDERS = {"cifar10": "cifar10", "text": "imdb", "pathfinder32": "pathfinder32"}


@pytest.mark.parametrize("split", ["train", "dev"])
@pytest.mark.parametrize("name", LRA_TASKS)
def test_real_tasks(name, split):
    if not Path(DATA, FOLDERS[name]).is_dir():
        pytest.skip(f"no {FOLDERS[name]} in PYRAMID_DATA")
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
