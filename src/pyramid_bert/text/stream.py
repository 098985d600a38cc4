"""Files larger than memory: the columns added to each chunk are written as a part, and joined with the rows at the end.

A part is written whole or not at all, so a stopped run resumes with the first missing part.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import IO, Any
from uuid import UUID

from ..boundary import one_line
from ..errors import DataError, MissingExtraError
from ..files import check_not_input, check_writable_file, only_writer, replacing_file, write_text
from ..resuming import RUN, START_OVER, check_same_run, digest_of, run_text
from .tables import format_of, iterate_rows

Rows = list[tuple[int, Mapping[str, Any]]]
_SHOWN_AS_TEXT = (date, time, timedelta, Decimal, UUID)  # what Parquet has, and JSON has not


def read_chunks(path: Path, size: int) -> Iterator[Rows]:
    """The rows of a file with their numbers, `size` at a time."""
    rows = iterate_rows(path)
    while chunk := list(islice(rows, size)):
        yield chunk


def check_output(source: Path, target: Path) -> None:
    """Raises unless the rows of `source` can be written to `target`: a format we write, and not the input itself."""
    format_of(target)
    check_writable_file(target)
    check_not_input(target, source)


def transform_file(
    source: Path,
    target: Path,
    columns: Callable[[Rows], Sequence[Mapping[str, Any]]],
    *,
    run: Mapping[str, Any],
    chunk_size: int = 4096,
    restart: bool = False,
    resumed: Callable[[int], None] = lambda rows: None,
) -> int:
    """Writes the rows of `source` to `target`, each with the columns that are added to it; returns their number.

    Args:
        source: Any format that can be read.
        target: Any of the same formats.
        columns: From numbered rows to what is added to each.
        run: What else identifies the run (model, settings), by the words that name it to the user. The work of a
            run that differs, also in the content of `source`, is refused.
        chunk_size: Rows that are held in memory at once.
        restart: Throw away what a stopped run left.
        resumed: Called with the number of rows that a stopped run has done, if there are any.
    """
    check_output(source, target)
    with only_writer(target):
        parts = target.with_name(target.name + ".parts")
        whole = {**run, "data": digest_of(source), "rows in a part": chunk_size}
        done, count = _open_parts(parts, whole, restart), 0
        if done:
            resumed(sum(done))
        for number, chunk in enumerate(read_chunks(source, chunk_size)):
            if number >= len(done):
                _write_part(parts, number, columns(chunk))
            count += len(chunk)
        if not count:
            raise DataError(f"{source} has no rows; give a file with a header line and at least one row")
        if digest_of(source) != whole["data"]:
            raise DataError(f"{source} changed while it was read; {START_OVER}")
        _join(source, parts, chunk_size, target)
        shutil.rmtree(parts)
    return count


# ---- parts ----


def _open_parts(parts: Path, run: Mapping[str, Any], restart: bool) -> list[int]:
    """Makes the folder of parts, or checks that the one there is of this run; returns the rows of each part done."""
    record = parts / RUN
    if restart and parts.exists():
        shutil.rmtree(parts)
    if any(parts.glob("*.jsonl")):
        check_same_run(record, run, DataError)
    else:
        write_text(record, run_text(run))
    done: list[int] = []
    while (answers := _read_part(parts, len(done))) is not None:
        done.append(len(answers))
    return done


def _write_part(parts: Path, number: int, answers: Sequence[Mapping[str, Any]]) -> None:
    text = "".join(map(_json_line, answers))
    write_text(_part(parts, number), text + _seal(text))


def _read_part(parts: Path, number: int) -> list[dict[str, Any]] | None:
    """What a part holds; None where it is missing or damaged, so that it is made again."""
    try:
        data = _part(parts, number).read_bytes()
        *lines, seal = data.decode("utf-8").split("\n")  # only "\n" ends a line, whatever a label holds
        if seal != _seal("".join(line + "\n" for line in lines)):
            return None
        return [json.loads(line) for line in lines]
    except (OSError, ValueError):
        return None


def _part(parts: Path, number: int) -> Path:
    return parts / f"{number:06d}.jsonl"


def _seal(text: str) -> str:
    """The last line of a part, by which damage shows."""
    return hashlib.blake2b(text.encode("utf-8"), digest_size=16).hexdigest()


# ---- the output ----


def _join(source: Path, parts: Path, chunk_size: int, target: Path) -> None:
    """Writes all rows with their new columns to `target`, whole or not at all."""

    def chunks() -> Iterator[list[dict[str, Any]]]:
        for number, chunk in enumerate(read_chunks(source, chunk_size)):
            answers = _read_part(parts, number)
            if answers is None or len(answers) != len(chunk):
                raise DataError(f"{_part(parts, number)} was changed by something else; give the command again")
            yield [{**row, **answer} for (_, row), answer in zip(chunk, answers, strict=True)]

    suffix, zipped = format_of(target)
    with replacing_file(target) as scratch:
        if suffix == ".parquet":
            _write_parquet(scratch, chunks, target)
            return
        opener: Any = gzip.open if zipped else open
        with opener(scratch, "wt", encoding="utf-8", newline="") as file:
            if suffix == ".jsonl":
                file.writelines(_json_line(row) for chunk in chunks() for row in chunk)
            else:
                _write_separated(file, chunks, suffix)


Chunks = Callable[[], Iterator[list[dict[str, Any]]]]


def _columns(chunks: Chunks) -> list[str]:
    """The columns of all rows, in the order in which they come: rows of JSON lines may have different ones."""
    return list(dict.fromkeys(name for chunk in chunks() for row in chunk for name in row))


def _json_line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False, default=_as_text) + "\n"


def _as_text(value: Any) -> str:
    if isinstance(value, _SHOWN_AS_TEXT):
        return str(value)
    raise DataError(f"a column holds {value!r:.80}, which only Parquet can hold; name the output .parquet")


def _write_separated(file: IO[str], chunks: Chunks, suffix: str) -> None:
    names, tabs = _columns(chunks), suffix == ".tsv"
    form: dict[str, Any] = {"quoting": csv.QUOTE_NONE, "quotechar": None, "delimiter": "\t"} if tabs else {}
    plain = csv.writer(file, lineterminator="\n", **form)
    quoted = plain if tabs else csv.writer(file, lineterminator="\n", quoting=csv.QUOTE_ALL)

    def write(fields: list[Any]) -> None:
        if tabs:  # has no quotes: a tab or line break inside a field becomes a space
            fields = [" ".join(field.split()) if isinstance(field, str) else field for field in fields]
        # The csv module quotes no field because of a lone carriage return, but reads one as the end of a row.
        (quoted if any(isinstance(field, str) and "\r" in field for field in fields) else plain).writerow(fields)

    write(list(names))
    for chunk in chunks():
        for row in chunk:
            write([_field(row.get(name)) for name in names])


def _field(value: Any) -> Any:
    """A value as a CSV file holds it; lists and objects as JSON."""
    if isinstance(value, dict | list | bytes):
        return json.dumps(value, ensure_ascii=False, default=_as_text)
    return value


def _write_parquet(path: Path, chunks: Chunks, target: Path) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "data", "writing Parquet") from error

    schema, where = pyarrow.schema([(name, pyarrow.null()) for name in _columns(chunks)]), ""
    try:
        rows = 0
        for chunk in chunks():
            found = []
            for name in schema.names:
                where = f"column {name!r} in rows {rows + 1} to {rows + len(chunk)}: "
                found.append((name, pyarrow.array([row.get(name) for row in chunk]).type))
            schema = pyarrow.unify_schemas([schema, pyarrow.schema(found)], promote_options="permissive")
            rows += len(chunk)
        where = ""
        with pyarrow.parquet.ParquetWriter(path, schema) as writer:
            for chunk in chunks():
                writer.write_table(pyarrow.Table.from_pylist(chunk, schema=schema))
    except (pyarrow.ArrowException, OverflowError) as error:  # values of different kinds, for example
        raise DataError(f"cannot write {target}: {where}{one_line(error)}; name the output .jsonl") from error
