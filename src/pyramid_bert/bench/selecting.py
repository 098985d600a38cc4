"""What choosing tokens and moving them takes of a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any


def share_selecting(encoder: Any, run: Callable[[], object]) -> float:
    """The share of a run's time that goes into choosing tokens and moving them: the median of three runs."""
    shares = []
    for _ in range(3):
        with _timed_shrinking(encoder) as spent:
            start = time.perf_counter()
            run()
            shares.append(spent[0] / (time.perf_counter() - start))
    return median(shares)


@contextmanager
def _timed_shrinking(encoder: Any) -> Iterator[list[float]]:
    """Adds up the seconds that `encoder` spends in choosing and moving inside of the block."""
    spent, original = [0.0], encoder.shrink

    def timed(tokens: Any, *args: Any) -> None:
        before = tokens.hidden  # held on to: to give back the state before it is no work of choosing, every layer does
        start = time.perf_counter()
        try:
            original(tokens, *args)
        finally:
            spent[0] += time.perf_counter() - start
        del before

    encoder.shrink = timed
    try:
        yield spent
    finally:
        del encoder.shrink
