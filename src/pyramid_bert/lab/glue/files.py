"""Finding the local file of a GLUE task, and telling its layout by its first row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import DataError, NoDataError
from ...text.tables import iterate_rows
from .layouts import LAYOUTS, Columns, Layout

SUFFIXES = (".tsv", ".tsv.gz")
# A list of row numbers beside MRPC's files; it holds no texts.
_NO_DATA = {"dev_ids"}


def find_file(name: str, folder: Path, split: str) -> Path:
    """The file of a split, in `folder` or in the task's folder below it."""
    layout = LAYOUTS[name]
    if not folder.is_dir():
        raise DataError(f"no such folder: {folder}; give one that holds the folder {name} or {layout.folder}")
    names = dict.fromkeys((name, layout.folder))
    below = [folder / parent / child for parent in ("", "glue") for child in names]
    here = next((place for place in (*below, folder) if place.is_dir() and _files_in(layout, place)), None)
    looked_for = _looked_for(layout, split)
    if here is None:
        places = ", ".join(str(place) for place in (folder, *below))
        raise NoDataError(f"no data of {layout.folder}: looked for {looked_for} in {places}")
    _check_owner(name, here)
    found = _files_in(layout, here)
    if split not in found:
        have = ", ".join(sorted(path.name for path in found.values()))
        raise DataError(f"no {split} file of {layout.folder} in {here}: looked for {looked_for}; there is only {have}")
    return found[split]


def find_class_folders(name: str, folder: Path, split: str, classes: Sequence[str]) -> Path | None:
    """The folder of a split that holds a folder of texts for each class; None if there is no such download here."""
    layout = LAYOUTS[name]
    inner = {s: Path(path).relative_to(Path(path).parts[0]) for s, path in layout.class_folders.items()}
    outer = {Path(path).parts[0] for path in layout.class_folders.values()}
    places = [folder / parent / child for parent in ("", name, layout.folder) for child in ("", *outer)]
    for place in places:
        if any((place / path / one).is_dir() for path in inner.values() for one in classes):
            return place / inner[split]
    return None


def class_folder_rows(folder: Path, classes: Sequence[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The numbered texts of a folder that holds a folder for each class, with their labels."""
    number = 0
    for one in classes:
        paths = sorted((folder / one).glob("*.txt"))
        if not paths:
            raise DataError(f"no texts in {folder / one}: looked for *.txt; unpack the official download again")
        for path in paths:
            number += 1
            yield number, {"text": _text_of(path), "label": one}


def _text_of(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text (byte {error.start}); convert it first") from error
    if not text.strip():
        raise DataError(f"{path} is empty; fetch it again or remove it")
    return text


def _files_in(layout: Layout, folder: Path) -> dict[str, Path]:
    """The files in a task's folder by split, all of one release."""
    found = {split: path for split, stems in layout.files.items() if (path := _named(folder, stems))}
    return found or {split: folder / name for split, name in layout.original.items() if (folder / name).is_file()}


def _named(folder: Path, stems: tuple[str, ...]) -> Path | None:
    """The file with the first of these names that there is, or else the one whose name goes on after the first."""
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


def _looked_for(layout: Layout, split: str) -> str:
    stems = layout.files[split]
    names = [f"{stem}.tsv[.gz]" for stem in (*stems, f"{stems[0]}_*")]
    others = (layout.original.get(split), layout.class_folders.get(split))
    return ", ".join([*names, *filter(None, others)])


def _check_owner(name: str, folder: Path) -> None:
    """Raises if a folder is named after another task: the columns of many tasks are the same."""
    for other, layout in LAYOUTS.items():
        if other != name and folder.resolve().name in (other, layout.folder):
            title = LAYOUTS[name].folder
            raise DataError(f"{folder} is the folder of {layout.folder}, not of {title}; give the folder above it")


def rows_in(path: Path, header: tuple[str, ...] | None = None) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The numbered rows of a file; `header` names the columns of one that has no header line."""
    # Surplus fields are not an error here: they move the label, and the check of labels names the row.
    return iterate_rows(path, suffix=".tsv" if path.suffix == ".txt" else None, header=header, exact=False)


def columns_in(name: str, path: Path) -> Columns:
    """The columns of a task's file, told by its first row."""
    layout = LAYOUTS[name]
    known = [columns for columns in (layout.plain, layout.official) if columns is not None]
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
    raise DataError(f"{path}: {layout.folder} needs the columns {needed}; the columns are {have!r}")
