"""What commands share that write the rows of a file of any size with new columns: resumable, and refused early."""

from __future__ import annotations

import argparse
import glob
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .options import say


def write_rows(
    args: argparse.Namespace,
    rows: int,
    columns: Callable[[list[tuple[int, Mapping[str, Any]]]], Sequence[Mapping[str, Any]]],
    run: Mapping[str, Any],
    advance: Callable[..., None],
    *,
    chunk_size: int,
) -> None:
    """Writes the rows of --data to --out, each with the columns that are added to it.

    Args:
        args: The call, with `data`, `out` and `restart`.
        rows: How many rows the file has.
        columns: From numbered rows to what is added to each.
        run: What a stopped run must have in common with this one to be resumed.
        advance: Moves the progress by a number of rows.
        chunk_size: Rows that are held in memory at once.
    """
    from ..text.stream import transform_file

    def resumed(done: int) -> None:
        say(f"resuming: {done:,} of {rows:,} rows are done")
        advance(done)

    source, target = Path(args.data), Path(args.out)
    args.goes_on = lambda: any(target.parent.glob(f"{glob.escape(target.name)}.parts/*.jsonl"))
    transform_file(source, target, columns, run=run, chunk_size=chunk_size, restart=args.restart, resumed=resumed)
    say(f"{rows} rows in {args.out}")


def digests(path: str) -> tuple[dict[str, str], str | None]:
    """A digest of each file of a model, and that of its certificate. An exported model needs no torch for it."""
    from ..export.classifier import is_exported
    from ..resuming import digests_of

    if is_exported(path):
        return digests_of(Path(path).iterdir()), None
    from ..certificate import FILE
    from ..families.loading import model_digests

    model = model_digests(path)
    certificate = model.pop(FILE, None)
    return model, certificate
