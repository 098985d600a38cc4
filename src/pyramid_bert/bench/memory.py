"""Peak memory of tensors, counted exactly at every allocation and release."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class PeakMemory(TorchDispatchMode):
    """Counts the bytes of all tensors made inside of the block, and the most that were alive at once.

    The same on every machine and in every run, unlike a process's resident memory. What a kernel allocates for itself
    is not seen, nor what was there before the block (weights, inputs).

    Example:
        >>> with PeakMemory() as memory:
        ...     a = torch.ones(100) * 2  # 400 bytes, and 400 for the result
        ...     del a
        >>> memory.peak, memory.alive
        (800, 0)
    """

    def __init__(self) -> None:
        super().__init__()
        self.alive = 0
        self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Runs the operation and looks at the tensors that come out of it."""
        given = {id_of(x) for x in tree_leaves((args, kwargs)) if _has_storage(x)}
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if _has_storage(tensor) and id_of(tensor) not in given | self._known:
                self._add(tensor.untyped_storage())
        return out

    def _add(self, storage: Any) -> None:
        key, size = storage._cdata, storage.nbytes()
        self._known.add(key)
        self.alive += size
        self.peak = max(self.peak, self.alive)
        weakref.finalize(storage, self._free, key, size)

    def _free(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.alive -= size


def _has_storage(x: Any) -> bool:
    """Whether it is a tensor whose memory can be seen: packed weights hide theirs, and are there before the block."""
    return isinstance(x, torch.Tensor) and not x.is_mkldnn


def id_of(tensor: torch.Tensor) -> int:
    """The identity of the memory behind a tensor; views share it."""
    return int(tensor.untyped_storage()._cdata)
