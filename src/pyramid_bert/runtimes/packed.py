"""Faster linear layers for inference on a CPU: weights packed once for the processor, or as 8-bit integers.

With few tokens (a single text, or the upper layers of a pyramid) a matrix product mostly reads weights and rearranges
them on every call. "packed" rearranges them once, in oneDNN's layout: the same numbers, and logits that differ only by
rounding. "int8" stores them as 8-bit integers with one scale per output and quantizes inputs in each call: a quarter of
the bytes to read, and slightly different logits.

The original weights stay, so saving, restoring and training work as before. A layer whose weights have changed packs
them again at its next use; a layer that needs gradients runs as usual. Writes through `weight.data` are not noticed,
because torch does not count them: call `optimize` again after such a write.
"""

from __future__ import annotations

import warnings
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..errors import PyramidError, UnknownNameError

Optimization = Literal["packed", "int8"]


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


_KINDS: dict[str, type[_FastLinear]] = {"packed": PackedLinear, "int8": Int8Linear}
OPTIMIZATIONS: tuple[str, ...] = tuple(_KINDS)


def optimize(model: Any, how: Optimization = "packed") -> Any:
    """Gives the encoder layers of `model` faster linear layers, in place, and returns it. `unoptimize` undoes it.

    Args:
        model: A model in fp32 on the CPU, dense or pyramid.
        how: "packed" (the same numbers) or "int8" (a quarter of the bytes, slightly different logits).

    Example:
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> tiny = BertConfig(hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=16)
        >>> model = optimize(BertForSequenceClassification(tiny).eval())
        >>> optimization_of(model), optimization_of(unoptimize(model))
        ('packed', None)
    """
    if how not in _KINDS:
        raise UnknownNameError("optimization", how, _KINDS)
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
    return [layer for part in lists for layer in part.modules() if isinstance(layer, nn.Linear)]


def has_vnni() -> bool:
    """Whether the processor adds products of 8-bit integers in 32 bits. Without VNNI it adds two of them in 16 bits."""
    supported = getattr(torch.cpu, "_is_vnni_supported", None)
    return supported is not None and bool(supported())
