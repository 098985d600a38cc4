"""What the folder of an exported model says about itself: `exported.json`. No torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..boundary import read_object, translating
from ..checks import check_choice, check_number
from ..config import PyramidConfig
from ..errors import CheckpointError
from ..files import write_text
from ..runtimes.registry import RUNTIMES

FILE, FORMAT = "exported.json", 2  # 2: graphs may take positions
TOKENIZER, SENSITIVITY = "tokenizer.json", "sensitivity.npy"
GRAPHS = "stretch-*"
AGAIN = "export the model again"
_NEWER = "a newer release wrote it: pip install -U pyramid-bert"
_NUMBERS = ("layers", "positions", "pad_id")


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
        layers: Of the model.
        positions: The most tokens that it reads.
        pad_id: The id of the padding token.
        types: Whether it reads token types.
        reads_positions: Whether its layers read the positions of tokens.
        ways: The pyramids that it can run as; the first is the one it runs as after loading.
        measured: What exporting measured; empty without texts.
    """

    runtime: str
    precision: str
    layers: int
    positions: int
    pad_id: int
    types: bool
    reads_positions: bool
    ways: tuple[Way, ...]
    measured: Mapping[str, Any] = field(default_factory=dict)

    @property
    def files(self) -> list[str]:
        """The files of all graphs."""
        return list(dict.fromkeys(file for way in self.ways for *_, file in way.stretches))

    def save(self, folder: Path) -> None:
        """Writes it to the folder of its graphs, with their sizes in bytes."""
        sizes = {file.name: file.stat().st_size for file in sorted(folder.glob(GRAPHS))}
        needs = FORMAT if self.reads_positions else 1  # older releases run what they can
        data = {**vars(self), "format": needs, "ways": [way.to_dict() for way in self.ways], "sizes": sizes}
        write_text(folder / FILE, json.dumps(data, indent=1, allow_nan=False) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Export:
        """What was exported to a folder; raises if something of it is missing, or has another size."""
        path = folder / FILE
        data = read_object(path, CheckpointError, AGAIN)
        with translating(CheckpointError, f"{path} is damaged", AGAIN):
            check_number(f"{path}: format", data["format"], 1, FORMAT, _NEWER, whole=True, error=CheckpointError)
            check_choice("runtime", data["runtime"], RUNTIMES)
            check_choice("precision", data["precision"], RUNTIMES[data["runtime"]].precisions)
            for name in _NUMBERS:
                check_number(f"{path}: {name}", data[name], 0, whole=True, error=CheckpointError)
            ways = tuple(Way.from_dict(way) for way in data["ways"])
            plain = {name: data[name] for name in ("runtime", "precision", *_NUMBERS, "types")}
            plain["reads_positions"] = bool(data.get("reads_positions"))
            found = cls(**plain, ways=ways, measured=dict(data["measured"]))
            sizes = {Path(file).name: int(size) for file, size in data.get("sizes", {}).items()}
        missing = [file for file in dict.fromkeys((*found.files, *sizes)) if not (folder / file).is_file()]
        if missing or not ways or not all(way.stretches for way in ways):
            raise CheckpointError(f"{folder} lacks {', '.join(missing) or 'graphs'}; {AGAIN}")
        for file, size in sizes.items():
            if (there := (folder / file).stat().st_size) != size:
                raise CheckpointError(f"{folder / file} is damaged: {there} bytes, exported with {size}; {AGAIN}")
        return found
