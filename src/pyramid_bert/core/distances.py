"""Pairwise distances between the tokens of a row, in full precision; from lookup tables when available (`tables`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import UnknownNameError

if TYPE_CHECKING:
    from .tables import Sums

Metric = Literal["euclidean", "cosine"]
METRICS: tuple[str, ...] = ("euclidean", "cosine")

# On a CPU the Gram matrices of a part of the batch have at most this many numbers, to stay in the cache; a part has at
# least one row. They are computed in strips of `_STRIP` tokens: what lies below the diagonal is copied.
_NUMBERS_AT_A_TIME = 1 << 18
_STRIP = 128


@dataclass(frozen=True, eq=False)
class Gram:
    """The inner products (b, N, N) of the tokens of b rows, with CLS as the origin."""

    matrix: Tensor

    @classmethod
    def of(cls, x: Tensor) -> Gram:
        """The inner products of `x` (b, N, D)."""
        rows, n, _ = x.shape
        if x.device.type != "cpu" or n <= _STRIP:
            return cls(x @ x.transpose(1, 2))
        matrix = x.new_empty(rows, n, n)
        for start in range(0, n, _STRIP):
            end = min(start + _STRIP, n)
            torch.bmm(x[:, start:end], x[:, start:].transpose(1, 2), out=matrix[:, start:end, start:])
            matrix[:, end:, start:end] = matrix[:, start:end, end:].transpose(1, 2)
        return cls(matrix)

    @property
    def source(self) -> Any:
        """The matrix, for compiled loops."""
        return self.matrix.numpy()

    @cached_property
    def squares(self) -> Tensor:
        """(b, N): the diagonal."""
        return self.matrix.diagonal(dim1=1, dim2=2).contiguous()

    @property
    def to_cls(self) -> Tensor:
        """(b, N): squared distances to CLS, to be overwritten by the caller."""
        return self.squares.clone()

    def whole(self) -> Tensor:
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
        >>> Geometry.of(torch.tensor([[[0.0], [3.0], [5.0]]])).distances.tolist()
        [[[0.0, 9.0, 25.0], [9.0, 0.0, 4.0], [25.0, 4.0, 0.0]]]
    """

    parts: tuple[Gram | Sums, ...]
    metric: Metric = "euclidean"

    @classmethod
    @torch.no_grad()
    def of(cls, hidden: Tensor, metric: Metric = "euclidean") -> Geometry:
        """The geometry of `hidden` (B, N, D), of unit vectors for "cosine".

        In fp32 (fp64 for fp64 input), whatever the model's dtype or autocast.
        """
        if metric not in METRICS:
            raise UnknownNameError("metric", metric, METRICS)
        n = hidden.shape[1]
        rows = max(1, _NUMBERS_AT_A_TIME // (n * n)) if hidden.device.type == "cpu" else len(hidden)
        with torch.autocast(hidden.device.type, enabled=False):
            parts = torch.split(hidden.detach(), rows)
            return cls(tuple(Gram.of(relative_to_cls(part, metric)) for part in parts), metric)

    @cached_property
    def distances(self) -> Tensor:
        """(B, N, N) squared distances."""
        return torch.cat([self._distances(part) for part in self.parts])

    @property
    def to_cls(self) -> Tensor:
        """(B, N) squared distances to CLS."""
        return torch.cat([part.to_cls for part in self.parts])

    def radius(self, squared: Tensor) -> Tensor:
        """A squared distance as users know it: Euclidean, or 1 − cosine similarity."""
        return to_radius(squared, self.metric)

    @staticmethod
    def _distances(part: Gram | Sums) -> Tensor:
        norms = part.squares[:, :, None] + part.squares[:, None, :]  # (b, N, N)
        distances = torch.sub(norms, part.whole(), alpha=2)
        # What rounding leaves between equal vectors is not a distance: equal tokens must tie exactly.
        return distances.masked_fill_(distances <= norms.mul_(snap_limit(norms.dtype)), 0)


def squared_distances(hidden: Tensor, metric: Metric = "euclidean") -> Tensor:
    """The squared Euclidean distances (B, N, N) between tokens `hidden` (B, N, D), of unit vectors for "cosine"."""
    return Geometry.of(hidden, metric).distances


@torch.no_grad()
def distance_to_cls(hidden: Tensor, metric: Metric = "euclidean") -> Tensor:
    """The squared distance (B, N) of each token to CLS, without a Gram matrix."""
    return relative_to_cls(hidden.detach(), metric).square().sum(-1)


def snap_limit(dtype: torch.dtype) -> float:
    """Below this share of ‖a‖² + ‖b‖² a squared distance is what rounding leaves between equal vectors."""
    return 16 * torch.finfo(dtype).eps


def to_radius(squared: Tensor, metric: Metric) -> Tensor:
    """A squared distance as users know it: Euclidean, or 1 − cosine similarity."""
    return squared / 2 if metric == "cosine" else squared.sqrt()


def from_radius(radius: Tensor, metric: Metric) -> Tensor:
    """The squared distance of a radius: the inverse of `to_radius`."""
    return 2 * radius if metric == "cosine" else radius.square()


def relative_to_cls(hidden: Tensor, metric: Metric) -> Tensor:
    """The vectors (B, N, D) with CLS as their origin, in full precision; of unit length before that for "cosine"."""
    x = hidden if hidden.dtype == torch.float64 else hidden.float()
    if metric == "cosine":
        x = F.normalize(x, dim=-1)
    return x - x[:, :1]
