"""The paper's Theorem 1, measured: covering radii, constants, both sides of the bound, the cost of larger steps."""

from .bound import BOUNDS, Constants, Measured, TheoremReport, right_hand_sides
from .importance import Importance, mutual_information, token_importance
from .kcenter import covering_radius, optimal_radius, price_of_parallelism
from .measure import HalfSteps, measure_input, measure_theorem

__all__ = [
    "BOUNDS",
    "Constants",
    "HalfSteps",
    "Importance",
    "Measured",
    "TheoremReport",
    "covering_radius",
    "measure_input",
    "measure_theorem",
    "mutual_information",
    "optimal_radius",
    "price_of_parallelism",
    "right_hand_sides",
    "token_importance",
]
