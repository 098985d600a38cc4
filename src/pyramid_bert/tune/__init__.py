"""No fine-tuning: the best drop-in pyramid for a dense classifier, found on a small calibration set."""

from .candidates import METHODS, Method, described
from .halving import Trial
from .search import MINIMUM_ROWS, Search, find_pyramid

__all__ = ["METHODS", "MINIMUM_ROWS", "Method", "Search", "Trial", "described", "find_pyramid"]
