"""The table of runtimes that a model can be exported to: a name, its module, and what it can do. No torch.

A module has `write(stretch, example, file)`, which needs torch, `quantize(source, target, rows)`,
`load(file, precision, threads)`, which returns a `graphs.Graph` with the names of its `inputs` and the `widths` of its
outputs, `check(precision)`, which raises what this machine or environment lacks, and `check_writing(precision)`, which
raises what it lacks for writing.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from ..cores import has_vnni, instructions
from ..errors import UnknownNameError


@dataclass(frozen=True)
class Runtime:
    """A runtime that takes graphs.

    Attributes:
        name: As users write it.
        module: Where its functions are.
        suffix: Of the files of its graphs.
        precisions: In which precisions it can run a model.
        calibrates: Whether quantizing to int8 needs texts.
    """

    name: str
    module: str
    suffix: str
    precisions: tuple[str, ...]
    calibrates: bool

    def check(self, precision: str) -> None:
        """Raises unless this machine can run a precision of this runtime."""
        if precision not in self.precisions:
            raise UnknownNameError(f"precision of {self.name}", precision, self.precisions)
        self.functions.check(precision)

    def check_writing(self, precision: str) -> None:
        """Raises unless models can be written for this runtime, and run in this precision."""
        self.check(precision)
        self.functions.check_writing(precision)

    def slow(self, precision: str) -> str | None:
        """What will be slow on this processor, in a sentence; None if nothing is."""
        if precision != "int8" or has_vnni(instructions()):
            return None
        return "this processor has no 8-bit instructions (VNNI or AMX): int8 can be slower than fp32 here"

    @property
    def version(self) -> str:
        """Of its package."""
        return str(import_module(self.name).__version__).partition("-")[0]

    @property
    def functions(self) -> Any:
        """The module of the runtime; raises if its package is not installed."""
        return import_module(f".{self.module}", __package__)


RUNTIMES = {
    "openvino": Runtime("openvino", "openvino", ".xml", ("fp32", "bf16", "int8"), calibrates=True),
    "onnxruntime": Runtime("onnxruntime", "onnx", ".onnx", ("fp32", "int8"), calibrates=False),
}


def get_runtime(name: str) -> Runtime:
    """The runtime of this name."""
    if name not in RUNTIMES:
        raise UnknownNameError("runtime", name, RUNTIMES)
    return RUNTIMES[name]
