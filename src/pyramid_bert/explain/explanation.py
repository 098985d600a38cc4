"""What happened to one text, as data: made by `PyramidClassifier.explain`, drawn by this package. No torch."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from io import StringIO
from typing import TYPE_CHECKING, Any

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
        dense_prediction: What the same weights predict when no token is dropped.
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
