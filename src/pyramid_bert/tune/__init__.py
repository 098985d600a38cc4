"""From a wanted speed-up to a pyramid: schedules for a model, and the best pyramid of a dense classifier, untrained."""

from ..training.sensitivity import measure_sensitivity
from .candidates import METHODS, Method, described
from .finder import MINIMUM_ROWS, Search
from .judge import Trial
from .schedules import (
    AdaptiveSolution,
    Solution,
    Solver,
    adaptive_schedule_for_speedup,
    calibration_runs,
    schedule_for_speedup,
    solve_adaptive,
    solve_speedup,
)
from .search import find_pyramid
from .speed import Calibration, calibrate

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
    "adaptive_schedule_for_speedup",
    "calibrate",
    "calibration_runs",
    "described",
    "find_pyramid",
    "measure_sensitivity",
    "schedule_for_speedup",
    "solve_adaptive",
    "solve_speedup",
]
