"""Who stays: token selectors, registered by name. Depends on torch alone."""

from .attention import received_attention
from .baselines import pool_groups
from .cluster import ward_counts, ward_groups
from .coreset import Cover, k_center_greedy, radius_curve
from .cover import shortest_cover
from .distances import Geometry, from_radius, squared_distances, to_radius
from .nearest import nearest_kept
from .selectors import Selector, get_selector, register, selector_names

__all__ = [
    "Cover",
    "Geometry",
    "Selector",
    "from_radius",
    "get_selector",
    "k_center_greedy",
    "nearest_kept",
    "pool_groups",
    "radius_curve",
    "received_attention",
    "register",
    "selector_names",
    "shortest_cover",
    "squared_distances",
    "to_radius",
    "ward_counts",
    "ward_groups",
]
