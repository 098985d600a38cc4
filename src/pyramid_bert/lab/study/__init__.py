"""Studies: experiments as data, a runner that can be killed at any moment, and the paper's tables from the results."""

from .experiment import Study
from .grid import Cell
from .methods import METHODS, Method
from .spec import load_study

__all__ = ["METHODS", "Cell", "Method", "Study", "load_study"]
