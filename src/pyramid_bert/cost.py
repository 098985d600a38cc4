"""What a schedule costs: multiply-accumulates, ideal speed-up and attention space. Pure Python, no torch.

Counts only matrix products, as is usual: with n tokens of width d an attention block costs 4nd² for its projections
and 2n²d for scores and mixing, and a feed-forward block of inner width f costs 2ndf (8nd² when f = 4d).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .errors import PyramidError, UnknownNameError

Placement = Literal["middle", "end", "input"]
PLACEMENTS: tuple[str, ...] = ("middle", "end", "input")
SpaceReading = Literal["printed", "attention_input"]


@dataclass(frozen=True)
class Sizes:
    """What the cost of a model depends on; `families.sizes_of(model)` reads it from a transformers model.

    Attributes:
        layers: Encoder layers.
        hidden_size: Width of a token vector.
        intermediate_size: Inner width of the feed-forward network.
        heads: Attention heads of a model that needs no keys and values in layers that compute only CLS; None for other
            models.
    """

    layers: int
    hidden_size: int
    intermediate_size: int
    heads: int | None = None


@dataclass(frozen=True)
class Cost:
    """The cost of one input of `n` tokens under a schedule, and of the same input run densely.

    Example:
        >>> cost = Cost.of((80, 50) + (32,) * 10, n=128, hidden_size=768)
        >>> round(cost.ideal_speedup, 2)
        3.23
    """

    macs: int
    dense_macs: int

    @property
    def ideal_speedup(self) -> float:
        """Dense over reduced multiply-accumulates: the speed-up if only these took time."""
        return self.dense_macs / self.macs

    @classmethod
    def of(
        cls,
        lengths: Sequence[int],
        n: int,
        hidden_size: int,
        intermediate_size: int | None = None,
        *,
        placement: Placement = "middle",
        cls_layers: int = 0,
        heads: int | None = None,
        layers: int | None = None,
    ) -> Cost:
        """The cost of the `lengths` that a schedule gives for an input of `n` tokens.

        Args:
            lengths: Tokens kept at each layer.
            n: Tokens of the input.
            hidden_size: Width of a token vector.
            intermediate_size: Inner width of the feed-forward network; four times `hidden_size` if not given.
            placement: Where tokens are dropped; see `pyramidize`.
            cls_layers: How many of the pyramid's last layers compute queries and feed-forward network only for CLS. The
                dense model computes them for all tokens.
            heads: Attention heads of a model that needs no keys and values in these layers, as BERT in inference
                (docs/design/0017-reading-without-keys.md); None counts them for every token.
            layers: Layers of the dense model; as many as there are `lengths` if not given.
        """
        inner = 4 * hidden_size if intermediate_size is None else intermediate_size
        if hidden_size < 1 or inner < 1 or (heads is not None and heads < 1):
            raise PyramidError(
                f"sizes must be at least 1, got hidden_size={hidden_size}, intermediate_size={inner}, heads={heads}"
            )
        attention, feed_forward = tokens_seen(lengths, n, placement)
        seen, awake = list(zip(attention, feed_forward, strict=True)), len(lengths) - cls_layers
        macs = sum(_layer_macs(keys, keys, fed, hidden_size, inner) for keys, fed in seen[:awake])
        macs += sum(_cls_macs(keys, hidden_size, inner, heads) for keys in attention[awake:])
        return cls(macs=macs, dense_macs=(layers or len(lengths)) * _layer_macs(n, n, n, hidden_size, inner))


def tokens_seen(lengths: Sequence[int], n: int, placement: Placement = "middle") -> tuple[list[int], list[int]]:
    """The number of tokens that each layer's attention and each layer's feed-forward network work on.

    Example:
        >>> tokens_seen((8, 4), n=16)
        ([16, 8], [8, 4])
        >>> tokens_seen((8, 4), n=16, placement="end")
        ([16, 8], [16, 8])
    """
    if not lengths or n < max(lengths):
        raise PyramidError(f"lengths must not be empty nor exceed n={n}, got {list(lengths)}")
    before = [n, *lengths[:-1]]
    if placement == "middle":
        return before, list(lengths)
    if placement == "end":
        return before, list(before)
    if placement == "input":
        return list(lengths), list(lengths)
    raise UnknownNameError("placement", placement, PLACEMENTS)


def attention_space(
    lengths: Sequence[int],
    n: int,
    hidden_size: int,
    *,
    reading: SpaceReading = "attention_input",
    placement: Placement = "middle",
) -> int:
    """The paper's space measure S of the attention layers: the sum over layers of l² + l·d.

    Args:
        lengths: Tokens kept at each layer.
        n: Tokens of the input.
        hidden_size: d.
        reading: "printed" takes l = l_j, as the formula is printed. "attention_input" takes l = l_{j-1}, what layer
            j's attention really sees, and the only reading that fits the paper's 70 % tables.
        placement: Where tokens are dropped. At the input, attention holds l_j, and the readings agree.
    """
    if reading == "printed":
        tokens = list(lengths)
    elif reading == "attention_input":
        tokens, _ = tokens_seen(lengths, n, placement)
    else:
        raise UnknownNameError("space reading", reading, ("printed", "attention_input"))
    return sum(length * length + length * hidden_size for length in tokens)


def space_reduction(
    lengths: Sequence[int],
    n: int,
    hidden_size: int,
    *,
    reading: SpaceReading = "attention_input",
    placement: Placement = "middle",
) -> float:
    """The share of attention space saved against the dense model, in [0, 1).

    Example:
        >>> row = (74, 43) + (25,) * 10  # the paper's (3, 0.20)
        >>> [round(space_reduction(row, 128, 768, reading=r), 3) for r in ("printed", "attention_input")]
        [0.785, 0.716]
    """
    dense = attention_space([n] * len(lengths), n, hidden_size, reading=reading, placement=placement)
    return 1 - attention_space(lengths, n, hidden_size, reading=reading, placement=placement) / dense


def _layer_macs(queries: int, keys: int, feed_forward: int, hidden: int, inner: int) -> int:
    """One layer in which `queries` tokens attend to `keys` tokens and `feed_forward` tokens go on."""
    projections = 2 * (queries + keys) * hidden * hidden  # query and output; key and value
    return projections + 2 * queries * keys * hidden + 2 * feed_forward * hidden * inner


def _cls_macs(keys: int, hidden: int, inner: int, heads: int | None) -> int:
    """One layer that computes only CLS, which attends to `keys` tokens."""
    if heads is None:
        return _layer_macs(1, keys, 1, hidden, inner)
    # Each head's query meets the key's weights and then whole tokens; their mean meets the value's weights.
    return 4 * hidden * hidden + 2 * keys * heads * hidden + 2 * hidden * inner
