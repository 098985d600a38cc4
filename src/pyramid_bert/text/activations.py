"""What turns the number that a reranker gives into a score, under the names of sentence-transformers. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..checks import check_choice

Activation = Literal["sigmoid", "identity", "tanh"]
ACTIVATIONS: tuple[Activation, ...] = ("sigmoid", "identity", "tanh")
IN_CONFIG = "sentence_transformers"  # the entry of a transformers config in which CrossEncoder looks for it
_OLD = "sbert_ce_default_activation_function"  # the entry before sentence-transformers 4


def activated(logits: NDArray[Any], activation: Activation) -> NDArray[Any]:
    """The scores (n,) of a model's numbers (n,).

    Example:
        >>> activated(np.array([0.0, -800.0]), "sigmoid").tolist()
        [0.5, 0.0]
    """
    if activation == "sigmoid":
        small = np.exp(-np.abs(logits))  # of a negative number: it cannot overflow
        scores: NDArray[Any] = np.where(logits < 0, small, 1) / (1 + small)
        return scores
    return np.tanh(logits) if activation == "tanh" else logits


def named_in(config: Mapping[str, Any], where: str) -> Activation | None:
    """The activation that a config names, by the entries of sentence-transformers; None if it names none.

    Args:
        config: A transformers config, or the record that sentence-transformers writes.
        where: Names the config in errors.
    """
    entry = config.get(IN_CONFIG)
    named = (entry if isinstance(entry, Mapping) else config).get("activation_fn") or config.get(_OLD)
    if named is None:
        return None
    name = str(named).rpartition(".")[2].lower()
    check_choice(f"activation in {where}", name, ACTIVATIONS)
    return name  # type: ignore[return-value]


def note(config: Any, activation: Activation) -> None:
    """Writes the activation into a transformers config, where CrossEncoder looks for it."""
    path = f"torch.nn.modules.activation.{activation.capitalize()}"
    if activation == "identity":
        path = "torch.nn.modules.linear.Identity"
    setattr(config, IN_CONFIG, {**(getattr(config, IN_CONFIG, None) or {}), "activation_fn": path})
