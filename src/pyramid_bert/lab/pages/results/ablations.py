"""The part of docs/results.md on the ablations: what the paper found, what was found here, and tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...markdown import command, joined, shown_picture, table
from ...report.ablations import IMPORTANCE, PREFIX, Ablation, all_ablations
from ...report.answers import answers, commands
from ...report.collect import Results
from ...report.findings import RULE, Finding, findings
from .sections import MAKE, about

HEAD = f"""## Ablations

The paper's questions and ours. Under each is what the paper found and what is found here, computed from the records. A
pair is two cells that differ in nothing else: the same task, configuration and seed. {RULE}

Cells were trained with one thread each (`--jobs 2 --threads 1` on two cores). So they come out the same to the digit;
with two threads sums are rounded otherwise, and a cell on MRPC has moved by up to 2 points.
"""


def ablations(results: Results, said: Mapping[str, str], docs: Path) -> str:
    """All ablations: those whose results are there, and the commands of the others.

    Args:
        results: From `collect_results`.
        said: Key of an ablation -> words on it that are written by hand.
        docs: Where the page will be; pictures are shown if they are in its `images`.
    """
    parts, todo = [HEAD], []
    for ablation in all_ablations(list(results.runs)):
        if lines := _lacking(ablation, results):
            todo.append(f"- {ablation.heading}: {'; '.join(f'`{line}`' for line in lines)}")
        else:
            parts.append(_section(ablation, results, said.get(ablation.key, ""), docs))
    if todo:
        parts += ["### Not run yet", "\n".join(todo)]
    return joined(parts)


def _lacking(ablation: Ablation, results: Results) -> list[str]:
    """The commands for results that are not there."""
    if ablation.kind == "importance":
        line = f"python benchmarks/importance.py MODEL sst2 DATA > results/{IMPORTANCE}-sst2.json"
        return [] if results.importance() else [line]
    lacking = [name for name in ablation.studies if name not in results.runs]
    return [f"pyramid-bert study run experiments/{name}.toml --model DIR --data DIR" for name in lacking]


def _section(ablation: Ablation, results: Results, said: str, docs: Path) -> str:
    parts = [f'<a id="{PREFIX}{ablation.key}"></a>', f"### {ablation.heading}", ablation.question]
    parts += ["\n".join(map(_finding, findings(ablation, results))), said]
    parts += [about(results.runs[name], docs) for name in ablation.studies if name.startswith(PREFIX)]
    if ablation.kind == "importance":
        parts += [shown_picture(name, docs, f"{name}: mutual information by rank") for name, _ in results.importance()]
    for found in answers(ablation, results):
        parts += [table(found.head, found.rows, found.left), found.note]
    return joined([*parts, command("\n".join([*commands(ablation, results), MAKE]))])


def _finding(found: Finding) -> str:
    paper = f" Paper: {found.paper}" if found.paper else ""
    return f"- **{found.verdict}.**{paper} Here: {found.here}"
