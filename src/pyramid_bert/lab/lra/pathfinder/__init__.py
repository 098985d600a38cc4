"""Pathfinder images (are two discs joined by one dashed snake?): a generator and its files."""

from .draw import Dash, Drawing, Snake, draw_pathfinder
from .settings import DIFFICULTIES, PathfinderSettings
from .store import PathfinderImages, make_pathfinder, read_pathfinder, read_record

__all__ = [
    "DIFFICULTIES",
    "Dash",
    "Drawing",
    "PathfinderImages",
    "PathfinderSettings",
    "Snake",
    "draw_pathfinder",
    "make_pathfinder",
    "read_pathfinder",
    "read_record",
]
