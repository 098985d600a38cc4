"""Distances between embeddings of small vocabularies (images, bytes), without a Gram matrix per row.

An embedding is the sum of a value's vector and a position's. The inner product of two sums is a sum of inner products:
values with values, values with positions, positions with positions. These three tables are computed once per pass and
looked up for each token.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from .distances import snap_limit

_ATTRIBUTE = "_pyramid_summands"  # the attribute of the embeddings that holds their summands until the encoder takes it
# Products are relative to LayerNorm's bias, so distances cancel when tokens lie much closer to CLS than to the bias.
# Below this share of the squared norm, fp32 is not exact enough.
_NEAREST = 1e-3


@dataclass(frozen=True, eq=False)
class Summands:
    """The summands of embeddings LayerNorm(values[ids] + positions[:N]).

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
        """Attaches these summands to `hidden`, the embeddings that they give."""
        setattr(hidden, _ATTRIBUTE, (self, _version(hidden)))

    @classmethod
    def taken_from(cls, hidden: Tensor) -> Summands | None:
        """Takes the summands off `hidden`; None if there are none or `hidden` was changed since."""
        found, version = hidden.__dict__.pop(_ATTRIBUTE, (None, None))
        return found if isinstance(found, Summands) and version == _version(hidden) else None

    def products(self) -> Sums:
        """The inner products of all tokens."""
        return Sums.of(self)

    def cut(self, n: int) -> Summands:
        """The summands of the first `n` tokens."""
        return replace(self, ids=self.ids[:, :n])


def _version(x: Tensor) -> int | None:
    """A number that changes when a tensor is written to; None in inference mode, where torch does not count."""
    return None if x.is_inference() else x._version


@dataclass(frozen=True, eq=False)
class Sums:
    """Inner products read out of tables. Has the methods of `distances.Gram`, but is relative to LayerNorm's bias.

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
        """The tables, in fp32 (fp64 for fp64 weights) even under autocast."""
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
    def is_exact(self) -> bool:
        """Whether distances are large enough, compared with the products that they are differences of."""
        return bool((self.to_cls.amax(1) > _NEAREST * self.squares.amax(1)).all())

    @property
    def source(self) -> tuple[Any, ...]:
        """The tables, for compiled loops; that of positions and values in both orders."""
        ids = self.ids.int().numpy().view("uint32")  # unsigned, so that the loop can be vectorised
        tables = (self.of_values, self.crossed, self.by_value, self.of_positions, self.scale)
        return ids, *(table.numpy() for table in tables)

    def split(self, parts: int | None = None) -> tuple[Sums, ...]:
        """The same tables for consecutive rows, by default a part for each thread."""
        rows = -(-len(self.ids) // (parts or torch.get_num_threads()))
        found = zip(*(torch.split(x, rows) for x in (self.ids, self.scale, self.squares)), strict=True)
        return tuple(replace(self, ids=ids, scale=scale, squares=squares) for ids, scale, squares in found)

    @property
    def to_cls(self) -> Tensor:
        """(B, N): squared distances to CLS."""
        norms = self.squares + self.squares[:, :1]
        distances = norms - 2 * self._products(slice(0, 1))[:, 0]
        return distances.masked_fill_(distances <= norms * snap_limit(norms), 0)

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
