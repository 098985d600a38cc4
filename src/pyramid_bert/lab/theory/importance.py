"""Are the tokens that a core-set takes first the important ones? The paper's second ablation, measured.

One token of every text is removed from a dense classifier after the attention of one layer: the one that greedy
k-center ranks k-th. The mutual information, in nats, of predictions with and without it shows how much is left; for two
balanced classes that never change it is ln 2 = 0.69. If rank means importance, it grows with k.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ...core.coreset import CentersPerStep, k_center_greedy
from ...errors import MissingExtraError, PyramidError
from ...families import has_head, logits_of_cls, pyramid_encoder, pyramidize
from ...schedule.base import Schedule
from ...text.batches import Encoded, sorted_batches
from ...text.inference import collate
from .measure import HalfSteps, embedded, key_bias


@dataclass(frozen=True, kw_only=True)
class Importance:
    """The effect of removing one token, by its rank.

    Attributes:
        layer: The layer after whose attention a token is removed, from 1.
        centers_per_step: The paper's m.
        ranks: 2, 3, ..; CLS has rank 1 and stays.
        information: For each rank, the mutual information of predictions with and without that token, in nats.
        agreement: For each rank, the share of predictions that stay as they are.
        spearman: Rank correlation of ranks and information; NaN when the information is the same for all.
        texts: The number of texts.
    """

    layer: int
    centers_per_step: CentersPerStep
    ranks: tuple[int, ...]
    information: tuple[float, ...]
    agreement: tuple[float, ...]
    spearman: float
    texts: int


@torch.inference_mode()
def token_importance(
    model: Any,
    items: Sequence[Encoded],
    *,
    layers: Sequence[int],
    ranks: int,
    centers_per_step: Sequence[CentersPerStep] = (1, "all"),
    batch_size: int = 32,
    after_each: Callable[[], object] | None = None,
) -> list[Importance]:
    """The importance of tokens by rank, for each layer and m.

    Args:
        model: A dense BERT classifier; it is not changed.
        items: Texts of at least `ranks` tokens.
        layers: The layers after whose attention to remove a token, from 1; not the last, as nothing attends after it.
        ranks: The largest rank.
        centers_per_step: The values of m to rank by.
        batch_size: Texts at a time.
        after_each: Called after each batch, for a progress bar.
    """
    _check(model, items, layers, ranks)
    runner = _Runner(model)
    with_all: list[Tensor] = []
    without: dict[tuple[int, CentersPerStep], list[Tensor]] = {(j, m): [] for j in layers for m in centers_per_step}
    for rows in sorted_batches([len(item) for item in items], batch_size):
        batch = collate([items[i] for i in rows], 0)
        states, mask = runner.states(batch)
        with_all.append(runner.predict(states[-1]))
        for (layer, m), found in without.items():
            order = k_center_greedy(states[2 * layer - 1], mask, ranks, centers_per_step=m).indices  # (B, ranks)
            found.append(
                torch.stack([runner.without(states[2 * layer], mask, order[:, r], layer) for r in range(1, ranks)], 1)
            )
        if after_each is not None:
            after_each()
    reference = torch.cat(with_all)  # (texts,)
    return [_report(layer, m, reference, torch.cat(found)) for (layer, m), found in without.items()]


def mutual_information(first: Sequence[Any], second: Sequence[Any]) -> float:
    """The mutual information of two labellings of the same things, in nats.

    Example:
        >>> round(mutual_information([0, 0, 1, 1], [1, 1, 0, 0]), 4), round(mutual_information([0, 1], [0, 0]), 4)
        (0.6931, 0.0)
    """
    try:
        from sklearn.metrics import mutual_info_score
    except ImportError as error:
        raise MissingExtraError("scikit-learn", "train", "computing mutual information") from error
    return float(mutual_info_score(list(first), list(second)))


class _Runner:
    """A dense classifier, half a layer at a time, for a batch with pads."""

    def __init__(self, model: Any) -> None:
        # A pyramid only for its view of the layers: nothing is dropped here.
        self.model = pyramidize(copy.deepcopy(model).eval(), Schedule.constant(0.5))
        encoder = pyramid_encoder(self.model)
        assert encoder is not None
        self.steps = HalfSteps(encoder)

    def states(self, batch: dict[str, Tensor]) -> tuple[list[Tensor], Tensor]:
        """The states (B, N, D) after 0, 1, .. 2L halves, and the mask (B, N)."""
        mask = batch.get("attention_mask", torch.ones_like(batch["input_ids"])).bool()  # none if no row has pads
        hidden = embedded(self.model, batch)
        return self.steps.states(hidden, key_bias(mask, hidden.dtype)), mask

    def without(self, hidden: Tensor, mask: Tensor, token: Tensor, layer: int) -> Tensor:
        """Predictions (B,) when no token attends to `token` (B,) after `layer`, whose output is `hidden`."""
        left = mask.scatter(1, token[:, None], False)
        return self.predict(self.steps.run(hidden, 2 * layer, self.steps.last, key_bias(left, hidden.dtype)))

    def predict(self, hidden: Tensor) -> Tensor:
        """The class (B,) that the last state (B, N, D) means."""
        return logits_of_cls(self.model, hidden).argmax(1)


def _report(layer: int, m: CentersPerStep, reference: Tensor, found: Tensor) -> Importance:
    """Args: reference (texts,) and found (texts, ranks - 1) predictions."""
    try:
        from scipy.stats import spearmanr
    except ImportError as error:
        raise MissingExtraError("scipy", "train", "computing rank correlations") from error
    ranks = tuple(range(2, found.shape[1] + 2))
    information = tuple(mutual_information(reference.tolist(), column.tolist()) for column in found.T)
    same = len(set(information)) == 1
    return Importance(
        layer=layer,
        centers_per_step=m,
        ranks=ranks,
        information=information,
        agreement=tuple((found == reference[:, None]).double().mean(0).tolist()),
        spearman=float("nan") if same else float(spearmanr(ranks, information).statistic),
        texts=len(reference),
    )


def _check(model: Any, items: Sequence[Encoded], layers: Sequence[int], ranks: int) -> None:
    if pyramid_encoder(model) is not None:
        raise PyramidError("the importance of tokens is measured on a dense classifier; this one is a pyramid")
    if not has_head(model) or model.config.num_labels < 2:
        raise PyramidError(f"predictions of classes are compared; {type(model).__name__} is not a classifier")
    depth = model.config.num_hidden_layers
    if wrong := [layer for layer in layers if not 1 <= layer < depth]:
        raise PyramidError(f"layers must be in 1-{depth - 1}, got {wrong}; nothing attends after layer {depth}")
    if ranks < 3:
        raise PyramidError(f"ranks must be at least 3 to compare two tokens, got {ranks}")
    if not items:
        raise PyramidError("no texts given; at least one is needed")
    if (short := min(map(len, items))) < ranks:
        raise PyramidError(f"a text has {short} tokens, so none of rank {ranks}; leave it out or take fewer ranks")
