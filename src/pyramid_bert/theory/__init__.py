"""The paper's Theorem 1, measured: covering radii, constants, both sides of the bound, what parallel choice costs."""

from .bound import BOUNDS, Constants, Measured, TheoremReport, right_hand_sides
from .kcenter import covering_radius, optimal_radius, price_of_parallelism
from .measure import HalfSteps, measure_input, measure_theorem

__all__ = [
    "BOUNDS",
    "Constants",
    "HalfSteps",
    "Measured",
    "TheoremReport",
    "covering_radius",
    "measure_input",
    "measure_theorem",
    "optimal_radius",
    "price_of_parallelism",
    "right_hand_sides",
]
