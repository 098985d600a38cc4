"""Where a model can run: the runtimes and precisions of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from ..checks import check_choice
from ..errors import PyramidError
from .packed import OPTIMIZATIONS, optimize
from .registry import RUNTIMES, get_runtime

Place = tuple[str, str]  # runtime and precision

TORCH, ANY = "torch", "auto"
BASELINE: Place = (TORCH, "fp32")  # of the dense model: baseline c
PRECISIONS = {TORCH: ("fp32", *OPTIMIZATIONS)} | {name: one.precisions for name, one in RUNTIMES.items()}


def places_of(runtime: str = ANY, precisions: Sequence[str] | None = None) -> list[Place]:
    """The runtimes and precisions that this machine has, among those asked for; raises if a named one is missing.

    Example:
        >>> places_of("torch", ["fp32"])
        [('torch', 'fp32')]
    """
    check_choice("runtime", runtime, (ANY, *PRECISIONS))
    names = list(PRECISIONS) if runtime == ANY else [runtime]
    for precision in precisions or ():
        check_choice("precision", precision, dict.fromkeys(one for name in names for one in PRECISIONS[name]))
    if runtime in RUNTIMES:
        get_runtime(runtime).check_writing("fp32")
    found, lacking = list[Place](), dict[str, PyramidError]()
    for name, precision in ((one, precision) for one in names for precision in PRECISIONS[one]):
        if precisions is None or precision in precisions:
            try:
                _check_place(name, precision)
                found.append((name, precision))
            except PyramidError as error:
                lacking[precision] = error
    for precision in precisions or ():
        if precision not in {one for _, one in found}:
            raise lacking[precision]
    return found


def _check_place(runtime: str, precision: str) -> None:
    if runtime != TORCH:
        get_runtime(runtime).check_writing(precision)
    elif precision != "fp32":
        how: Any = precision
        optimize(nn.ModuleList([nn.Linear(8, 8)]), how)  # a build of torch may lack what the processor has
