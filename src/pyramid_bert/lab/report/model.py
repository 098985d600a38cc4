"""Runs a model on texts for the report: explanations, token vectors, covering radii and text lengths."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...classifier import PyramidClassifier
from ...core.loop import Pass
from ...core.selectors import Ranker
from ...errors import DataError, MissingExtraError, PyramidError
from ...explain.explanation import Explanation
from ...families import base_model, positions_of, pyramid_encoder
from ...families.hub import apply_settings
from ...text.batches import encode
from ...text.inference import collate
from ...text.tables import Text

EPS, MIN_SAMPLES = 0.2, 1  # the paper's DBSCAN
LENGTHS = (16, 64, 256)  # input lengths of the figure of the schedule


@dataclass(frozen=True)
class EncoderView:
    """The token vectors after one encoder of the dense model, over all texts.

    Attributes:
        layer: Its number, from 1.
        similarity: Cosine similarity of CLS with every other token of every text.
        clusters: For each text, the number of clusters that DBSCAN finds among its tokens.
    """

    layer: int
    similarity: NDArray[Any]
    clusters: NDArray[Any]


@dataclass(frozen=True)
class ModelView:
    """What the report shows of a model.

    Attributes:
        name: Its folder's name.
        layers: The number of its layers.
        settings: The pyramid's settings.
        trained: Whether it was saved as a pyramid; a dense model runs with the default schedule.
        explanations: Of the example texts.
        encoders: Token vectors at the first, middle and last encoder.
        radius: (texts, layers) covering radii; None for a selector without them.
        kept: Input length -> tokens after each layer; empty for an adaptive schedule.
        lengths: Name of a set of texts -> the number of tokens of each text.
    """

    name: str
    layers: int
    settings: Mapping[str, Any]
    trained: bool
    explanations: tuple[Explanation, ...]
    encoders: tuple[EncoderView, ...]
    radius: NDArray[Any] | None
    kept: Mapping[int, tuple[int, ...]]
    lengths: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @property
    def same_answers(self) -> int | None:
        """The number of examples with the dense model's answer; None for regression."""
        if not all(one.probabilities for one in self.explanations):
            return None
        return sum(bool(one.prediction == one.dense_prediction) for one in self.explanations)


def load_pyramid(path: str | Path, device: str | None = None) -> tuple[PyramidClassifier, bool]:
    """A trained classifier, and whether it was saved as a pyramid; a dense one gets the default schedule.

    Texts longer than the model can read are cut.
    """
    classifier = PyramidClassifier.load(path, device=device)
    trained = classifier.settings is not None
    if not trained:
        apply_settings(classifier.model, None, {})
    classifier.max_length = classifier.max_length or positions_of(classifier.model)
    return classifier, trained


def look_at(
    path: str | Path,
    texts: Sequence[Text],
    *,
    examples: int = 24,
    others: Mapping[str, Sequence[Text]] | None = None,
    stepped: Callable[[], object] = lambda: None,
    device: str | None = None,
) -> ModelView:
    """Runs a model on texts.

    Args:
        path: The folder of a trained classifier, pyramid or dense.
        texts: Texts for the figures.
        examples: The number of texts to explain, from the first.
        others: Further sets of texts by name; only their lengths are shown.
        stepped: Called after each text, for a progress bar.
        device: Where the model runs; see `PyramidClassifier`.
    """
    if not texts:
        raise DataError("no texts to look at; give at least one")
    classifier, trained = load_pyramid(path, device)
    settings = classifier.settings
    assert settings is not None
    encoders = look_inside(classifier, texts, stepped=stepped)
    explanations = []
    for text in texts[:examples]:
        explanations.append(classifier.explain(text))
        stepped()
    layers = int(classifier.model.config.num_hidden_layers)
    encoder = pyramid_encoder(classifier.model)
    measurable = encoder is not None and isinstance(encoder.selector, Ranker)
    return ModelView(
        name=Path(path).resolve().name,
        layers=layers,
        settings=settings.to_dict(),
        trained=trained,
        explanations=tuple(explanations),
        encoders=tuple(encoders),
        radius=classifier.answers(texts, radius=True).radius if measurable else None,
        kept={} if settings.schedule.is_adaptive else {n: settings.schedule.lengths(n, layers) for n in LENGTHS},
        lengths={name: lengths_of(classifier.tokenizer, found) for name, found in (others or {}).items()},
    )


def look_inside(
    classifier: PyramidClassifier, texts: Sequence[Text], *, stepped: Callable[[], object] = lambda: None
) -> list[EncoderView]:
    """Token vectors at the first, middle and last encoder when nothing is dropped, as the paper shows them.

    Args:
        classifier: A pyramid; its schedule is not used.
        texts: Run one at a time, without padding.
        stepped: Called after each text, for a progress bar.
    """
    try:
        from sklearn.cluster import DBSCAN
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "report", "counting clusters of tokens") from error
    encoder = pyramid_encoder(classifier.model)
    if encoder is None:
        raise PyramidError("look_inside takes a pyramid; use pyramidize(model, schedule) first")
    layers = len(encoder.plan.layers)
    wanted = tuple(dict.fromkeys((1, max(layers // 2, 1), layers)))
    similarity: dict[int, list[NDArray[Any]]] = {layer: [] for layer in wanted}
    counts: dict[int, list[int]] = {layer: [] for layer in wanted}
    scan = DBSCAN(eps=EPS, min_samples=MIN_SAMPLES, metric="cosine")
    for item in classifier.encode(texts):
        batch = collate([item], classifier.tokenizer.pad_token_id)
        batch = {name: tensor.to(classifier.model.device) for name, tensor in batch.items()}
        with torch.inference_mode():
            asked = {"output_hidden_states": True, "pyramid_pass": Pass(dense=True)}
            hidden = base_model(classifier.model)(**batch, **asked).hidden_states
        for layer in wanted:
            tokens = hidden[layer][0].float().cpu().numpy()  # (N, D); 0 is the embeddings
            unit = tokens / np.linalg.norm(tokens, axis=1, keepdims=True)
            similarity[layer].append(unit[1:] @ unit[0])
            counts[layer].append(len(set(scan.fit_predict(tokens).tolist())))
        stepped()
    return [EncoderView(layer, np.concatenate(similarity[layer]), np.array(counts[layer])) for layer in wanted]


def lengths_of(tokenizer: Any, texts: Sequence[Text]) -> list[int]:
    """The tokens of each text, uncut."""
    return [len(item) for item in encode(tokenizer, texts, positions=sys.maxsize)]
