"""CIFAR-10 in grey: from one NumPy file of grey images, from the official binary files, or from the hub.

The official Python version is pickled. Loading a pickle can run any code, so it is never read.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...errors import DataError
from ..fetching import fetch_rows

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SIDE = 32
Images = tuple[NDArray[np.uint8], NDArray[np.uint8]]  # (rows, 32, 32) and (rows,)

_BINARY = {"train": tuple(f"data_batch_{i}.bin" for i in range(1, 6)), "dev": ("test_batch.bin",)}
_PICKLED = ("data_batch_1", "test_batch")
_FOLDERS = ("", "cifar10", "cifar-10-batches-bin", "cifar10/cifar-10-batches-bin")
_PICKLED_FOLDERS = ("cifar-10-batches-py", "cifar10/cifar-10-batches-py")
_HUB = ("uoft-cs/cifar10",)
_REMEDY = (
    "give a folder with the official binary version (cifar-10-binary.tar.gz, unpacked) or a cifar10*.npz of grey images"
)


def read_cifar10(folder: Path | None, split: str) -> Images:
    """The grey images of "train" or "dev", the test set, and their classes."""
    if folder is None:
        rows = fetch_rows("CIFAR-10", _HUB, "train" if split == "train" else "test", _REMEDY.capitalize())
        return _from_hub(rows, f"{_HUB[0]} {split}")
    if not folder.is_dir():
        raise DataError(f"no such folder: {folder}; {_REMEDY}")
    places = [folder / name for name in _FOLDERS]
    for place in places:
        files = sorted(place.glob("cifar10*.npz"))
        if len(files) > 1:
            raise DataError(f"{place} holds {', '.join(file.name for file in files)}; keep one of them")
        if files:
            return _from_arrays(files[0], split)
        if any((place / name).exists() for names in _BINARY.values() for name in names):
            return _from_binary(place, split)
    for place in (*places, *(folder / name for name in _PICKLED_FOLDERS)):
        if any((place / name).is_file() for name in _PICKLED):
            raise DataError(
                f"{place} holds the Python version of CIFAR-10, which is pickled and could run any code; "
                "take the binary version, cifar-10-binary.tar.gz, from the same page"
            )
    looked_for = ", ".join(map(str, places))
    raise DataError(f"no CIFAR-10 in {looked_for}: looked for data_batch_1.bin and cifar10*.npz; {_REMEDY}")


def grey(rgb: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The luma (ITU-R 601) of (..., 3) pixels, with the rounding of Long Range Arena's pipeline.

    Example:
        >>> grey(np.array([[255, 255, 255], [255, 0, 0], [0, 0, 0]], np.uint8)).tolist()
        [255, 76, 0]
    """
    weighted = rgb.astype(np.int64) @ np.array([2989, 5870, 1140])
    # TensorFlow scales to 0-1 and back by 255.5, and cuts: times 511 / 510, rounded down.
    luma: NDArray[np.uint8] = (weighted * 511 // (510 * 10_000)).astype(np.uint8)
    return luma


def _from_arrays(path: Path, split: str) -> Images:
    """One file with the arrays train_images, train_labels, test_images and test_labels."""
    prefix = "train" if split == "train" else "test"
    try:
        with np.load(path, allow_pickle=False) as arrays:
            names = [f"{prefix}_{kind}" for kind in ("images", "labels")]
            missing = [name for name in names if name not in arrays]
            if missing:
                raise DataError(f"{path} has no array {missing[0]!r}; it has {', '.join(arrays.files)}")
            images, labels = (arrays[name] for name in names)
    except DataError:
        raise
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged or holds pickles ({error}); fetch it again") from error
    if images.dtype != np.uint8 or images.shape[1:] != (SIDE, SIDE):
        raise DataError(
            f"{path}: {prefix}_images is {images.dtype} of shape {images.shape}; "
            f"expected uint8 of shape (rows, {SIDE}, {SIDE})"
        )
    if labels.shape != images.shape[:1] or labels.dtype.kind not in "iu":
        raise DataError(
            f"{path}: {prefix}_labels is {labels.dtype} of shape {labels.shape}; expected whole numbers, one for each "
            f"of the {len(images)} images"
        )
    return _checked(images, labels, f"{path}, {prefix}_labels")


def _from_binary(folder: Path, split: str) -> Images:
    """The official files: a byte for the class, then 1024 bytes each of red, green and blue, row after row."""
    missing = [name for name in _BINARY[split] if not (folder / name).is_file()]
    if missing:
        raise DataError(f"{folder} has no {', '.join(missing)}; unpack cifar-10-binary.tar.gz again")
    parts = []
    for path in (folder / name for name in _BINARY[split]):
        data, size = np.fromfile(path, np.uint8), 1 + 3 * SIDE * SIDE
        whole, rest = divmod(len(data), size)
        if rest:
            raise DataError(
                f"{path} is cut short in row {whole + 1}: {len(data)} bytes, rows have {size}; fetch it again"
            )
        rows = data.reshape(-1, size)
        images = rows[:, 1:].reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)
        parts.append(_checked(grey(images), rows[:, 0], str(path)))
    return np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts])


def _from_hub(rows: Iterable[Mapping[str, Any]], source: str) -> Images:
    images, labels = [], []
    for number, row in enumerate(rows, start=1):
        if "img" not in row or "label" not in row:
            raise DataError(f"{source}, row {number}: expected the columns img and label, got {', '.join(row)}")
        pixels = np.asarray(row["img"].convert("RGB"), np.uint8)
        if pixels.shape != (SIDE, SIDE, 3):
            height, width = pixels.shape[:2]
            raise DataError(f"{source}, row {number}: the image is {width}x{height}, not {SIDE}x{SIDE}")
        images.append(grey(pixels))
        labels.append(row["label"])
    stacked = np.stack(images) if images else np.zeros((0, SIDE, SIDE), np.uint8)
    return _checked(stacked, np.array(labels), source)


def _checked(images: NDArray[np.uint8], labels: NDArray[np.integer], source: str) -> Images:
    """The images with their classes; an error for a wrong label names its row."""
    if not len(images):
        raise DataError(f"{source} has no rows; fetch it again")
    wrong = np.flatnonzero((labels < 0) | (labels >= len(CLASSES)))
    if len(wrong):
        row = int(wrong[0])
        raise DataError(
            f"{source}, row {row + 1}: the label is {labels[row]}; CIFAR-10 has classes 0-{len(CLASSES) - 1}"
        )
    return images, labels.astype(np.uint8)
