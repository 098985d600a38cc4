"""Files larger than memory: the result of each chunk is written as a part, and the parts are joined at the end.

A part is written whole or not at all, so a stopped run resumes with the first missing part.
"""

from __future__ import annotations

import csv
import gzip
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
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
        run: What identifies the run (model, columns): parts of another run are refused.
        chunk_size: Rows that are held in memory at once.
    """
    format_of(target)
    check_writable_file(target)
    parts = target.with_name(target.name + ".parts")
    _open_parts(parts, {**run, "source": str(source), "bytes": source.stat().st_size, "chunk_size": chunk_size})
    done, count = [], 0
    for number, chunk in enumerate(read_chunks(source, chunk_size)):
        part = parts / f"{number:06d}.jsonl"
        if not part.exists():
            write_text(part, "".join(map(_json_line, transform(chunk))))
        done.append(part)
        count += len(chunk)
    if not done:
        raise DataError(f"{source} has no rows; give a file with a header line and at least one row")
    _join(done, target)
    shutil.rmtree(parts)
    return count


def _open_parts(parts: Path, run: Mapping[str, Any]) -> None:
    """Makes the folder of parts, or makes sure that the one there belongs to the same run."""
    record = parts / "run.json"
    if record.exists() and json.loads(record.read_text(encoding="utf-8")) != json.loads(json.dumps(run)):
        raise DataError(f"{parts} holds parts of another run; remove it, or name another output file")
    write_text(record, json.dumps(run))


def _join(parts: Sequence[Path], target: Path) -> None:
    """Writes the rows of all parts to `target`, whole or not at all."""
    suffix, zipped = format_of(target)
    scratch = target.with_name(f".{target.name}.joining")
    # Only "\n" ends a line, whatever a text holds.
    rows = (json.loads(line) for part in parts for line in part.read_text(encoding="utf-8").split("\n")[:-1])
    try:
        if suffix == ".parquet":
            _write_parquet(scratch, rows)
        else:
            opener: Any = gzip.open if zipped else open
            with opener(scratch, "wt", encoding="utf-8", newline="") as file:
                file.writelines(map(_json_line, rows)) if suffix == ".jsonl" else _write_separated(file, rows, suffix)
        os.replace(scratch, target)
    finally:
        scratch.unlink(missing_ok=True)


def _json_line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"


def _write_separated(file: IO[str], rows: Iterator[dict[str, Any]], suffix: str) -> None:
    first = next(rows)
    form: dict[str, Any] = {}
    if suffix == ".tsv":
        form = {"delimiter": "\t", "quoting": csv.QUOTE_NONE, "quotechar": None}
    writer = csv.DictWriter(file, list(first), lineterminator="\n", **form)
    writer.writeheader()
    for row in chain([first], rows):
        if suffix == ".tsv":  # has no quotes: a tab or line break inside a field becomes a space
            row = {key: " ".join(value.split()) if isinstance(value, str) else value for key, value in row.items()}
        writer.writerow(row)


def _write_parquet(path: Path, rows: Iterator[dict[str, Any]]) -> None:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "data", "writing Parquet") from error
    first = pyarrow.Table.from_pylist(list(islice(rows, 4096)))
    with pyarrow.parquet.ParquetWriter(path, first.schema) as writer:
        writer.write_table(first)
        while batch := list(islice(rows, 4096)):
            writer.write_table(pyarrow.Table.from_pylist(batch, schema=first.schema))
