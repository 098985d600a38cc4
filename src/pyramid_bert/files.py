"""Atomic writes: a file or folder appears complete or not at all. And JSON for any number."""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from .errors import PyramidError


def to_json(value: Any, **form: Any) -> str:
    """JSON text; NaN and infinity, which JSON lacks, become null. `form` is what `json.dumps` takes."""
    return json.dumps(_finite(value), allow_nan=False, **form)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def write_text(path: Path, text: str) -> None:
    """Writes `text` to `path`, in UTF-8: the old content stays until the new one is complete."""
    write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path, data: bytes) -> None:
    """Writes `data` to `path`: the old content stays until the new one is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)  # mkstemp makes a file that only its owner can read
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


@contextmanager
def replacing_folder(target: Path) -> Iterator[Path]:
    """A scratch folder that becomes `target` when the block ends well, and is removed when it does not."""
    target = target.resolve()
    check_writable(target)
    scratch = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        yield scratch
        scratch.chmod(0o755)
        if target.exists():
            _swap(scratch, target)
        else:
            os.replace(scratch, target)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


def _swap(scratch: Path, target: Path) -> None:
    """Puts `scratch` in the place of `target`, or leaves `target` where it was."""
    aside = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}.old."))
    os.replace(target, aside / target.name)
    try:
        os.replace(scratch, target)
    except BaseException:
        os.replace(aside / target.name, target)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


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
    """Raises, before any work is done, unless a file can be written at `path`."""
    if path.is_dir():
        raise PyramidError(f"cannot write to {path}: it is a folder; name a file")
    check_writable(path.parent)


def check_writable(folder: Path) -> None:
    """Raises, before any work is done, unless `folder` can be written or made."""
    existing = folder
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir():
        named = "it" if existing == folder else existing
        raise PyramidError(f"cannot write to {folder}: {named} is a file; name a folder")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder if folder.exists() else folder.parent):
            pass
    except OSError as error:
        raise PyramidError(f"cannot write to {folder}: {error.strerror}; choose another output folder") from error
