"""What a training step costs on Long Range Arena, dense and behind a core-set, by `pyramid-bert lra bench`.

The paper's models compute every token of the last layer, and so does the dense side here. A pyramid computes CLS alone
there, which is all that a classifier reads; that is measured too, apart.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from measuring import ROOT

from pyramid_bert.study.arena import STUDY_TASKS

TASKS = ("cifar10", "pathfinder32", "text")
KEEPS = (0.49, 0.8)
# transformers' BigBird takes some tens of GB at the paper's 256 and 512 rows a step.
BATCHES = {"performer": "", "bigbird": " --batch-size 32"}
INTRO = """\
Forward, backward and AdamW on full random rows, core-sets with m = 1: medians of interleaved rounds. The paper's models
compute every token of the last layer, and so do both sides here. *Choosing* is its share of the step, with moving what
was chosen; *memory* the peak of forward and backward without weights and their gradients."""
CLS_ALONE = """\
The same with CLS alone computed in the last layer on the side of the selection, as pyramids run unless told otherwise.
Of a model of one layer little is left then, so choosing is a larger share of a shorter step:"""


def path_of(backbone: str, task: str, keep: float, *, cls_only: bool) -> Path:
    """The file of a measurement."""
    return ROOT / "results" / f"bench-lra-{backbone}-{task}-{keep:g}{'-cls' if cls_only else ''}.json"


def _command(backbone: str, task: str, keep: float, *, cls_only: bool) -> str:
    how = "" if cls_only else " --all-tokens"
    words = f"--task {task} --backbone {backbone} --method CS-1 --keep {keep:g}{BATCHES[backbone]}{how}"
    return f"pyramid-bert lra bench {words} --rounds 5 --json"


_RUNS = [(backbone, task, keep, False) for keep in KEEPS for backbone in BATCHES for task in TASKS]
_RUNS += [(backbone, task, KEEPS[0], True) for backbone in BATCHES for task in TASKS]
COMMANDS = {path_of(*run, cls_only=cls): _command(*run, cls_only=cls) for *run, cls in _RUNS}


def steps() -> str:
    """The section, empty when nothing was measured."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in COMMANDS if path.exists()]
    return section(found) if found else ""


def section(found: Sequence[Mapping[str, Any]]) -> str:
    """The tables of some measurements, and their commands."""
    machine = found[0]["machine"]
    whole = [one for one in found if not one["settings"]["cls_only"]]
    short = [one for one in found if one["settings"]["cls_only"]]
    on = f"{machine['cpu']} ({machine['capability']}), {machine['threads']} threads, torch {machine['torch']}."
    parts = ["## What a training step costs", INTRO + " " + on, _table(whole)]
    parts += [CLS_ALONE, _table(short)] if short else []
    commands = "\n".join(one["command"] for one in found)
    return "\n\n".join([*parts, f"```sh\n{commands}\n```"])


def _table(found: Sequence[Mapping[str, Any]]) -> str:
    names = ("", "rows", "tokens", "dense, s", "with selection, s", "speed-up", "memory, MB", "memory saved")
    lines = [[*names, "saved by l² + l·d", "choosing"], ["---", *["---:"] * 9]]
    for one in found:
        peak = {side: f"{size / 1e6:,.0f}" for side, size in one["peak_bytes"].items()}
        lines.append(
            [
                STUDY_TASKS[f"{one['backbone']}-{one['task']}"].title,
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
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
