"""The paper's figures on GLUE, from paper-glue.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...study.methods import DENSE


@dataclass(frozen=True)
class Paper:
    """The paper's scores on GLUE, in per cent: (axis, at) -> row -> task -> score. The axis is "a" or "space"."""

    backbone: str
    baseline: str
    tables: Mapping[tuple[str, float], int]
    scores: Mapping[tuple[str, float], Mapping[str, Mapping[str, float]]]

    def lost(self, axis: str, at: float, method: str, tasks: Sequence[str]) -> list[float | None] | None:
        """Points lost against dense by task, and their mean last; None for what the paper does not have."""
        scores = self.scores.get((axis, at), {})
        if method not in scores:
            return None
        row, dense = scores[method], scores[DENSE]
        lost = [dense[task] - row[task] if task in row else None for task in tasks]
        known = [value for value in lost if value is not None]
        return [*lost, sum(known) / len(known) if len(known) == len(lost) else None]


def read_paper() -> Paper:
    """The paper's figures."""
    data = tomllib.loads((Path(__file__).parents[1] / "paper-glue.toml").read_text(encoding="utf-8"))
    keys = [(table["axis"], table["at"]) for table in data["tables"]]
    return Paper(
        data["backbone"],
        data["baseline"],
        {key: table["table"] for key, table in zip(keys, data["tables"], strict=True)},
        {key: table["scores"] for key, table in zip(keys, data["tables"], strict=True)},
    )
