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
from .explanation import Explanation, explanation_of


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
    tokens = tuple(tokenizer.convert_ids_to_tokens(batch["input_ids"][0].tolist()))
    layers = model.config.num_hidden_layers
    return explanation_of(text, tokens, trace, layers, labels, settings, logits, dense)
