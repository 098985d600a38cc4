"""A folder of Pathfinder images: shards of 500 images, and a record of how they were made.

Image i depends only on settings, seed and i. So a stopped run continues with the missing shards, images can be added
later, and any number of processes writes the same files.
"""

from __future__ import annotations

import hashlib
import io
import json
import shlex
import signal
import zipfile
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ....checks import check_int
from ....errors import DataError, PyramidError
from ....files import check_writable, write_bytes, write_text
from .draw import draw_pathfinder
from .settings import PathfinderSettings

RECORD = "pathfinder.json"
SHARD_IMAGES = 500
_FORMAT = 1


@dataclass(frozen=True)
class Record:
    """How the images of a folder were made.

    Attributes:
        images: The number of images when complete.
        seed: Of all images.
        settings: Of all images.
        sha256: Of all images and labels; None while images are missing.
    """

    images: int
    seed: int
    settings: PathfinderSettings
    sha256: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As written to the file."""
        return {"format": _FORMAT, **asdict(self)}


@dataclass(frozen=True, eq=False)
class PathfinderImages:
    """All images of a folder.

    Attributes:
        images: (images, window, window), 8-bit grey.
        labels: (images,), 0 or 1.
        record: How they were made.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.uint8]
    record: Record


def make_pathfinder(
    folder: str | Path,
    images: int,
    settings: PathfinderSettings | None = None,
    *,
    seed: int = 0,
    jobs: int = 1,
    progress: Callable[[int], None] | None = None,
) -> Record:
    """Writes the missing images of 0 to `images` - 1 into a folder and returns the record.

    Args:
        folder: Created if missing. May hold a part of the same images, with their record.
        images: The number of images when complete.
        settings: Of all images; without it Long Range Arena's hard ones.
        seed: Of all images.
        jobs: Processes. With more than one the calling script needs its `if __name__ == "__main__":`.
        progress: Called with the number of new images, first with those already there.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = make_pathfinder(folder, 10, PathfinderSettings.of("easy"))
        ...     made = read_pathfinder(folder)
        >>> made.images.shape, made.labels.tolist()
        ((10, 32, 32), [1, 1, 1, 0, 1, 0, 0, 0, 0, 0])
    """
    folder, settings = Path(folder), settings or PathfinderSettings()
    check_int("images", images, 1, "Long Range Arena has 200000")
    check_int("seed", seed, 0, "any number names a different set of images")
    check_int("jobs", jobs, 1, "one for each core is best")
    check_writable(folder)
    draw_pathfinder(settings, seed, 0)  # raises for snakes that find no room
    record = Record(images, seed, settings)
    _check_same(folder, record)
    _write(folder, record)
    missing = [shard for shard in _shards(images) if not _is_there(folder, shard, settings.window)]
    advance = progress or (lambda count: None)
    advance(images - sum(map(len, missing)))
    for count in _make_shards([(folder, settings, seed, shard) for shard in missing], jobs):
        advance(count)
    record = replace(record, sha256=_hash(_read_shards(folder, record)))
    _write(folder, record)
    return record


def read_pathfinder(folder: str | Path) -> PathfinderImages:
    """All images that `make_pathfinder` wrote; raises unless they are complete and unchanged."""
    folder = Path(folder)
    record = read_record(folder)
    if record.sha256 is None:
        raise DataError(f"the images in {folder} are not complete; run the command that made them again to continue")
    made = _read_shards(folder, record)
    if _hash(made) != record.sha256:
        raise DataError(f"the images in {folder} are not those of its {RECORD}; make them again in an empty folder")
    return made


def read_record(folder: str | Path) -> Record:
    """How the images of a folder were made."""
    path = Path(folder) / RECORD
    if not path.is_file():
        out = shlex.quote(str(folder))
        raise DataError(
            f"no such file: {path}; make images with `pyramid-bert lra make-pathfinder --out {out} --n 20000`"
        )
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        if values["format"] != _FORMAT:
            raise DataError(f"{path} has the format {values['format']!r}, this version reads {_FORMAT}")
        settings = PathfinderSettings.from_dict(values["settings"])
        check_int("images", values["images"], 1, "the record is damaged")
        return Record(values["images"], values["seed"], settings, values["sha256"])
    except DataError:
        raise
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged ({error}); make the images again in an empty folder") from error


def _write(folder: Path, record: Record) -> None:
    write_text(folder / RECORD, json.dumps(record.to_dict(), indent=1) + "\n")


def _check_same(folder: Path, wanted: Record) -> None:
    """Raises if the folder holds other images, or more.

    The record is written before any image, so images without a record come from elsewhere.
    """
    if not (folder / RECORD).exists():
        shard = min(folder.glob("images-[0-9]*.npz"), default=None)
        if shard is not None:
            raise PyramidError(
                f"{folder} holds {shard.name} and no {RECORD} that tells how it was made; "
                "remove the images, or choose another folder"
            )
        return
    there = read_record(folder)
    old, new = ({"seed": record.seed, **record.settings.to_dict()} for record in (there, wanted))
    for name, value in old.items():
        if new[name] != value:
            raise PyramidError(f"{folder} holds images of {name} {value}, not {new[name]}; choose another folder")
    if there.images > wanted.images:
        raise PyramidError(
            f"{folder} is for {there.images} images, more than {wanted.images}; "
            f"ask for at least {there.images}, or choose another folder"
        )


# ---- shards ----


def _shards(images: int) -> list[range]:
    return [range(start, min(start + SHARD_IMAGES, images)) for start in range(0, images, SHARD_IMAGES)]


def _path(folder: Path, shard: range) -> Path:
    return folder / f"images-{shard.start // SHARD_IMAGES:05d}.npz"


def _make_shards(calls: list[tuple[Any, ...]], jobs: int) -> Iterator[int]:
    """Calls `_make_shard` in one or several processes; yields the number of images of each shard when it is done."""
    if jobs <= 1 or len(calls) <= 1:
        yield from (_make_shard(*call) for call in calls)
        return
    # Spawned: forked processes inherit the threads of torch and of the progress bar, and may hang. Ctrl-C is left to
    # the parent.
    stopping = (signal.SIGINT, signal.SIG_IGN)
    pool = ProcessPoolExecutor(min(jobs, len(calls)), get_context("spawn"), signal.signal, stopping)
    try:
        yield from (done.result() for done in as_completed([pool.submit(_make_shard, *call) for call in calls]))
    except BrokenProcessPool as error:
        raise PyramidError("a process that makes images died; run the same command again to continue") from error
    finally:
        pool.shutdown(cancel_futures=True)


def _make_shard(folder: Path, settings: PathfinderSettings, seed: int, shard: range) -> int:
    """Draws and writes a shard; returns how many images it has."""
    drawings = [draw_pathfinder(settings, seed, index) for index in shard]
    labels = np.array([drawing.label for drawing in drawings], np.uint8)
    file = io.BytesIO()
    np.savez_compressed(file, images=np.stack([drawing.image for drawing in drawings]), labels=labels)
    write_bytes(_path(folder, shard), file.getvalue())
    return len(shard)


def _is_there(folder: Path, shard: range, window: int) -> bool:
    """Whether a shard is complete. A shorter one comes from a run for fewer images and is made again."""
    try:
        _read_shard(folder, shard, window)
    except DataError:
        return False
    return True


def _read_shards(folder: Path, record: Record) -> PathfinderImages:
    parts = [_read_shard(folder, shard, record.settings.window) for shard in _shards(record.images)]
    images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return PathfinderImages(images, labels, record)


def _read_shard(folder: Path, shard: range, window: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    path = _path(folder, shard)
    if not path.is_file():
        raise DataError(f"no such file: {path}; run the command that made the images again, it fills the gap")
    try:
        with np.load(path, allow_pickle=False) as arrays:
            images, labels = arrays["images"], arrays["labels"]
    except (OSError, EOFError, ValueError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged ({error}); remove it and make the images again") from error
    if images.dtype != np.uint8 or images.shape[1:] != (window, window):
        raise DataError(f"{path}: the images are {images.dtype} {images.shape[1:]}, not uint8 {(window, window)}")
    if labels.dtype != np.uint8 or labels.shape != images.shape[:1]:
        raise DataError(f"{path}: the labels are {labels.dtype} {labels.shape}, not uint8 {images.shape[:1]}")
    if len(images) != len(shard):
        raise DataError(f"{path} has {len(images)} images, not {len(shard)}; remove it and make the images again")
    wrong = np.flatnonzero(labels > 1)
    if len(wrong):
        raise DataError(f"{path}, row {wrong[0] + 1}: the label is {labels[wrong[0]]}; Pathfinder has 0 and 1")
    return images, labels


def _hash(made: PathfinderImages) -> str:
    """The sha256 of the images, each followed by its label."""
    rows = np.concatenate([made.images.reshape(len(made.images), -1), made.labels[:, None]], axis=1)
    return hashlib.sha256(rows.tobytes()).hexdigest()
