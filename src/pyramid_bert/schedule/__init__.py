"""How narrow: schedules that say how many tokens each encoder layer keeps. Pure Python, no torch."""

from .base import Rounding, Schedule
from .kinds import (
    AdaptiveSchedule,
    ConstantSchedule,
    CustomSchedule,
    ExponentialSchedule,
    InputSchedule,
    RandomSchedule,
    StridedSchedule,
)
from .paper_table import PAPER_TABLE

__all__ = [
    "PAPER_TABLE",
    "AdaptiveSchedule",
    "ConstantSchedule",
    "CustomSchedule",
    "ExponentialSchedule",
    "InputSchedule",
    "RandomSchedule",
    "Rounding",
    "Schedule",
    "StridedSchedule",
]
