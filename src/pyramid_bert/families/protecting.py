"""A hook that tells a pyramid which tokens of a call are protected: they are known by ids and types, not by states."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, cast

import torch
from torch.utils.hooks import RemovableHandle

from ..config import PyramidConfig
from ..core.encoder import HANDED_OVER
from ..core.loop import Pass
from ..core.protection import Protection
from ..errors import PyramidError, UnsupportedModelError
from .around import OPTION, arguments_of


def protecting(base: Any, protection: Protection | None) -> Sequence[RemovableHandle]:
    """The hook on a model without its head; none if nothing is protected."""
    if protection is None:
        return ()

    @torch.compiler.disable
    def tell(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        given, handed = (
            {**dict(zip(arguments_of(cast(Hashable, type(module))), args, strict=False)), **kwargs},
            HANDED_OVER.get(),
        )
        this = handed[-1][1] if handed and given.get(OPTION) is None else given.get(OPTION)
        if this is None:
            this = Pass()
            kwargs = {**kwargs, OPTION: this}
        mask = given.get("attention_mask")
        real = None if mask is None or mask.dim() != 2 else mask != 0
        this.protected = protection.of(given.get("input_ids"), given.get("token_type_ids"), real)
        if this.protected is None and not this.dense:
            needed = "token_type_ids" if protection.separator is None else "input_ids"
            raise PyramidError(
                f"this pyramid protects {' and '.join(protection.parts)}, which it knows by {needed}, and none were "
                "given; give them, or the setting separator=tokenizer.sep_token_id"
            )
        return args, kwargs

    return (base.register_forward_pre_hook(tell, with_kwargs=True),)


def reads_types(config: Any) -> bool:
    """Whether a model with this config reads token types, by which the texts of a pair can be told apart."""
    return int(getattr(config, "type_vocab_size", 0)) > 1


def with_separator(settings: PyramidConfig, config: Any) -> PyramidConfig:
    """The settings with the separator's id, where a model with this config reads no token types to protect by."""
    if not settings.protect or settings.separator is not None or reads_types(config):
        return settings
    for name in ("sep_token_id", "eos_token_id"):
        if isinstance(found := getattr(config, name, None), int):
            return settings.replace(separator=found)
    raise UnsupportedModelError(
        f"a model of type {config.model_type!r} reads no token types and its config names no separator, so what is the "
        "query cannot be told; give separator=tokenizer.sep_token_id"
    )
