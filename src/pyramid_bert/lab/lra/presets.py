"""The paper's hyperparameters for Long Range Arena, read from `presets.toml` or a file of the same form. No torch."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ...checks import check_choice, check_number
from ...cost import SpaceReading, space_reduction
from ...errors import DataError, PyramidError, UnknownNameError

BACKBONES = {"performer": "Performer", "bigbird": "BigBird"}
TASKS = ("cifar10", "pathfinder32", "text")
_PRESETS = Path(__file__).with_name("presets.toml")
_SIZES = ("batch_size", "layers", "heads", "hidden_size", "qkv_size", "feed_forward_size", "block_size")
_LIMITS: dict[str, tuple[float, float]] = {
    **dict.fromkeys(_SIZES, (1, 1_000_000)),
    **dict.fromkeys(("learning_rate", "peak_learning_rate"), (1e-12, 1)),
    "epochs": (1e-6, 10_000),
    "dropout": (0, 0.99),
    "weight_decay": (0, 1),
    "warmup_epochs": (0, 10_000),
}
# What studies call a backbone on a task.
LRA_NAMES = tuple(f"{backbone}-{task}" for backbone in BACKBONES for task in TASKS)


@dataclass(frozen=True, kw_only=True)
class LraPreset:
    """How a backbone is built and trained for a task.

    Attributes:
        backbone: A key of `BACKBONES`.
        task: One of `TASKS`.
        learning_rate: As the paper prints it.
        peak_learning_rate: For our schedule, if the printed rate is for another kind; `learning_rate` if None.
        epochs: Passes over the data.
        batch_size: Rows per step.
        layers: Of the encoder.
        heads: Of attention.
        hidden_size: Width of a token.
        qkv_size: Width of queries, keys and values over all heads. In transformers BigBird's are as wide as a token.
        feed_forward_size: Inner width of the feed-forward network.
        block_size: Of BigBird's attention; None for the Performer.
        dropout: In layers and head, not in the embeddings, where tokens are chosen.
        weight_decay: Decoupled.
        warmup_epochs: Passes over which the learning rate rises.

    Example:
        >>> preset = preset_for("bigbird", "cifar10")
        >>> preset.block_size, preset.hidden_size, preset.epochs
        (8, 128, 200)
    """

    backbone: str
    task: str
    learning_rate: float
    epochs: float
    batch_size: int
    layers: int
    heads: int
    hidden_size: int
    qkv_size: int
    feed_forward_size: int
    peak_learning_rate: float | None = None
    block_size: int | None = None
    dropout: float = 0.1
    weight_decay: float = 0.0
    warmup_epochs: float = 1.0

    def __post_init__(self) -> None:
        where = f"the preset {self.backbone}.{self.task}"
        if (self.backbone == "bigbird") != (self.block_size is not None):
            raise DataError(f"{where} has block_size {self.block_size}; bigbird needs one, performer has none")
        for name, (low, high) in _LIMITS.items():
            value = getattr(self, name)
            if value is not None or name not in ("block_size", "peak_learning_rate"):
                check_number(f"{where}: {name}", value, low, high, whole=name in _SIZES, error=DataError)
        split = "hidden_size" if self.backbone == "bigbird" else "qkv_size"
        if getattr(self, split) % self.heads:
            raise DataError(
                f"{where}: {split} must be a multiple of its {self.heads} heads, got {getattr(self, split)}"
            )

    @property
    def peak(self) -> float:
        """The peak learning rate of a schedule that rises and falls linearly."""
        return self.learning_rate if self.peak_learning_rate is None else self.peak_learning_rate

    def space_saved(self, kept: int, n: int) -> dict[str, float]:
        """The share of space that a selection at the input saves.

        By both readings of the paper's l² + l·d, which agree for a selection at the input, and by "tokens", the share
        of tokens: what linear attention needs.

        Args:
            kept: Tokens that the layers see.
            n: Tokens of the input, CLS counted.

        Example:
            >>> saved = preset_for("performer", "cifar10").space_saved(513, 1025)
            >>> {reading: round(share, 2) for reading, share in saved.items()}
            {'printed': 0.72, 'attention_input': 0.72, 'tokens': 0.5}
        """
        readings: tuple[SpaceReading, ...] = ("printed", "attention_input")
        saved: dict[str, float] = {
            reading: space_reduction((kept,) * self.layers, n, self.hidden_size, reading=reading, placement="input")
            for reading in readings
        }
        return {**saved, "tokens": 1 - kept / n}


def preset_for(backbone: str, task: str, path: str | Path | None = None) -> LraPreset:
    """The preset of a backbone for a task, from the paper's table or from a file of the same form."""
    check_choice("backbone", backbone, BACKBONES)
    check_choice("Long Range Arena task", task, TASKS)
    presets = load_presets(path)
    if f"{backbone}-{task}" not in presets:
        raise DataError(f"{path} has no table [{backbone}.{task}]; it has {', '.join(presets) or 'none'}")
    return presets[f"{backbone}-{task}"]


def load_presets(path: str | Path | None = None) -> Mapping[str, LraPreset]:
    """All presets of a file, by names like "performer-cifar10"; the paper's table if None.

    Example:
        >>> sorted(load_presets())[:2]
        ['bigbird-cifar10', 'bigbird-pathfinder32']
    """
    return _papers_table() if path is None else _read(Path(path))


@cache  # only the package's own file: a user's file may change between two calls
def _papers_table() -> Mapping[str, LraPreset]:
    return MappingProxyType(_read(_PRESETS))


def _read(file: Path) -> dict[str, LraPreset]:
    try:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot read the presets in {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{file} is not a TOML file: {error}") from error
    made = {}
    for backbone, tasks in data.items():
        if backbone not in BACKBONES or not isinstance(tasks, dict):
            raise UnknownNameError(f"backbone in {file}", backbone, BACKBONES)
        for task, table in tasks.items():
            if task not in TASKS or not isinstance(table, dict):
                raise UnknownNameError(f"Long Range Arena task in {file}", task, TASKS)
            try:
                _check_keys(table)
                made[f"{backbone}-{task}"] = LraPreset(backbone=backbone, task=task, **table)
            except PyramidError as error:
                raise DataError(f"{file}, [{backbone}.{task}]: {error}") from error
    return made


def _check_keys(table: dict[str, Any]) -> None:
    fields = {field.name: field for field in dataclasses.fields(LraPreset) if field.name not in ("backbone", "task")}
    for key in table:
        check_choice("key", key, fields)
    missing = [name for name, field in fields.items() if field.default is dataclasses.MISSING and name not in table]
    if missing:
        raise DataError(f"lacks {', '.join(missing)}")
