"""The registry of selectors. A registered selector is tested, listed in `--help` and usable from a config.

A selector either *ranks* the tokens of a row or puts them into *groups*. Its contract:

- it gets the tokens of a batch as `Candidates` and keeps `k` of them: an int, or one int per row;
- a ranker returns positions (B, max k) in *rank order*, most important first; only the first `k[b]` of row b count.
  CLS (position 0) has rank 0, positions are unique, a pad is chosen only when real tokens run out;
- a grouper returns the slot (B, N) of each token: CLS is the only token in slot 0; pads get -1;
- neither the other rows of the batch nor padding change a row's result, and no gradient flows;
- randomness comes from `Candidates.drawn` only.

One property test holds every registered selector to this contract.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Literal, NamedTuple

from ..checks import check_choice
from ..errors import PyramidError
from . import arrays
from .arrays import Array
from .distances import Geometry, Metric, distance_to_cls

if TYPE_CHECKING:
    from .tables import Summands

Counts = int | Sequence[int]
Voters = Literal["all", "cls"]


@dataclass(eq=False)
class Candidates:
    """The tokens that a selector chooses among.

    Attributes:
        hidden: (B, N, D) the vectors between which distances are measured.
        mask: (B, N) bool, True for real tokens; None when all are.
        metric: "euclidean" or "cosine" (1 − cosine similarity).
        size: (B, N) input tokens behind each token; 1 if None.
        received: (B, N) the attention that each token receives, for selectors that need it.
        drawn: A number drawn for this step, for selectors that choose by chance.
        tables: The summands of the vectors, if they are known embeddings.
    """

    hidden: Array
    mask: Array | None = None
    metric: Metric = "euclidean"
    size: Array | None = None
    received: Array | None = None
    drawn: int = 0
    tables: Summands | None = None

    @cached_property
    def geometry(self) -> Geometry:
        """Pairwise distances; from lookup tables when available."""
        if self.tables is not None and self.metric == "euclidean":
            sums = self.tables.products()
            if sums.is_exact:
                return Geometry(sums.split())
        return Geometry.of(self.hidden, self.metric)

    @property
    def real(self) -> Array:
        """(B, N) bool, True for real tokens."""
        if self.mask is not None:
            return self.mask
        return arrays.all_true(self.hidden.shape[:2], self.hidden)

    @arrays.without_gradients
    def cls_radius(self) -> Array:
        """The covering radius (B,) of CLS without any other token."""
        squared = distance_to_cls(self.hidden, self.metric)
        if self.mask is not None:
            squared = arrays.masked(squared, ~self.mask, 0)
        return Geometry((), self.metric).radius(arrays.largest(squared))


class Ranking(NamedTuple):
    """Positions (B, K) in rank order, and the covering radius (B,) of all K if the selection computes it anyway."""

    indices: Array
    radius: Array | None = None


@dataclass(frozen=True)
class Ranker:
    """A selector that ranks tokens; the first ones are kept as they are.

    Attributes:
        name: What users write.
        summary: One line for `--help` and the docs.
        rank: `rank(candidates, k, **knobs)`; see the module's docstring.
        knobs: The settings that the function takes: "centers_per_step".
        voters: Whose attention it ranks by: that of "all" real tokens or of "cls"; None if it does not use attention.
        draws: Whether it needs a drawn number.
        placement: The only placement that makes sense for it, or None.
    """

    name: str
    summary: str
    rank: Callable[..., Ranking]
    knobs: tuple[str, ...] = ()
    voters: Voters | None = None
    draws: bool = False
    placement: str | None = None


@dataclass(frozen=True)
class Grouper:
    """A selector that puts tokens into groups; each group is replaced by its mean.

    Attributes:
        name: What users write.
        summary: One line for `--help` and the docs.
        group: `group(candidates, k, **knobs)`; see the module's docstring.
        knobs: The settings that the function takes: "within" or "window".
        weighs: Whether means are weighted by the input tokens behind each token.
        count: For adaptive lengths: the number of groups if no merge costs more than a limit (B,).
    """

    name: str
    summary: str
    group: Callable[..., Array]
    knobs: tuple[str, ...] = ()
    weighs: bool = True
    count: Callable[..., list[int]] | None = None
    voters: Voters | None = None
    placement: str | None = None


Selector = Ranker | Grouper
_REGISTRY: dict[str, Selector] = {}


def register(selector: Selector) -> Selector:
    """Adds a selector to the registry and returns it; its name must be new."""
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
    check_choice("selector", name, _REGISTRY)
    return _REGISTRY[name]


def selector_names() -> tuple[str, ...]:
    """The registered names, in the order of registration."""
    return tuple(_REGISTRY)


def counts_per_row(k: Counts, rows: int, n: int) -> list[int]:
    """`k` as one int per row, each at most `n`."""
    if not isinstance(k, Integral | Sequence):
        raise PyramidError(f"k must be an int or one int a row, got {k!r}")
    counts = [int(k)] * rows if isinstance(k, Integral) else list(k)
    if len(counts) != rows:
        raise PyramidError(f"k must be an int or one int for each of the {rows} rows, got {len(counts)} ints")
    if min(counts) < 1:
        raise PyramidError(f"k must be at least 1 (CLS is always kept), got {min(counts)}")
    return [min(count, n) for count in counts]


def top_by_score(score: Array, mask: Array | None, k: Counts) -> Array:
    """The positions of the highest scores, CLS first, then real tokens, then pads; ties go to the earlier position.

    Args:
        score: (B, N), any finite values.
        mask: (B, N) bool, or None when every token is real.
        k: How many to return.
    """
    rows, n = score.shape
    width = max(counts_per_row(k, rows, n))
    score = arrays.copied(arrays.detached(score))
    if mask is not None:
        score[~mask] = -math.inf
    score[:, 0] = math.inf
    return arrays.sorted_from(score, descending=True)[:, :width]  # (B, K)
