"""The speed ledger: what a pyramid saves, over three honest baselines, in one interleaved run."""

from .adaptive import AdaptiveSolution, ideal_speedup, kept_lengths, solve_adaptive
from .budget import Solution, Solver, calibration_runs, solve_speedup
from .calibration import Calibration, calibrate
from .ledger import Entry, Ledger, measure
from .machine import describe_machine
from .memory import PeakMemory
from .models import model_pair
from .roofline import Roofline, measure_roofline
from .training import TrainingLedger, measure_training
from .workload import Workload, forward_all

__all__ = [
    "AdaptiveSolution",
    "Calibration",
    "Entry",
    "Ledger",
    "PeakMemory",
    "Roofline",
    "Solution",
    "Solver",
    "TrainingLedger",
    "Workload",
    "calibrate",
    "calibration_runs",
    "describe_machine",
    "forward_all",
    "ideal_speedup",
    "kept_lengths",
    "measure",
    "measure_roofline",
    "measure_training",
    "model_pair",
    "solve_adaptive",
    "solve_speedup",
]
