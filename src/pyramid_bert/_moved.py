"""Modules renamed in 0.2: the old names work for one release, with a warning that has the new name."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_PACKAGE = __name__.rpartition(".")[0]

# Old module -> the modules in which its names are now, the main one first.
MOVED: dict[str, tuple[str, ...]] = {
    "data": ("text", "text.batches", "text.inference", "text.sampling", "lab.glue", "lab.lra.data"),
    "data.pathfinder": ("lab.lra.pathfinder",),
    "encoder": ("core.encoder", "core.loop"),
    "explanation": ("explain.explanation",),
    "hub": ("families.hub",),
    "inference": ("text.inference",),
    "labels": ("text.labels",),
    "loading": ("families.loading",),
    "lra": ("lab.lra",),
    "metrics": ("text.metrics",),
    "models": ("lab.performer",),
    "optimization": ("runtimes.packed",),
    "reduction": ("core.reduction",),
    "report": ("lab.report",),
    "search": ("tune",),
    "select": ("core",),
    "sensitivity": ("training.sensitivity",),
    "study": ("lab.study",),
    "theory": ("lab.theory",),
    "tokens": ("core.tokens",),
    "trace": ("core.record",),
    "tracing": ("explain.tracing",),
    "viz": ("explain",),
}
# Names that moved out of `bench`.
SOLVERS = ("AdaptiveSolution", "Calibration", "Solution", "Solver", "calibrate", "solve_adaptive", "solve_speedup")


class _Moved(MetaPathFinder, Loader):
    """Finds the old names, and makes modules that look up theirs in the new places."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """The spec of an old name; None for every other."""
        package, _, rest = name.partition(".")
        return ModuleSpec(name, self, is_package=True) if package == _PACKAGE and rest in MOVED else None

    def create_module(self, spec: ModuleSpec) -> None:
        """Python's own kind of module."""

    def exec_module(self, module: ModuleType) -> None:
        """Warns, and lets the module look names up in the new places."""
        homes = MOVED[module.__name__.removeprefix(f"{_PACKAGE}.")]
        warnings.warn(
            f"{module.__name__} is now {_PACKAGE}.{homes[0]}; the old name goes in the next release",
            DeprecationWarning,
            stacklevel=2,
        )

        def look_up(name: str) -> Any:
            for home in homes:
                found = import_module(f"{_PACKAGE}.{home}")
                if hasattr(found, name):
                    return getattr(found, name)
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")

        module.__getattr__ = look_up  # type: ignore[method-assign]


def solvers_of_bench(name: str) -> Any:
    """The `__getattr__` of `bench`, whose solvers are now in `tune`."""
    if name not in SOLVERS:
        raise AttributeError(f"module '{_PACKAGE}.bench' has no attribute {name!r}")
    warnings.warn(
        f"{_PACKAGE}.bench.{name} is now {_PACKAGE}.tune.{name}; the old name goes in the next release",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(import_module(f"{_PACKAGE}.tune"), name)


def install() -> None:
    """Makes the old names importable."""
    sys.meta_path.append(_Moved())
