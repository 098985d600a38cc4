"""Distances between the tokens of a row, in full precision."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import UnknownNameError

Metric = Literal["euclidean", "cosine"]
METRICS: tuple[str, ...] = ("euclidean", "cosine")

# On a CPU, Gram matrices are made for so many rows at a time, to fit into the cache, and in strips of so many tokens:
# what lies below a strip's own block is known by symmetry, and is not made.
_ROWS_AT_A_TIME = 8
_STRIP = 128


class Products(Protocol):
    """The inner products of the tokens of some rows, wherever they come from: `Gram`, or `summed.Sums`."""

    @property
    def kind(self) -> Literal["gram", "sums"]:
        """By which compiled loops know how to read `source`."""

    @property
    def source(self) -> tuple[Any, ...]:
        """What compiled loops read products from: arrays and numbers."""

    @property
    def rows(self) -> int:
        """How many."""

    @property
    def squares(self) -> Tensor:
        """(b, N): each token's product with itself."""

    @property
    def to_cls(self) -> Tensor:
        """(b, N): each token's squared distance to CLS."""

    def whole(self) -> Tensor:
        """(b, N, N): all products."""


@dataclass(frozen=True, eq=False)
class Gram:
    """The inner products of the tokens of b rows: of each token with those of its own strip and all later ones.

    Attributes:
        flat: The strips one after another; the one that begins at token s is (b, height, N − s).
        rows: b.
        n: N.
        strip: The height of all strips but the last.
    """

    flat: Tensor
    rows: int
    n: int
    strip: int

    kind: ClassVar[Literal["gram"]] = "gram"

    @classmethod
    def of(cls, x: Tensor, strip: int) -> Gram:
        """The inner products of `x` (b, N, D)."""
        rows, n, _ = x.shape
        size = sum(min(strip, n - start) * (n - start) for start in range(0, n, strip))
        gram = cls(x.new_empty(rows * size), rows, n, strip)
        for start, part in gram.strips():
            torch.bmm(x[:, start : start + strip], x[:, start:].transpose(1, 2), out=part)
        return gram

    def strips(self) -> Iterator[tuple[int, Tensor]]:
        """Where each strip begins, and the strip (b, height, N − start), a view."""
        done = 0
        for start in range(0, self.n, self.strip):
            shape = self.rows, min(self.strip, self.n - start), self.n - start
            size = math.prod(shape)
            yield start, self.flat[done : done + size].view(shape)
            done += size

    @cached_property
    def squares(self) -> Tensor:
        """(b, N): each token's product with itself."""
        return torch.cat([part.diagonal(dim1=1, dim2=2) for _, part in self.strips()], dim=1)

    @property
    def to_cls(self) -> Tensor:
        """(b, N): squared distances to CLS, which is the origin."""
        return self.squares

    @property
    def source(self) -> tuple[Any, ...]:
        """For compiled loops: the strips, their height, and how many rows each has."""
        return self.flat.numpy(), self.strip, self.rows

    def whole(self) -> Tensor:
        """(b, N, N)."""
        if self.strip >= self.n:
            return self.flat.view(self.rows, self.n, self.n)
        gram = self.flat.new_empty(self.rows, self.n, self.n)
        for start, part in self.strips():
            end = start + part.shape[1]
            gram[:, start:end, start:] = part
            gram[:, end:, start:end] = part[:, :, end - start :].transpose(1, 2)
        return gram


@dataclass(frozen=True, eq=False)
class Geometry:
    """How the tokens of each row lie to one another: inner products, of which distances are made on demand.

    Vectors are taken relative to CLS (but see `summed`): tokens of a Transformer lie close together and far from the
    origin, where ‖a‖² + ‖b‖² − 2ab would cancel, and CLS, unlike a mean, does not depend on padding.

    Attributes:
        grams: Of some rows after another; together all rows of the batch.

    Example:
        >>> Geometry.of(torch.tensor([[[0.0], [3.0], [5.0]]])).distances.tolist()
        [[[0.0, 9.0, 25.0], [9.0, 0.0, 4.0], [25.0, 4.0, 0.0]]]
    """

    grams: tuple[Products, ...]

    @classmethod
    @torch.no_grad()
    def of(cls, hidden: Tensor, metric: Metric = "euclidean") -> Geometry:
        """The geometry of `hidden` (B, N, D), of unit vectors for "cosine".

        In fp32 (fp64 for fp64 input), whatever the model's dtype or autocast.
        """
        if metric not in METRICS:
            raise UnknownNameError("metric", metric, METRICS)
        on_cpu = hidden.device.type == "cpu"
        strip = _STRIP if on_cpu else hidden.shape[1]
        with torch.autocast(hidden.device.type, enabled=False):
            parts = torch.split(hidden, _ROWS_AT_A_TIME) if on_cpu else (hidden,)
            return cls(tuple(Gram.of(relative_to_cls(part, metric), strip) for part in parts))

    @cached_property
    def distances(self) -> Tensor:
        """(B, N, N) squared distances."""
        return torch.cat([_spelled_out(gram.whole(), gram.squares) for gram in self.grams])

    @property
    def to_cls(self) -> Tensor:
        """(B, N) squared distances to CLS."""
        return torch.cat([gram.to_cls for gram in self.grams])


def squared_distances(hidden: Tensor, metric: Metric = "euclidean") -> Tensor:
    """The squared Euclidean distances (B, N, N) between tokens `hidden` (B, N, D), of unit vectors for "cosine"."""
    return Geometry.of(hidden, metric).distances


def snap_limit(dtype: torch.dtype) -> float:
    """Below this share of ‖a‖² + ‖b‖² a squared distance is what rounding leaves between equal vectors."""
    return 16 * torch.finfo(dtype).eps


def to_radius(squared: Tensor, metric: Metric) -> Tensor:
    """A squared distance as users know it: Euclidean, or 1 − cosine."""
    return squared / 2 if metric == "cosine" else squared.sqrt()


def from_radius(radius: Tensor, metric: Metric) -> Tensor:
    """The squared distance of a radius: the inverse of `to_radius`."""
    return 2 * radius if metric == "cosine" else radius.square()


def relative_to_cls(hidden: Tensor, metric: Metric) -> Tensor:
    """The vectors (B, N, D) with CLS as their origin, in full precision; of unit length before that for "cosine"."""
    x = hidden if hidden.dtype == torch.float64 else hidden.float()
    if metric == "cosine":
        x = F.normalize(x, dim=-1)
    return x - x[:, :1]  # (b, N, D)


def _spelled_out(gram: Tensor, square: Tensor) -> Tensor:
    norms = square[:, :, None] + square[:, None, :]  # (b, N, N)
    distances = torch.sub(norms, gram, alpha=2)
    # What rounding leaves between equal vectors is not a distance: equal tokens must tie exactly.
    noise = norms.mul_(snap_limit(gram.dtype))
    return distances.masked_fill_(distances <= noise, 0)
