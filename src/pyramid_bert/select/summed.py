"""Distances between embeddings that are sums of a value's vector and a position's, without a Gram matrix a row.

Images and bytes have few values, so the tokens of all rows are made of the same few vectors. Inner products of sums
are sums of inner products: of values with values, values with positions, and positions with positions. These tables
are made once a pass; what a token's products with all others are is then read out of them.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from . import compiled

_NAME = "summands"  # under which embeddings carry what they were made of
_MOST_VALUES = 1024  # of a vocabulary, for the table of its products to be small


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

    @classmethod
    def behind(cls, hidden: Tensor) -> Summands | None:
        """What `hidden` was made of, if `remember_summands` saw it being made."""
        found = getattr(hidden, _NAME, None)
        assert found is None or isinstance(found, Summands)
        return found

    def cut(self, n: int) -> Summands:
        """Of the first `n` tokens."""
        return replace(self, ids=self.ids[:, :n])


def remember_summands(embeddings: Any, args: Any, kwargs: Any, output: Tensor) -> None:
    """A forward hook of embeddings: leaves what they were made of with their output, where tables would serve.

    That is on a CPU with numba, a small vocabulary, positions in order, one type of token, and no dropout.
    """
    given = inspect.signature(embeddings.forward).bind(*args, **kwargs).arguments
    ids, words = given.get("input_ids"), embeddings.word_embeddings
    other = any(given.get(name) is not None for name in ("inputs_embeds", "position_ids"))
    types = getattr(embeddings, "token_type_embeddings", None)
    dropped = embeddings.training and embeddings.dropout.p > 0
    if ids is None or other or dropped or (types is not None and types.num_embeddings > 1):
        return
    if words.num_embeddings > _MOST_VALUES or output.device.type != "cpu" or not compiled.available():
        return
    values, positions = words.weight.detach(), embeddings.position_embeddings.weight.detach()
    if getattr(embeddings, "rescale_embeddings", False):
        values = values * values.shape[1] ** 0.5
    if types is not None:
        positions = positions + types.weight.detach()
    setattr(output, _NAME, Summands(ids, values, positions, embeddings.LayerNorm))


@dataclass(frozen=True, eq=False)
class Sums:
    """Inner products read out of tables. Has what `distance.Gram` has, but is relative to LayerNorm's bias, not to CLS.

    Attributes:
        ids: (B, N) which value each token has.
        values: (V, V) products of values.
        crossed: (N, V) products of positions and values.
        by_value: (V, N) the same by columns.
        positions: (N, N) products of positions.
        scale: (B, N) what LayerNorm divides each token by, inverted.
        squares: (B, N) each token's product with itself.
    """

    ids: Tensor
    values: Tensor
    crossed: Tensor
    by_value: Tensor
    positions: Tensor
    scale: Tensor
    squares: Tensor

    kind: ClassVar[Literal["sums"]] = "sums"

    @classmethod
    @torch.no_grad()
    def of(cls, made_of: Summands) -> Sums:
        """The tables. In fp32 (fp64 for fp64 weights), whatever autocast says."""
        ids, norm = made_of.ids, made_of.norm
        n = ids.shape[1]
        dtype = torch.promote_types(made_of.values.dtype, torch.float32)
        with torch.autocast(ids.device.type, enabled=False):
            values, positions = (_centred(x.to(dtype)) for x in (made_of.values, made_of.positions[:n]))
            variance = _squares(values @ values.T, positions @ values.T, positions.square().sum(1), ids)
            scale = (variance / values.shape[1] + norm.eps).rsqrt()  # (B, N)
            values, positions = values * norm.weight, positions * norm.weight
            own, crossed, placed = values @ values.T, positions @ values.T, positions @ positions.T
            squares = _squares(own, crossed, placed.diagonal(), ids) * scale.square()
        return cls(ids, own, crossed, crossed.T.contiguous(), placed, scale, squares)

    @property
    def rows(self) -> int:
        """B."""
        return len(self.ids)

    @property
    def source(self) -> tuple[Any, ...]:
        """For compiled loops: ids, the tables (that of positions and values both ways round), and scales."""
        ids = self.ids.int().numpy().view("uint32")  # no index counts from the end: the loop can take many at once
        tables = (self.values, self.crossed, self.by_value, self.positions, self.scale)
        return ids, *(table.numpy() for table in tables)

    def split(self, rows: int) -> tuple[Sums, ...]:
        """The same tables for `rows` rows at a time."""
        parts = zip(*(torch.split(x, rows) for x in (self.ids, self.scale, self.squares)), strict=True)
        return tuple(replace(self, ids=ids, scale=scale, squares=squares) for ids, scale, squares in parts)

    @property
    def to_cls(self) -> Tensor:
        """(B, N): squared distances to CLS."""
        return (self.squares + self.squares[:, :1] - 2 * self._products(slice(0, 1))[:, 0]).clamp(min=0)

    def whole(self) -> Tensor:
        """(B, N, N)."""
        return self._products(slice(None))

    def _products(self, tokens: slice) -> Tensor:
        """The products (B, T, N) of some tokens with all."""
        ids, scale = self.ids, self.scale
        products = self.values[ids[:, tokens, None], ids[:, None, :]] + self.positions[tokens]
        products += self.crossed[tokens][:, ids].transpose(0, 1)  # (B, T, N): of positions with values
        products += self.crossed[:, ids[:, tokens]].movedim(0, -1)  # and of values with positions
        return products * scale[:, tokens, None] * scale[:, None, :]


def _centred(x: Tensor) -> Tensor:
    return x - x.mean(dim=1, keepdim=True)


def _squares(values: Tensor, crossed: Tensor, positions: Tensor, ids: Tensor) -> Tensor:
    """(B, N): the products of sums with themselves, from tables (V, V), (N, V) and the products of positions (N,)."""
    place = torch.arange(ids.shape[1], device=ids.device)
    return values.diagonal()[ids] + 2 * crossed[place, ids] + positions
