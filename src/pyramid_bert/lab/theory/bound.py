"""The right-hand side of Theorem 1 from measurements; `measure` takes them.

The theorem: if layer j is λ_j-Lipschitz, the classifier's loss λ_C-Lipschitz, and the l_j tokens kept at layer j cover
all N within δ, then pyramid* changes the loss of an input by at most

    δ · λ_C · Σ_j (N − l_j) · Π_{a ≥ j} λ_a.

"Layer j" here means everything between the replacement in layer j and the one in layer j + 1: with placement "middle"
the feed-forward network of j and the attention of j + 1, with "input" layer j itself, as in the proof. A state is the
matrix (N, D) of all tokens, with the Frobenius norm.

No useful constant of a BERT is known for all inputs. Constants are estimated by the largest ratio on a sample: change
of the output over change of the input. The true constants are larger. The ratios include the pairs that the proof
compares (the dense state and that of pyramid*, at each layer), so the inequality holds for every input of the sample,
but not necessarily for others.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# Name -> what it is. With the same constants, each but the last is at most the one before.
BOUNDS = {
    "printed": "Theorem 1 as printed: one δ, the largest of all layers",
    "layer_radii": "with each layer's own δ_j",
    "moved": "with the measured movement instead of (N − l_j) δ_j",
    "direct": "and with one constant from each layer to CLS instead of the product",
}


@dataclass(frozen=True)
class Measured:
    """Measurements on one input. Tuples have one entry per layer.

    Attributes:
        n: N, its tokens.
        lengths: l_j, the number of distinct tokens left.
        radius: δ_j, the largest distance that a token is moved.
        moved: The norm of the change that layer j's replacement makes; at most (N − l_j) δ_j.
        layer: Change of the state before layer j + 1's replacement over that after layer j's, between the dense model
            and pyramid*: the ratio that stands for λ_j in the proof. 0 where both states are equal.
        layer_random: The largest such ratio for random changes of the same size, from the dense state.
        above: Change of the last CLS vector over `moved`, when the layers above replace nothing more.
        above_random: The largest such ratio for the random changes.
        head: Change of the loss over the change of the last CLS vector, the largest of the replacements' and of all
            of them together.
        head_random: The largest such ratio for random changes of that vector.
        loss: The loss of the dense model.
        loss_change: The absolute difference of pyramid*'s loss from it.
    """

    n: int
    lengths: tuple[int, ...]
    radius: tuple[float, ...]
    moved: tuple[float, ...]
    layer: tuple[float, ...]
    layer_random: tuple[float, ...]
    above: tuple[float, ...]
    above_random: tuple[float, ...]
    head: float
    head_random: float
    loss: float
    loss_change: float


@dataclass(frozen=True)
class Constants:
    """Lipschitz constants, estimated or proved.

    Attributes:
        layer: λ_j of each layer.
        above: Λ_j, of everything from layer j's replacement to the last CLS vector.
        head: λ_C, from that vector to the loss.
    """

    layer: tuple[float, ...]
    above: tuple[float, ...]
    head: float

    @classmethod
    def seen(cls, rows: Sequence[Measured]) -> Constants:
        """The largest ratios of a sample."""
        return cls(
            layer=_largest([row.layer for row in rows] + [row.layer_random for row in rows]),
            above=_largest([row.above for row in rows] + [row.above_random for row in rows]),
            head=max(max(row.head, row.head_random) for row in rows),
        )


def right_hand_sides(row: Measured, constants: Constants) -> dict[str, float]:
    """Upper bounds on the change of an input's loss, by the names of `BOUNDS`.

    Example:
        >>> one = (1.0,)
        >>> row = Measured(9, (5,), (2.0,), (3.0,), one, one, one, one, 1.0, 1.0, 0.0, 0.1)
        >>> right_hand_sides(row, Constants(layer=(1.5,), above=(1.0,), head=0.5))
        {'printed': 6.0, 'layer_radii': 6.0, 'moved': 2.25, 'direct': 1.5}
    """
    products = [math.prod(constants.layer[j:]) for j in range(len(row.lengths))]
    replaced = [row.n - length for length in row.lengths]
    largest = [max(row.radius)] * len(replaced)
    sums = {
        "printed": sum(map(math.prod, zip(largest, replaced, products, strict=True))),
        "layer_radii": sum(map(math.prod, zip(row.radius, replaced, products, strict=True))),
        "moved": sum(map(math.prod, zip(row.moved, products, strict=True))),
        "direct": sum(map(math.prod, zip(row.moved, constants.above, strict=True))),
    }
    return {name: constants.head * value for name, value in sums.items()}


@dataclass(frozen=True)
class TheoremReport:
    """Both sides of Theorem 1 on a sample.

    Attributes:
        rows: The measurements of each input.
        constants: The largest ratios of the sample.
        loss: The name of the loss.
        settings: Those of the pyramid*.
        directions: Random changes per layer and input.
        seed: Of the random changes.
    """

    rows: tuple[Measured, ...]
    constants: Constants
    loss: str
    settings: dict[str, Any]
    directions: int
    seed: int

    @property
    def observed(self) -> dict[str, float]:
        """Mean and maximum of the change of the loss."""
        return _mean_and_max([row.loss_change for row in self.rows])

    def bounds(self) -> dict[str, dict[str, Any]]:
        """Each bound: mean and max over inputs, "loose" and "least_margin".

        "loose" is the mean bound over the mean change; None if the loss does not change. The margin of an input is the
        bound minus the change; no input violates the bound if the least margin is at least 0.
        """
        sides = [right_hand_sides(row, self.constants) for row in self.rows]
        changes, mean = [row.loss_change for row in self.rows], self.observed["mean"]
        table = {}
        for name in BOUNDS:
            values = [side[name] for side in sides]
            about = _mean_and_max(values)
            table[name] = {
                **about,
                "loose": None if mean == 0 else about["mean"] / mean,
                "least_margin": min(value - change for value, change in zip(values, changes, strict=True)),
            }
        return table

    def layers(self) -> list[dict[str, Any]]:
        """By layer: mean and max of N − l_j, δ_j and what is moved, and the constants by where they come from."""
        return [
            {
                "layer": j + 1,
                "replaced": _mean_and_max([row.n - row.lengths[j] for row in self.rows]),
                "radius": _mean_and_max([row.radius[j] for row in self.rows]),
                "moved": _mean_and_max([row.moved[j] for row in self.rows]),
                "layer_constant": self.constants.layer[j],
                "layer_from_pyramid": max(row.layer[j] for row in self.rows),
                "layer_from_random": max(row.layer_random[j] for row in self.rows),
                "product_above": math.prod(self.constants.layer[j:]),
                "direct_constant": self.constants.above[j],
                "direct_from_pyramid": max(row.above[j] for row in self.rows),
                "direct_from_random": max(row.above_random[j] for row in self.rows),
            }
            for j in range(len(self.constants.layer))
        ]

    def to_dict(self, *, rows: bool = False) -> dict[str, Any]:
        """A JSON-ready dict; with the measurements of each input if `rows`."""
        data = {
            "inputs": len(self.rows),
            "mean_tokens": _mean_and_max([row.n for row in self.rows])["mean"],
            "loss": self.loss,
            "dense_loss": _mean_and_max([row.loss for row in self.rows])["mean"],
            "observed": self.observed,
            "bounds": self.bounds(),
            "head_constant": self.constants.head,
            "head_from_pyramid": max(row.head for row in self.rows),
            "head_from_random": max(row.head_random for row in self.rows),
            "layers": self.layers(),
            "directions": self.directions,
            "seed": self.seed,
            "settings": self.settings,
        }
        return {**data, "rows": [dataclasses.asdict(row) for row in self.rows]} if rows else data

    def sentence(self) -> str:
        """The factor by which the bound is loose, in words."""
        bounds, seen = self.bounds(), self.observed["mean"]
        printed = bounds["printed"]["mean"]
        if seen == 0:
            return f"The loss did not change on these {len(self.rows)} inputs; the bound is {printed:.3g}."
        loose = {name: shown(bound["loose"]) for name, bound in bounds.items()}
        return (
            f"On {len(self.rows)} inputs the loss changes by {seen:.3g} on average and Theorem 1 allows "
            f"{printed:.3g}: it is loose by a factor of {loose['printed']}. With each layer's own radius "
            f"{loose['layer_radii']}, with the measured movement {loose['moved']}, with one constant from each layer "
            f"to CLS {loose['direct']}."
        )


def shown(value: float) -> str:
    """A factor with three digits, never as a power of ten.

    Example:
        >>> shown(31.41), shown(1188.7)
        ('31.4', '1,189')
    """
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _largest(rows: list[tuple[float, ...]]) -> tuple[float, ...]:
    return tuple(map(max, zip(*rows, strict=True)))


def _mean_and_max(values: Sequence[float]) -> dict[str, float]:
    return {"mean": sum(values) / len(values), "max": max(values)}
