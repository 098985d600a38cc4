"""Texts and labels from CSV, TSV, JSONL and Parquet files, plain or gzipped. Every error names the file and the row."""

from __future__ import annotations

import csv
import gzip
import json
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ..boundary import MAX_DEPTH, one_line, too_deep, translating
from ..errors import DataError, MissingExtraError

Text = str | tuple[str, str]
Label = str | int | float
NumberedRows = Iterable[tuple[int, Mapping[str, Any]]]  # numbers from 1
FORMATS = (".csv", ".tsv", ".jsonl", ".parquet")


@dataclass(frozen=True)
class Table:
    """The rows of a data file.

    Attributes:
        texts: One text per row, or a pair of texts.
        labels: One label per row; empty when no label column was asked for.
        source: Where the rows come from, for error messages.
        numbers: The number of each row there, from 1.

    Example:
        >>> Table(["fine", "dull"], [1, 0], source="films.csv", numbers=[4, 7]).where(1)
        'films.csv, row 7'
    """

    texts: list[Text]
    labels: list[Label]
    source: str = field(default="data", compare=False)
    numbers: Sequence[int] = field(default=(), compare=False, repr=False)

    def where(self, i: int) -> str:
        """The place of row `i` (from 0) in the file it comes from, as error messages name it."""
        return f"{self.source}, row {self.numbers[i] if self.numbers else i + 1}"


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
    return table_of(iterate_rows(Path(path)), str(path), text_column, pair_column, label_column)


def table_of(
    rows: NumberedRows, source: str, text_column: str, pair_column: str | None, label_column: str | None
) -> Table:
    """The texts and labels of numbered rows; `source` names where they come from."""
    texts: list[Text] = []
    labels: list[Any] = []
    numbers: list[int] = []
    for number, row in rows:
        where = f"{source}, row {number}"
        texts.append(text_in(row, text_column, pair_column, where))
        numbers.append(number)
        if label_column is not None:
            label = cell_in(row, label_column, where)
            if label is None or label == "":
                raise DataError(f"{where}: no label in column {label_column!r}; fill it in or remove the row")
            labels.append(label)
    if not texts:
        raise DataError(f"{source} has no rows; give a file with a header line and at least one row")
    raw = Table(texts, labels, source, numbers)
    return Table(texts, _typed(labels, raw.where), source, numbers)


def format_of(path: Path) -> tuple[str, bool]:
    """The format of a file by its name, as one of `FORMATS`, and whether it is gzipped."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    zipped = suffixes[-1:] == [".gz"]
    suffix = ((suffixes[:-1] if zipped else suffixes)[-1:] or [""])[0]
    if suffix not in FORMATS or (zipped and suffix == ".parquet"):
        raise DataError(f"cannot tell the format of {path}; name it {', '.join(FORMATS)}, with .gz after it if gzipped")
    return suffix, zipped


def iterate_rows(
    path: Path, *, suffix: str | None = None, header: Sequence[str] | None = None, exact: bool = True
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(row number from 1, row) for each row of a file of any format, one at a time.

    Args:
        path: The file.
        suffix: Its format, as one of `FORMATS`, if the name does not say it.
        header: The columns of a CSV or TSV file that has no header line.
        exact: Refuse rows with more fields than columns: an unquoted separator in a text moves the later fields.
    """
    if path.is_dir():
        raise DataError(f"{path} is a folder; name a file in it, or a GLUE task with --task NAME --data {path}")
    if not path.is_file():
        raise DataError(f"{path} is a folder; name a file" if path.is_dir() else f"no such file: {path}")
    suffix, zipped = format_of(path) if suffix is None else (suffix, False)
    if suffix == ".parquet":
        yield from _parquet_rows(path)
        return
    number = 0
    try:
        opener: Any = gzip.open if zipped else open
        with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
            # A field may be longer than the csv module's cautious default of 128 KB.
            csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
            # In TSV files quotes mean nothing, as in GLUE's.
            form: dict[str, Any] = {} if suffix == ".csv" else {"delimiter": "\t", "quoting": csv.QUOTE_NONE}
            rows = _json_rows(file, path) if suffix == ".jsonl" else _separated_rows(file, path, header, form)
            for number, row in rows:
                if exact:
                    _check_surplus(row, suffix, f"{path}, row {number}")
                yield number, row
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is damaged after row {number}: {error}; fetch it again") from error
    except (csv.Error, OSError) as error:
        raise DataError(f"{path} cannot be read after row {number}: {one_line(error)}") from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is not UTF-8 text (byte {error.start}, after row {number}); convert it first"
        ) from error


def _check_surplus(row: Mapping[Any, Any], suffix: str, where: str) -> None:
    if None in row:  # where the csv module keeps the fields that it has no column for
        hint = {
            ".csv": "put texts that hold commas into double quotes",
            ".tsv": "a text cannot hold a tab, quoted or not: write a space instead",
        }
        columns = len(row) - 1
        raise DataError(f"{where}: {columns + len(row[None])} fields for {columns} columns; {hint[suffix]}")


def _json_rows(file: IO[str], path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise DataError(f"{path}, row {number}: not JSON ({error.msg})") from error
        except (ValueError, RecursionError) as error:  # a number of thousands of digits; brackets without end
            raise DataError(f"{path}, row {number}: not JSON that can be read ({one_line(error)})") from error
        if not isinstance(row, dict):
            raise DataError(f"{path}, row {number}: expected a JSON object, got {type(row).__name__}")
        if line.count("[") + line.count("{") > MAX_DEPTH and too_deep(row):
            raise DataError(f"{path}, row {number}: nested more than {MAX_DEPTH} levels deep")
        if "\\ud" in line.lower():  # an escape that may be half of a character
            try:
                json.dumps(row, ensure_ascii=False).encode()
            except UnicodeEncodeError as error:
                raise DataError(
                    f"{path}, row {number}: holds half of a character, {error.object[error.start]!r}; such text cannot "
                    "be written as UTF-8: correct it where it was made"
                ) from error
        yield number, row


def _separated_rows(
    file: IO[str], path: Path, header: Sequence[str] | None, form: Mapping[str, Any]
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    reader = csv.DictReader(file, header, **form)
    check_columns(reader.fieldnames or (), path)
    yield from enumerate(reader, start=1)


def check_columns(names: Iterable[str], path: Path) -> None:
    """Raises if two columns of a file have the same name: one of them would be lost."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(f"{path} has two columns named {twice[0]!r}; rename one of them")


def _parquet_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "data", "reading Parquet") from error
    damaged = translating(DataError, f"{path} is not a Parquet file, or damaged", "write it again")
    with damaged, pyarrow.parquet.ParquetFile(path) as file:
        check_columns(file.schema_arrow.names, path)
        number = 0
        for batch in file.iter_batches(batch_size=1024):
            for row in batch.to_pylist():
                number += 1
                yield number, row


def text_in(row: Mapping[str, Any], text_column: str, pair_column: str | None, where: str) -> Text:
    """The text of a row, or its pair of texts; `where` names the row in errors."""
    first = _text(row, text_column, where)
    return first if pair_column is None else (first, _text(row, pair_column, where))


def cell_in(row: Mapping[str, Any], column: str, where: str) -> Any:
    """What a row holds in a column; raises an error that lists the columns if it has none of that name."""
    if column not in row:
        have = ", ".join(repr(name) for name in row if name is not None)
        raise DataError(f"{where}: no column {column!r}; the columns are {have}: name the one to read")
    return row[column]


def _text(row: Mapping[str, Any], column: str, where: str) -> str:
    value = cell_in(row, column, where)
    if value is None:
        raise DataError(f"{where}: nothing in column {column!r}; is the row cut short?")
    if not isinstance(value, str):
        raise DataError(f"{where}: column {column!r} holds {value!r}, not text")
    if not value.strip():
        raise DataError(f"{where}: the text in column {column!r} is empty; fill it in or remove the row")
    return value


def _typed(labels: list[Any], where: Callable[[int], str]) -> list[Label]:
    """Labels that are all numbers as ints, or as floats where one of them is."""
    values = [_number(label) for label in labels]
    numbers = [value for value in values if value is not None]
    if len(numbers) == len(values):
        whole = all(isinstance(value, int) for value in numbers)
        return [value if whole else float(value) for value in numbers]
    decimal = next((i for i, value in enumerate(values) if isinstance(value, float)), None)
    if decimal is not None:
        word = values.index(None)
        raise DataError(
            f"{where(word)}: the label {labels[word]!r} is not a number, but {labels[decimal]!r} in row "
            f"{where(decimal).rpartition(' ')[2]} is one; give only numbers (regression) or only words (classes)"
        )
    return labels


def _number(label: Any) -> int | float | None:
    """A label as a number, or None if it is none."""
    if isinstance(label, bool | int | float):
        return None if isinstance(label, bool) else label
    for kind in (int, float):
        with suppress(TypeError, ValueError):
            return kind(label)
    return None
