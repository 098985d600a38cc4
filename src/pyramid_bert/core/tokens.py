"""The tokens of a batch between two steps of the encoder's loop."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from .coreset import distance_to_cls
from .distances import Geometry, Metric, to_radius
from .reduction import Reduction
from .summed import Summands, Sums


@dataclass
class Tokens:
    """The tokens between two steps of the loop.

    Attributes:
        hidden: (B, N, D).
        counts: Real tokens of each row: known on the host, so that nothing is read back from the device.
        mask: (B, N) bool; None when no row has pads.
        size: (B, N) input tokens behind each token; None when that is 1 or attention is not weighted.
        copies: With "replace": whose copy each token is; `counts` is of those that are none.
        summands: What the tokens were made of, before the first layer and if known.
    """

    hidden: Tensor
    counts: list[int]
    mask: Tensor | None
    size: Tensor | None
    copies: Reduction | None = None
    summands: Summands | None = None

    @property
    def sizes(self) -> Tensor:
        """The sizes (B, N), in the precision of distances: fp32, or fp64 for an fp64 model."""
        if self.size is not None:
            return self.size
        dtype = torch.promote_types(self.hidden.dtype, torch.float32)
        return torch.ones(self.hidden.shape[:2], dtype=dtype, device=self.hidden.device)

    @torch.no_grad()
    def alone(self, metric: Metric) -> Tensor:
        """The covering radius (B,) that CLS alone would leave."""
        squared = distance_to_cls(self.hidden.detach(), metric)
        if self.mask is not None:
            squared = squared.masked_fill(~self.mask, 0)
        return to_radius(squared.amax(dim=1), metric)

    def geometry(self, metric: Metric) -> Geometry:
        """How the tokens lie to one another; from tables, if they allow it and only the compiled loops will ask."""
        if self.summands is None or metric != "euclidean":
            return Geometry.of(self.hidden.detach(), metric)
        sums = Sums.of(self.summands)
        if not sums.is_exact:
            return Geometry.of(self.hidden.detach(), metric)
        return Geometry(sums.split(torch.get_num_threads()))

    @torch.no_grad()
    def as_felt(self, sensitivity: Tensor) -> Tokens:
        """The same tokens, their vectors projected (D, R) so that distances are changes of the answer."""
        return replace(self, hidden=felt(self.hidden.detach(), sensitivity), summands=None)

    def key_bias(self) -> Tensor | None:
        """What is added to the logits of each key (B, 1, 1, N): log(size), and a large negative number for pads.

        A key with log(s) added weighs as much as s copies of it (the paper's Remark 1).
        """
        if self.mask is None and self.size is None:
            return None
        dtype = self.hidden.dtype
        if self.size is None:
            bias = torch.zeros(self.hidden.shape[:2], dtype=dtype, device=self.hidden.device)
        else:
            bias = self.size.clamp(min=1e-6).log().to(dtype)
        if self.mask is not None:
            bias = bias.masked_fill(~self.mask, torch.finfo(dtype).min)
        return bias[:, None, None, :]


def felt(hidden: Tensor, sensitivity: Tensor) -> Tensor:
    """Token vectors (B, N, D) along directions (D, R): (B, N, R), in the precision of distances under autocast too."""
    dtype = torch.promote_types(hidden.dtype, torch.float32)
    with torch.autocast(hidden.device.type, enabled=False):
        return hidden.to(dtype) @ sensitivity.to(hidden.device, dtype)
