"""From a traced forward pass to an `Explanation`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..core.loop import Pass
from ..core.record import Trace
from ..errors import PyramidError
from ..families.hub import pyramid_settings
from ..text.inference import call
from ..text.labels import Labels
from ..text.tables import Text
from .explanation import Explanation, LayerView


def explain(model: Any, tokenizer: Any, labels: Labels, text: Text, batch: dict[str, Tensor]) -> Explanation:
    """The explanation of `text`, given encoded in `batch`; see `PyramidClassifier.explain`."""
    settings = pyramid_settings(model)
    if settings is None:
        raise PyramidError("a dense model drops no token, so there is nothing to explain; pyramidize it first")
    trace = Trace()
    with torch.inference_mode():
        logits, dense = (
            call(model, batch, this)[0].logits.float().cpu().numpy()
            for this in (Pass(trace, whole=True), Pass(dense=True))
        )
    ids = batch["input_ids"][0].tolist()
    return Explanation(
        text=text if isinstance(text, str) else " ‖ ".join(text),
        tokens=tuple(tokenizer.convert_ids_to_tokens(ids)),
        layers=layer_views(trace, len(ids), model.config.num_hidden_layers),
        prediction=labels.decode(logits)[0].item(),
        probabilities=_probabilities(labels.classes, logits),
        dense_prediction=labels.decode(dense)[0].item(),
        settings=settings.to_dict(),
        dense_probabilities=_probabilities(labels.classes, dense),
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


def _probabilities(classes: tuple[Any, ...] | None, logits: Any) -> dict[str, float]:
    if classes is None:
        return {}
    values = torch.from_numpy(logits[0]).softmax(0).tolist()
    return {str(name): value for name, value in zip(classes, values, strict=True)}
