"""FAVOR+: attention by positive random features, linear in the number of tokens. Only torch is imported.

Follows "Rethinking Attention with Performers" (Choromanski et al., 2021). The softmax kernel exp(q·k) is the mean over
random w of φ_w(q)·φ_w(k) with φ_w(x) = exp(w·x − ‖x‖²/2), so attention needs no N x N matrix: values are summed into
one (features x width) matrix, which every query reads. The generalised kernel takes φ(x) = relu(w·x) + ε instead, or
relu(x) + ε where there are no random features; it does not approximate softmax.

Softmax features of keys are divided by their largest value, feature by feature, and those of queries multiplied by it:
nothing changes, but every denominator is at least 1, and neither overflow nor underflow to 0/0 can happen in fp32. The
generalised kernel is not scaled: its features grow no faster than their inputs, and ε keeps its denominators above 0.
With either kernel, a row whose keys are all masked reads all of them: the result is finite but meaningless.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...errors import PyramidError, UnknownNameError

KERNELS: tuple[str, ...] = ("softmax", "relu")
RELU_EPSILON = 1e-3


def orthogonal_features(features: int, width: int, generator: torch.Generator | None = None) -> Tensor:
    """Random directions (features, width): orthogonal in blocks of `width`, as long as Gaussian vectors would be.

    Args:
        features: How many.
        width: Of a head's queries and keys.
        generator: Source of randomness, on the CPU; torch's own if None.

    Example:
        >>> w = orthogonal_features(4, 4, torch.Generator().manual_seed(0))
        >>> products = w @ w.T
        >>> bool(torch.allclose(products, products.diagonal().diag(), atol=1e-4))
        True
    """
    if features < 1 or width < 1:
        raise PyramidError(f"features and width must be at least 1, got features={features}, width={width}")
    blocks = -(-features // width)
    gaussian = torch.randn(blocks, width, width, generator=generator, device="cpu")
    directions, upper = torch.linalg.qr(gaussian)
    # QR fixes the signs; multiplying by those of the diagonal makes the directions uniform.
    directions = directions * upper.diagonal(dim1=1, dim2=2).sign()[:, None, :]
    lengths = torch.randn(features, width, generator=generator, device="cpu").norm(dim=1, keepdim=True)
    return directions.transpose(1, 2).reshape(-1, width)[:features] * lengths


def favor_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None = None,
    projection: Tensor | None = None,
    *,
    kernel: str = "softmax",
) -> Tensor:
    """What each query reads (B, H, Q, V), in time and memory linear in Q and N.

    Args:
        query: (B, H, Q, D).
        key: (B, H, N, D).
        value: (B, H, N, V).
        bias: (B, 1, 1, N) added to the logits of keys: log(s) counts a key s times, a large negative number leaves it
            out, unless all of its row are. None for none.
        projection: (M, D) random directions; None for relu(x) + ε without any.
        kernel: "softmax", which approximates softmax(q·k / sqrt(D)) the better the larger M is, or "relu".

    Example:
        >>> x = torch.randn(1, 2, 5, 4, generator=torch.Generator().manual_seed(0))
        >>> favor_attention(x, x, x, kernel="relu").shape
        torch.Size([1, 2, 5, 4])
    """
    if kernel not in KERNELS:
        raise UnknownNameError("kernel", kernel, KERNELS)
    dtype = value.dtype
    with torch.autocast(query.device.type, enabled=False):
        query, key, value = (x if x.dtype == torch.float64 else x.float() for x in (query, key, value))
        projection = None if projection is None else projection.to(query.dtype)
        weight = None if bias is None else _key_weights(bias.to(query.dtype))
        if kernel == "relu":
            asked, known = _relu_features(query, key, weight, projection)
        elif projection is None:
            raise PyramidError("the softmax kernel needs random features; give a projection, or kernel='relu'")
        else:
            asked, known = _softmax_features(query, key, weight, projection)
        summed = known.transpose(-1, -2) @ value  # (B, H, M, V)
        total = known.sum(dim=-2)[..., None]  # (B, H, M, 1)
        return ((asked @ summed) / (asked @ total)).to(dtype)


def _key_weights(bias: Tensor) -> Tensor:
    """Logarithms of how often each key counts (B, 1, N, 1); the largest of a row is 0 or more, so that one counts."""
    bias = bias[:, :, 0, :, None].clamp(min=torch.finfo(bias.dtype).min)  # -inf less itself would be NaN
    # A shift of a whole row cancels in the quotient. Rows with a real key have none, and stay as they are to the bit.
    return bias - bias.detach().amax(dim=-2, keepdim=True).clamp(max=0)


def _softmax_features(query: Tensor, key: Tensor, bias: Tensor | None, projection: Tensor) -> tuple[Tensor, Tensor]:
    """Positive features of queries (B, H, Q, M) and keys (B, H, N, M); see the module for why none can vanish."""
    scale = query.shape[-1] ** -0.25  # both sides: q·k / sqrt(D)
    asked, known = (_exponents(x * scale, projection) for x in (query, key))
    if bias is not None:
        known = known + bias
    # Both shifts cancel in the quotient, so no gradient belongs to them.
    largest = known.detach().amax(dim=-2, keepdim=True)  # (B, H, 1, M)
    asked = asked + largest
    return (asked - asked.detach().amax(dim=-1, keepdim=True)).exp(), (known - largest).exp()


def _exponents(x: Tensor, projection: Tensor) -> Tensor:
    """w·x − ‖x‖²/2 for every direction: the logarithm of a positive feature."""
    return x @ projection.T - x.square().sum(dim=-1, keepdim=True) / 2


def _relu_features(query: Tensor, key: Tensor, bias: Tensor | None, projection: Tensor | None) -> tuple[Tensor, Tensor]:
    asked, known = ((x if projection is None else x @ projection.T).relu() + RELU_EPSILON for x in (query, key))
    return asked, known if bias is None else known * bias.exp()
