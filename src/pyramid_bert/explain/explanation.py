"""What happened to one text, as data: made by `explain` of a classifier, drawn by this package. No torch."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from io import StringIO
from typing import TYPE_CHECKING, Any

from ..config import PyramidConfig
from ..core.record import Trace
from ..text.labels import Labels
from ..text.predicting import probabilities
from ..text.tables import Text

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class LayerView:
    """The tokens left after one layer. Positions count the tokens of the input from 0 (CLS).

    Attributes:
        layer: Number of the layer, from 1; 0 for a selection at the input.
        kept: Positions of the tokens left, ascending.
        home: For each input token, the position of the kept token that stands for it; -1 for none.
        radius: Largest distance from a token to its nearest kept one in this layer's selection; 0 if the layer drops
            nothing.
    """

    layer: int
    kept: tuple[int, ...]
    home: tuple[int, ...]
    radius: float


@dataclass(frozen=True)
class Explanation:
    """What a pyramid did to one text, layer by layer. Draws itself in a notebook, by `print` and by `rich.print`.

    Attributes:
        text: The text; a pair is joined with " ‖ ".
        tokens: Its tokens as the model reads them, special tokens included.
        layers: One entry per layer, in order; `layers[-1].kept` are the survivors.
        prediction: The predicted label (or number, for regression).
        probabilities: Label -> probability; empty for regression.
        dense_prediction: What the same weights predict when no token is dropped; None where that is not known.
        settings: The pyramid's settings, as `PyramidConfig.to_dict` gives them.
        dense_probabilities: Label -> probability without dropping; empty for regression.
    """

    text: str
    tokens: tuple[str, ...]
    layers: tuple[LayerView, ...]
    prediction: Any
    probabilities: dict[str, float]
    dense_prediction: Any
    settings: dict[str, Any]
    dense_probabilities: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dict."""
        return dataclasses.asdict(self)

    def __rich__(self) -> RenderableType:
        from .terminal import token_pyramid

        return token_pyramid(self)

    def __str__(self) -> str:
        from rich.console import Console

        drawn = StringIO()
        Console(file=drawn, width=100).print(self)
        return drawn.getvalue().rstrip()

    def _repr_html_(self) -> str:
        from .html import explanation_html

        return explanation_html(self)


def explanation_of(
    text: Text,
    tokens: tuple[str, ...],
    trace: Trace,
    layers: int,
    labels: Labels,
    settings: PyramidConfig,
    logits: Any,
    dense: Any = None,
) -> Explanation:
    """The explanation of a text.

    Args:
        text: The text.
        tokens: Its tokens.
        trace: Its pass through the pyramid.
        layers: Of the model.
        labels: What the model predicts.
        settings: The pyramid's.
        logits: (1, C) of the pyramid.
        dense: (1, C) of the dense model; None if they are not known.
    """
    return Explanation(
        text=text if isinstance(text, str) else " ‖ ".join(text),
        tokens=tokens,
        layers=layer_views(trace, len(tokens), layers),
        prediction=labels.decode(logits)[0].item(),
        probabilities=_chances(labels, logits),
        dense_prediction=None if dense is None else labels.decode(dense)[0].item(),
        settings=settings.to_dict(),
        dense_probabilities={} if dense is None else _chances(labels, dense),
    )


def layer_views(trace: Trace, n: int, layers: int) -> tuple[LayerView, ...]:
    """One view per layer of the first row of a trace; a layer that reduces nothing repeats the previous one."""
    recorded = {entry.layer: entry for entry in trace.layers}
    everyone = tuple(range(n))
    views: list[LayerView] = []
    for layer in range(0 if 0 in recorded else 1, layers + 1):
        entry = recorded.get(layer)
        if entry is not None:
            kept = tuple(position for position in entry.kept[0].tolist() if position >= 0)
            views.append(LayerView(layer, kept, tuple(entry.home[0].tolist()), float(entry.radius[0])))
        elif views:
            views.append(LayerView(layer, views[-1].kept, views[-1].home, 0.0))
        else:
            views.append(LayerView(layer, everyone, everyone, 0.0))
    return tuple(views)


def _chances(labels: Labels, logits: Any) -> dict[str, float]:
    if labels.classes is None:
        return {}
    return {str(name): value for name, value in zip(labels.classes, probabilities(logits)[0].tolist(), strict=True)}
