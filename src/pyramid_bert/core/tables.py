"""Distances between embeddings that are sums of a value's vector and a position's, without a Gram matrix a row.

Images and bytes have few values, so the tokens of all rows are made of the same few vectors. Inner products of sums
are sums of inner products: of values with values, values with positions, and positions with positions. These tables
are made once a pass; what a token's products with all others are is then read out of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from .distances import snap_limit

_ATTRIBUTE = "_pyramid_summands"  # under which embeddings carry what they were made of, until the encoder takes it
# Relative to LayerNorm's bias, not to CLS, distances cancel when tokens lie much closer to CLS than to the bias: below
# this share, squared, fp32 could tell them apart only roughly.
_NEAREST = 1e-3


@dataclass(frozen=True, eq=False)
class Summands:
    """What embeddings were made of: LayerNorm(values[ids] + positions[:N]).

    Attributes:
        ids: (B, N) which value each token has.
        values: (V, D).
        positions: (P, D), P at least N.
        norm: The LayerNorm. Its bias cancels in distances.
    """

    ids: Tensor
    values: Tensor
    positions: Tensor
    norm: nn.LayerNorm

    def leave_with(self, hidden: Tensor) -> None:
        """Lets `hidden`, which was made of these, carry them."""
        setattr(hidden, _ATTRIBUTE, (self, _version(hidden)))

    @classmethod
    def taken_from(cls, hidden: Tensor) -> Summands | None:
        """What `hidden` carries, if it is still as it was made. It carries nothing any more then."""
        found, version = hidden.__dict__.pop(_ATTRIBUTE, (None, None))
        return found if isinstance(found, Summands) and version == _version(hidden) else None

    def cut(self, n: int) -> Summands:
        """Of the first `n` tokens."""
        return replace(self, ids=self.ids[:, :n])


def _version(x: Tensor) -> int | None:
    """Changes when a tensor is written to; None where torch does not count."""
    return None if x.is_inference() else x._version


@dataclass(frozen=True, eq=False)
class Sums:
    """Inner products read out of tables. Has what `distance.Gram` has, but is relative to LayerNorm's bias, not to CLS.

    Attributes:
        ids: (B, N) which value each token has.
        of_values: (V, V) products of values.
        crossed: (N, V) products of positions and values.
        by_value: (V, N) the same by columns.
        of_positions: (N, N) products of positions.
        scale: (B, N) what LayerNorm divides each token by, inverted.
        squares: (B, N) each token's product with itself.
    """

    ids: Tensor
    of_values: Tensor
    crossed: Tensor
    by_value: Tensor
    of_positions: Tensor
    scale: Tensor
    squares: Tensor

    @classmethod
    @torch.no_grad()
    def of(cls, made_of: Summands) -> Sums:
        """The tables. In fp32 (fp64 for fp64 weights), whatever autocast says."""
        ids, norm = made_of.ids.contiguous(), made_of.norm
        n = ids.shape[1]
        dtype = torch.promote_types(made_of.values.dtype, torch.float32)
        with torch.autocast(ids.device.type, enabled=False):
            values, positions = (_centred(x.to(dtype)) for x in (made_of.values, made_of.positions[:n]))
            variance = _squares(values.square().sum(1), positions @ values.T, positions.square().sum(1), ids)
            scale = (variance.clamp(min=0) / values.shape[1] + norm.eps).rsqrt()  # (B, N)
            values, positions = values * norm.weight, positions * norm.weight
            own, crossed, placed = values @ values.T, positions @ values.T, positions @ positions.T
            squares = _squares(own.diagonal(), crossed, placed.diagonal(), ids) * scale.square()
        return cls(ids, own, crossed, crossed.T.contiguous(), placed, scale, squares)

    @property
    def rows(self) -> int:
        """B."""
        return len(self.ids)

    @property
    def is_exact(self) -> bool:
        """Whether distances are large enough beside what they are differences of."""
        return bool((self.to_cls.amax(1) > _NEAREST * self.squares.amax(1)).all())

    @property
    def source(self) -> tuple[Any, ...]:
        """For compiled loops: ids, the tables (that of positions and values both ways round), and scales."""
        ids = self.ids.int().numpy().view("uint32")  # no index counts from the end: the loop can take many at once
        tables = (self.of_values, self.crossed, self.by_value, self.of_positions, self.scale)
        return ids, *(table.numpy() for table in tables)

    def split(self, parts: int) -> tuple[Sums, ...]:
        """The same tables for some rows at a time."""
        rows = -(-self.rows // parts)
        found = zip(*(torch.split(x, rows) for x in (self.ids, self.scale, self.squares)), strict=True)
        return tuple(replace(self, ids=ids, scale=scale, squares=squares) for ids, scale, squares in found)

    @property
    def to_cls(self) -> Tensor:
        """(B, N): squared distances to CLS."""
        norms = self.squares + self.squares[:, :1]
        distances = norms - 2 * self._products(slice(0, 1))[:, 0]
        return distances.masked_fill_(distances <= norms * snap_limit(norms.dtype), 0)

    def whole(self) -> Tensor:
        """(B, N, N)."""
        return self._products(slice(None))

    def _products(self, tokens: slice) -> Tensor:
        """The products (B, T, N) of some tokens with all."""
        ids, scale = self.ids, self.scale
        products = self.of_values[ids[:, tokens, None], ids[:, None, :]] + self.of_positions[tokens]
        products += self.crossed[tokens][:, ids].transpose(0, 1)  # (B, T, N): of positions with values
        products += self.crossed[:, ids[:, tokens]].movedim(0, -1)  # and of values with positions
        return products * scale[:, tokens, None] * scale[:, None, :]


def _centred(x: Tensor) -> Tensor:
    return x - x.mean(dim=1, keepdim=True)


def _squares(values: Tensor, crossed: Tensor, positions: Tensor, ids: Tensor) -> Tensor:
    """(B, N): the products of sums with themselves, from those of values (V,), of both (N, V) and of positions (N,)."""
    place = torch.arange(ids.shape[1], device=ids.device)
    return values[ids] + 2 * crossed[place, ids] + positions
