"""Stretches in OpenVINO: converted from torch, saved, compiled for the CPU."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MissingExtraError


def _openvino() -> Any:
    try:
        import openvino
    except ImportError as error:
        raise MissingExtraError("openvino", "openvino", "models in OpenVINO") from error
    return openvino


@cache
def _core() -> Any:
    """OpenVINO's devices: one for the process, as making it takes longer than compiling a graph."""
    return _openvino().Core()


def convert(stretch: Any, example: dict[str, Any]) -> Any:
    """A stretch (a torch module) as a graph with inputs of any number of rows and tokens."""
    openvino = _openvino()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the tracer, on branches that do not depend on the example
        graph = openvino.convert_model(stretch.eval(), example_input=example)
    for put, name in zip(graph.inputs, example, strict=True):
        put.get_tensor().set_names({name})
    return graph


class OpenVinoGraph:
    """A graph compiled for the CPU.

    Args:
        graph: A graph, or the file of one.
        precision: "fp32" or "bf16": in which products are computed.
        threads: None for all cores.
    """

    def __init__(self, graph: Any | Path, precision: str = "fp32", threads: int | None = None) -> None:
        hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": {"fp32": "f32", "bf16": "bf16"}[precision]}
        if threads is not None:
            hints["INFERENCE_NUM_THREADS"] = str(threads)
        self._compiled = _core().compile_model(graph, "CPU", hints)
        self._names = [put.get_any_name() for put in self._compiled.inputs]

    def __call__(self, given: dict[str, NDArray[Any]]) -> Sequence[NDArray[Any]]:
        """The outputs, copied out of the runtime's memory."""
        found = self._compiled({name: np.ascontiguousarray(given[name]) for name in self._names}, share_inputs=True)
        return [found[output] for output in self._compiled.outputs]


def save(graph: Any, file: Path) -> None:
    """Writes a graph in full precision to `file` (.xml), with its weights beside it (.bin)."""
    _openvino().save_model(graph, file, compress_to_fp16=False)
