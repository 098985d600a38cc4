"""The part of docs/results.md on the ablations, as Markdown: what the paper found, what was found here, and tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from results_page import command, grid, setup, shown_picture, tasks

from pyramid_bert.lab.report.ablations import IMPORTANCE, PREFIX, Ablation, all_ablations
from pyramid_bert.lab.report.answers import answers, commands
from pyramid_bert.lab.report.collect import Results
from pyramid_bert.lab.report.findings import RULE, Finding, findings
from pyramid_bert.lab.study.runs import Run

HEAD = f"""## Ablations

The paper's questions and ours. Under each is what the paper found and what is found here, computed from the records. A
pair is two cells that differ in nothing else: the same task, configuration and seed. {RULE}

Cells were trained with one thread each (`--jobs 2 --threads 1` on two cores). So they come out the same to the digit;
with two threads sums are rounded otherwise, and a cell on MRPC has moved by up to 2 points.
"""


def ablations(results: Results, said: Mapping[str, str], docs: Path) -> str:
    """All ablations: those whose results are there, and the commands of the others.

    Args:
        results: Studies of which something is done, and files.
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
    return "\n\n".join(part.strip() for part in parts if part.strip())


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
    parts += [_about(results.runs[name], docs) for name in ablation.studies if name.startswith(PREFIX)]
    if ablation.kind == "importance":
        parts += [shown_picture(name, docs, "mutual information by rank") for name, _ in results.importance()]
    for found in answers(ablation, results):
        parts += [grid(found.head, found.rows, found.left), found.note]
    parts.append(command("\n".join([*commands(ablation, results), "python benchmarks/make_results.py"])))
    return "\n\n".join(part.strip() for part in parts if part.strip())


def _finding(found: Finding) -> str:
    paper = f" Paper: {found.paper}" if found.paper else ""
    return f"- **{found.verdict}.**{paper} Here: {found.here}"


def _about(run: Run, docs: Path) -> str:
    """How a study was run, as for those that are no ablation."""
    return "\n\n".join(part.strip() for part in (setup(run), tasks(run), shown_picture(run.study.name, docs)) if part)
