"""How many processors there are for us, and what they can do."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
_VNNI = {"avx512_vnni", "avx_vnni", "amx_int8"}  # products of 8-bit integers, added in 32 bits
_BF16 = {"avx512_bf16", "amx_bf16"}


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def instructions() -> tuple[str, ...] | None:
    """The instructions for bfloat16 and 8-bit integers that this processor has; None where the system does not tell.

    Linux tells for x86.
    """
    try:
        lines = CPUINFO.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return None
    flags = next((line.partition(":")[2].split() for line in lines if line.startswith("flags")), None)
    return None if flags is None else tuple(sorted((_VNNI | _BF16) & set(flags)))


def has_vnni(found: tuple[str, ...] | None) -> bool:
    """Whether instructions of a processor are for 8-bit integers; yes if they are not known.

    Example:
        >>> has_vnni(("avx512_bf16", "avx512_vnni")), has_vnni(()), has_vnni(None)
        (True, False, True)
    """
    return found is None or bool(_VNNI & set(found))
