"""The ablations of docs/results.md, as Markdown: what the paper found, what was found here, and tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from results_page import command, grid, setup, shown_picture, tasks

from pyramid_bert.lab.report.ablations import Ablation, ablations, run_command
from pyramid_bert.lab.report.collect import Results
from pyramid_bert.lab.report.compare import RULE
from pyramid_bert.lab.report.grids import findings_grid

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
    return "\n\n".join(part.strip() for part in parts if part.strip())


def _section(one: Ablation, results: Results, said: str, docs: Path) -> str:
    anchor = f"ablation-{one.key.removeprefix('ablation-')}"
    parts = [f'<a id="{anchor}"></a>', f"### {one.title}", one.question]
    parts.append("\n".join(f"- **{found.verdict}.** Paper: {found.paper}" for found in one.findings if found.paper))
    found = findings_grid(one.findings)
    parts += [grid(found.head, found.rows, found.left), said]
    if len(one.runs) == 1:
        (run,) = one.runs
        parts += [setup(run), tasks(run), shown_picture(run.study.name, docs)]
    if one.key == "importance":
        names = [entry["name"] for entry in results.importance()]
        parts += [shown_picture(name, docs, "mutual information by rank") for name in names]
    for found in one.grids:
        parts += [grid(found.head, found.rows, found.left), found.note]
    parts.append(command("\n".join([*one.commands, "python benchmarks/make_results.py"])))
    return "\n\n".join(part.strip() for part in parts if part.strip())
