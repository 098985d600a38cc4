"""The part of docs/results.md on the ablations: what the paper found, what was found here, and tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ...markdown import command, joined, shown_picture, table
from ...report.ablations import Ablation, ablations, run_command
from ...report.collect import Results
from ...report.compare import RULE
from ...report.grids import findings_grid
from .sections import MAKE, about

HEAD = f"""## Ablations

The paper's questions and ours. Under each is what the paper found and what is found here, computed from the records. A
pair is two cells that differ in nothing else: the same task, configuration and seed. {RULE}

Cells were trained with one thread each (`--jobs 2 --threads 1` on two cores). So they come out the same to the digit;
with two threads sums are rounded otherwise, and a cell on MRPC has moved by up to 2 points.
"""


def ablations_page(results: Results, said: Mapping[str, str], docs: Path) -> str:
    """All ablations: those whose results are there, and the commands of studies that were not run.

    Args:
        results: From `collect_results`.
        said: Key of an ablation -> words on it that are written by hand.
        docs: Where the page will be; pictures are shown if they are in its `images`.
    """
    parts = [HEAD, *(_section(one, results, said.get(one.key, ""), docs) for one in ablations(results))]
    if results.todo:
        lines = [f"- {run.study.title or run.study.name}: `{run_command(run)}`" for run in results.todo]
        parts += ["### Not run yet", "\n".join(lines)]
    return joined(parts)


def _section(one: Ablation, results: Results, said: str, docs: Path) -> str:
    anchor = f"ablation-{one.key.removeprefix('ablation-')}"
    parts = [f'<a id="{anchor}"></a>', f"### {one.title}", one.question]
    parts.append("\n".join(f"- **{found.verdict}.** Paper: {found.paper}" for found in one.findings if found.paper))
    found = findings_grid(one.findings)
    parts += [table(found.head, found.rows, found.left), said]
    if len(one.runs) == 1:
        parts.append(about(one.runs[0], docs))
    if one.key == "importance":
        names = [entry["name"] for entry in results.importance()]
        parts += [shown_picture(name, docs, f"{name}: mutual information by rank") for name in names]
    for found in one.grids:
        parts += [table(found.head, found.rows, found.left), found.note]
    return joined([*parts, command("\n".join([*one.commands, MAKE]))])
