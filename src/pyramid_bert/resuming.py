"""Which run a folder of half-done work belongs to: a run resumes only what it began itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from .boundary import read_object
from .errors import PyramidError

RUN = "run.json"  # identifies the run that a folder belongs to
START_OVER = "pass --restart to start over (in Python: remove the folder)"
_CHUNK = 1 << 20


def digest_of(path: Path) -> str:
    """A digest of what a file holds; its name and place make no difference."""
    found = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            found.update(chunk)
    return found.hexdigest()


def digests_of(paths: Iterable[Path]) -> dict[str, str]:
    """A digest of each of the files among these paths, by its name."""
    return {path.name: digest_of(path) for path in sorted(paths) if path.is_file()}


def check_same_run(
    record: Path, run: Mapping[str, Any], error: type[PyramidError], *, found: Collection[str] = ()
) -> dict[str, Any]:
    """What the record of a stopped run holds; raises unless it says what `run` says.

    Args:
        record: A JSON file, as `run_text` writes it.
        run: What identifies a run, by the words that name it to the user.
        error: What is raised; the message says what differs and what to do.
        found: Keys that hold a result of the run, which are not compared.
    """
    before = read_object(record, error, START_OVER)
    now = json.loads(run_text(run))
    missing = object()
    changed = [key for key in sorted({*before, *now} - {*found}) if before.get(key, missing) != now.get(key, missing)]
    if changed:
        raise error(
            f"{record.parent} holds the work of another run (different: {', '.join(changed)[:200]}); give the command "
            f"as it was, name another output, or {START_OVER}"
        )
    return before


def run_text(run: Mapping[str, Any]) -> str:
    """The record of a run, as JSON."""
    return json.dumps(run, indent=1)
