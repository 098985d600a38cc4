"""The file of results: what a kill leaves, several writers at once, and what is written once."""

import json
import os
import subprocess
import sys
import time
from multiprocessing import get_context

import pytest

from pyramid_bert.errors import PyramidError
from pyramid_bert.lab.study.store import Store

HERE, THERE = {"machine": {"cores": 2}, "commit": "c1"}, {"machine": {"cores": 8}, "commit": "c1"}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "results" / "s.jsonl"


def test_records_come_back_and_the_last_of_a_key_counts(path):
    store, other = Store(path), Store(path)
    assert store.read("a") is None
    store.write("a", {"status": "failed", **HERE})
    store.write("b", {"status": "done", "text": "wörtlich\n"})
    other.write("a", {"status": "done", **THERE})
    for each in (store, other, Store(path)):  # each sees what the other wrote
        assert each.read("a") == {"status": "done", **THERE}
        assert each.records == {"a": {"status": "done", **THERE}, "b": {"status": "done", "text": "wörtlich\n"}}
        assert each.done("a")
        assert each.status("c") is None
    path.unlink()
    assert store.records == {}


def test_what_records_share_is_written_once(path):
    for number in range(4):
        Store(path).write(f"here {number}", {"n": number, **HERE})
        Store(path).write(f"there {number}", {"n": number, **THERE})
    assert len(path.read_text().splitlines()) == 8 + 2
    assert path.read_text().count("cores") == 2
    assert Store(path).read("here 3") == {"n": 3, **HERE}
    assert Store(path).read("there 0") == {"n": 0, **THERE}


def test_a_write_that_was_cut_anywhere_costs_only_itself(path):
    Store(path).write("a", {"status": "done", **HERE})
    begun = path.read_bytes()
    Store(path).write("b", {"status": "done", **THERE})
    whole = path.read_bytes()
    for end in range(len(begun), len(whole)):
        path.write_bytes(whole[:end])
        store = Store(path)
        assert store.records == {"a": {"status": "done", **HERE}}, end
        store.write("c", {"status": "done", **THERE})
        assert Store(path).records == {"a": {"status": "done", **HERE}, "c": {"status": "done", **THERE}}, end


def write_many(path, name):
    store = Store(path)
    for number in range(50):
        store.write(f"{name} {number}", {"name": name, "n": number, "machine": {"cores": number % 3}})


def test_two_processes_write_at_once(path):
    writers = [get_context("spawn").Process(target=write_many, args=(path, name)) for name in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    expected = {f"{x} {n}": {"name": x, "n": n, "machine": {"cores": n % 3}} for x in "ab" for n in range(50)}
    assert Store(path).records == expected
    assert path.read_text().count('"cores"') == 3


def test_a_killed_writer_loses_nothing_that_it_had_written(path):
    code = (
        "import sys; from pyramid_bert.lab.study.store import Store\n"
        "for n in range(10**6): Store(sys.argv[1]).write(str(n), {'n': n, 'text': 'x' * 20000}); print(n, flush=True)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", code, str(path)]
    writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        told = [int(writer.stdout.readline()) for _ in range(5)]
        time.sleep(0.05)
    finally:
        writer.kill()
    told += [int(line) for line in writer.stdout]
    writer.wait()
    store = Store(path)
    assert {str(n) for n in told} <= set(store.records)
    store.write("next", {"n": -1})
    assert Store(path).read("next") == {"n": -1}
    assert Store(path).read(str(told[-1]))["n"] == told[-1]


@pytest.mark.parametrize("line", ["{", "[]", "3", '{"key": "a", "at": 7}', "{}"])
def test_a_damaged_line_is_named(path, line):
    Store(path).write("a", {"status": "done", **HERE})
    good = path.read_bytes()
    path.write_bytes(good + line.encode() + b"\n")
    with pytest.raises(PyramidError, match=rf"s.jsonl is damaged at byte {len(good)} .* remove that line"):
        Store(path).read("a")
    path.write_bytes(good)
    assert Store(path).done("a")


def test_results_of_version_0_1_are_read(path):
    folder = path.with_suffix("")
    (folder / "measured").mkdir(parents=True)
    for file, record in (("a.json", {"status": "done"}), ("measured/m.json", {"status": "done", "over_c": 2.0})):
        (folder / file).write_text(json.dumps(record))
    store = Store(path)
    assert store.read("m")["over_c"] == 2.0
    store.write("a", {"status": "failed"})
    assert Store(path).records == {"a": {"status": "failed"}, "m": {"status": "done", "over_c": 2.0}}
    (folder / "b.json").write_text("{")
    with pytest.raises(PyramidError, match=r"b.json is damaged"):
        Store(path)
