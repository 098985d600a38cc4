"""Stretches in ONNX Runtime: converted from torch, saved, quantized, run on the CPU.

Precisions are fp32 and int8. There is no bf16: the runtime has no such kernels for the CPU.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from ..cores import cores, has_vnni, instructions
from ..errors import MissingExtraError


def check(precision: str) -> None:
    """Raises if ONNX Runtime is not installed."""
    _package("onnxruntime")


def check_writing(precision: str) -> None:
    """Raises if what writes graphs is not installed."""
    _package("onnx")
    _package("onnxscript")


def write(stretch: Any, example: dict[str, Any], file: Path) -> None:
    """Writes a stretch (a torch module) as a graph with inputs of any number of rows and tokens.

    To `file` (.onnx). What exceeds 2 GB has its weights beside it (.onnx.data).
    """
    import torch

    _package("onnx")
    _package("onnxscript")
    dims = {0: torch.export.Dim("rows"), 1: torch.export.Dim("tokens")}
    with _quiet():
        graph: Any = torch.onnx.export(
            stretch.eval(),
            kwargs=example,
            input_names=list(example),
            dynamic_shapes=dict.fromkeys(example, dims),
            custom_translation_table={torch.ops.aten.scaled_dot_product_attention.default: _attention},
            dynamo=True,
            verbose=False,
        )
        graph.save(file)


def quantize(source: Path, target: Path, rows: Sequence[Any] = ()) -> None:
    """Writes the graph in `source` with linear layers in 8-bit integers: a quarter of the bytes.

    Weights get one scale per output. Inputs are quantized in each call, with one scale for the batch, so the logits of
    a text depend a little on the texts beside it. Embeddings stay as they are. No `rows` are needed to tell scales.
    """
    onnx, quantization = _package("onnx"), _package("onnxruntime.quantization")
    graph = onnx.load(source)
    adds_in_16_bits = not has_vnni(instructions())  # two products at a time; 7-bit weights cannot overflow them
    by_head = _by_head(graph.graph)
    del graph.graph.value_info[:]  # it holds shapes of weights, which are wrong after the quantizer transposed them
    quantization.quant_utils.add_pre_process_metadata(graph)  # the exporter has done that work
    quantization.quantize_dynamic(
        graph,
        target,
        op_types_to_quantize=["MatMul"],  # the quantizer turns every Gemm into one
        nodes_to_exclude=by_head,
        per_channel=True,
        reduce_range=adds_in_16_bits,
        weight_type=quantization.QuantType.QInt8,
        use_external_data_format=source.with_name(f"{source.name}.data").exists(),
    )


def _by_head(graph: Any) -> list[str]:
    """The products with more than a matrix: weights by head cannot be run with one scale per output."""
    ranks = {weight.name: len(weight.dims) for weight in graph.initializer}
    ranks |= {value.name: len(value.type.tensor_type.shape.dim) for value in graph.value_info}
    return [node.name for node in graph.node if node.op_type == "MatMul" and ranks.get(node.input[1]) != 2]


def load(file: Path, precision: str = "fp32", threads: int | None = None) -> OnnxGraph:
    """The graph in a file, for the CPU.

    Args:
        file: What `write` or `quantize` wrote.
        precision: "fp32" or "int8". The file holds what it says.
        threads: None for all cores.
    """
    runtime = _package("onnxruntime")
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_ALL
    # Without a number the runtime pins threads to cores, also to those that a container may not use.
    options.intra_op_num_threads = cores() if threads is None else threads
    # Every graph has its own threads. Those that spin would take the cores from the next graph and from our loops.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 4  # errors are raised
    return OnnxGraph(runtime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"]))


class OnnxGraph:
    """A graph that runs on the CPU. Threads may share it.

    Attributes:
        inputs: Their names.
        widths: The last dimension of each output, None where it may be any.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self.inputs = [put.name for put in session.get_inputs()]
        last = [put.shape[-1] for put in session.get_outputs()]
        self.widths = [width if isinstance(width, int) else None for width in last]

    def __call__(self, given: dict[str, NDArray[Any]]) -> Sequence[NDArray[Any]]:
        """The outputs."""
        found: Sequence[NDArray[Any]] = self._session.run(None, {name: given[name] for name in self.inputs})
        return found


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingExtraError(name, "onnx", "a model in ONNX Runtime") from error


def _attention(
    query: Any, key: Any, value: Any, bias: Any, dropout: float = 0.0, causal: bool = False, *, scale: float
) -> Any:
    """Attention as the runtime fuses it best. The exporter would copy the keys twice to transpose them.

    Args:
        query: (B, H, N, D/H), like `key` and `value`.
        key: See `query`.
        value: See `query`.
        bias: (B, 1, 1, N) added to the scores.
        dropout: Part of torch's signature; 0 in stretches.
        causal: Part of torch's signature; False in stretches.
        scale: What scores are multiplied by.
    """
    from onnxscript import opset18 as op

    scores = op.MatMul(query, op.Transpose(key, perm=[0, 1, 3, 2])) * op.Constant(value_float=scale)
    return op.MatMul(op.Softmax(scores + bias, axis=-1), value)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences the exporter's warnings inside the block: on packages that it does not need, and on its own code."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
