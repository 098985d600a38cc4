"""Measurements by name, each the JSON that one command prints."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ...errors import UnknownNameError
from ..study.store import Store


class Commands:
    """The measurements of a page. One that has no command any more can still be read.

    Args:
        root: The repository.
        file: The name of their file in results/, without its suffix.
        commands: Name of a measurement -> the command that prints it as a JSON object.
    """

    def __init__(self, root: Path, file: str, commands: Mapping[str, str]) -> None:
        self.root = root
        self.commands = commands
        self.store = Store.of(root / "results", file)

    def read(self, name: str) -> dict[str, Any] | None:
        """A measurement with its `command`; None if it was not made."""
        record = self.store.read(name)
        return None if record is None else {**record, "command": self.commands.get(name, record["command"])}

    def named(self, prefix: str) -> list[dict[str, Any]]:
        """The measurements that were made whose names begin so, by name."""
        found = (self.read(name) for name in sorted(self.store.records) if name.startswith(prefix))
        return [record for record in found if record is not None]

    def ran(self) -> str:
        """The commands of the measurements that were made, one a line."""
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
            if unset := [variable for variable in re.findall(r"\$(\w+)", command) if variable not in os.environ]:
                print(f"{name}: not run, set {', '.join(unset)}", file=sys.stderr)
                continue
            print(name, file=sys.stderr)
            words = os.path.expandvars(command).split()
            result = json.loads(subprocess.run(words, cwd=self.root, check=True, stdout=subprocess.PIPE).stdout)
            if isinstance(result, list):  # `pyramid-bert bench` prints one for each schedule
                (result,) = result
            self.store.write(name, {**result, "command": command})
