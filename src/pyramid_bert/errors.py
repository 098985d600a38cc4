"""The exceptions a caller may want to catch. All are `ValueError`s, so generic handlers work too."""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterable

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = _repr.maxlong = 160


def shown(value: object) -> str:
    """A value as errors quote it: its repr, shortened if it is long.

    Example:
        >>> shown(0.5), len(shown("a" * 10_000))
        ('0.5', 160)
    """
    return " ".join(_repr.repr(value).split())  # an array has several lines


class PyramidError(ValueError):
    """Something given to pyramid-bert cannot be used; the message says what, why and what to do."""


class UsageError(PyramidError):
    """A command was called with options that do not fit together or hold a wrong value."""


class ExperimentError(UsageError):
    """An experiment file that cannot be run; the message lists all that is wrong with it."""


class UnknownNameError(PyramidError):
    """A name that is in no registry. Lists the names that are, the nearest first.

    Example:
        >>> str(UnknownNameError("selector", "corset", ["coreset", "first"]))
        "unknown selector 'corset'; did you mean 'coreset'? Known: coreset, first"
    """

    def __init__(self, kind: str, name: object, known: Iterable[str]) -> None:
        names = sorted(known)
        short = [long for long in names if "".join(word[:1] for word in long.split("_")) == str(name)]  # "lr"
        near = short or difflib.get_close_matches(str(name)[:100], names, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}? " if near else ""
        super().__init__(f"unknown {kind} {shown(name)}; {hint}Known: {', '.join(names)}")


class OutOfReachError(PyramidError):
    """A speed-up that nothing gives on these texts; the message names the largest that can be reached."""


class UnsupportedModelError(PyramidError):
    """The model has no adapter, or asks for something that its adapter cannot give."""


class DataError(PyramidError):
    """A data file or a set of texts and labels that cannot be used."""


class NoDataError(DataError):
    """A folder that has no file of a task."""


class CheckpointError(PyramidError):
    """A model folder that is missing, damaged, or not what the caller takes it for."""


class MissingExtraError(PyramidError, ImportError):
    """An optional dependency is not installed. The message holds the pip line that installs it.

    Example:
        >>> str(MissingExtraError("pyarrow", "data", "reading Parquet"))
        "reading Parquet needs pyarrow: pip install 'pyramid-bert[data]'"
    """

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs {package}: pip install 'pyramid-bert[{extra}]'")
