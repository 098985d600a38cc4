"""docs/speedup.md: what its template computes from the measurements."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from .elsewhere import torch_against_torch


def names(root: Path) -> dict[str, Any]:
    """What the template uses that depends on the repository."""
    return {"torch_against_torch": partial(torch_against_torch, root)}
