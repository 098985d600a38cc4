"""Faster linear layers for inference on a CPU: weights packed once for the processor, in fp32, bf16 or 8-bit integers.

With few tokens (a single text, or the upper layers of a pyramid) a matrix product mostly reads weights and rearranges
them on every call. "packed" rearranges them once, in oneDNN's layout: the same numbers, and logits that differ only by
rounding. "bf16" rounds weights, inputs and outputs of the products to bfloat16, on processors with instructions for it;
attention, norms and selection stay in fp32. Logits of a dense model change little; a pyramid keeps other tokens of a
few texts. "int8" stores weights as 8-bit integers, one scale per output, and quantizes inputs in each call: a quarter
of the bytes, and larger changes.

The original weights stay, so saving, restoring and training work as before. A layer whose weights have changed packs
them again at its next use; a layer that needs gradients runs as usual. Writes through `weight.data` are not noticed,
because torch does not count them: call `optimize` again after such a write.
"""

from __future__ import annotations

import warnings
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..core.encoder import PyramidEncoder
from ..errors import PyramidError, UnknownNameError

Optimization = Literal["packed", "bf16", "int8"]


class _FastLinear(nn.Linear):
    """A linear layer with a packed copy of its weights, used by `forward` without gradients."""

    _fast: Any
    _packed_at: list[tuple[int, int]]

    def forward(self, x: Tensor) -> Tensor:
        """`x` (..., in) times the weights, plus the bias."""
        plain = x.device.type != "cpu" or x.dtype != self.weight.dtype or not x.numel()
        learns = x.requires_grad or any(weight.requires_grad for weight in self.parameters())
        if plain or (torch.is_grad_enabled() and learns):
            return super().forward(x)
        if getattr(self, "_packed_at", None) != self._written():
            self.pack()
        return self._run(x)

    def pack(self) -> None:
        """Makes the packed copy."""
        with torch.inference_mode(False), torch.no_grad():
            self._fast = self._prepared(self.weight.detach())
        self._packed_at = self._written()

    def _written(self) -> list[tuple[int, int]]:
        """A value that changes when weights or bias are written to or replaced."""
        return [(weight.data_ptr(), weight._version) for weight in self.parameters()]

    def __getstate__(self) -> dict[str, Any]:
        """Copies of the layer pack their own weights at their first use."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_fast", "_packed_at")}

    def _prepared(self, weight: Tensor) -> Any:
        raise NotImplementedError

    def _run(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class PackedLinear(_FastLinear):
    """fp32 weights in the layout that oneDNN's kernels read."""

    multiplies_exactly = True  # callers may multiply with `weight` instead

    def _prepared(self, weight: Tensor) -> Any:
        return torch.ops.mkldnn._reorder_linear_weight(weight, None)

    def _run(self, x: Tensor) -> Tensor:
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._fast, self.bias, "none", [], "")
        return out


class Bf16Linear(_FastLinear):
    """Weights in bf16, in oneDNN's layout; inputs are rounded to bf16 in each call, and outputs are fp32 again."""

    def _prepared(self, weight: Tensor) -> Any:
        return torch.ops.mkldnn._reorder_linear_weight(weight.bfloat16(), None)

    def _run(self, x: Tensor) -> Tensor:
        # The bias stays in fp32: oneDNN adds it before it rounds the sum.
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x.bfloat16(), self._fast, self.bias, "none", [], "")
        return out.float()


class Int8Linear(_FastLinear):
    """8-bit weights with one scale per output; inputs are quantized in each call, with one scale."""

    def _prepared(self, weight: Tensor) -> Any:
        scale = weight.abs().amax(dim=1).clamp(min=1e-12).double() / 127
        zero = torch.zeros(len(weight), dtype=torch.long)
        with warnings.catch_warnings():  # torch will remove these tensors; `optimize` raises then
            warnings.simplefilter("ignore", UserWarning)
            quantized = torch.quantize_per_channel(weight, scale, zero, 0, torch.qint8)
        return torch.ops.quantized.linear_prepack(quantized, self.bias)

    def _run(self, x: Tensor) -> Tensor:
        # Without VNNI two products are added in 16 bits; 7-bit inputs cannot overflow them.
        out: Tensor = torch.ops.quantized.linear_dynamic(x, self._fast, not has_vnni())
        return out


_KINDS: dict[str, type[_FastLinear]] = {"packed": PackedLinear, "bf16": Bf16Linear, "int8": Int8Linear}
OPTIMIZATIONS: tuple[str, ...] = tuple(_KINDS)


def optimize(model: Any, how: Optimization = "packed") -> Any:
    """Gives the encoder layers of `model` faster linear layers, in place, and returns it. `unoptimize` undoes it.

    Args:
        model: A model in fp32 on the CPU, dense or pyramid.
        how: "packed" (the same numbers), "bf16" (products in bfloat16, where the processor has instructions for it) or
            "int8" (a quarter of the bytes, slightly different logits).

    Example:
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> tiny = BertConfig(hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16)
        >>> model = optimize(BertForSequenceClassification(tiny).eval())
        >>> optimization_of(model), optimization_of(unoptimize(model))
        ('packed', None)
    """
    check_optimization(how)
    linear = _linear_layers(model)
    if not linear:
        raise PyramidError(f"{type(model).__name__} has no encoder layers to optimize; give a transformers model")
    for layer in linear:
        if layer.weight.device.type != "cpu" or layer.weight.dtype != torch.float32:
            raise PyramidError(
                f"only fp32 models on the CPU can be optimized, found weights in {layer.weight.dtype} on "
                f"{layer.weight.device}; use model.to('cpu', torch.float32) first"
            )
    unoptimize(model)
    try:
        for layer in linear:
            fast: Any = layer
            fast.__class__ = _KINDS[how]
            fast.pack()
    except (AttributeError, RuntimeError) as error:
        unoptimize(model)
        reason = str(error).splitlines()[0]
        raise PyramidError(f"this build of torch cannot do {how!r} here: {reason}; leave the model as it is") from error
    return model


def check_optimization(how: str) -> None:
    """Raises unless this processor has an optimization."""
    if how not in _KINDS:
        raise UnknownNameError("optimization", how, _KINDS)
    if how == "bf16" and not _has_bf16():
        raise PyramidError(
            "'bf16' needs a processor with bfloat16 instructions (amx_bf16 or avx512_bf16), which this one does not "
            "have; use 'packed' (the same logits) or 'int8' (slightly different logits)"
        )


def unoptimize(model: Any) -> Any:
    """Undoes `optimize`, in place, and returns the model."""
    for layer in model.modules():
        if isinstance(layer, _FastLinear):
            layer.__class__ = nn.Linear  # type: ignore[assignment]
            layer.__dict__.pop("_fast", None)
            layer.__dict__.pop("_packed_at", None)
    return model


def optimization_of(model: Any) -> str | None:
    """The name of a model's optimization, or None."""
    names = {cls: name for name, cls in _KINDS.items()}
    return next((names[type(layer)] for layer in model.modules() if type(layer) in names), None)


def _linear_layers(model: Any) -> list[nn.Linear]:
    """The linear layers inside encoder layers; pooler and classifier see only one vector per text."""
    lists = [part for part in model.modules() if isinstance(part, nn.ModuleList)]
    lists += [nn.ModuleList(part.plan.layers) for part in model.modules() if isinstance(part, PyramidEncoder)]
    return list(dict.fromkeys(layer for part in lists for layer in part.modules() if isinstance(layer, nn.Linear)))


def _has_bf16() -> bool:
    """Whether products in bf16 run on instructions of their own; torch emulates them on others, slower than fp32."""
    return _processor_has("_is_avx512_bf16_supported") or _processor_has("_is_amx_tile_supported")


def has_vnni() -> bool:
    """Whether the processor adds products of 8-bit integers in 32 bits. Without VNNI it adds two of them in 16 bits."""
    return _processor_has("_is_vnni_supported")


def _processor_has(question: str) -> bool:
    """What a function of `torch.cpu` answers; False in versions of torch without it."""
    supported = getattr(torch.cpu, question, None)
    return supported is not None and bool(supported())
