"""The runner with cells that do nothing: what runs, what is skipped, what survives."""

import errno
import os
import signal
import subprocess
import sys
import threading
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
from pyramid_bert.lab.study.display import Display, outcome, status_of, status_table
from pyramid_bert.lab.study.executors import InTurn, Processes, RayTasks
from pyramid_bert.lab.study.runner import Runner, choose
from pyramid_bert.lab.study.spec import read_study
from pyramid_bert.lab.study.store import Pace, Store

CELLS = read_study(
    {
        "name": "s",
        "tasks": ["mrpc", "rte"],
        "methods": ["Att", "Rand"],
        "configurations": {"select": [{"keep_ratio": 0.5, "last_layer": 2}]},
    }
).cells(TASKS)
NAMES = [cell.name for cell in CELLS]  # dense, Att, Rand of one task, then of the other


def note(cell, folder):
    """A cell's work: leaves a line in a file, so that runs can be counted."""
    with open(folder / "runs.txt", "a") as file:
        file.write(cell.name + "\n")
    counted = {"metric": "f1", "value": 0.5, "ideal": {"over_c": 2.0}, "seconds": {"total": 1.0}}
    return {"status": "done", "name": cell.name, **counted}


def note_or_fail(cell, folder, bad=""):
    if cell.name == bad:
        raise ValueError("it broke")
    return note(cell, folder)


def note_or_die(cell, folder, bad):
    """Kills its own process, the first time that the marked cell is run."""
    mark = folder / "killed"
    if cell.name == bad and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return note(cell, folder)


def note_process(cell, folder):
    return {**note(cell, folder), "process": os.getpid()}


def make(folder, **settings):
    return Runner(cells=CELLS, store=Store(folder / "s.jsonl"), has_weights=lambda key: True, **settings)


def noted(folder):
    return (folder / "runs.txt").read_text().splitlines() if (folder / "runs.txt").exists() else []


def test_all_in_order_then_nothing(tmp_path):
    summary = make(tmp_path).go(CELLS, InTurn(partial(note, folder=tmp_path)))
    assert noted(tmp_path) == NAMES == [cell.name for cell in summary.done]
    assert make(tmp_path).plan(CELLS) == []
    make(tmp_path).go(CELLS, InTurn(partial(note, folder=tmp_path)))
    assert noted(tmp_path) == NAMES


def test_a_failed_cell_is_recorded_others_go_on_and_retry_runs_it_again(tmp_path):
    work = partial(note_or_fail, folder=tmp_path, bad=NAMES[1])
    summary = make(tmp_path).go(CELLS, InTurn(work))
    assert [cell.name for cell in summary.failed] == [NAMES[1]]
    assert len(summary.done) == 5
    record = Store(tmp_path / "s.jsonl").read(CELLS[1].key)
    assert record["status"] == "failed"
    assert record["error"] == "ValueError: it broke"
    assert record["where"][-1].endswith("note_or_fail")
    assert make(tmp_path).plan(CELLS) == []
    assert make(tmp_path).go(CELLS, InTurn(work)).failed == [CELLS[1]]  # still failed, and said again
    assert make(tmp_path, retry=True).plan(CELLS) == [CELLS[1]]
    assert "failed" in outcome(CELLS[1], record)
    status = status_of(CELLS, Store(tmp_path / "s.jsonl"))
    assert status["total"] == {"done": 5, "failed": 1, "running": 0, "left": 0}
    assert status["failed"][0]["error"] == "ValueError: it broke"
    assert status["cells"][0] == {"id": CELLS[0].id, "name": NAMES[0], "state": "done"}
    assert [cell["id"] for cell in status["cells"]] == [cell.id for cell in CELLS]
    assert status["measured"] is None
    assert status_table("s", status).row_count == 3
    make(tmp_path, retry=True).go(CELLS, InTurn(partial(note, folder=tmp_path)))
    assert Store(tmp_path / "s.jsonl").status(CELLS[1].key) == "done"


def test_cells_whose_dense_model_failed_wait(tmp_path):
    summary = make(tmp_path).go(CELLS, InTurn(partial(note_or_fail, folder=tmp_path, bad=NAMES[0])))
    assert summary.failed == [CELLS[0]]
    assert summary.blocked == CELLS[1:3]
    assert noted(tmp_path) == NAMES[3:]
    summary = make(tmp_path).go(CELLS, InTurn(partial(note, folder=tmp_path)))
    assert summary.blocked == CELLS[1:3]
    summary = make(tmp_path, retry=True).go(CELLS, InTurn(partial(note, folder=tmp_path)))
    assert summary.done == CELLS[:3]


def test_only_some_and_what_they_start_from(tmp_path):
    run = make(tmp_path)
    assert run.plan(choose(CELLS, [CELLS[2].id])) == [CELLS[0], CELLS[2]]
    assert choose(CELLS, ["rte*"]) == [cell for cell in CELLS if cell.task == "rte"]
    assert choose(CELLS, [CELLS[4].key, NAMES[5]]) == CELLS[4:]
    with pytest.raises(PyramidError, match="no cell is meant by 'x'"):
        choose(CELLS, ["x"])


def test_a_dense_model_that_is_gone_is_trained_again_when_it_is_needed(tmp_path):
    make(tmp_path).go(CELLS, InTurn(partial(note, folder=tmp_path)))
    run = Runner(
        cells=CELLS, store=Store(tmp_path / "s.jsonl"), has_weights=lambda key: len(noted(tmp_path)) > 6, again=True
    )
    assert run.plan([CELLS[1]]) == CELLS[:2]
    run.go([CELLS[1]], InTurn(partial(note, folder=tmp_path)))
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
    summary = make(tmp_path, limit_minutes=0).go(CELLS, InTurn(partial(note, folder=tmp_path)))
    assert summary.left == CELLS
    assert noted(tmp_path) == []


def test_a_full_disk_loses_only_the_cell_under_way(tmp_path, monkeypatch):
    written = Store.write

    def full(self, key, record):
        if key == CELLS[3].key:
            raise OSError(errno.ENOSPC, "No space left on device")
        written(self, key, record)

    monkeypatch.setattr(Store, "write", full)
    with pytest.raises(PyramidError, match=r"could not be written: .*No space left.*all others are safe"):
        make(tmp_path).go(CELLS, InTurn(partial(note, folder=tmp_path)))
    assert noted(tmp_path) == NAMES[:4]
    monkeypatch.undo()
    assert make(tmp_path).plan(CELLS) == CELLS[3:]
    make(tmp_path).go(CELLS, InTurn(partial(note, folder=tmp_path)))
    assert noted(tmp_path)[4:] == NAMES[3:]


def test_a_full_disk_inside_of_a_cell_stops_the_run(tmp_path):
    def work(cell):
        if cell is CELLS[2]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return note(cell, tmp_path)

    with pytest.raises(PyramidError, match="the others would fail as well"):
        make(tmp_path).go(CELLS, InTurn(work))
    assert make(tmp_path, retry=True).plan(CELLS) == CELLS[2:]


def test_two_runners_share_the_work(tmp_path, monkeypatch):
    monkeypatch.setattr("pyramid_bert.lab.study.runner.POLL_SECONDS", 0.01)

    def slow(cell):
        time.sleep(0.02)
        return note(cell, tmp_path)

    runners = [threading.Thread(target=lambda: make(tmp_path).go(CELLS, InTurn(slow))) for _ in range(2)]
    for runner in runners:
        runner.start()
    for runner in runners:
        runner.join()
    assert sorted(noted(tmp_path)) == sorted(NAMES)


def test_a_cell_that_another_process_holds_is_running_and_is_left_alone(tmp_path):
    store = Store(tmp_path / "s.jsonl")
    lock = store.lock(CELLS[0].key)
    assert store.lock(CELLS[0].key) is None
    assert store.state(CELLS[0].key) == "running"
    summary = make(tmp_path).go(CELLS[:1], InTurn(partial(note, folder=tmp_path)))
    assert summary.left == CELLS[:1]
    lock.release()
    assert store.state(CELLS[0].key) == "left"


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


def test_a_killed_runner_takes_its_processes_with_it_and_loses_nothing_that_was_done(tmp_path):
    code = (
        "import sys; from functools import partial; from pathlib import Path\n"
        "from test_study_runner import CELLS, Processes, hang, make\n"
        "folder = Path(sys.argv[1])\n"
        "with Processes(partial(hang, folder=folder), 2) as pool:\n"
        "    make(folder).go(CELLS, pool)"
    )
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    runner = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], env={**os.environ, "PYTHONPATH": path})
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
    make(tmp_path).go(CELLS, InTurn(partial(note, folder=tmp_path)))
    assert sorted(noted(tmp_path)) == sorted(NAMES)


def test_processes_a_dead_one_costs_only_its_cell(tmp_path):
    with Processes(partial(note_or_die, folder=tmp_path, bad=NAMES[1]), 2) as pool:
        summary = make(tmp_path).go(CELLS, pool)
    assert summary.failed == [CELLS[1]]
    assert Store(tmp_path / "s.jsonl").read(CELLS[1].key)["error"] == "its process died with exit code -9"
    assert sorted(noted(tmp_path)) == sorted(name for name in NAMES if name != NAMES[1])


def test_processes_make_room_for_new_ones_after_some_cells(tmp_path, monkeypatch):
    monkeypatch.setattr(executors, "CELLS_A_PROCESS", 2)
    with Processes(partial(note_process, folder=tmp_path), 1) as pool:
        make(tmp_path).go(CELLS[:5], pool)
    served = Counter(Store(tmp_path / "s.jsonl").read(cell.key)["process"] for cell in CELLS[:5])
    assert sorted(served.values()) == [1, 2, 2]


def test_processes_that_die_at_import_fail_their_cells_and_the_run_ends(tmp_path):
    (tmp_path / "broken.py").write_text(
        "import os, sys; from pathlib import Path\n"
        "if __name__ != '__main__': os._exit(3)  # a spawned process imports this file first\n"
        "from test_study_runner import CELLS, Processes, is_alive, make\n"
        "with Processes(is_alive, 2) as pool: make(Path(sys.argv[1])).go(CELLS, pool)\n"
    )
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    words = [sys.executable, str(tmp_path / "broken.py"), str(tmp_path)]
    subprocess.run(words, env={**os.environ, "PYTHONPATH": path}, timeout=100, check=True, stderr=subprocess.DEVNULL)
    dense = [cell for cell in CELLS if cell.is_dense]
    errors = {Store(tmp_path / "s.jsonl").read(cell.key)["error"] for cell in dense}
    assert errors == {"its process died with exit code 3"}


def test_pace_learns_by_task():
    pace = Pace()
    assert pace.seconds(CELLS) is None
    pace.add(CELLS[1], 10.0)
    assert pace.seconds([CELLS[2]]) == pytest.approx(10 * CELLS[2].weight / CELLS[1].weight)
    assert pace.seconds([CELLS[1]], at_once=2) == pytest.approx(5)
    other = next(cell for cell in CELLS if cell.task != CELLS[1].task)
    assert pace.seconds([other]) == pytest.approx(10 * other.weight / CELLS[1].weight)


def test_the_display_follows_a_run(tmp_path):

    text = StringIO()
    run = make(tmp_path)
    with Display(Console(file=text), run.plan(CELLS), Pace()) as display:
        run.watcher = display
        run.go(CELLS, InTurn(partial(note_or_fail, folder=tmp_path, bad=NAMES[0])))
    assert "it broke" in text.getvalue()
    assert display.running == {}
    assert {cell.name for cell in display.left.values()} == set(NAMES[1:3])


def test_ray_runs_every_cell_once_though_a_worker_is_killed(tmp_path):
    pytest.importorskip("ray", reason="ray is not installed: pip install 'pyramid-bert[ray]'")
    work = _by_value(note_or_die, folder=tmp_path, bad=NAMES[4])
    with RayTasks(work, "local", threads=1) as cluster:
        assert cluster.slots >= 1
        summary = make(tmp_path).go(CELLS, cluster)
    assert (tmp_path / "killed").exists()
    assert sorted(noted(tmp_path)) == sorted(NAMES)
    assert len(summary.done) == len(CELLS)
    assert all(Store(tmp_path / "s.jsonl").status(cell.key) == "done" for cell in CELLS)


def test_without_ray_the_message_names_the_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(PyramidError, match=r"needs ray: pip install 'pyramid-bert\[ray\]'"):
        RayTasks(lambda cell: {}, "local", threads=1)


def _by_value(function, **arguments):
    """The function for a cluster whose workers cannot import this file."""
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(__import__("sys").modules[__name__])
    return partial(function, **arguments)


def test_attempts_record_what_was_raised():
    def broken(cell):
        raise PyramidError("no such thing")

    record = executors.attempt(broken, CELLS[0])
    assert record["status"] == "failed"
    assert record["id"] == CELLS[0].id
    assert not record["disk"]
    assert Path(record["where"][0].split(":")[0]).name == record["where"][0].split(":")[0]  # no machine's paths
