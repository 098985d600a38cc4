"""By how much an answer changes when a token vector moves: measured once on some texts, layer by layer.

Moving a token by v changes the probabilities of the classes by a KL divergence of about ½ vᵀFv, where F is the Fisher
information of the outputs with respect to that vector. F differs from token to token and is known only after the whole
model has run. Its mean over the tokens of some texts, one matrix a layer, is known before; its leading directions, each
times the root of its eigenvalue, are what `metric="sensitivity"` projects tokens on. The distance between two projected
tokens is then what merging them costs the answer on average.

The weights are read and not touched; labels are not needed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..config import SENSITIVITY_RANK
from ..core.loop import Pass, Recorder, Step
from ..core.tokens import Tokens
from ..errors import DataError, PyramidError
from ..families import base_model, family_of, has_head, pyramid_encoder, pyramidize, restore, set_sensitivity
from ..families.surgery import forget_sensitivity
from ..schedule.base import Schedule
from ..text.batches import Encoded, sorted_batches
from ..text.inference import collate
from ..text.sampling import shuffled

MIN_TEXTS, MOST_TEXTS = 25, 512
_BATCH = 16

AnyModel = TypeVar("AnyModel", bound=Any)


@torch.inference_mode(False)
def measure_sensitivity(
    model: AnyModel,
    items: Sequence[Encoded],
    pad_id: int = 0,
    *,
    after_each: Callable[[], object] | None = None,
    in_time: Callable[[], bool] | None = None,
) -> AnyModel:
    """Measures what the answers of a classifier depend on, leaves that with the model, and returns the model.

    A pyramid of it may then have `metric="sensitivity"`. Weights stay as they are; `restore` takes it away again.

    Args:
        model: A BERT or Performer classifier or regressor, as it was trained. Of a pyramid the dense model with its
            weights is measured.
        items: At least 25 encoded texts like those it will be used on; at most 512 of them are run.
        pad_id: The padding token.
        after_each: Called after each batch, for a progress bar; see `batches_to_measure`.
        in_time: Whether there is time for another batch. At least 25 texts are run however late it is.

    Example:
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> tiny = BertConfig(hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16)
        >>> model = measure_sensitivity(BertForSequenceClassification(tiny), [Encoded([2, 7, 5, 3])] * 25)
        >>> model = pyramidize(model, Schedule.exponential(0.5, 1), "cluster", metric="sensitivity")
        >>> model.bert.sensitivity.shape
        torch.Size([2, 8, 8])
    """
    _check(model, len(items))
    dense = restore(copy.deepcopy(model)).eval().requires_grad_(False)
    pyramidize(dense, Schedule.constant(1.0), "first", cls_only=False)
    recording = _States()
    signs = torch.Generator().manual_seed(0)
    width = dense.config.hidden_size
    total = torch.zeros(dense.config.num_hidden_layers, width, width, dtype=torch.float64)
    some, tokens, outputs = evenly(items, MOST_TEXTS), 0, list[Tensor]()
    batches = sorted_batches([len(item) for item in some], _BATCH)
    for rows in (batches[i] for i in shuffled(len(batches), 0)):  # any first part has texts of all lengths
        if in_time is not None and sum(map(len, outputs)) >= MIN_TEXTS and not in_time():
            break
        batch = {name: x.to(dense.device) for name, x in collate([some[i] for i in rows], pad_id).items()}
        with torch.enable_grad():
            logits = dense(**batch, pyramid_pass=Pass(recording)).logits
            torch.autograd.backward(_scalar(logits, signs))
        outputs.append(logits.detach().float().cpu())
        mask = batch.get("attention_mask", torch.ones_like(batch["input_ids"]))
        moved = mask.bool() & (torch.arange(mask.shape[1], device=mask.device) > 0)  # CLS is never merged
        for layer, state in enumerate(recording.states):
            gradient = state.grad[moved].cpu().double()  # (tokens, D)
            total[layer] += gradient.T @ gradient
        tokens += int(moved.sum())
        if after_each is not None:
            after_each()
    spread = torch.cat(outputs).var(unbiased=False).clamp(min=1e-12) if dense.config.num_labels == 1 else 1.0
    total /= spread * max(tokens, 1)
    total[-1] = total[-2:][0]  # no answer depends on it: where it reduces all the same, as the layer before
    set_sensitivity(base_model(model), _leading(total).to(model.device))
    return model


def refresh_sensitivity(model: Any, items: Sequence[Encoded], pad_id: int) -> None:
    """Measures sensitivity again after the weights have changed; a model that does not use it loses it."""
    if uses_sensitivity(model):
        measure_sensitivity(model, items, pad_id)
    else:
        forget_sensitivity(base_model(model))


def check_refreshable(model: Any, texts: int) -> None:
    """Raises if sensitivity could not be measured again after training on this many texts."""
    if uses_sensitivity(model) and texts < MIN_TEXTS:
        raise DataError(
            f"metric='sensitivity' is measured again after training, which needs at least {MIN_TEXTS} texts, got "
            f"{texts}; give more, or use metric='euclidean' or 'cosine'"
        )


def uses_sensitivity(model: Any) -> bool:
    """Whether `model` is a pyramid that compares tokens by sensitivity."""
    encoder = pyramid_encoder(model)
    return encoder is not None and encoder.by_sensitivity


def batches_to_measure(texts: int) -> int:
    """How often `measure_sensitivity` calls `after_each` for a number of texts.

    Example:
        >>> batches_to_measure(100), batches_to_measure(100_000)
        (7, 32)
    """
    return -(-min(texts, MOST_TEXTS) // _BATCH)


class _States(Recorder):
    """Keeps what attention gives, layer by layer, with gradients."""

    def __init__(self) -> None:
        self.states: list[Any] = []  # (B, N, D) each

    def start(self, tokens: Tokens, n: int) -> None:
        """Forgets the last pass."""
        self.states.clear()

    def ran(self, step: Step, tokens: Tokens) -> None:
        """Keeps the state after attention."""
        if step.half != "attention":
            return
        if tokens.hidden.requires_grad:
            tokens.hidden.retain_grad()
        else:  # the first: no weight learns, so that gradients begin here
            tokens.hidden.requires_grad_()
        self.states.append(tokens.hidden)


def _scalar(logits: Tensor, signs: torch.Generator) -> Tensor:
    """A number whose gradient g by a token has E[g gᵀ] = F over random signs: one backward pass, whatever the classes.

    With respect to the logits F is diag(p) − ppᵀ = AAᵀ with A = diag(√p) − p√pᵀ. Columns of A, each with a random
    sign, are added up to what logits are weighed by. For two classes A may have one column: nothing is random there.
    """
    if logits.shape[1] == 1:
        return logits.sum()
    shares = logits.detach().float().softmax(dim=1)
    roots = shares.sqrt()
    if logits.shape[1] == 2:
        weight = roots.prod(dim=1, keepdim=True) * torch.tensor([-1.0, 1.0], device=logits.device)
    else:
        signed = roots * (2.0 * torch.randint(2, roots.shape, generator=signs).to(roots) - 1)
        weight = signed - shares * signed.sum(dim=1, keepdim=True)  # (B, classes)
    weighed: Tensor = weight.to(logits) * logits
    return weighed.sum()


def _leading(fisher: Tensor) -> Tensor:
    """The leading directions (layers, D, R) of symmetric matrices (layers, D, D), times the roots of their values."""
    values, directions = torch.linalg.eigh(fisher)  # ascending
    rank = min(SENSITIVITY_RANK, fisher.shape[1])
    leading: Tensor = directions[..., -rank:] * values[:, None, -rank:].clamp(min=0).sqrt()
    return leading.float().contiguous()


def evenly(items: Sequence[Encoded], most: int) -> list[Encoded]:
    """At most this number of texts, evenly chosen."""
    return list(items)[:: max(1, len(items) // most)][:most]


def _check(model: Any, texts: int) -> None:
    if "attention" not in family_of(model).how.halves.halves:
        raise PyramidError(f"sensitivity cannot be measured on {type(model).__name__}, whose layers run whole")
    if not has_head(model):
        raise PyramidError(
            f"sensitivity is that of answers, got {type(model).__name__}, which has no head; give "
            "AutoModelForSequenceClassification.from_pretrained(path)"
        )
    if texts < MIN_TEXTS:
        raise DataError(f"measuring sensitivity needs at least {MIN_TEXTS} texts, got {texts}; labels are not needed")
