"""What a reader of a benchmark needs to know of the machine and the versions."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import Any

import torch

from ..core import compiled
from ..version import __version__


def describe_machine() -> dict[str, Any]:
    """What a reader needs to know of the machine and the versions."""
    name = platform.processor() or platform.machine()
    if os.path.exists("/proc/cpuinfo"):
        with open("/proc/cpuinfo") as file:
            name = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), name)
    return {
        "cpu": name,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "torch": torch.__version__,
        "transformers": metadata.version("transformers"),
        "pyramid_bert": __version__,
        "compiled_greedy": compiled.available(),
    }
