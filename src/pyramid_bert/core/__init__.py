"""The method: tokens, selectors, reductions and the one loop. Works on torch tensors and numpy arrays; knows no model.

Read the modules in this order: `loop` (what happens in a pass), `tokens` and `reduction` (the data), `selectors`,
`coreset`, `cluster`, `bipartite` and `baselines` (which tokens stay), `reducer` (the decision), `distances`,
`covering`, `record`, `arrays`; for speed, `compiled`, `kernels` and `tables`.
"""

# Importing a selector's module registers it.
from .baselines import pool_groups
from .bipartite import bipartite_groups
from .cluster import ward_counts, ward_groups
from .coreset import k_center_greedy, radius_curve
from .covering import nearest_kept, shortest_cover
from .distances import Geometry, from_radius, squared_distances, to_radius
from .loop import Pass
from .record import Coverage, Radii, Trace
from .selectors import Candidates, Grouper, Ranker, Ranking, get_selector, register, selector_names

__all__ = [
    "Candidates",
    "Coverage",
    "Geometry",
    "Grouper",
    "Pass",
    "Radii",
    "Ranker",
    "Ranking",
    "Trace",
    "bipartite_groups",
    "from_radius",
    "get_selector",
    "k_center_greedy",
    "nearest_kept",
    "pool_groups",
    "radius_curve",
    "register",
    "selector_names",
    "shortest_cover",
    "squared_distances",
    "to_radius",
    "ward_counts",
    "ward_groups",
]
