"""What the scripts share: the arguments MODEL TASK DATA, and printing a result."""

import argparse
import json
from typing import Any

from pyramid_bert.bench.machine import describe_machine
from pyramid_bert.lab.glue.tasks import TASKS


def arguments(about: str, **options: int) -> argparse.Namespace:
    """MODEL TASK DATA, and options that take whole numbers, by name and default."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("data")
    for name, default in options.items():
        parser.add_argument(f"--{name}", type=int, default=default, help=f"default: {default}")
    return parser.parse_args()


def show(result: dict[str, Any]) -> None:
    """Prints a result and the machine as JSON."""
    print(json.dumps({**result, "machine": describe_machine()}, indent=1))
