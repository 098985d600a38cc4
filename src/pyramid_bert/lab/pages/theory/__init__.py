"""docs/theory.md: one module a section, each with its COMMANDS (name of a result -> command) and `section()`."""

from __future__ import annotations

from typing import Any


def source(result: dict[str, Any]) -> str:
    """The command and the seed of a result."""
    seed = {**result.get("training", {}), **result}["seed"]
    return f"`{result['command']}`, seed {seed}."
