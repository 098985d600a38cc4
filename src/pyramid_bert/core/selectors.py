"""The selectors by name. Registering one is enough to have it tested, listed in `--help` and usable from a config.

A selector is `select(hidden, mask, k, *, generator=None, **knobs) -> index`:

- `hidden` (B, N, D), `mask` (B, N) bool with True for real tokens or None when all are, `k` an int or one int a row;
- `index` (B, max k) in *rank order*, most important first; row b means its first `k[b]` entries;
- CLS (position 0) has rank 0, indices are unique and in range, a pad is chosen only when real tokens run out;
- neither the other rows of the batch nor padding change a row's result, and no gradient flows;
- randomness comes from `generator` alone.

One property test holds every registered selector to all of this.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Literal

import torch
from torch import Tensor

from ..errors import PyramidError, UnknownNameError

Counts = int | Sequence[int]


@dataclass(frozen=True)
class Selector:
    """A way to choose tokens.

    Attributes:
        name: What users write.
        summary: One line for `--help` and the docs.
        select: The function; see the module's docstring for its contract. None for those that choose no token but
            put them into groups.
        cover: As `select`, with the covering radius (B,) beside the index, where choosing gives it anyway; or None.
        knobs: Which of `geometry`, `received`, `centers_per_step` and `metric` the function takes.
        placement: The only placement that makes sense for it, or None.
        group: The function of such a one: `group(hidden, mask, k, size=..., metric=..., within=...)` gives the slot
            (B, N) of each token. None for pooling, whose groups the schedule says.
        count: For adaptive lengths: how many groups it makes if merges may cost so much; see `cluster.ward_counts`.
        voters: Whose attention counts as `received`: of "all" real tokens, or of "cls" alone.
    """

    name: str
    summary: str
    select: Callable[..., Tensor] | None
    cover: Callable[..., tuple[Tensor, Tensor]] | None = None
    knobs: tuple[str, ...] = ()
    placement: str | None = None
    group: Callable[..., Tensor] | None = None
    count: Callable[..., list[int]] | None = None
    voters: Literal["all", "cls"] = "all"

    @property
    def needs_attention(self) -> bool:
        """Whether it ranks tokens by the attention that they receive."""
        return "received" in self.knobs


_REGISTRY: dict[str, Selector] = {}


def register(selector: Selector) -> Selector:
    """Adds a selector to the registry and returns it; a name can be taken only once."""
    if selector.name in _REGISTRY:
        raise PyramidError(f"a selector named {selector.name!r} is registered already")
    _REGISTRY[selector.name] = selector
    return selector


def get_selector(name: str) -> Selector:
    """The selector registered under `name`.

    Example:
        >>> get_selector("coreset").name
        'coreset'
    """
    if name not in _REGISTRY:
        raise UnknownNameError("selector", name, _REGISTRY)
    return _REGISTRY[name]


def selector_names() -> tuple[str, ...]:
    """The registered names, in the order of registration."""
    return tuple(_REGISTRY)


def counts_per_row(k: Counts, rows: int, n: int) -> list[int]:
    """`k` as one int a row, each clipped to the `n` tokens there are."""
    if not isinstance(k, Integral | Sequence):
        raise PyramidError(f"k must be an int or one int a row, got {k!r}")
    counts = [int(k)] * rows if isinstance(k, Integral) else list(k)
    if len(counts) != rows:
        raise PyramidError(f"k must be an int or one int for each of the {rows} rows, got {len(counts)} ints")
    if min(counts) < 1:
        raise PyramidError(f"k must be at least 1 (CLS is always kept), got {min(counts)}")
    return [min(count, n) for count in counts]


def top_by_score(score: Tensor, mask: Tensor | None, k: Counts) -> Tensor:
    """The positions of the highest scores, CLS first, then real tokens, then pads; ties go to the earlier position.

    Args:
        score: (B, N), any finite values.
        mask: (B, N) bool, or None when every token is real.
        k: How many to return.
    """
    rows, n = score.shape
    width = max(counts_per_row(k, rows, n))
    score = score.detach().clone()
    if mask is not None:
        score.masked_fill_(~mask, -torch.inf)
    score[:, 0] = torch.inf
    return score.sort(dim=1, descending=True, stable=True).indices[:, :width]  # (B, K)
