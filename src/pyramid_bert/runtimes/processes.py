"""Training with several processes (torchrun, `accelerate launch`): which one writes, and what they share."""

from __future__ import annotations

import os
from typing import Any

from torch import Tensor, distributed


def first_process() -> bool:
    """Whether this process prints and writes: rank 0, or the only process.

    Example:
        >>> first_process()
        True
    """
    return place()[0] == 0


def place() -> tuple[int, int]:
    """The rank of this process, from 0, and the number of processes. Before init, reads RANK and WORLD_SIZE."""
    if _joined():
        return distributed.get_rank(), distributed.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def wait_for_all() -> None:
    """Waits until every process has called this."""
    if _joined():
        distributed.barrier()


def added_up(part: Tensor, device: Any) -> Tensor:
    """The sum of a tensor over the processes, identical in each of them."""
    if not _joined():
        return part
    whole = part.to(device)
    distributed.all_reduce(whole)
    return whole.to(part.device)


def share_weights(model: Any) -> None:
    """Gives every process the weights of the first one."""
    if _joined():
        for value in model.state_dict().values():
            distributed.broadcast(value, src=0)


def leave() -> None:
    """Closes the process group, if there is one."""
    if _joined():
        distributed.destroy_process_group()


def _joined() -> bool:
    return distributed.is_available() and distributed.is_initialized()
