"""Start-up, memory and installed size: a classifier in torch beside the same one in other runtimes.

python benchmarks/startup.py MODEL EXPORTED [EXPORTED ...] [--rounds N] [--json]

MODEL is a folder that `PyramidClassifier.save` wrote, EXPORTED are folders that `pyramid-bert export` made of it. Each
loads its model in a fresh process and labels one text, in turn, after a round that does not count, so that files come
from memory. Start-up runs from the start of the process to the first answer; memory is the most that was resident until
then (VmHWM, so this needs Linux). Every process sees only the packages that it needs, with what these require; their
files are the installed size. Prints medians, and medians of ratios within a round; with --json the times as well.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from importlib.metadata import Distribution, distribution
from pathlib import Path
from statistics import median
from typing import Any

from common import show
from packaging.requirements import Requirement
from rich.console import Console
from rich.table import Table

import pyramid_bert
from pyramid_bert.bench.machine import describe_machine
from pyramid_bert.bench.timing import Timing
from pyramid_bert.export.classifier import is_exported
from pyramid_bert.export.record import Export

TEXT = "a fine film with a clever plot"
IN_TORCH = ("torch", "transformers", "safetensors", "numpy", "rich", "numba")
EXPORTED = ("numpy", "numba", "tokenizers")  # and the runtime
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from pyramid_bert import {name}
print({name}.load(sys.argv[2]).predict([sys.argv[3]])[0], flush=True)
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("exported", nargs="+")
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--json", action="store_true", help="print JSON")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        sides = [Side(Path(folder), Path(scratch) / str(i)) for i, folder in enumerate([args.model, *args.exported])]
        if len({side.name for side in sides}) < len(sides):
            raise SystemExit("two folders hold the same runtime and precision; give each once")
        rounds = [[side.run() for side in sides] for _ in range(args.rounds + 1)][1:]
    if len({answer for runs in rounds for *_, answer in runs}) > 1:
        raise SystemExit("the models give different labels; export all of them from MODEL")
    names = [side.name for side in sides]
    seconds, peaks = ({name: [runs[i][what] for runs in rounds] for i, name in enumerate(names)} for what in (0, 1))
    shares = {
        "start-up": _shares(seconds, names),
        "peak memory": _shares(peaks, names),
        "installed": {side.name: side.installed / sides[0].installed for side in sides},
    }
    result: dict[str, Any] = {
        "seconds": seconds,
        "peak_mb": {name: [peak / 1e6 for peak in found] for name, found in peaks.items()},
        "installed_mb": {side.name: side.installed / 1e6 for side in sides},
        "packages": {side.name: side.packages for side in sides},
        "over_torch": shares,
        "rounds": args.rounds,
    }
    if args.json:
        show(result)
    else:
        Console().print(_table(result, names))


class Side:
    """A folder with a model, and links to the packages that it needs."""

    def __init__(self, folder: Path, packages: Path) -> None:
        self._folder, self._packages = folder, packages
        record = Export.load(folder) if is_exported(folder) else None
        self.name = "torch" if record is None else f"{record.runtime} {record.precision}"
        needed = _with_requirements(IN_TORCH if record is None else (*EXPORTED, record.runtime))
        self.packages = {name: one.version for name, one in sorted(needed.items())}
        self.installed = sum(map(_bytes_of, needed.values()))
        self._program = PROGRAM.format(name="PyramidClassifier" if record is None else "ExportedClassifier")
        packages.mkdir()
        for one in needed.values():
            for top in {file.parts[0] for file in one.files or ()} - {"..", "__pycache__"}:
                if not (packages / top).exists():
                    (packages / top).symlink_to(Path(str(one.locate_file(top))))
        (packages / "pyramid_bert").symlink_to(Path(pyramid_bert.__file__).parent)

    def run(self) -> tuple[float, float, str]:
        """Seconds from start to answer, most resident bytes until then, and the answer, of a fresh process."""
        words = [sys.executable, "-I", "-S", "-c", self._program, self._packages, self._folder, TEXT]
        start = time.perf_counter()
        with subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            answer = process.stdout.readline().strip()
            seconds = time.perf_counter() - start
            rest = process.stdout.read()
        if process.returncode:
            raise SystemExit(f"{self.name} failed; its error is above")
        return seconds, 1024 * float(rest), answer


def _with_requirements(names: tuple[str, ...]) -> dict[str, Distribution]:
    """The distributions of these names, and of all that they require, by name."""
    found: dict[str, Distribution] = {}
    left = list(names)
    while left:
        name = left.pop().lower().replace("_", "-")
        if name in found:
            continue
        found[name] = distribution(name)
        needs = [Requirement(line) for line in found[name].requires or ()]
        left += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]
    return found


def _bytes_of(one: Distribution) -> int:
    """The bytes of a distribution's files, without those that Python compiles."""
    files = [Path(str(one.locate_file(file))) for file in one.files or () if file.suffix != ".pyc"]
    return sum(file.stat().st_size for file in files if file.is_file())


def _shares(measured: dict[str, list[float]], names: list[str]) -> dict[str, float]:
    """What each takes of what the first one takes: the median of the ratios within each round."""
    return {name: Timing(measured).speedup(names[0], over=name) for name in names}


def _table(result: dict[str, Any], names: list[str]) -> Table:
    machine = describe_machine()
    table = Table(
        title="from the start of a process to its first answer",
        caption=f"{machine['cpu']}, {machine['threads']} threads, torch {machine['torch']}; medians of "
        f"{result['rounds']} rounds in turn, of figures and of ratios within a round.",
    )
    for head in ("", "start-up\ns", "over\ntorch", "peak memory\nMB", "over\ntorch", "installed\nMB", "over\ntorch"):
        table.add_column(head, justify="right" if head else "left", no_wrap=not head)
    for name in names:
        figures = (median(result["seconds"][name]), median(result["peak_mb"][name]), result["installed_mb"][name])
        ratios = (result["over_torch"][what][name] for what in ("start-up", "peak memory", "installed"))
        shown = [f"{figures[0]:.2f}", *(f"{figure:,.0f}" for figure in figures[1:])]
        table.add_row(
            name, *(cell for pair in zip(shown, (f"{one:.2f}" for one in ratios), strict=True) for cell in pair)
        )
    return table


if __name__ == "__main__":
    main()
