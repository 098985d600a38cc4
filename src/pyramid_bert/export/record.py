"""What the folder of an exported model says about itself: `exported.json`. No torch."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..boundary import read_object, translating
from ..checks import check_choice, check_number
from ..config import PyramidConfig
from ..core.loop import Half
from ..cores import has_vnni, instructions
from ..errors import CheckpointError, shown
from ..files import write_text
from ..runtimes.registry import RUNTIMES, get_runtime
from ..version import __version__

FILE, FORMAT = "exported.json", 2
HALVES: tuple[Half, ...] = ("attention", "feed_forward")  # how every family that can be exported runs a layer
TOKENIZER, SENSITIVITY = "tokenizer.json", "sensitivity.npy"
GRAPHS = "stretch-*"
AGAIN = "export the model again"
_UPGRADE = "pip install -U pyramid-bert"
_WORDS = ("runtime", "precision", "family", "types", "reads_positions")
_NUMBERS = ("layers", "positions", "pad_id", "width", "outputs")
_MOST = {"layers": 1000}


@dataclass(frozen=True)
class Way:
    """One of the pyramids that an exported model can run as. Ways may share graphs.

    Attributes:
        pyramid: Its settings; None for a dense model.
        stretches: The layer and half after which each graph ends, and its file.
    """

    pyramid: PyramidConfig | None
    stretches: tuple[tuple[int, str, str], ...]

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dict."""
        return {"pyramid": None if self.pyramid is None else self.pyramid.to_dict(), "stretches": self.stretches}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Way:
        """The way that `to_dict` described."""
        pyramid = None if data["pyramid"] is None else PyramidConfig.from_dict(data["pyramid"])
        return cls(pyramid, tuple((int(layer), str(half), Path(file).name) for layer, half, file in data["stretches"]))


@dataclass(frozen=True)
class Export:
    """What was exported.

    Attributes:
        runtime: Which runtime takes the graphs.
        precision: In which precision it runs them.
        family: Of the model.
        layers: Of the model.
        positions: The most tokens that it reads.
        width: How many numbers a token vector has.
        outputs: How many logits it gives.
        pad_id: The id of the padding token.
        types: Whether it reads token types.
        reads_positions: Whether its layers read the positions of tokens.
        ways: The pyramids that it can run as; the first is the one it runs as after loading.
        measured: What exporting measured; empty without texts.
        made_with: The versions of this package and of the runtime that wrote it.
        instructions: Those of the processor that wrote it; see `cores.instructions`.
    """

    runtime: str
    precision: str
    family: str
    layers: int
    positions: int
    width: int
    outputs: int
    pad_id: int
    types: bool
    reads_positions: bool
    ways: tuple[Way, ...]
    measured: Mapping[str, Any] = field(default_factory=dict)
    made_with: Mapping[str, str] = field(default_factory=dict)
    instructions: tuple[str, ...] | None = None

    @property
    def files(self) -> list[str]:
        """The files of all graphs."""
        return list(dict.fromkeys(file for way in self.ways for *_, file in way.stretches))

    def save(self, folder: Path) -> None:
        """Writes it to the folder of its graphs, with their sizes in bytes and the versions that wrote them."""
        sizes = {file.name: file.stat().st_size for file in sorted(folder.glob(GRAPHS))}
        versions = {"pyramid_bert": __version__, self.runtime: get_runtime(self.runtime).version}
        data = {**vars(self), "ways": [way.to_dict() for way in self.ways], "made_with": versions}
        data |= {"instructions": instructions(), "format": FORMAT, "sizes": sizes}
        write_text(folder / FILE, json.dumps(data, indent=1, allow_nan=False) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Export:
        """What was exported to a folder.

        Raises if another version wrote it, or if a part is missing or has another size.
        """
        path = folder / FILE
        data = read_object(path, CheckpointError, AGAIN)
        _check_written_for_us(path, data)
        with translating(CheckpointError, f"{path} is damaged", AGAIN):
            check_choice("runtime", data["runtime"], RUNTIMES)
            check_choice("precision", data["precision"], RUNTIMES[data["runtime"]].precisions)
            for name in _NUMBERS:
                most = _MOST.get(name, math.inf)
                check_number(f"{path}: {name}", data[name], 0, most, AGAIN, whole=True, error=CheckpointError)
            ways = tuple(Way.from_dict(way) for way in data["ways"])
            plain = {
                name: data[name] for name in ("runtime", "precision", "family", *_NUMBERS, "types", "reads_positions")
            }
            versions = {str(name): str(version) for name, version in data["made_with"].items()}
            able = None if data["instructions"] is None else tuple(map(str, data["instructions"]))
            about: dict[str, Any] = {"made_with": versions, "instructions": able}
            found = cls(**plain, ways=ways, measured=dict(data["measured"]), **about)
            sizes = {Path(file).name: int(size) for file, size in data["sizes"].items()}
        missing = [file for file in dict.fromkeys((*found.files, *sizes)) if not (folder / file).is_file()]
        if missing or not ways or not all(way.stretches for way in ways):
            raise CheckpointError(f"{folder} lacks {', '.join(missing) or 'graphs'}; {AGAIN}")
        for file, size in sizes.items():
            if (there := (folder / file).stat().st_size) != size:
                raise CheckpointError(f"{folder / file} is damaged: {there} bytes, exported with {size}; {AGAIN}")
        return found

    @property
    def doubt(self) -> str | None:
        """What to say of running it on this processor, in a sentence; None if there is nothing to say."""
        slow = get_runtime(self.runtime).slow(self.precision)
        if slow is None or self.instructions is None or not has_vnni(self.instructions):
            return slow
        return f"{slow}, and sums can overflow: it was exported on one that has them. Measure it here, or {AGAIN} here"

    def check_fits(self, file: Path, inputs: Sequence[str], widths: Sequence[int | None]) -> None:
        """Raises unless a graph is one of this model: it takes what the loop gives, and gives what the loop takes.

        Args:
            file: The file of the graph.
            inputs: The names of its inputs.
            widths: The last dimension of each output, None where it may be any.
        """
        first, last = (file.name in [way.stretches[end][2] for way in self.ways] for end in (0, -1))
        more = {"types": first and self.types, "positions": not first and self.reads_positions}
        takes = {"given", "bias", *(name for name, wanted in more.items() if wanted)}
        gives = (self.outputs, self.width) if last else (self.width,)
        fits = [found in (None, width) for found, width in zip(widths, gives, strict=False)]
        if set(inputs) != takes or len(fits) < len(gives) or not all(fits):
            raise CheckpointError(
                f"{file} is a graph of another model: from {_row(sorted(inputs))} it makes vectors of {_row(widths)} "
                f"numbers, and {FILE} says from {_row(sorted(takes))} vectors of {_row(gives)}; {AGAIN}"
            )


def _row(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


def _check_written_for_us(path: Path, data: Mapping[str, Any]) -> None:
    """Raises for what another release wrote that this one cannot run."""
    version: Any = data.get("format")
    check_number(f"{path}: format", version, 1, hint=AGAIN, whole=True, error=CheckpointError)
    family, versions = data.get("family"), data.get("made_with")
    release = "an older release" if not isinstance(versions, dict) else f"release {shown(versions.get('pyramid_bert'))}"
    if version != FORMAT:
        remedy = _UPGRADE if version > FORMAT else AGAIN
        raise CheckpointError(f"{path}: {release} wrote it in format {version}, this one reads {FORMAT}; {remedy}")
    if not isinstance(family, str) or not family:
        raise CheckpointError(f"{path} is damaged: it names the family {shown(family)}; {AGAIN}")
