"""Safe writes: whole or not at all, wherever a write fails or a process dies, and by one process."""

import errno
import os
import stat
import subprocess
import sys
from contextlib import suppress

import pytest

from pyramid_bert import files
from pyramid_bert.errors import PyramidError
from pyramid_bert.files import (
    check_not_input,
    only_writer,
    recover_folder,
    replacing_file,
    replacing_folder,
    write_text,
)


def fill(folder, name, text):
    with replacing_folder(folder) as scratch:
        (scratch / name).write_text(text)


@pytest.fixture(params=["exchange", "two renames"])
def swap(request, monkeypatch):
    """Folders are replaced in one step, and as systems without such a call have to do it."""
    if request.param == "two renames":
        monkeypatch.setattr(files, "_exchange", lambda one, other: False)


def leftovers(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_is_replaced_whole(tmp_path, swap):
    fill(tmp_path / "model", "a", "old")
    fill(tmp_path / "model", "b", "new")
    assert leftovers(tmp_path / "model") == ["b"]
    assert leftovers(tmp_path) == ["model"]


@pytest.mark.parametrize("call", ["replace", "fsync", "chmod"])
@pytest.mark.parametrize("number", range(1, 7))
def test_a_write_that_fails_anywhere_leaves_the_old_or_the_new(tmp_path, swap, monkeypatch, call, number):
    target = tmp_path / "model"
    fill(target, "weights", "old")
    file = tmp_path / "table.csv"
    write_text(file, "old")
    real, calls = getattr(os, call), 0

    def broken(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == number:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*args, **kwargs)

    monkeypatch.setattr(os, call, broken)
    for write in (lambda: fill(target, "weights", "new"), lambda: write_text(file, "new")):
        calls = 0
        with suppress(PyramidError):  # and nothing else
            write()
    monkeypatch.undo()
    recover_folder(target)
    assert (target / "weights").read_text() in ("old", "new")
    assert file.read_text() in ("old", "new")
    assert leftovers(tmp_path) == ["model", "table.csv"]


KILLED = """
import os, signal, sys
from pathlib import Path
from pyramid_bert import files
files._exchange = lambda one, other: False
real, left = os.replace, int(sys.argv[2])
def replace(a, b):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    real(a, b)
os.replace = replace
with files.replacing_folder(Path(sys.argv[1])) as scratch:
    (scratch / "weights").write_text("new")
"""


@pytest.mark.parametrize("renames", [0, 1, 2])
def test_a_process_killed_between_two_renames_loses_no_folder(tmp_path, renames):
    target = tmp_path / "model"
    fill(target, "weights", "old")
    ended = subprocess.run([sys.executable, "-c", KILLED, str(target), str(renames)])
    assert ended.returncode == (-9 if renames < 2 else 0)
    recover_folder(target)
    assert (target / "weights").read_text() == ("new" if renames == 2 else "old")


@pytest.mark.parametrize("kind", ["fifo", "link", "folder", "device"])
def test_only_regular_files_are_replaced(tmp_path, kind):
    path = tmp_path / "out.csv"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "link":
        path.symlink_to(tmp_path / "elsewhere")
    elif kind == "folder":
        path.mkdir()
    else:
        path = files.Path("/dev/null")
    before = path.lstat().st_mode
    with pytest.raises(PyramidError, match="cannot write to"):
        write_text(path, "lost")
    assert path.lstat().st_mode == before


def test_permissions_are_those_of_other_files(tmp_path):
    ordinary = tmp_path / "ordinary"
    ordinary.write_text("")
    made = tmp_path / "made"
    write_text(made, "")
    assert stat.S_IMODE(made.stat().st_mode) == stat.S_IMODE(ordinary.stat().st_mode)
    made.chmod(0o640)
    write_text(made, "again")
    assert stat.S_IMODE(made.stat().st_mode) == 0o640
    with replacing_folder(tmp_path / "model") as scratch:
        (scratch / "weights").write_text("")
        (scratch / "weights").chmod(0o600)
        (scratch / "inner").mkdir(mode=0o700)
    (tmp_path / "plain").mkdir()
    plain = stat.S_IMODE((tmp_path / "plain").stat().st_mode)
    assert stat.S_IMODE((tmp_path / "model" / "weights").stat().st_mode) == stat.S_IMODE(ordinary.stat().st_mode)
    assert {stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "model", tmp_path / "model" / "inner")} == {plain}


def test_one_process_writes_at_a_time(tmp_path):
    path = tmp_path / "out.csv"
    code = "import sys; from pyramid_bert.files import only_writer; from pathlib import Path\n"
    code += "with only_writer(Path(sys.argv[1])): print('in', flush=True); sys.stdin.read()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout.readline() == "in\n"
    with pytest.raises(PyramidError, match="another process is writing"), only_writer(path):
        pass
    holder.kill()
    holder.wait()
    with only_writer(path):
        pass
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("replacing", [replacing_file, replacing_folder])
def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path, replacing):
    path, other = tmp_path / "out[1]", tmp_path / ".out[1].mine"
    other.write_text("not ours")
    code = "import os, sys; from pyramid_bert import files; from pathlib import Path\n"
    code += "with getattr(files, sys.argv[2])(Path(sys.argv[1])): os._exit(9)"
    subprocess.run([sys.executable, "-c", code, str(path), replacing.__name__], check=False)
    assert len(leftovers(tmp_path)) == 2
    with only_writer(path):
        pass
    assert leftovers(tmp_path) == [other.name]


def test_an_input_is_not_its_own_output(tmp_path):
    source = tmp_path / "in.csv"
    source.write_text("text\na\n")
    (tmp_path / "same.csv").hardlink_to(source)
    with pytest.raises(PyramidError, match="is the input itself"):
        check_not_input(tmp_path / "same.csv", source)
    check_not_input(tmp_path / "other.csv", source)


def test_a_block_that_fails_leaves_the_file(tmp_path):
    path = tmp_path / "out.csv"
    write_text(path, "old")

    def fail():
        with replacing_file(path) as scratch:
            scratch.write_text("half")
            raise InterruptedError

    with pytest.raises(PyramidError):
        fail()
    assert path.read_text() == "old"
    assert leftovers(tmp_path) == ["out.csv"]
