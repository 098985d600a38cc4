"""How fast a dense model is in the fastest runtime, for pages whose speed-ups compare torch with torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..markdown import described, joined, listed, table
from .commands import Commands
from .performance import fastest, place, texts

_PAGE = "performance.md#over-the-fastest-dense-runtime"


def torch_against_torch(root: Path) -> str:
    """What baseline d is over c where both were measured, and where that is; empty without such measurements."""
    made = [one for one in Commands(root, "bench").made("runtimes-") if one["batch_size"] != 1]
    by_texts: dict[str, list[Mapping[str, Any]]] = {}
    for one in made:
        by_texts.setdefault(texts(one), []).append(one)
    rows = []
    for name, some in by_texts.items():
        d = [fastest(one, "dense") for one in some]
        rows.append([name, listed(map(place, d)), speeds([entry["over_c"] for entry in d])])
    if not rows:
        return ""
    found = table(["texts", "d, the fastest dense", "over c, dense in torch"], rows, left=2)
    where = f"Dense over dense, length-sorted batches of 32, on {described(made[0]['machine'])}"
    words = f"[Performance]({_PAGE}) has the pyramids there, over d; `bench --runtimes` measures both on your machine."
    return joined([found, f"{where} {words}"])


def speeds(found: list[float]) -> str:
    """Speed-ups of several runs in one cell.

    Example:
        >>> speeds([5.91, 5.38]), speeds([8.17])
        ('5.4x to 5.9x', '8.2x')
    """
    ends = (f"{min(found):.1f}x", f"{max(found):.1f}x")
    return " to ".join(dict.fromkeys(ends))
