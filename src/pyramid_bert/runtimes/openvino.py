"""Graphs in OpenVINO: converted from torch, quantized by NNCF, compiled for the CPU."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from threading import local
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import MissingExtraError, PyramidError


def check(precision: str) -> None:
    """Raises if OpenVINO is not installed, or if this processor lacks what a precision needs."""
    _openvino()
    if precision == "bf16" and "BF16" not in _capabilities():
        raise PyramidError("this processor has no bf16 instructions (AVX-512 BF16 or AMX); use precision fp32 or int8")


def check_writing(precision: str) -> None:
    """Raises if what writes graphs of a precision is not installed."""
    _openvino()
    if precision == "int8":
        _nncf()


def write(stretch: Any, example: dict[str, Any], file: Path) -> None:
    """Writes a stretch (a torch module) as a graph with inputs of any number of rows and tokens.

    In full precision, to `file` (.xml), with its weights beside it (.bin).
    """
    openvino = _openvino()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the tracer, on branches that do not depend on the example
        graph = openvino.convert_model(stretch.eval(), example_input=example)
    for put, name in zip(graph.inputs, example, strict=True):
        put.get_tensor().set_names({name})
    openvino.save_model(graph, file, compress_to_fp16=False)


def quantize(source: Path, target: Path, rows: Sequence[dict[str, NDArray[Any]]]) -> None:
    """Writes a graph in 8-bit integers: NNCF's post-training quantization, for transformers.

    Args:
        source: A graph that `write` wrote.
        target: Where the quantized graph goes.
        rows: What reaches the graph when it runs on texts like those that it will be used on.
    """
    nncf = _nncf()
    with _quiet(nncf):
        graph = nncf.quantize(
            _core().read_model(source),
            nncf.Dataset(rows),
            model_type=nncf.ModelType.TRANSFORMER,
            subset_size=len(rows),
        )
    _openvino().save_model(graph, target, compress_to_fp16=False)


def load(file: Path, precision: str = "fp32", threads: int | None = None) -> OpenVinoGraph:
    """The graph in a file, compiled for the CPU.

    Args:
        file: What `write` or `quantize` wrote.
        precision: "fp32", "bf16" or "int8". What is not quantized in an int8 graph runs in bf16 if the processor can.
        threads: None for all cores.
    """
    lower = precision == "bf16" or (precision == "int8" and "BF16" in _capabilities())
    hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "bf16" if lower else "f32"}
    if threads is not None:
        hints["INFERENCE_NUM_THREADS"] = str(threads)
    try:
        return OpenVinoGraph(_core().compile_model(file, "CPU", hints))
    except RuntimeError as error:  # many lines on where it was raised, and what is wrong last
        raise RuntimeError(str(error).strip().splitlines()[-1]) from error


class OpenVinoGraph:
    """A compiled graph. Threads may share it: each has its own request, with the memory of its inputs and outputs.

    Attributes:
        inputs: Their names.
        widths: The last dimension of each output, None where it may be any.
    """

    def __init__(self, compiled: Any) -> None:
        self._compiled = compiled
        self.inputs = [put.get_any_name() for put in compiled.inputs]
        last = [list(output.partial_shape)[-1] for output in compiled.outputs]
        self.widths = [None if width.is_dynamic else width.get_length() for width in last]
        self._of_thread = local()

    def __call__(self, given: dict[str, NDArray[Any]]) -> Sequence[NDArray[Any]]:
        """The outputs, in the runtime's memory: valid until this thread calls the graph again."""
        request = getattr(self._of_thread, "request", None)
        if request is None:
            request = self._of_thread.request = self._compiled.create_infer_request()
        inputs = {name: np.ascontiguousarray(given[name]) for name in self.inputs}
        found = request.infer(inputs, share_inputs=True, share_outputs=True)
        return [found[output] for output in self._compiled.outputs]


def _openvino() -> Any:
    try:
        import openvino
    except ImportError as error:
        raise MissingExtraError("openvino", "openvino", "a model in OpenVINO") from error
    return openvino


def _nncf() -> Any:
    try:
        with redirect_stdout(StringIO()):  # it says which frameworks it found
            import nncf
    except ImportError as error:
        raise MissingExtraError("nncf", "openvino", "int8 in OpenVINO") from error
    return nncf


@contextmanager
def _quiet(nncf: Any) -> Iterator[None]:
    """Inside the block NNCF draws no bars and says nothing."""
    before = nncf.common.logging.logger.nncf_logger.level
    nncf.set_log_level(logging.ERROR)
    try:
        with redirect_stdout(StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        nncf.set_log_level(before)


@cache
def _core() -> Any:
    """OpenVINO's devices: one for the process, as making it takes longer than compiling a graph."""
    return _openvino().Core()


@cache
def _capabilities() -> frozenset[str]:
    """What OpenVINO finds that this processor does fast, like "BF16" and "INT8"."""
    return frozenset(_core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"))
