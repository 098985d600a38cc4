"""Markdown: tables, commands, and the parts of a page."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """A table; its first `left` columns are aligned to the left, the others to the right.

    Example:
        >>> print(table(["task", "points"], [["RTE", "1.5"]]))
        | task | points |
        |---|---:|
        | RTE | 1.5 |
    """
    marks = "|" + "---|" * left + "---:|" * (len(head) - left)
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, *rows)]
    return "\n".join([lines[0], marks, *lines[1:]])


def joined(parts: Iterable[str]) -> str:
    """The parts that are not empty, with an empty line between them."""
    return "\n\n".join(part.strip() for part in parts if part.strip())


def listed(values: Iterable[object]) -> str:
    """Different values with commas, in the order in which they come."""
    return ", ".join(dict.fromkeys(map(str, values)))


def described(machine: dict[str, Any]) -> str:
    """A machine and its versions in a sentence."""
    threads = f"{machine['threads']} thread{'' if machine['threads'] == 1 else 's'}"
    packages = {name: machine[name] for name in ("torch", "transformers")} | machine.get("runtimes", {})
    versions = ", ".join(f"{name} {version}" for name, version in packages.items())
    return f"{machine['cpu']} ({machine['capability']}), {threads}; {versions}."
