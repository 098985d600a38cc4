"""Model families: one table with a row per family, surgery on models, and classes of saved pyramids.

Importing this package makes saved pyramids known to transformers' Auto classes.
"""

from .hub import (
    apply_settings,
    default_schedule,
    is_pyramid,
    pyramid_settings,
    pyramidize,
    restore,
    saved_settings,
    set_sensitivity,
)
from .saved import announce
from .surgery import plan_of
from .table import (
    FAMILIES,
    Family,
    add_family,
    base_model,
    embeddings_of,
    encoder_of,
    family_of,
    has_head,
    head_modules,
    layers_of,
    logits_of_cls,
    new_head,
    positions_of,
    pyramid_encoder,
    run_ends,
    saved_sizes,
    sizes_of,
)

__all__ = [
    "FAMILIES",
    "Family",
    "add_family",
    "announce",
    "apply_settings",
    "base_model",
    "default_schedule",
    "embeddings_of",
    "encoder_of",
    "family_of",
    "has_head",
    "head_modules",
    "is_pyramid",
    "layers_of",
    "logits_of_cls",
    "new_head",
    "plan_of",
    "positions_of",
    "pyramid_encoder",
    "pyramid_settings",
    "pyramidize",
    "restore",
    "run_ends",
    "saved_settings",
    "saved_sizes",
    "set_sensitivity",
    "sizes_of",
]
