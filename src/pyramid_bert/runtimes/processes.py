"""Several processes that train one model, by torchrun or `accelerate launch`: who writes, and what they share."""

from __future__ import annotations

import os
from typing import Any

from torch import Tensor, distributed


def first_process() -> bool:
    """Whether this process is the one that prints and writes: the only one, unless a launcher started several.

    Example:
        >>> first_process()
        True
    """
    return place()[0] == 0


def place() -> tuple[int, int]:
    """The number of this process, from 0, and how many there are.

    Before they know of each other the launcher's word counts.
    """
    if _joined():
        return distributed.get_rank(), distributed.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def wait_for_all() -> None:
    """Returns when every process has come here."""
    if _joined():
        distributed.barrier()


def added_up(part: Tensor, device: Any) -> Tensor:
    """The sum of a tensor over the processes, the same to the last bit in each of them."""
    if not _joined():
        return part
    whole = part.to(device)
    distributed.all_reduce(whole)
    return whole.to(part.device)


def share_weights(model: Any) -> None:
    """Gives every process the weights that the first one has."""
    if _joined():
        for value in model.state_dict().values():
            distributed.broadcast(value, src=0)


def leave() -> None:
    """Ends the connection between the processes, if there is one."""
    if _joined():
        distributed.destroy_process_group()


def _joined() -> bool:
    return distributed.is_available() and distributed.is_initialized()
