"""Distances between the tokens of a row, in full precision."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from ..errors import UnknownNameError

Metric = Literal["euclidean", "cosine"]
METRICS: tuple[str, ...] = ("euclidean", "cosine")

# On a CPU, Gram matrices are made for so many rows at a time, and those of long rows by halves: what fits into the
# cache is made about 1.7 times faster at 512 tokens, and a Gram matrix is symmetric.
_ROWS_AT_A_TIME = 8
_HALVE_FROM = 256


@dataclass(frozen=True, eq=False)
class Geometry:
    """How the tokens of each row lie to one another: inner products, of which distances are made on demand.

    Vectors are taken relative to CLS: tokens of a Transformer lie close together and far from the origin, where
    ‖a‖² + ‖b‖² − 2ab would cancel, and CLS, unlike a mean, does not depend on padding.

    Attributes:
        grams: (b, N, N) each, for b rows after another; together all rows of the batch.

    Example:
        >>> Geometry.of(torch.tensor([[[0.0], [3.0], [5.0]]])).distances.tolist()
        [[[0.0, 9.0, 25.0], [9.0, 0.0, 4.0], [25.0, 4.0, 0.0]]]
    """

    grams: tuple[Tensor, ...]

    @classmethod
    @torch.no_grad()
    def of(cls, hidden: Tensor, metric: Metric = "euclidean") -> Geometry:
        """The geometry of `hidden` (B, N, D), of unit vectors for "cosine".

        In fp32 (fp64 for fp64 input), whatever the model's dtype or autocast.
        """
        if metric not in METRICS:
            raise UnknownNameError("metric", metric, METRICS)
        on_cpu = hidden.device.type == "cpu"
        with torch.autocast(hidden.device.type, enabled=False):
            parts = torch.split(hidden, _ROWS_AT_A_TIME) if on_cpu else (hidden,)
            return cls(tuple(_gram(relative_to_cls(part, metric), halve=on_cpu) for part in parts))

    @cached_property
    def squares(self) -> tuple[Tensor, ...]:
        """(b, N) each: the squared distance of each token to CLS."""
        return tuple(gram.diagonal(dim1=1, dim2=2).contiguous() for gram in self.grams)

    @cached_property
    def distances(self) -> Tensor:
        """(B, N, N) squared distances."""
        return torch.cat([_spelled_out(*pair) for pair in zip(self.grams, self.squares, strict=True)])

    @property
    def to_cls(self) -> Tensor:
        """(B, N) squared distances to CLS."""
        return torch.cat(self.squares)


def squared_distances(hidden: Tensor, metric: Metric = "euclidean") -> Tensor:
    """The squared Euclidean distances (B, N, N) between tokens `hidden` (B, N, D), of unit vectors for "cosine"."""
    return Geometry.of(hidden, metric).distances


def snap_limit(dtype: torch.dtype) -> float:
    """Below this share of ‖a‖² + ‖b‖² a squared distance is what rounding leaves between equal vectors."""
    return 16 * torch.finfo(dtype).eps


def to_radius(squared: Tensor, metric: Metric) -> Tensor:
    """A squared distance as users know it: Euclidean, or 1 − cosine."""
    return squared / 2 if metric == "cosine" else squared.sqrt()


def relative_to_cls(hidden: Tensor, metric: Metric) -> Tensor:
    """The vectors (B, N, D) with CLS as their origin, in full precision; of unit length before that for "cosine"."""
    x = hidden if hidden.dtype == torch.float64 else hidden.float()
    if metric == "cosine":
        x = F.normalize(x, dim=-1)
    return x - x[:, :1]  # (b, N, D)


def _gram(x: Tensor, *, halve: bool) -> Tensor:
    """The inner products (b, N, N) of `x` (b, N, D)."""
    rows, n, _ = x.shape
    if not halve or n < _HALVE_FROM:
        return x @ x.transpose(1, 2)
    middle = n // 2
    upper, lower = x[:, :middle], x[:, middle:]
    across = upper @ lower.transpose(1, 2)  # (b, N/2, N/2)
    gram = x.new_empty(rows, n, n)
    gram[:, :middle, :middle] = _gram(upper, halve=True)
    gram[:, middle:, middle:] = _gram(lower, halve=True)
    gram[:, :middle, middle:] = across
    gram[:, middle:, :middle] = across.transpose(1, 2)
    return gram


def _spelled_out(gram: Tensor, square: Tensor) -> Tensor:
    norms = square[:, :, None] + square[:, None, :]  # (b, N, N)
    distances = torch.sub(norms, gram, alpha=2)
    # What rounding leaves between equal vectors is not a distance: equal tokens must tie exactly.
    noise = norms.mul_(snap_limit(gram.dtype))
    return distances.masked_fill_(distances <= noise, 0)
