"""What comes from outside: JSON files read within limits, and errors of other libraries told in one line."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from .errors import PyramidError

MAX_BYTES = 1 << 28  # a tokenizer of a million words has about 80 MB
MAX_DEPTH = 32
MAX_WHOLE = 1 << 53  # larger integers are not what a float of the same file would say


def read_object(path: Path, error: type[PyramidError], remedy: str) -> dict[str, Any]:
    """The object in a JSON file, with finite numbers and limited depth.

    Args:
        path: The file.
        error: What is raised for a file that is missing, damaged or out of bounds.
        remedy: What to do about it.
    """
    if path.is_file() and (size := path.stat().st_size) > MAX_BYTES:
        raise error(f"{path} has {size:,} bytes, and at most {MAX_BYTES:,} are read; {remedy}")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise error(f"cannot read {path}: {problem.strerror or problem}; {remedy}") from problem
    except (ValueError, RecursionError) as problem:
        raise error(f"{path} is damaged: {one_line(problem)}; {remedy}") from problem
    if found := _unfit(data):
        raise error(f"{path} is damaged: {found}; {remedy}")
    if not isinstance(data, dict):
        raise error(f"{path} is damaged: it holds {_kind(data)} in place of an object; {remedy}")
    return data


def _unfit(data: Any) -> str | None:
    """Why JSON data cannot be used, or None."""
    for level in islice(_levels(data), MAX_DEPTH + 1):
        for value in level:
            if isinstance(value, float) and not math.isfinite(value):
                return f"it holds the number {value}"
            if isinstance(value, int) and abs(value) > MAX_WHOLE:
                return f"it holds the number {str(value)[:40]}"
    return f"it is nested more than {MAX_DEPTH} levels deep" if too_deep(data) else None


def too_deep(data: Any) -> bool:
    """Whether JSON data is nested deeper than we read."""
    return next(islice(_levels(data), MAX_DEPTH + 1, None), None) is not None


def _levels(data: Any) -> Iterator[list[Any]]:
    """The values at each level of nesting, from the outermost."""
    level = [data]
    while level:
        yield level
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]


def _kind(value: Any) -> str:
    names = {list: "a list", str: "a string", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), "null")


def one_line(error: BaseException) -> str:
    """The first line of an error's message, or its type where it has none."""
    lines = str(error).strip().splitlines()
    return printable(lines[0])[:300] if lines else type(error).__name__


def printable(text: str) -> str:
    r"""`text` on one line, with everything escaped that a terminal could take for a command.

    Example:
        >>> printable("two\nlines and a \x1b[31mcolour")
        'two\\nlines and a \\x1b[31mcolour'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


@contextmanager
def translating(error: type[PyramidError], what: str, remedy: str) -> Iterator[None]:
    """Turns whatever another library raises in the block into `error`: what was done, why it failed, what to do.

    Interruptions and a lack of memory pass. So do errors of ours.
    """
    try:
        yield
    except (PyramidError, KeyboardInterrupt, SystemExit, GeneratorExit, MemoryError):
        raise
    except BaseException as problem:  # a Rust panic in tokenizers or safetensors derives from BaseException
        raise error(f"{what}: {one_line(problem)}; {remedy}") from problem
