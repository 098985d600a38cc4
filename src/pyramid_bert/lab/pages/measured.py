"""Runs the commands whose results are not there yet, and keeps what they print."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pyramid_bert.files import write_text

ROOT = Path(__file__).parents[1]


def asked_to_measure() -> bool:
    """Whether the script was called with --measure alone; what it does not know it refuses."""
    if sys.argv[1:] not in ([], ["--measure"]):
        raise SystemExit(f"unknown arguments {' '.join(sys.argv[1:])}; --measure is the only one")
    return bool(sys.argv[1:])


def run_missing(commands: Mapping[Path, str]) -> None:
    """Runs the command of every file that is not there; one with an environment variable that is not set is left out.

    A command prints JSON. If that is an object, the command goes in front of it.
    """
    for path, command in commands.items():
        if path.exists() or any(variable not in os.environ for variable in re.findall(r"\$(\w+)", command)):
            continue
        print(path.stem, file=sys.stderr)
        words = os.path.expandvars(command).split()
        result = json.loads(subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)
        if isinstance(result, dict):
            result = {"command": command, **result}
        write_text(path, json.dumps(result, ensure_ascii=False, indent=1) + "\n")
