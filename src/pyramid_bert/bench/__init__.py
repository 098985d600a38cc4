"""The speed ledger: what a pyramid saves, over three honest baselines, in one interleaved run."""

from .._moved import solvers_of_bench as __getattr__  # noqa: F401 - names that are now in tune
from .ideal import ideal_speedup, kept_lengths
from .ledger import Entry, Ledger, measure
from .machine import describe_machine
from .memory import PeakMemory
from .models import model_pair
from .roofline import Roofline, measure_roofline
from .training import TrainingLedger, measure_training
from .workload import Workload, forward_all

__all__ = [
    "Entry",
    "Ledger",
    "PeakMemory",
    "Roofline",
    "TrainingLedger",
    "Workload",
    "describe_machine",
    "forward_all",
    "ideal_speedup",
    "kept_lengths",
    "measure",
    "measure_roofline",
    "measure_training",
    "model_pair",
]
