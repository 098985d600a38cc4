"""Model families: one table with a row per family, surgery on models, and classes of saved pyramids.

Importing this package makes saved pyramids known to transformers' Auto classes.
"""

from .around import weights_of
from .family import Family, How, Where
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
from .parts import (
    base_model,
    embedded,
    embeddings_of,
    encoder_of,
    has_head,
    head_modules,
    layers_of,
    logits_of_cls,
    modules_before,
    modules_beside,
    new_head,
    positions_of,
    pyramid_encoder,
    reads_types,
    run_ends,
    saved_sizes,
    settings_for,
    sizes_of,
)
from .saved import register_family
from .surgery import plan_of
from .table import FAMILIES, family_of

__all__ = [
    "FAMILIES",
    "Family",
    "How",
    "Where",
    "apply_settings",
    "base_model",
    "default_schedule",
    "embedded",
    "embeddings_of",
    "encoder_of",
    "family_of",
    "has_head",
    "head_modules",
    "is_pyramid",
    "layers_of",
    "logits_of_cls",
    "modules_before",
    "modules_beside",
    "new_head",
    "plan_of",
    "positions_of",
    "pyramid_encoder",
    "pyramid_settings",
    "pyramidize",
    "reads_types",
    "register_family",
    "restore",
    "run_ends",
    "saved_settings",
    "saved_sizes",
    "set_sensitivity",
    "settings_for",
    "sizes_of",
    "weights_of",
]
