"""From a wanted speed-up to a pyramid: a schedule, the best one without training, or the best one after training."""

from ..training.sensitivity import measure_sensitivity
from .candidates import METHODS, Method, described
from .elastic import train_elastic
from .finder import MINIMUM_ROWS, Search
from .judge import Trial
from .options import Option
from .rehearsal import Rehearsal
from .runtimes import RuntimeSearch, find_runtime
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
from .taught import Choice, Taught, train_pyramid

__all__ = [
    "METHODS",
    "MINIMUM_ROWS",
    "AdaptiveSolution",
    "Calibration",
    "Choice",
    "Method",
    "Option",
    "Rehearsal",
    "RuntimeSearch",
    "Search",
    "Solution",
    "Solver",
    "Taught",
    "Trial",
    "adaptive_schedule_for_speedup",
    "calibrate",
    "calibration_runs",
    "described",
    "find_pyramid",
    "find_runtime",
    "measure_sensitivity",
    "schedule_for_speedup",
    "solve_adaptive",
    "solve_speedup",
    "train_elastic",
    "train_pyramid",
]
