"""The runner with cells and measurements that do nothing: what runs, what is skipped, what survives."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from pyramid_bert.errors import PyramidError
from pyramid_bert.lab.glue.tasks import TASKS
from pyramid_bert.lab.study import cell as cell_module
from pyramid_bert.lab.study import executors
from pyramid_bert.lab.study.cell import Site, run_cell
from pyramid_bert.lab.study.display import Display, Pace, status_of, status_table
from pyramid_bert.lab.study.executors import Executor, Processes, RayTasks
from pyramid_bert.lab.study.grid import measurements
from pyramid_bert.lab.study.runner import Runner, choose
from pyramid_bert.lab.study.spec import read_study
from pyramid_bert.lab.study.store import Store, machine

SPEC = {
    "name": "s",
    "tasks": ["mrpc", "rte"],
    "methods": ["Att", "Rand"],
    "configurations": {"select": [{"keep_ratio": 0.5, "last_layer": 2}]},
}
CELLS = read_study(SPEC).cells(TASKS)
NAMES = [cell.name for cell in CELLS]  # dense, Att, Rand of one task, then of the other
PLAN = {"rows": 1, "batch_size": 1, "rounds": 1}


def note(cell, folder, bad="", dies=False):
    """A cell's work: leaves a line in a file, so that runs can be counted. A bad one raises, or dies the first time."""
    if cell.name == bad:
        if not dies:
            raise ValueError("it broke")
        if not (folder / "killed").exists():
            (folder / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
    with open(folder / "runs.txt", "a") as file:
        file.write(cell.name + "\n")
    made = {"metric": "f1", "value": 0.5, "ideal": {"over_c": 2.0}, "seconds": {"total": 1.0}}
    return {"status": "done", "name": cell.name, "process": os.getpid(), **made}


def make(folder, cells=CELLS, **settings):
    chosen = [cell.key for cell in cells]
    return Runner({cell.key: cell for cell in CELLS}, Store(folder / "s.jsonl"), chosen, **settings)


def plan(folder, cells=CELLS, **settings):
    return list(make(folder, cells, **settings).plan().values())


def go(folder, cells=CELLS, work=note, bad="", **settings):
    """Runs cells in this process."""
    return make(folder, cells, **settings).go(Executor(partial(work, folder=folder, bad=bad)))


def noted(folder):
    return (folder / "runs.txt").read_text().splitlines() if (folder / "runs.txt").exists() else []


def read(folder, cell):
    return Store(folder / "s.jsonl").read(cell.key)


def test_all_in_order_then_nothing(tmp_path):
    assert go(tmp_path).done == CELLS
    assert plan(tmp_path) == []
    go(tmp_path)
    assert noted(tmp_path) == NAMES


def test_a_failed_cell_is_recorded_others_go_on_and_retry_runs_it_again(tmp_path):
    summary = go(tmp_path, bad=NAMES[1])
    assert (summary.failed, len(summary.done)) == ([CELLS[1]], 5)
    record = read(tmp_path, CELLS[1])
    assert (record["id"], record["status"], record["error"]) == (CELLS[1].id, "failed", "ValueError: it broke")
    assert not record["disk"]
    assert record["where"][-1].startswith("test_study_runner.py:")  # no machine's paths
    assert record["where"][-1].endswith(" note")
    assert plan(tmp_path) == []
    assert go(tmp_path).failed == [CELLS[1]]  # still failed, and said again
    assert plan(tmp_path, retry=True) == [CELLS[1]]
    status = status_of(CELLS, Store(tmp_path / "s.jsonl"))
    assert status["total"] == {"done": 5, "failed": 1, "running": 0, "left": 0}
    assert [entry["error"] for entry in status["failed"]] == ["ValueError: it broke"]
    assert status["cells"][0] == {"id": CELLS[0].id, "name": NAMES[0], "state": "done"}
    assert [cell["id"] for cell in status["cells"]] == [cell.id for cell in CELLS]
    assert status["measured"] is None
    assert status_table("s", status).row_count == 3
    assert go(tmp_path, retry=True).done == [CELLS[1]]
    assert read(tmp_path, CELLS[1])["status"] == "done"


def test_cells_whose_dense_model_failed_wait(tmp_path):
    summary = go(tmp_path, bad=NAMES[0])
    assert (summary.failed, summary.blocked) == ([CELLS[0]], CELLS[1:3])
    assert noted(tmp_path) == NAMES[3:]
    assert go(tmp_path).blocked == CELLS[1:3]
    assert go(tmp_path, retry=True).done == CELLS[:3]


def test_only_some_and_what_they_start_from(tmp_path):
    assert plan(tmp_path, choose(CELLS, [CELLS[2].id])) == [CELLS[0], CELLS[2]]
    assert choose(CELLS, ["rte*"]) == [cell for cell in CELLS if cell.task == "rte"]
    assert choose(CELLS, [CELLS[4].key, NAMES[5]]) == CELLS[4:]
    with pytest.raises(PyramidError, match="no cell is meant by 'x'"):
        choose(CELLS, ["x"])


def test_a_dense_model_that_is_gone_is_trained_again_when_it_is_needed(tmp_path):
    go(tmp_path)
    gone = {"has_weights": lambda cell: len(noted(tmp_path)) > 6, "again": True}
    assert plan(tmp_path, CELLS[1:2], **gone) == CELLS[:2]
    go(tmp_path, CELLS[1:2], **gone)
    assert noted(tmp_path) == [*NAMES, *NAMES[:2]]


class Saved:
    """Stands for a trained classifier."""

    def save(self, folder):
        (folder / "classifier.json").write_text("{}")


def test_two_studies_at_once_train_a_dense_classifier_once(tmp_path, monkeypatch):
    monkeypatch.setattr(cell_module, "POLL_SECONDS", 0.01)
    made, hashes = [], {"train": "2" * 64, "dev": "3" * 64}

    def slow(cell, site):
        made.append(site.file)
        time.sleep(0.1)
        record = {"format": 1, "status": "done", "id": cell.id, "weights": site.weights, "data": hashes}
        return {**record, "command": site.file}, Saved()

    monkeypatch.setattr(cell_module, "_run", slow)
    places = {"model": "m", "data": None, "work": str(tmp_path), "weights": "1" * 64, "rows": {CELLS[0].task: hashes}}
    sites = [Site(file=name, **places) for name in ("one.toml", "two.toml")]
    left = sites[0].dense_folder(CELLS[0]).parent / f".{CELLS[0].key}.killed"
    left.mkdir(parents=True)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(partial(run_cell, CELLS[0]), sites)
    assert len(made) == 1
    assert first == second == run_cell(CELLS[0], sites[1])
    assert not left.exists()
    run_cell(CELLS[0], sites[1], anew=[CELLS[0].key])
    assert len(made) == 2
    assert run_cell(CELLS[0], sites[0])["command"] == "two.toml"


def test_no_cell_starts_after_the_limit(tmp_path):
    assert go(tmp_path, limit_minutes=0).left == CELLS
    assert noted(tmp_path) == []


FULL = OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_loses_only_the_cell_under_way(tmp_path, monkeypatch):
    written = Store.write

    def full(self, key, record):
        if key == CELLS[3].key:
            raise FULL
        written(self, key, record)

    monkeypatch.setattr(Store, "write", full)
    with pytest.raises(PyramidError, match=r"could not be written: .*No space left.*all others are safe"):
        go(tmp_path)
    monkeypatch.undo()
    assert plan(tmp_path) == CELLS[3:]
    go(tmp_path)
    assert noted(tmp_path) == [*NAMES[:4], *NAMES[3:]]


def test_a_full_disk_inside_a_cell_stops_the_run(tmp_path):
    def work(cell, folder, bad):
        if cell is CELLS[2]:
            raise FULL
        return note(cell, folder)

    with pytest.raises(PyramidError, match="the others would fail as well"):
        go(tmp_path, work=work)
    assert plan(tmp_path, retry=True) == CELLS[2:]


def test_two_runners_share_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr("pyramid_bert.lab.study.runner.POLL_SECONDS", 0.01)

    def slow(cell, folder, bad):
        time.sleep(0.02)
        return note(cell, folder)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda _: go(tmp_path, work=slow), range(2)))
    assert sorted(noted(tmp_path)) == sorted(NAMES)


def test_a_cell_that_another_process_holds_is_running_and_is_left_alone(tmp_path):
    store = Store(tmp_path / "s.jsonl")
    with store.lock(CELLS[0].key):
        assert store.lock(CELLS[0].key) is None
        assert store.state(CELLS[0].key) == "running"
        assert go(tmp_path, CELLS[:1]).left == CELLS[:1]
    assert store.state(CELLS[0].key) == "left"


# ---- processes and clusters ----


def hang(cell, folder):
    """Dense cells end; the others tell who runs them, and never do."""
    if not cell.is_dense:
        (folder / f"{os.getpid()}.pid").touch()
        time.sleep(300)
    return note(cell, folder)


def is_alive(pid):
    with suppress(FileNotFoundError, ProcessLookupError):
        os.kill(pid, 0)
        stat = Path(f"/proc/{pid}/stat")  # a dead process stays there as a zombie where nobody waits for it
        return ") Z " not in (stat.read_text() if Path("/proc").exists() else "")
    return False


def wait_for(condition):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end, "nothing happened for two minutes"
        time.sleep(0.05)


def start(folder, code):
    """Python code in a process that can import this file; it finds the folder in sys.argv."""
    (folder / "main.py").write_text("import os, sys; from functools import partial; from pathlib import Path\n" + code)
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    command = [sys.executable, str(folder / "main.py"), str(folder)]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": path}, stderr=subprocess.DEVNULL)


def test_a_killed_runner_takes_its_processes_with_it_and_loses_nothing_that_was_done(tmp_path):
    runner = start(
        tmp_path,
        "from test_study_runner import Processes, hang, make\n"
        "if __name__ == '__main__':\n"
        "    folder = Path(sys.argv[1])\n"
        "    with Processes(partial(hang, folder=folder), 2) as pool: make(folder).go(pool)",
    )
    pids = []
    try:
        wait_for(lambda: len(list(tmp_path.glob("*.pid"))) == 2)
        pids = [int(file.stem) for file in tmp_path.glob("*.pid")]
        assert all(map(is_alive, pids))
        runner.kill()
        runner.wait()
        wait_for(lambda: not any(map(is_alive, pids)))
    finally:
        runner.kill()
        for pid in filter(is_alive, pids):
            os.kill(pid, signal.SIGKILL)
    store = Store(tmp_path / "s.jsonl")
    assert [store.state(cell.key) for cell in CELLS] == ["done" if cell.is_dense else "left" for cell in CELLS]
    go(tmp_path)
    assert sorted(noted(tmp_path)) == sorted(NAMES)


def test_processes_a_dead_one_costs_only_its_cell(tmp_path):
    with Processes(partial(note, folder=tmp_path, bad=NAMES[1], dies=True), 2) as pool:
        assert make(tmp_path).go(pool).failed == [CELLS[1]]
    assert read(tmp_path, CELLS[1])["error"] == "its process died with exit code -9"
    assert sorted(noted(tmp_path)) == sorted(name for name in NAMES if name != NAMES[1])


def test_a_process_is_replaced_after_some_cells(tmp_path, monkeypatch):
    monkeypatch.setattr(executors, "CELLS_PER_PROCESS", 2)
    with Processes(partial(note, folder=tmp_path), 1) as pool:
        make(tmp_path, CELLS[:5]).go(pool)
    served = Counter(read(tmp_path, cell)["process"] for cell in CELLS[:5])
    assert sorted(served.values()) == [1, 2, 2]


def test_processes_that_die_at_import_fail_their_cells_and_the_run_ends(tmp_path):
    runner = start(
        tmp_path,
        "if __name__ != '__main__': os._exit(3)  # a spawned process imports this file first\n"
        "from test_study_runner import Processes, is_alive, make\n"
        "with Processes(is_alive, 2) as pool: make(Path(sys.argv[1])).go(pool)",
    )
    assert runner.wait(timeout=100) == 0
    errors = {read(tmp_path, cell)["error"] for cell in CELLS if cell.is_dense}
    assert errors == {"its process died with exit code 3"}


def test_ray_runs_every_cell_once_though_a_worker_is_killed(tmp_path):
    pytest.importorskip("ray", reason="ray is not installed: pip install 'pyramid-bert[ray]'")
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import this file
    with RayTasks(partial(note, folder=tmp_path, bad=NAMES[4], dies=True), "local", threads=1) as cluster:
        assert cluster.slots >= 1
        assert len(make(tmp_path).go(cluster).done) == len(CELLS)
    assert (tmp_path / "killed").exists()
    assert sorted(noted(tmp_path)) == sorted(NAMES)
    assert all(read(tmp_path, cell)["status"] == "done" for cell in CELLS)


def test_without_ray_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(PyramidError, match=r"needs ray: pip install 'pyramid-bert\[ray\]'"):
        RayTasks(lambda cell: {}, "local", threads=1)


# ---- time and display ----


def test_pace_learns_by_task(tmp_path):
    pace = Pace({}, Store(tmp_path / "s.jsonl"))
    assert pace.seconds(CELLS) is None
    pace.add(CELLS[1], {"seconds": {"total": 10.0}})
    pace.add(CELLS[4], {"status": "failed"})
    for cell in (CELLS[2], CELLS[4]):  # of the same task and of the other
        assert pace.seconds([cell]) == pytest.approx(10 * cell.weight / CELLS[1].weight)
    assert pace.seconds([CELLS[1]], at_once=2) == pytest.approx(5)


def test_the_display_follows_a_run(tmp_path):
    text, run = StringIO(), make(tmp_path)
    with Display(Console(file=text), run.plan(), Pace({}, run.store)) as run.display:
        run.go(Executor(partial(note, folder=tmp_path, bad=NAMES[0])))
    assert "failed" in text.getvalue()
    assert "it broke" in text.getvalue()
    assert run.display.running == {}
    assert {cell.name for cell in run.display.left.values()} == set(NAMES[1:3])


# ---- speed measurements ----


def test_measurements_run_once_for_all_seeds_fail_and_are_resumed(tmp_path):
    cells, store = read_study({**SPEC, "seeds": [0, 1]}).cells(TASKS), Store(tmp_path / "s.jsonl")
    wanted = measurements(cells, {}.get, PLAN)
    first = [cell for cell in cells if not cell.is_dense and cell.seed == 0]
    assert list(wanted.values()) == first

    def pace():
        return Pace(wanted, store, lambda cell: cell.max_length)

    assert pace().seconds(cells) is None
    three, bad = list(wanted)[:3], first[1]
    broken = Executor(partial(note, folder=tmp_path, bad=bad.name))
    assert Runner(wanted, store, three).go(broken).failed == [bad]
    run = Runner(wanted, store)
    assert list(run.plan()) == list(wanted)[3:]
    assert pace().seconds(run.plan().values()) == pytest.approx(first[3].max_length / first[2].max_length)
    with Display(Console(file=StringIO()), run.plan(), pace()) as run.display:
        summary = run.go(broken)
        assert run.display.bar.finished
    assert (summary.done, summary.failed) == (first[3:], [bad])
    assert run.plan() == {}
    assert Runner(wanted, store, again=True).plan() == wanted
    status = status_of(cells, store, PLAN)
    error = {"id": bad.id, "name": bad.name, "state": "not measured", "error": "ValueError: it broke"}
    assert status["measured"] == {"done": 3, "left": 0, "waiting": 0, "failed": [error]}
    assert "3 of 4 measured" in status_table("s", status).title
    assert Runner(wanted, store, retry=True).go(Executor(partial(note, folder=tmp_path))).done == [bad]
    assert status_of(cells, store, PLAN)["measured"] == {"done": 4, "left": 0, "waiting": 0, "failed": []}


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (False, True, "speeds are measured alone: give the same command again"),
        (True, True, "speeds are measured alone"),
        (True, False, "cells would slow them down"),
    ],
)
def test_speeds_are_measured_alone(tmp_path, first, second, message):
    with machine(tmp_path, alone=first), pytest.raises(PyramidError, match=message), machine(tmp_path, alone=second):
        pass
    with machine(tmp_path, alone=False), machine(tmp_path, alone=False):
        pass
    with machine(tmp_path, alone=True):
        pass
