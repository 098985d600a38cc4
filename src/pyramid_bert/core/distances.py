"""Pairwise distances between the tokens of a row, in full precision; from lookup tables when available (`tables`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

from ..errors import UnknownNameError
from . import arrays, compiled
from .arrays import Array

if TYPE_CHECKING:
    from .tables import Sums

Metric = Literal["euclidean", "cosine"]
METRICS: tuple[str, ...] = ("euclidean", "cosine")

# On a CPU the Gram matrices of a part of the batch have at most this many numbers, to stay in the cache; a part has at
# least one row. They are computed in strips of `_STRIP` tokens: what lies below the diagonal is copied.
_NUMBERS_AT_A_TIME = 1 << 18
_STRIP = 128
_WORTH_THREADS = 1 << 25  # multiply-accumulates: about a millisecond of work
_LEAST = 1e-12  # a vector that is shorter has no direction


@dataclass(frozen=True, eq=False)
class Gram:
    """The inner products (b, N, N) of the tokens of b rows, with CLS as the origin."""

    matrix: Array

    @classmethod
    def of(cls, x: Array) -> Gram:
        """The inner products of `x` (b, N, D)."""
        n = x.shape[1]
        if not arrays.on_cpu(x) or n <= _STRIP:
            return cls(x @ x.swapaxes(1, 2))
        matrix = arrays.unset((len(x), n, n), x)
        for start in range(0, n, _STRIP):
            end = min(start + _STRIP, n)
            arrays.multiply_into(matrix[:, start:end, start:], x[:, start:end], x[:, start:].swapaxes(1, 2))
            matrix[:, end:, start:end] = matrix[:, start:end, end:].swapaxes(1, 2)
        return cls(matrix)

    @property
    def source(self) -> Any:
        """The matrix, for compiled loops."""
        return arrays.as_numpy(self.matrix)

    @cached_property
    def squares(self) -> Array:
        """(b, N): the diagonal."""
        place = arrays.positions(self.matrix.shape[1], self.matrix)
        return self.matrix[:, place, place]

    @property
    def to_cls(self) -> Array:
        """(b, N): squared distances to CLS, to be overwritten by the caller."""
        return arrays.copied(self.squares)

    def whole(self) -> Array:
        """(b, N, N): all products."""
        return self.matrix


@dataclass(frozen=True, eq=False)
class Geometry:
    """Inner products of the tokens of a batch, and the distances that follow from them.

    Vectors are taken relative to CLS (but see `tables`): tokens of a Transformer lie close together and far from the
    origin, where ‖a‖² + ‖b‖² − 2ab would cancel. Unlike a mean, CLS does not depend on padding.

    Attributes:
        parts: The products of consecutive rows; together, all rows of the batch.
        metric: How a squared distance is shown to users; see `radius`.

    Example:
        >>> import numpy as np
        >>> Geometry.of(np.array([[[0.0], [3.0], [5.0]]])).distances.tolist()
        [[[0.0, 9.0, 25.0], [9.0, 0.0, 4.0], [25.0, 4.0, 0.0]]]
    """

    parts: tuple[Gram | Sums, ...]
    metric: Metric = "euclidean"

    @classmethod
    @arrays.without_gradients
    def of(cls, hidden: Array, metric: Metric = "euclidean") -> Geometry:
        """The geometry of `hidden` (B, N, D), of unit vectors for "cosine".

        In fp32 (fp64 for fp64 input), whatever the model's dtype or autocast.
        """
        if metric not in METRICS:
            raise UnknownNameError("metric", metric, METRICS)
        n = hidden.shape[1]
        rows = max(1, _NUMBERS_AT_A_TIME // (n * n)) if arrays.on_cpu(hidden) else len(hidden)
        with arrays.in_full_precision(hidden):
            parts = [arrays.detached(hidden[start : start + rows]) for start in range(0, len(hidden), rows)]
            calls = [partial(cls._products, part, metric) for part in parts]
            # Torch has threads of its own.
            worth = arrays.is_numpy(hidden) and hidden.size * n >= _WORTH_THREADS
            return cls(tuple(compiled.in_threads(calls, worth=worth)), metric)

    @staticmethod
    def _products(hidden: Array, metric: Metric) -> Gram:
        return Gram.of(relative_to_cls(hidden, metric))

    @property
    def runs_compiled(self) -> bool:
        """Whether compiled loops can take it."""
        return compiled.available() and arrays.on_cpu(self.parts[0].squares)

    @property
    def for_loops(self) -> list[compiled.Part]:
        """The parts as compiled loops take them."""
        return [compiled.Part(part.source, arrays.as_numpy(part.squares)) for part in self.parts]

    @cached_property
    def distances(self) -> Array:
        """(B, N, N) squared distances."""
        return arrays.joined([self._distances(part) for part in self.parts])

    @property
    def to_cls(self) -> Array:
        """(B, N) squared distances to CLS."""
        return arrays.joined([part.to_cls for part in self.parts])

    def radius(self, squared: Array) -> Array:
        """A squared distance as users know it: Euclidean, or 1 − cosine similarity."""
        return to_radius(squared, self.metric)

    @staticmethod
    def _distances(part: Gram | Sums) -> Array:
        norms = part.squares[:, :, None] + part.squares[:, None, :]  # (b, N, N)
        distances = norms - 2 * part.whole()
        # What rounding leaves between equal vectors is not a distance: equal tokens must tie exactly.
        return arrays.masked(distances, distances <= norms * snap_limit(norms), 0)


def squared_distances(hidden: Array, metric: Metric = "euclidean") -> Array:
    """The squared Euclidean distances (B, N, N) between tokens `hidden` (B, N, D), of unit vectors for "cosine"."""
    return Geometry.of(hidden, metric).distances


@arrays.without_gradients
def distance_to_cls(hidden: Array, metric: Metric = "euclidean") -> Array:
    """The squared distance (B, N) of each token to CLS, without a Gram matrix."""
    return (relative_to_cls(arrays.detached(hidden), metric) ** 2).sum(-1)


def snap_limit(x: Array) -> float:
    """Below this share of ‖a‖² + ‖b‖² a squared distance is what rounding leaves between equal vectors."""
    return compiled.SNAP * arrays.epsilon(x)


def to_radius(squared: Array, metric: Metric) -> Array:
    """A squared distance as users know it: Euclidean, or 1 − cosine similarity."""
    return squared / 2 if metric == "cosine" else squared**0.5


def from_radius(radius: Array, metric: Metric) -> Array:
    """The squared distance of a radius: the inverse of `to_radius`."""
    return 2 * radius if metric == "cosine" else radius**2


def relative_to_cls(hidden: Array, metric: Metric) -> Array:
    """The vectors (B, N, D) with CLS as their origin, in full precision; of unit length before that for "cosine"."""
    x = arrays.full_precision(hidden)
    if metric == "cosine":
        x = x / arrays.norms(x).clip(min=_LEAST)[..., None]
    return x - x[:, :1]
