"""pyramid-bert: BERT classifiers whose upper layers work on fewer tokens, to train and run several times faster.

from pyramid_bert import Schedule, pyramidize

pyramidize(model, Schedule.exponential(keep_ratio=0.25, last_layer=3))
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._moved import install as _install_old_names
from .version import __version__

if TYPE_CHECKING:
    from .certificate import Certificate
    from .classifier import PyramidClassifier
    from .config import PyramidConfig
    from .core.coreset import k_center_greedy
    from .cost import Cost, space_reduction
    from .errors import PyramidError
    from .export.classifier import ExportedClassifier
    from .families.family import Family, How, Where
    from .families.hub import is_pyramid, pyramid_settings, pyramidize, restore
    from .families.saved import register_family
    from .reranker import PyramidReranker
    from .runtimes.packed import optimize, unoptimize
    from .schedule.base import Schedule
    from .schedule.paper_table import PAPER_TABLE
    from .training.sensitivity import measure_sensitivity
    from .tune.schedules import adaptive_schedule_for_speedup, schedule_for_speedup

# Name -> module, loaded on first use.
_HOMES = {
    "Certificate": "certificate",
    "Cost": "cost",
    "ExportedClassifier": "export.classifier",
    "Family": "families.family",
    "How": "families.family",
    "PAPER_TABLE": "schedule",
    "PyramidClassifier": "classifier",
    "PyramidConfig": "config",
    "PyramidError": "errors",
    "PyramidReranker": "reranker",
    "Schedule": "schedule",
    "Where": "families.family",
    "adaptive_schedule_for_speedup": "tune.schedules",
    "is_pyramid": "families.hub",
    "k_center_greedy": "core.coreset",
    "measure_sensitivity": "training.sensitivity",
    "optimize": "runtimes.packed",
    "pyramid_settings": "families.hub",
    "pyramidize": "families.hub",
    "register_family": "families.saved",
    "restore": "families.hub",
    "schedule_for_speedup": "tune.schedules",
    "space_reduction": "cost",
    "unoptimize": "runtimes.packed",
}

__all__ = [
    "PAPER_TABLE",
    "Certificate",
    "Cost",
    "ExportedClassifier",
    "Family",
    "How",
    "PyramidClassifier",
    "PyramidConfig",
    "PyramidError",
    "PyramidReranker",
    "Schedule",
    "Where",
    "__version__",
    "adaptive_schedule_for_speedup",
    "is_pyramid",
    "k_center_greedy",
    "measure_sensitivity",
    "optimize",
    "pyramid_settings",
    "pyramidize",
    "register_family",
    "restore",
    "schedule_for_speedup",
    "space_reduction",
    "unoptimize",
]


def _is_command_line() -> bool:
    """Whether this process is `pyramid-bert` or `python -m pyramid_bert`, or one that these started."""
    program = sys.argv[0] if sys.argv else ""
    if program == "-m":  # while Python looks for the package to run: this one, or one that imports it
        words = sys.orig_argv
        return words[words.index("-m") + 1 :][:1] == [__name__]
    return Path(program).stem == "pyramid-bert" or Path(program) == Path(__file__).with_name("__main__.py")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pyramid_bert' has no attribute {name!r}")
    value = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    globals()[name] = value
    return value


_install_old_names()

# Importing `hub` makes saved pyramids known to transformers' Auto classes, so `import pyramid_bert` is enough for them.
# The command line imports it only in commands that need it, so that `pyramid-bert --help` does not wait for torch.
# Where transformers is not installed, exported models run without it.
if not _is_command_line() and find_spec("transformers") is not None:
    import_module(".families.hub", __name__)
