"""The speed ledger: what a pyramid saves, over three honest baselines, in one interleaved run."""

from .ledger import Entry, Ledger, measure
from .memory import PeakMemory
from .models import model_pair
from .workload import Workload

__all__ = ["Entry", "Ledger", "PeakMemory", "Workload", "measure", "model_pair"]
