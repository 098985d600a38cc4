"""The contract of a model family: what `check_family` checks, on tiny models with random weights.

Each check is a function of a `Case` that raises AssertionError with a sentence. `CHECKS` has them by name.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor, nn

from ..config import PyramidConfig
from ..core.loop import Pass, Recorder, Step
from ..core.record import Trace
from ..core.tokens import Tokens
from ..errors import PyramidError
from ..families import (
    Family,
    base_model,
    embedded,
    has_head,
    is_pyramid,
    layers_of,
    logits_of_cls,
    new_head,
    positions_of,
    pyramid_settings,
    pyramidize,
    restore,
    sizes_of,
)
from ..families.table import FAMILIES
from ..schedule.base import Schedule
from ..training import quiet_transformers
from .case import CLOSE, LENGTHS, Case, close, logits_of, named
from .models import LABELS, batch_of, one_row

# ---- the row itself ----


def parts_are_where_the_row_says(case: Case) -> None:
    """The names of the row, what it says of sizes, and what stands around the layers."""
    family, model = case.family, case.model()
    assert has_head(model), f"{type(model).__name__} has no attribute {family.where.base!r} (where.base)"
    layers, sizes = layers_of(model), sizes_of(model)
    assert len(layers) == sizes.layers, f"where.layers gives {len(layers)} layers, the config says {sizes.layers}"
    seen: list[Tensor] = []

    def look(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        seen.append(next(x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.dim() == 3))

    handle = layers[0].register_forward_pre_hook(look, with_kwargs=True)
    batch = batch_of(model, (9, 9))
    with torch.no_grad():
        found = model(**batch, output_hidden_states=True)
        handle.remove()
        close(embedded(model, batch["input_ids"]), seen[0], "how.enter: what the first layer is given")
        close(logits_of_cls(model, found.hidden_states[-1]), found.logits, "where.head and how.read: the logits")
    assert seen[0].shape[2] == sizes.hidden_size, "where: the width of tokens is not config.hidden_size"
    longest = positions_of(model)
    assert logits_of(model, batch_of(model, (longest,))).isfinite().all(), f"how.positions: {longest} are too many"
    new_head(model, LABELS + 2, seed=1)
    assert logits_of(model, batch).shape == (2, LABELS + 2), "where.output is not the layer that gives the logits"


# ---- a pyramid against the dense model ----


def keeping_everything_is_the_dense_model(case: Case) -> None:
    """For both ways to compute attention, batches of 1 and 32 rows, padded and not."""
    several = tuple(range(24, 8, -1)) * 2
    batches = {"1 row": ((24,), 24), "1 padded row": ((24,), 30), "32 rows": ((24,) * 32, 24)}
    batches |= {"32 padded rows": (several, 30), "32 rows of several lengths": (several, 24)}
    for attention, (name, (lengths, width)) in itertools.product(case.attentions(), batches.items()):
        model = case.model(attention=attention)
        batch = batch_of(model, lengths, width)
        dense = logits_of(model, batch)
        pyramidize(model, config=case.everything)
        close(logits_of(model, batch), dense, f"keeping everything, {attention}, {name}")
        pyramidize(model, config=case.half)
        close(logits_of(model, batch, Pass(dense=True)), dense, f"Pass(dense=True), {attention}, {name}")


def neither_padding_nor_other_rows_change_anything(case: Case) -> None:
    """The logits of a row are those that it has alone."""
    for settings in case.settings():
        model = pyramidize(case.model(), config=settings)
        batch, wide = batch_of(model, LENGTHS), batch_of(model, LENGTHS, 2 * max(LENGTHS))
        logits = logits_of(model, batch)
        close(logits_of(model, wide), logits, f"more padding, {named(settings)}")
        for row in range(len(LENGTHS)):
            close(logits_of(model, one_row(batch, row))[0], logits[row], f"row {row} alone, {named(settings)}")


def computing_only_cls_changes_nothing(case: Case) -> None:
    """In the last layer, with and without keys, and while a pass is recorded."""
    for attention in case.attentions():
        model = case.model(attention=attention)
        batch = batch_of(model, LENGTHS)
        logits = logits_of(pyramidize(model, config=case.half), batch)
        close(model(**batch).logits.detach(), logits, f"with gradients, {attention}")
        close(logits_of(model, batch, Pass(Trace(), whole=True)), logits, f"Pass(whole=True), {attention}")
        pyramidize(model, config=case.half.replace(cls_only=False))
        close(logits_of(model, batch), logits, f"cls_only=False, {attention}")


class _Received(Recorder):
    """Keeps the attention that tokens received in the first layer that reduces."""

    def __init__(self) -> None:
        self.found: Tensor | None = None

    def ran(self, step: Step, tokens: Tokens) -> None:
        if self.found is None and tokens.received is not None:
            self.found = tokens.received


def received_attention_is_that_of_the_dense_model(case: Case) -> None:
    """That is the sum of its eager weights over heads and real queries, or over the query of CLS."""
    if "eager" not in case.attentions():
        return
    for selector in ("attention", "cls-attention"):
        settings = PyramidConfig(schedule=Schedule.constant(0.5), selector=selector)
        model = case.model(attention="eager")
        if not case.takes(settings, model):
            continue
        batch = batch_of(model, (24, 9))
        with torch.no_grad():
            weights = model(**batch, output_attentions=True).attentions[0]  # (B, H, N, N)
        votes = batch["attention_mask"].bool()[:, None, :, None] if selector == "attention" else 1.0
        wanted = (weights if selector == "attention" else weights[:, :, :1]) * votes
        record = _Received()
        logits_of(pyramidize(model, config=settings), batch, Pass(record))
        assert record.found is not None, f"{selector!r}: attend returned no received attention"
        close(record.found, wanted.sum((1, 2)), f"the attention that {selector!r} ranks by", 1e-4)


# ---- surgery ----


def _anatomy(model: Any) -> list[Any]:
    """What surgery could leave behind: modules, modes, hooks, attributes, and the order of parameters."""
    return [
        (name, id(part), part.training, sorted(vars(part)), len(part._forward_hooks), len(part._forward_pre_hooks))
        for name, part in model.named_modules()
    ]


def restoring_leaves_nothing_behind(case: Case) -> None:
    """Neither for the logits nor in the model; and a pyramid has the keys of the dense model's state dict."""
    model = case.model()
    batch, before, keys = batch_of(model, LENGTHS), _anatomy(model), list(model.state_dict())
    dense = logits_of(model, batch)
    at_input = PyramidConfig(schedule=Schedule.input_only(0.5))
    for settings in (case.everything, case.half, at_input):
        pyramidize(model, config=settings)
        assert sorted(model.state_dict()) == sorted(keys), "the state dict of a pyramid has other keys"
        if settings is not case.everything:
            assert not torch.equal(logits_of(model, batch), dense), "losing tokens does not change the logits"
        restore(model)
        assert not is_pyramid(model)
        assert type(model) is case.family.classifier, f"restored, its class is {type(model).__name__}"
        assert type(model.config) is case.family.config, f"restored, its config is a {type(model.config).__name__}"
        assert _anatomy(model) == before, f"restoring leaves something behind in {_changed(before, _anatomy(model))}"
        assert torch.equal(logits_of(model, batch), dense), "the restored model gives other logits"


def _changed(before: list[Any], after: list[Any]) -> str:
    names = [now[0] or "the model" for was, now in zip(before, after, strict=False) if was != now]
    return ", ".join(names[:3]) or "the number of modules"


def saved_and_loaded_it_is_the_same(case: Case) -> None:
    """Through the Auto classes, in a pipeline, as the dense model; refused by the dense class."""
    from transformers import AutoModelForSequenceClassification

    from ..families.loading import load_model

    model = pyramidize(case.model(), config=case.half)
    batch = batch_of(model, LENGTHS)
    logits = logits_of(model, batch)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        loaded = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        assert pyramid_settings(loaded) == pyramid_settings(model), "loaded, the pyramid has other settings"
        close(logits_of(loaded, batch), logits, "the loaded pyramid", 0.0)
        assert not load_model(folder)[1], "load_model says that the head of a saved pyramid is new"
        why = _why_refused(case.family.classifier, folder)
        assert why is not None, "the dense class loads a saved pyramid as a dense model: where.activation is wrong"
        assert "pyramid-bert" in why, f"the dense class does not say why it loads no pyramid: {why}"
        _in_a_pipeline(loaded)
    with tempfile.TemporaryDirectory() as folder:
        dense = case.model()
        dense.save_pretrained(folder)
        loaded, head_is_new = load_model(folder)
        assert not head_is_new
        close(logits_of(loaded, batch), logits_of(dense, batch), "the dense model, loaded", 0.0)
    if case.family.model is not None:
        with tempfile.TemporaryDirectory() as folder:
            base_model(dense).save_pretrained(folder)
            assert load_model(folder)[1], "load_model says that the head of a model without one is trained"


def _why_refused(dense: Any, folder: str) -> str | None:
    """What loading a folder as a dense model raises."""
    try:
        dense.from_pretrained(folder)
    except (KeyError, PyramidError) as error:
        return str(error)
    return None


def _in_a_pipeline(model: Any) -> None:
    from transformers import pipeline

    from .words import tiny_tokenizer

    tokenizer = tiny_tokenizer(model)
    found = pipeline("text-classification", model=model, tokenizer=tokenizer)(["w7 w8 w9", "w11"], batch_size=2)
    given = tokenizer(["w7 w8 w9"], return_tensors="pt", return_token_type_ids=False)
    best = float(logits_of(model, given).softmax(-1).max())
    assert abs(found[0]["score"] - best) <= CLOSE, f"a pipeline says {found[0]['score']}, the model {best}"


# ---- training and threads ----


def every_setting_trains(case: Case) -> None:
    """Every selector and way to reduce: gradients for all weights, and a step that changes the logits."""
    for settings in case.settings():
        model = pyramidize(case.model().train(), config=settings)
        batch, what = batch_of(model, LENGTHS), named(settings)
        before = logits_of(model, batch)
        model(**batch, labels=torch.arange(len(LENGTHS)) % LABELS).loss.backward()
        learned = {name: weight.grad for name, weight in model.named_parameters()}
        if not settings.skip:
            idle = {name for name, weight in case.model().named_parameters() if learned[name] is None}
            assert not idle - _idle(case), f"{what}: no gradient reaches {sorted(idle - _idle(case))[:3]}"
        assert all(gradient is None or gradient.isfinite().all() for gradient in learned.values()), f"{what}: gradients"
        torch.optim.SGD(model.parameters(), 0.1).step()
        assert not torch.equal(logits_of(model, batch), before), f"{what}: a step of training changes nothing"


def _idle(case: Case) -> set[str]:
    """The weights of the dense model that no gradient reaches."""
    model = case.model().train()
    model(**batch_of(model, LENGTHS), labels=torch.arange(len(LENGTHS)) % LABELS).loss.backward()
    return {name for name, weight in model.named_parameters() if weight.grad is None}


def checkpointing_changes_no_gradient(case: Case) -> None:
    """Where the dense model has gradient checkpointing."""
    if not case.model().supports_gradient_checkpointing:
        return
    for settings in (case.half, PyramidConfig(schedule=Schedule.input_only(0.5))):
        found = []
        for checkpointing in (False, True):
            model = pyramidize(case.model().train(), config=settings)
            if checkpointing:
                model.gradient_checkpointing_enable({"use_reentrant": False})
            model(**batch_of(model, LENGTHS), labels=torch.arange(len(LENGTHS)) % LABELS).loss.backward()
            found.append({name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None})
        plain, checkpointed = found
        assert plain.keys() == checkpointed.keys(), "gradient checkpointing gives gradients to other weights"
        for name, gradient in plain.items():
            close(checkpointed[name], gradient, f"the gradient of {name} under checkpointing")


def it_runs_in_bf16(case: Case) -> None:
    """With finite logits in bf16, dense and pyramid."""
    model = case.model().to(torch.bfloat16)
    for settings in (case.everything, case.half):
        logits = logits_of(pyramidize(model, config=settings), batch_of(model, LENGTHS))
        assert logits.dtype == torch.bfloat16, f"in bf16 the logits are {logits.dtype}"
        assert logits.isfinite().all(), "in bf16 the logits are not finite"


def threads_share_a_model(case: Case) -> None:
    """Each call gets the answer that it gets alone."""
    model = pyramidize(case.model(), config=case.half)
    batches = [batch_of(model, [6 + i, 5 + 2 * i]) for i in range(8)]
    alone = [logits_of(model, batch) for batch in batches]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(lambda batch: logits_of(model, batch), batches * 4))
    for number, found in enumerate(together):
        close(found, alone[number % len(batches)], "beside another thread")


# ---- other runtimes ----


def as_graphs_it_is_the_same(case: Case) -> None:
    """Cut into stretches, as models are exported, but run in torch."""
    from .graphs import run_as_stretches

    how = case.family.how.halves.halves
    if how != ("attention", "feed_forward"):
        return  # refused by export
    for selector in ("coreset", "attention", "cluster"):
        settings = case.half.replace(selector=selector, reduce=None)
        model = case.model()
        if case.takes(settings, model):
            batch = batch_of(pyramidize(model, config=settings), LENGTHS)
            close(run_as_stretches(model, batch), logits_of(model, batch), f"in stretches, {named(settings)}")


CHECKS: dict[str, Callable[[Case], None]] = {
    check.__name__: check
    for check in (
        parts_are_where_the_row_says,
        keeping_everything_is_the_dense_model,
        neither_padding_nor_other_rows_change_anything,
        computing_only_cls_changes_nothing,
        received_attention_is_that_of_the_dense_model,
        restoring_leaves_nothing_behind,
        saved_and_loaded_it_is_the_same,
        every_setting_trains,
        checkpointing_changes_no_gradient,
        it_runs_in_bf16,
        threads_share_a_model,
        as_graphs_it_is_the_same,
    )
}


def check_family(family: Family | str, *, config: Mapping[str, Any] | None = None, only: Sequence[str] = ()) -> None:
    """Raises AssertionError, with a sentence, unless a registered family keeps the contract of all families.

    Takes about a minute: tiny models with random weights are run, saved and trained with every selector.

    Args:
        family: The row, or its model type.
        config: Keys of the config that tiny models of this family need.
        only: The names of some `CHECKS`; empty for all.

    Example:
        >>> check_family("bert", only=["parts_are_where_the_row_says"])
    """
    found = next((row for row in FAMILIES if family in (row, row.model_type)), None)
    if found is None:
        have = ", ".join(row.model_type for row in FAMILIES)
        raise PyramidError(f"the family {family!r} is not registered; call register_family first; there are: {have}")
    case = Case(found, dict(config or {}))
    with quiet_transformers():
        for name in only or CHECKS:
            CHECKS[name](case)
