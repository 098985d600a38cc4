"""What a training step costs on Long Range Arena, dense and behind a core-set, by `pyramid-bert lra bench`.

The paper's models compute every token of the last layer. Ours compute only CLS there unless told otherwise, because a
classifier reads nothing else. Both are measured, each with both sides alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..markdown import command, joined, table
from ..study.arena import STUDY_TASKS
from .commands import Commands

TASKS = ("cifar10", "pathfinder32", "text")
KEEPS = (0.49, 0.8)
AIM = 0.15  # of a training step, with the paper's sizes
# transformers' BigBird takes some tens of GB at the paper's 256 and 512 rows a step.
BATCHES = {"performer": "", "bigbird": " --batch-size 32"}
INTRO = """\
Forward, backward and AdamW on full random rows, core-sets with m = 1: medians of interleaved rounds. The paper's models
compute every token of the last layer, and so do both sides here. *Choosing* is its share of the step, with moving what
was chosen, by the compiled loop (numba, of the extra `fast`); *memory* the peak of forward and backward without weights
and their gradients. Compare within a row: the same step took up to a third longer in one run than in another."""
CLS_ALONE = """\
The same with only CLS computed in the last layer, on both sides, as models run here unless told otherwise. Of a model
of one layer little is left then, so choosing is a larger share of a shorter step:"""


def _command(backbone: str, task: str, keep: float, cls_only: bool) -> str:
    how = "" if cls_only else " --all-tokens"
    words = f"--task {task} --backbone {backbone} --method CS-1 --keep {keep:g}{BATCHES[backbone]}{how}"
    return f"pyramid-bert lra bench {words} --rounds 5 --json"


_RUNS = [(backbone, task, keep, False) for keep in KEEPS for backbone in BATCHES for task in TASKS]
_RUNS += [(backbone, task, KEEPS[0], True) for backbone in BATCHES for task in TASKS]
COMMANDS = {
    f"{backbone}-{task}-{keep:g}{'-cls' if cls_only else ''}": _command(backbone, task, keep, cls_only)
    for backbone, task, keep, cls_only in _RUNS
}


def measured(root: Path) -> Commands:
    """The measurements of steps."""
    return Commands(root, "bench-lra", COMMANDS)


def steps(found: Commands) -> str:
    """The section, empty when nothing was measured."""
    made = [record for name in COMMANDS if (record := found.read(name))]
    return section(made) if made else ""


def section(found: Sequence[Mapping[str, Any]]) -> str:
    """The tables of some measurements, and their commands."""
    machine = found[0]["machine"]
    whole = [one for one in found if not one["settings"]["cls_only"]]
    short = [one for one in found if one["settings"]["cls_only"]]
    full = ", ".join(dict.fromkeys(_title(one) for one in found if one["attention"] == "original_full"))
    on = f"{machine['cpu']} ({machine['capability']}), {machine['threads']} threads, torch {machine['torch']}."
    on += (
        f" With few blocks left ({full}, {KEEPS[0]:.0%}) attention is full on the side of the selection."
        if full
        else ""
    )
    parts = ["## What a training step costs", INTRO + " " + on, _table(whole), _choosing(whole)]
    parts += [CLS_ALONE, _table(short), _choosing(short)] if short else []
    return joined([*parts, command("\n".join(one["command"] for one in found))])


def _table(found: Sequence[Mapping[str, Any]]) -> str:
    head = ["", "rows", "tokens", "dense, s", "with selection, s", "speed-up", "memory, MB", "memory saved"]
    lines = []
    for one in found:
        peak = {side: f"{size / 1e6:,.0f}" for side, size in one["peak_bytes"].items()}
        lines.append(
            [
                _title(one),
                str(one["batch_size"]),
                f"{one['kept']} of {one['tokens']}",
                *(f"{1 / one['steps_per_second'][side]:.2f}" for side in ("dense", "pyramid")),
                f"{one['speedup']:.2f}x",
                f"{peak['dense']} → {peak['pyramid']}",
                f"{1 - one['memory_share']:.0%}",
                f"{one['space']['printed']:.0%}",
                f"{one['selecting']:.1%}",
            ]
        )
    return table([*head, "saved by l² + l·d", "choosing"], lines)


def _choosing(found: Sequence[Mapping[str, Any]]) -> str:
    """How much of a step choosing takes, and where that is more than it should."""
    shares = [one["selecting"] for one in found]
    above = ", ".join(_title(one) for one in found if one["selecting"] > AIM)
    verdict = f"above the {AIM:.0%} that it should stay below: {above}" if above else f"nowhere above {AIM:.0%}"
    return f"Choosing takes {min(shares):.1%} to {max(shares):.1%} of these steps, {verdict}."


def _title(one: Mapping[str, Any]) -> str:
    return str(STUDY_TASKS[f"{one['backbone']}-{one['task']}"].title)
