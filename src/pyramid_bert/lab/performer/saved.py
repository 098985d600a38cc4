"""Saved Performers as pyramids."""

from __future__ import annotations

from typing import Any

from ...families import ADAPTERS, Adapter
from ...families.hub import _as_saved, _Family, _Guarded, _plain_act, register_family
from .adapter import PerformerBackbone, PerformerPyramidEncoder, check_performer, for_performer
from .model import PerformerConfig, PerformerForSequenceClassification, PerformerModel


class PyramidPerformerConfig(_Guarded, PerformerConfig):
    """The Performer's config with a `pyramid` entry."""

    model_type = "pyramid-performer"
    pyramid: dict[str, Any] | None = None


class PyramidPerformerModel(PerformerModel):
    """`PerformerModel` with a pyramid encoder."""

    config_class = PyramidPerformerConfig

    def __init__(self, config: PyramidPerformerConfig) -> None:
        config.hidden_act = _plain_act(config)
        super().__init__(config)
        _as_saved(self, config)


class PyramidPerformerForSequenceClassification(PerformerForSequenceClassification):
    """`PerformerForSequenceClassification` with a pyramid encoder."""

    config_class = PyramidPerformerConfig

    def __init__(self, config: PyramidPerformerConfig) -> None:
        config.hidden_act = _plain_act(config)
        super().__init__(config)
        _as_saved(self, config)


ADAPTERS.append(
    Adapter(
        model_types=("performer", "pyramid-performer"),
        base="performer",
        heads=("PerformerForSequenceClassification", "PyramidPerformerForSequenceClassification"),
        check=check_performer,
        make=PerformerPyramidEncoder,
        backbone=PerformerBackbone(),
        settings=for_performer,
    )
)
register_family(
    _Family(
        PerformerConfig,
        PyramidPerformerConfig,
        {
            PyramidPerformerModel: PerformerModel,
            PyramidPerformerForSequenceClassification: PerformerForSequenceClassification,
        },
    )
)
