"""Safe writes: a file or folder appears complete or not at all, replaces only what it may, and has one writer."""

from __future__ import annotations

import ctypes
import glob
import json
import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import IO, Any

from .boundary import one_line
from .errors import PyramidError

try:
    from safetensors import SafetensorError
except ImportError:  # exported models run without it
    SafetensorError = OSError  # type: ignore[misc, assignment]

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_UNFINISHED = ".unfinished"  # ends the name of a scratch file or folder

# ---- files ----


def write_text(path: Path, text: str) -> None:
    """Writes `text` to `path`, in UTF-8: the old content stays until the new one is complete."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Writes `data` to `path`: the old content stays until the new one is complete."""
    with replacing_file(path) as scratch, scratch.open("wb") as file:
        file.write(data)


@contextmanager
def replacing_file(path: Path) -> Iterator[Path]:
    """A scratch file that becomes `path` when the block ends well, and is removed when it does not.

    It gets the permissions of the file that it replaces, or those that any new file gets.
    """
    check_writable_file(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=_UNFINISHED)
    os.close(descriptor)
    scratch = Path(name)
    try:
        with _told(path):
            yield scratch
            mode = path.stat().st_mode & 0o7777 if path.exists() else _mode_of_new_files()
            scratch.chmod(mode)  # mkstemp makes a file that only its owner can read
            sync(scratch)
            os.replace(scratch, path)
            sync(path.parent)
    finally:
        scratch.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Waits until what was written to a file or folder is on the disk."""
    with suppress(PermissionError):  # some systems open no folders
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextmanager
def _told(path: Path) -> Iterator[None]:
    """Turns a full disk, and whatever else the system refuses, into an error that names the output."""
    try:
        yield
    except PyramidError:
        raise
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or one_line(error)
        raise PyramidError(f"cannot write {path}: {reason}; what was there is unchanged") from error


@cache
def _mode_of_new_files() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def to_json(value: Any, **form: Any) -> str:
    """JSON text; NaN and infinity, which JSON lacks, become null. `form` is what `json.dumps` takes."""
    return json.dumps(_finite(value), allow_nan=False, **form)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# ---- folders ----


@contextmanager
def replacing_folder(target: Path) -> Iterator[Path]:
    """A scratch folder that becomes `target` when the block ends well, and is removed when it does not."""
    target = target.resolve()
    check_writable(target)
    recover_folder(target)
    scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.", suffix=_UNFINISHED))
    try:
        with _told(target):
            yield scratch
            _share(scratch)
            if target.exists():
                _swap(scratch, target)
            else:
                os.replace(scratch, target)
            sync(target.parent)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def recover_folder(target: Path) -> None:
    """Puts back a folder that a stopped process had moved aside to replace it."""
    aside = None if target.exists() else moved_aside(target)
    if aside is not None:
        os.replace(aside, target)
        shutil.rmtree(aside.parent, ignore_errors=True)


def moved_aside(target: Path) -> Path | None:
    """Where a folder is that a process moved aside to replace it, and then stopped; None if there is none."""
    name = glob.escape(target.name)
    return min(target.parent.glob(f".{name}.old.*/{name}"), default=None)


def _share(folder: Path) -> None:
    """Gives a scratch folder and its files the permissions that new ones get, and waits until they are on the disk."""
    mode = _mode_of_new_files()
    for path in [folder, *folder.rglob("*")]:
        path.chmod(mode | ((mode & 0o444) >> 2) if path.is_dir() else mode)  # who reads a folder may enter it
        sync(path)


def _swap(scratch: Path, target: Path) -> None:
    """Puts `scratch` in the place of `target`, in one step where the system can; the old folder becomes `scratch`."""
    if _exchange(scratch, target):
        return
    aside = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.old."))
    try:
        os.replace(target, aside / target.name)
        os.replace(scratch, target)  # a process that dies before this line leaves what `recover_folder` finds
    finally:
        recover_folder(target)  # only where the second rename failed
        shutil.rmtree(aside, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Swaps the names of two folders in one step; False where the system or the file system cannot."""
    call, here = _exchange_call()
    return call is not None and call(*here, os.fsencode(one), *here, os.fsencode(other), 2) == 0


@cache
def _exchange_call() -> tuple[Any, tuple[int, ...]]:
    """The system's call that swaps two names, and what it takes before each name. Both systems' flag is 2."""
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "linux":
            return library.renameat2, (-100,)  # relative to the working directory
        if sys.platform == "darwin":
            return library.renamex_np, ()
    return None, ()


# ---- one writer ----


def take_lock(path: Path, *, shared: bool = False) -> IO[str] | None:
    """The lock of a file, or None while another process has it; any number of processes can hold a shared one.

    Closing the returned file releases the lock. The system does so too when the process ends, however it ends.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = open(path, "a")  # noqa: SIM115 - the lock lives as long as the file is open
    for attempt in range(3):  # whoever only asks for its state holds it for a moment
        try:
            if fcntl is not None:
                fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.02 * attempt)
        else:
            return file
    file.close()
    return None


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Holds the right to write `path`; raises while another process has it. A process that dies gives it up.

    Scratch files that such a process left are removed.
    """
    lock = path.with_name(f".{path.name}.lock")
    while (file := take_lock(lock)) is not None:
        # Its last owner removes the file: the lock of a file that is gone holds nobody off.
        if lock.exists() and os.fstat(file.fileno()).st_ino == lock.stat().st_ino:
            break
        file.close()
    if file is None:
        raise PyramidError(f"another process is writing {path}; wait until it has ended, or name another output")
    with file:
        try:
            _remove_unfinished(path)
            yield
        finally:
            lock.unlink(missing_ok=True)


def _remove_unfinished(path: Path) -> None:
    for left in path.parent.glob(f".{glob.escape(path.name)}.*{_UNFINISHED}"):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


# ---- checks before any work is done ----


def check_replaceable(folder: Path, ours: Collection[str]) -> None:
    """Raises if `folder` holds anything but files that we write, by the patterns `ours`: it would be lost."""
    if not folder.is_dir():
        return
    names = sorted(path.name for path in folder.iterdir())
    strangers = [name for name in names if not any(fnmatch(name, pattern) for pattern in ours)]
    if strangers:
        raise PyramidError(
            f"{folder} holds other files, for example {strangers[0]}; choose an empty folder or one that holds a model"
        )


def check_writable_file(path: Path) -> None:
    """Raises unless a file can be written at `path`: nothing is there, or a regular file that may be replaced."""
    if path.is_dir():
        raise PyramidError(f"cannot write to {path}: it is a folder; name a file")
    if path.is_symlink():
        raise PyramidError(f"cannot write to {path}: it is a link to {path.readlink()}; name the file itself")
    if path.exists() and not path.is_file():
        raise PyramidError(f"cannot write to {path}: it is a device, a pipe or a socket; name a file")
    check_writable(path.parent)


def check_not_input(output: Path, source: Path) -> None:
    """Raises if an output would replace the file that it is made from."""
    if output.exists() and source.exists() and output.samefile(source):
        raise PyramidError(f"the output {output} is the input itself; name another file")


def check_not_inside(output: Path, folder: Path) -> None:
    """Raises if an output would be written into a folder that is only read."""
    if folder.is_dir() and folder.resolve() in output.resolve().parents:
        raise PyramidError(f"the output {output} is inside of {folder}, which is only read; name another file")


def check_writable(folder: Path) -> None:
    """Raises unless `folder` can be written or made."""
    if folder.exists() and not folder.is_dir():
        raise PyramidError(f"cannot write to {folder}: it is a file; name a folder")
    existing = folder
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir():
        raise PyramidError(f"cannot write to {folder}: {existing} is a file; name a folder")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder if folder.exists() else folder.parent):
            pass
    except OSError as error:
        raise PyramidError(f"cannot write to {folder}: {error.strerror}; choose another output folder") from error
