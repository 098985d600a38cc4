"""Devices: the CPU, or an accelerator that torch finds."""

from __future__ import annotations

import torch

from ..errors import PyramidError, shown


def find_device(wanted: str | torch.device | None = None) -> torch.device:
    """The device with this name; raises if this machine does not have it.

    Args:
        wanted: "cpu", "cuda", "cuda:1", "mps", or None or "auto" for the accelerator that torch finds, else the CPU.

    Example:
        >>> find_device("cpu")
        device(type='cpu')
    """
    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if wanted is None or (isinstance(wanted, str) and wanted == "auto"):
        return found or torch.device("cpu")
    have = ["cpu"]
    if found is not None:
        have += [found.type, *(f"{found.type}:{number}" for number in range(torch.accelerator.device_count()))]
    if str(wanted) not in have:
        raise PyramidError(
            f"torch sees no device {shown(str(wanted))} here, only {', '.join(have)}; use one, or 'auto'"
        )
    return torch.device(wanted)


def wait_for(device: torch.device) -> None:
    """Waits until the device has finished: on an accelerator, a call returns before its work is done."""
    if device.type not in ("cpu", "meta"):
        torch.accelerator.synchronize(device)
