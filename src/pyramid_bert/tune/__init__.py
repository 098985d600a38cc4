"""Give me 3x: calibration, solvers, search, sensitivity."""

from .adaptive import AdaptiveSolution, solve_adaptive
from .calibration import Calibration, calibrate
from .candidates import METHODS, Method, described
from .halving import Trial
from .search import MINIMUM_ROWS, Search, find_pyramid
from .sensitivity import measure_sensitivity
from .solver import Solution, Solver, calibration_runs, solve_speedup

__all__ = [
    "METHODS",
    "MINIMUM_ROWS",
    "AdaptiveSolution",
    "Calibration",
    "Method",
    "Search",
    "Solution",
    "Solver",
    "Trial",
    "calibrate",
    "calibration_runs",
    "described",
    "find_pyramid",
    "measure_sensitivity",
    "solve_adaptive",
    "solve_speedup",
]
