"""CrossEncoder of sentence-transformers: the transformers model inside, and what reads its tokens.

Most CrossEncoders are a sequence classifier, which reads CLS. Modular ones are a bare encoder, a `Pooling` and `Dense`
layers. A pyramid serves those whose pooling reads CLS or a mean. For a mean the encoder spreads its output: every input
token counts with the vector of the token that represents it.
"""

from __future__ import annotations

from typing import Any

from ..errors import UnsupportedModelError
from .parts import has_head

_POOLINGS = ("cls", "mean")
_TOKENS = "token_embeddings"  # where sentence-transformers' modules find the output of an encoder


def inside(model: Any) -> tuple[Any, bool]:
    """The transformers model in a CrossEncoder, and whether it has to spread its output; other models as they are.

    Raises for a CrossEncoder that reads tokens in another way than by CLS or a mean.
    """
    if not is_cross_encoder(model):
        return model, False
    first, *others = model.children()
    inner = getattr(first, "model", None)
    if inner is None or not hasattr(inner, "config"):
        raise UnsupportedModelError(
            f"this CrossEncoder begins with {type(first).__name__}; one that begins with a transformers model is needed"
        )
    if has_head(inner):
        if others:
            raise UnsupportedModelError(
                f"this CrossEncoder has {type(others[0]).__name__} behind a {type(inner).__name__}; a sequence "
                "classifier alone, or a bare encoder with Pooling and Dense is needed"
            )
        return inner, False
    return inner, _reads_mean(others)


def is_cross_encoder(model: Any) -> bool:
    """Whether `model` is a CrossEncoder. sentence-transformers is not imported for it."""
    return any(
        kind.__name__ == "CrossEncoder" and kind.__module__.partition(".")[0] == "sentence_transformers"
        for kind in type(model).__mro__
    )


def _reads_mean(modules: list[Any]) -> bool:
    """Whether the modules behind a bare encoder read a mean over tokens; raises unless they read CLS or a mean."""
    pooling = modules[0] if modules else None
    modes = getattr(pooling, "pooling_mode", None)
    if modes is None:
        name = "nothing" if pooling is None else type(pooling).__name__
        raise UnsupportedModelError(f"this CrossEncoder has {name} behind a bare encoder; a Pooling is needed there")
    modes = (modes,) if isinstance(modes, str) else tuple(modes)
    if unknown := [mode for mode in modes if mode not in _POOLINGS]:
        raise UnsupportedModelError(
            f"this CrossEncoder pools tokens by {unknown[0]!r}, and a pyramid has not all of them; pooling by "
            f"{' or '.join(map(repr, _POOLINGS))} is supported"
        )
    for module in modules[1:]:
        if getattr(module, "module_input_name", None) == _TOKENS:
            raise UnsupportedModelError(
                f"{type(module).__name__} of this CrossEncoder reads all tokens; only Pooling may, and a pyramid has "
                "not all of them"
            )
    return "mean" in modes
