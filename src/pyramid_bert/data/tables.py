"""Texts and labels from CSV, TSV, JSONL and Parquet files, plain or gzipped. Every error names the file and the row."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ..errors import DataError, MissingExtraError

Text = str | tuple[str, str]
Label = str | int | float
FORMATS = (".csv", ".tsv", ".jsonl", ".parquet")


@dataclass(frozen=True)
class Table:
    """The rows of a data file.

    Attributes:
        texts: One text a row, or a pair of texts.
        labels: One label a row; empty when no label column was asked for.
    """

    texts: list[Text]
    labels: list[Label]


def read_table(
    path: str | Path,
    *,
    text_column: str = "text",
    pair_column: str | None = None,
    label_column: str | None = "label",
) -> Table:
    """The texts and labels of a file.

    Labels that are all whole numbers come back as ints, all numbers as floats, anything else as strings.

    Args:
        path: A .csv, .tsv, .jsonl or .parquet file; .gz may follow (but not for Parquet).
        text_column: Column of the text.
        pair_column: Column of the second text of a pair.
        label_column: Column of the label; None when there is none to read.
    """
    path = Path(path)
    texts: list[Text] = []
    labels: list[Any] = []
    for number, row in iterate_rows(path):
        where = f"{path}, row {number}"
        texts.append(text_in(row, text_column, pair_column, where))
        if label_column is not None:
            label = _cell(row, label_column, where)
            if label is None or label == "":
                raise DataError(f"{where}: no label in column {label_column!r}; fill it in or remove the row")
            labels.append(label)
    if not texts:
        raise DataError(f"{path} has no rows; give a file with a header line and at least one row")
    return Table(texts, _typed(labels))


def format_of(path: Path) -> tuple[str, bool]:
    """The format of a file by its name, as one of `FORMATS`, and whether it is gzipped."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    zipped = suffixes[-1:] == [".gz"]
    suffix = ((suffixes[:-1] if zipped else suffixes)[-1:] or [""])[0]
    if suffix not in FORMATS or (zipped and suffix == ".parquet"):
        raise DataError(f"cannot tell the format of {path}; name it {', '.join(FORMATS)}, with .gz after it if gzipped")
    return suffix, zipped


def iterate_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(row number from 1, row) for each row of a file of any format, one at a time."""
    if not path.is_file():
        raise DataError(f"no such file: {path}")
    suffix, zipped = format_of(path)
    if suffix == ".parquet":
        yield from _parquet_rows(path)
        return
    try:
        with _open(path, zipped) as file:
            yield from (_json_rows(file, path) if suffix == ".jsonl" else _separated_rows(file, suffix))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged: {error}; fetch it again") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text (byte {error.start}); convert it first") from error


def _open(path: Path, zipped: bool) -> IO[str]:
    if zipped:
        return io.TextIOWrapper(gzip.open(path), encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")


def _separated_rows(file: IO[str], suffix: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    # A field may be longer than the csv module's cautious default of 128 KB.
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    # In TSV files quotes mean nothing, as in GLUE's.
    form: dict[str, Any] = {} if suffix == ".csv" else {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
    yield from enumerate(csv.DictReader(file, **form), start=1)


def _json_rows(file: IO[str], path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{path}, row {number}: not JSON ({error.msg})") from error
        if not isinstance(row, dict):
            raise DataError(f"{path}, row {number}: expected a JSON object, got {type(row).__name__}")
        yield number, row


def _parquet_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        import pyarrow.lib
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "data", "reading Parquet") from error
    try:
        number = 0
        for batch in pyarrow.parquet.ParquetFile(path).iter_batches(batch_size=1024):
            for row in batch.to_pylist():
                number += 1
                yield number, row
    except pyarrow.lib.ArrowInvalid as error:
        raise DataError(f"{path} is not a Parquet file: {error}") from error


def text_in(row: Mapping[str, Any], text_column: str, pair_column: str | None, where: str) -> Text:
    """The text of a row, or its pair of texts; `where` names the row in errors."""
    first = _text(row, text_column, where)
    return first if pair_column is None else (first, _text(row, pair_column, where))


def _cell(row: Mapping[str, Any], column: str, where: str) -> Any:
    if column not in row:
        have = ", ".join(repr(name) for name in row if name is not None)
        raise DataError(f"{where}: no column {column!r}; the columns are {have}")
    return row[column]


def _text(row: Mapping[str, Any], column: str, where: str) -> str:
    value = _cell(row, column, where)
    if not isinstance(value, str):
        raise DataError(f"{where}: column {column!r} holds {value!r}, not text")
    if not value.strip():
        raise DataError(f"{where}: the text in column {column!r} is empty; fill it in or remove the row")
    return value


def _typed(labels: list[Any]) -> list[Label]:
    """Text from a CSV as ints or floats where every label is one."""
    for kind in (int, float):
        try:
            if all(isinstance(label, str) for label in labels):
                return [kind(label) for label in labels]
        except ValueError:
            continue
    return labels
