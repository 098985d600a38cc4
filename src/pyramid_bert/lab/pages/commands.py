"""Measurements by name, each the JSON that one command prints."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...errors import UnknownNameError
from ..study.store import Store

FILE = Path(__file__).with_name("commands.toml")


class Commands:
    """The measurements of a page. One whose command was removed can still be read.

    Args:
        root: The repository.
        file: The name of their file in results/, without its suffix.
        commands: Name of a measurement -> the command that prints it as a JSON object; those of `FILE` if None.
    """

    def __init__(self, root: Path, file: str, commands: Mapping[str, str] | None = None) -> None:
        self.root = root
        self.commands = tomllib.loads(FILE.read_text(encoding="utf-8"))[file] if commands is None else commands
        self.store = Store.of(root / "results", file)

    def made(self, prefix: str = "") -> list[dict[str, Any]]:
        """The measurements whose names begin with `prefix`, in the order of the commands, with name and command."""
        names = [*self.commands, *(name for name in sorted(self.store.records) if name not in self.commands)]
        found = {name: record for name in names if name.startswith(prefix) and (record := self.store.read(name))}
        return [
            {**record, "name": name, "command": self.commands.get(name, record["command"])}
            for name, record in found.items()
        ]

    def ran(self) -> str:
        """The commands of the measurements that were made, one per line."""
        return "\n".join(command for name, command in self.commands.items() if self.store.read(name))

    def measure(self, names: Iterable[str] = ()) -> None:
        """Runs the commands of the names; without names, those that have no result.

        A command with an environment variable that is not set is not run.
        """
        for name in names:
            if name not in self.commands:
                raise UnknownNameError("measurement", name, self.commands)
        for name in names or [name for name in self.commands if self.store.read(name) is None]:
            command = self.commands[name]
            variables = re.findall(r"\$(\w+)", command)
            if unset := [variable for variable in variables if variable not in os.environ]:
                print(f"{name}: not run, set {', '.join(unset)}", file=sys.stderr)
                continue
            print(name, file=sys.stderr)
            words = os.path.expandvars(command).split()
            printed = subprocess.run(words, cwd=self.root, check=True, stdout=subprocess.PIPE, text=True).stdout
            for variable in variables:  # a record names no folder of the machine
                printed = printed.replace(json.dumps(os.environ[variable])[1:-1], f"${variable}")
            result = json.loads(printed)
            if isinstance(result, list):  # `pyramid-bert bench` prints one for each schedule
                (result,) = result
            self.store.write(name, {**result, "command": command})
