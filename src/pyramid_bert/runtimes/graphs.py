"""The loop on graphs of another runtime: stretches run there, and tokens are reduced between them. No torch.

Graphs take and give numpy arrays. The loop, the selection and the reductions are those of every other pass (`core`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.compiled import threads_at_most
from ..core.loop import Half, Plan, Recorder, Step, run
from ..core.reducer import Reducer
from ..core.tokens import Protected, Tokens
from ..errors import CheckpointError
from .blas import one_thread

# A compiled graph: arrays by name -> arrays, which may be overwritten by the next call of the same thread.
Graph = Callable[[dict[str, NDArray[Any]]], Sequence[NDArray[Any]]]
End = tuple[int, Half]  # the layer and half after which a stretch ends


@dataclass(frozen=True, eq=False)
class Graphs:
    """A model as graphs of a runtime. Threads may share it if they may share its graphs.

    Attributes:
        plan: Which steps a pass takes.
        reducer: Which tokens stay; None if none are ever reduced.
        stretches: The end of each stretch -> its graph, in order. The last gives logits.
        types: Whether the first graph takes token types.
        positions: Whether the other graphs take the positions of tokens.
        threads: Of the compiled loops; with a number, BLAS has one thread. None for as many as torch would use.
    """

    plan: Plan
    reducer: Reducer | None
    stretches: dict[End, Graph]
    types: bool
    positions: bool = False
    threads: int | None = None

    def __call__(
        self,
        ids: NDArray[Any],
        types: NDArray[Any] | None,
        counts: Sequence[int],
        record: Recorder | None = None,
        *,
        seed: int = 0,
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """The logits (B, C) and the CLS vectors (B, D).

        Args:
            ids: (B, N), padded on the right.
            types: (B, N) token types; None for 0.
            counts: Real tokens of each row.
            record: What to record.
            seed: Seed of random choices.
        """
        n = ids.shape[1]
        mask = None if min(counts) == n else np.arange(n) < np.array(counts)[:, None]
        protection = None if self.reducer is None else self.reducer.protection
        protected = None if protection is None else Protected.of(protection.of(ids, types, mask))
        tokens = Tokens(ids, list(counts), mask, protected=protected)
        record = Recorder() if record is None else record
        record.start(tokens, n)
        halves = _Running(self, types if types is not None or not self.types else np.zeros_like(ids))
        # What is recorded multiplies matrices as well. Without a limit, only choosing is kept to one thread.
        with threads_at_most(self.threads), nullcontext() if self.threads is None else one_thread():
            run(tokens, self.plan.steps(counts, seed=seed), halves, self._reduce, record)
        assert halves.answer is not None
        return halves.answer

    def _reduce(self, tokens: Tokens, step: Step) -> Any:
        if (step.number, step.half) not in self.stretches:
            at = f"{step.half} of layer {step.number}" if step.number else "input"
            raise CheckpointError(f"tokens are reduced after the {at}, where no graph ends; export the model again")
        assert self.reducer is not None
        with one_thread():
            return self.reducer(tokens, step)


class _Running:
    """Runs a stretch when the loop reaches its end. Implements `core.loop.Halves` for one pass."""

    halves: tuple[Half, ...] = ()

    def __init__(self, graphs: Graphs, types: NDArray[Any] | None) -> None:
        self._graphs, self._types = graphs, types
        self._left = len(graphs.stretches)
        self.answer: tuple[NDArray[Any], NDArray[Any]] | None = None

    def run(self, step: Step, tokens: Tokens) -> Tokens:
        graph = self._graphs.stretches.get((step.number, step.half))
        if graph is None:
            return tokens
        given = {"given": tokens.hidden, "bias": _bias(tokens)}
        first_of_all = self._left == len(self._graphs.stretches)
        if first_of_all and self._types is not None:
            given["types"] = self._types
        if not first_of_all and self._graphs.positions:
            given["positions"] = np.broadcast_to(tokens.places(), tokens.hidden.shape[:2])
        self._left -= 1
        first, *others = graph(given)
        if not self._left:
            self.answer = first.copy(), others[0].copy()  # a runtime may use their memory again
            return replace(tokens, hidden=others[0][:, None])
        received = others.pop(0) if others and self._graphs.plan.voters is not None else None
        compared = others[0] if others else None
        return replace(tokens, hidden=first, received=received, compared=compared)


def _bias(tokens: Tokens) -> NDArray[Any]:
    """(B, N) what is added to the scores of keys, in fp32."""
    rows, n = tokens.hidden.shape[:2]
    plain = replace(tokens, hidden=np.empty((rows, n, 0), dtype=np.float32))  # before the first stretch they are ids
    bias = plain.key_bias()
    return np.zeros((rows, n), dtype=np.float32) if bias is None else bias[:, 0, 0]
