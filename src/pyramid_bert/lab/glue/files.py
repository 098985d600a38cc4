"""Finding the local files of a GLUE task, and telling their layout by the first row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import DataError, NoDataError
from ...text.tables import iterate_rows

if TYPE_CHECKING:
    from .tasks import Columns, Task

SUFFIXES = (".tsv", ".tsv.gz")
# A list of row numbers beside MRPC's files; it holds no texts.
_NO_DATA = {"dev_ids"}


def find_file(task: Task, folder: Path, split: str) -> Path:
    """The file of a split, in `folder` or in the task's folder below it."""
    if not folder.is_dir():
        raise DataError(f"no such folder: {folder}; give one that holds the folder {task.name} or {task.title}")
    names = dict.fromkeys((task.name, task.title))
    below = [folder / parent / child for parent in ("", "glue") for child in names]
    stems = task.files[split]
    looked_for = ", ".join(
        [f"{stem}.tsv[.gz]" for stem in (*stems, f"{stems[0]}_*")]
        + [place[split] for place in (task.original, task.class_folders) if split in place]
    )
    for place in (*below, folder):
        found = _files_in(task, place)
        if split in found:
            return found[split]
        if found:
            have = ", ".join(sorted(path.name for path in found.values()))
            raise DataError(
                f"no {split} file of {task.title} in {place}: looked for {looked_for}; there is only {have}"
            )
    places = ", ".join(str(place) for place in (folder, *below))
    raise NoDataError(f"no data of {task.title}: looked for {looked_for} in {places}")


def _files_in(task: Task, folder: Path) -> dict[str, Path]:
    """The files in a task's folder by split, all of one release."""
    found = {split: path for split, stems in task.files.items() if (path := _named(folder, stems))}
    return found or {split: folder / name for split, name in task.original.items() if (folder / name).is_file()}


def _named(folder: Path, stems: tuple[str, ...]) -> Path | None:
    """The first file with one of these names, or else the one whose name begins with the first and an underscore."""
    for name in (f"{stem}{suffix}" for stem in stems for suffix in SUFFIXES):
        if (folder / name).is_file():
            return folder / name
    longer = {
        path.name.removesuffix(suffix): path
        for suffix in reversed(SUFFIXES)
        for path in sorted(folder.glob(f"{stems[0]}_*{suffix}"))
        if path.name.removesuffix(suffix) not in _NO_DATA
    }
    if len(longer) > 1:
        names = ", ".join(sorted(path.name for path in longer.values()))
        raise DataError(f"{folder} holds {names}; keep one of them, or name it {stems[0]}{SUFFIXES[0]}")
    return next(iter(longer.values()), None)


def rows_in(path: Path, header: tuple[str, ...] | None = None) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The numbered rows of a file; `header` names the columns if the file has no header line."""
    # Surplus fields are not an error here: they move the label, and the check of labels names the row.
    return iterate_rows(path, suffix=".tsv" if path.suffix == ".txt" else None, header=header, exact=False)


def columns_in(task: Task, path: Path) -> Columns:
    """The columns of a task's file, told by its first row."""
    known = [columns for columns in (task.plain, task.official) if columns is not None]
    first = next(rows_in(path), (0, {}))[1]
    for columns in known:
        if columns.header is None and set(columns.names) <= set(first):
            return columns
    for columns in known:
        if columns.header is not None:
            row = next(rows_in(path, columns.header), (0, {}))[1]
            if set(row) == set(columns.header) and None not in row.values():
                return columns
    if not first:
        raise DataError(f"{path} has no rows; give a file with a header line and at least one row")
    needed = " or ".join(dict.fromkeys(repr(", ".join(columns.names)) for columns in known))
    have = ", ".join(str(column) for column in first if column is not None)
    raise DataError(f"{path}: {task.title} needs the columns {needed}; the columns are {have!r}")


# ---- a folder for each class, a file for each text ----


def find_class_folders(task: Task, folder: Path, split: str) -> Path | None:
    """The folder of a split that holds a folder of texts for each class; None if there is none."""
    parts = {split: Path(path).parts for split, path in task.class_folders.items()}
    outer = {top for top, *_ in parts.values()}
    for place in (folder / parent / child for parent in ("", task.name, task.title) for child in ("", *outer)):
        if any(place.joinpath(*inner, one).is_dir() for _, *inner in parts.values() for one in task.classes or ()):
            return place.joinpath(*parts[split][1:])
    return None


def class_folder_rows(task: Task, folder: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The numbered texts of a folder that holds a folder for each class, with their labels."""
    number = 0
    for one in task.classes or ():
        paths = sorted((folder / one).glob("*.txt"))
        if not paths:
            raise DataError(f"no texts in {folder / one}: looked for *.txt; unpack the official download again")
        for path in paths:
            number += 1
            try:
                text = path.read_text(encoding="utf-8")
            except UnicodeDecodeError as error:
                raise DataError(f"{path} is not UTF-8 text (byte {error.start}); convert it first") from error
            if not text.strip():
                raise DataError(f"{path} is empty; fetch it again or remove it")
            yield number, {"text": text, "label": one}
