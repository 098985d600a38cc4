"""Who stays: token selectors, registered by name. Depends on torch alone."""

from .attention import received_attention
from .coreset import Cover, k_center_greedy
from .distance import nearest_kept, squared_distances, to_radius
from .registry import Selector, get_selector, register, selector_names
from .simple import pool_groups

__all__ = [
    "Cover",
    "Selector",
    "get_selector",
    "k_center_greedy",
    "nearest_kept",
    "pool_groups",
    "received_attention",
    "register",
    "selector_names",
    "squared_distances",
    "to_radius",
]
