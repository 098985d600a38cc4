"""Files larger than memory: read in chunks, each result written as a part, the parts joined at the end.

A part is written whole or not at all, so a run that was stopped goes on with the first part that is missing.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

from ..errors import DataError, MissingExtraError
from ..files import check_writable_file, write_text
from .tables import format_of, iterate_rows

Rows = list[tuple[int, Mapping[str, Any]]]


def read_chunks(path: Path, size: int) -> Iterator[Rows]:
    """The rows of a file with their numbers, `size` at a time."""
    rows = iterate_rows(path)
    while chunk := list(islice(rows, size)):
        yield chunk


def transform_file(
    source: Path,
    target: Path,
    transform: Callable[[Rows], Sequence[Mapping[str, Any]]],
    *,
    run: Mapping[str, Any],
    chunk_size: int = 4096,
) -> int:
    """Writes `transform(rows)` of every chunk of `source` to `target`, and returns the number of rows.

    Args:
        source: Any format that can be read.
        target: Any of the same formats.
        transform: From numbered rows to result rows, all with the same keys.
        run: What makes this run this one (model, columns): parts of another run are refused.
        chunk_size: Rows that are held in memory at once.
    """
    format_of(target)
    check_writable_file(target)
    parts = target.with_name(target.name + ".parts")
    _open_parts(parts, {**run, "source": str(source), "bytes": source.stat().st_size, "chunk_size": chunk_size})
    done = []
    for number, chunk in enumerate(read_chunks(source, chunk_size)):
        part = parts / f"{number:06d}.jsonl"
        if not part.exists():
            write_text(part, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in transform(chunk)))
        done.append(part)
    if not done:
        raise DataError(f"{source} has no rows; give a file with a header line and at least one row")
    count = _join(done, target)
    shutil.rmtree(parts)
    return count


def _open_parts(parts: Path, run: Mapping[str, Any]) -> None:
    """Makes the folder of parts, or makes sure that the one there belongs to the same run."""
    record = parts / "run.json"
    if record.exists() and json.loads(record.read_text(encoding="utf-8")) != json.loads(json.dumps(run)):
        raise DataError(f"{parts} holds parts of another run; remove it, or name another output file")
    write_text(record, json.dumps(run))


def _join(parts: Sequence[Path], target: Path) -> int:
    """Writes the rows of all parts to `target`, whole or not at all, and returns their number."""
    suffix, zipped = format_of(target)
    scratch = target.with_name(f".{target.name}.joining")
    rows = (json.loads(line) for part in parts for line in _lines(part))
    try:
        if suffix == ".parquet":
            count = _write_parquet(scratch, rows)
        else:
            opener: Any = gzip.open if zipped else open
            with opener(scratch, "wt", encoding="utf-8", newline="") as file:
                count = _write_lines(file, rows, suffix)
        os.replace(scratch, target)
    finally:
        scratch.unlink(missing_ok=True)
    return count


def _lines(path: Path) -> Iterator[str]:
    with path.open(encoding="utf-8", newline="\n") as file:  # only "\n" ends a line, whatever a text holds
        yield from file


def _write_lines(file: IO[str], rows: Iterator[dict[str, Any]], suffix: str) -> int:
    writer: Any = None
    count = 0
    for row in rows:
        count += 1
        if suffix == ".jsonl":
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            continue
        if suffix == ".tsv":  # plain tabs, no quotes: a tab or line break inside of a field becomes a space
            row = {key: " ".join(str(value).split()) if isinstance(value, str) else value for key, value in row.items()}
        if writer is None:
            form: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None}
            form = form if suffix == ".tsv" else {}
            writer = csv.DictWriter(file, list(row), lineterminator="\n", **form)
            writer.writeheader()
        writer.writerow(row)
    return count


def _write_parquet(path: Path, rows: Iterator[dict[str, Any]]) -> int:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "data", "writing Parquet") from error
    writer, count = None, 0
    while batch := list(islice(rows, 4096)):
        table = pyarrow.Table.from_pylist(batch, schema=None if writer is None else writer.schema)
        writer = writer or pyarrow.parquet.ParquetWriter(path, table.schema)
        writer.write_table(table)
        count += len(batch)
    if writer is not None:
        writer.close()
    return count
