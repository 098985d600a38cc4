"""The ablations: studies that vary a setting, pairs of studies, and measurements of token importance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ..study.runs import Run
from .collect import Results
from .compare import Finding, findings, importance_findings, inference_findings, is_ablation, twin, varies_schedules
from .grids import Grid, configurations_grid, fits_grid, importance_grid, inference_grids


@dataclass(frozen=True)
class Ablation:
    """One question and its answer.

    Attributes:
        key: For links: the study's name, or "importance".
        title: In a few words: the experiment file's `title`, or its name.
        question: What is compared, and why: the experiment file's `question`.
        chart: "front" draws Pareto fronts by method, "lines" fitted lines by kind of schedule.
        runs: The studies behind it.
        findings: What the records say.
        grids: Its tables.
        commands: What makes its numbers again.
    """

    key: str
    title: str
    question: str
    chart: Literal["front", "lines"] | None
    runs: tuple[Run, ...]
    findings: list[Finding]
    grids: list[Grid]
    commands: list[str]


def main_studies(results: Results) -> list[Run]:
    """The studies that compare methods, the largest first."""
    return [run for run in results.runs if not is_ablation(run) and twin(run, results.runs) is None]


def ablations(results: Results) -> list[Ablation]:
    """All ablations by name, and token importance after them."""
    made = []
    for run in sorted(results.runs, key=lambda run: run.study.name):
        trained = twin(run, results.runs)
        if trained is not None:
            made.append(_inference(trained, run))
        elif is_ablation(run):
            made.append(_settings(run))
    if entries := results.importance():
        question = (
            "Remove the k-th most important token at an encoder and measure the mutual information between predictions "
            "with and without it. If rank means importance, the information grows with k. ρ is Spearman's correlation "
            "of the two."
        )
        commands = list(dict.fromkeys(entry["command"] for entry in entries))
        grids = [importance_grid(entries)]
        title = "Does rank mean importance?"
        made.append(Ablation("importance", title, question, None, (), importance_findings(entries), grids, commands))
    return made


def _settings(run: Run) -> Ablation:
    lines = varies_schedules(run)
    grid = fits_grid(run) if lines else configurations_grid(run)
    commands = [run_command(run), *([f"{run_command(run)} --measure"] if run.measured else [])]
    return _of(run, "lines" if lines else "front", (run,), findings(run), [grid], commands)


def _inference(trained: Run, untrained: Run) -> Ablation:
    runs = (trained, untrained)
    return _of(untrained, None, runs, inference_findings(*runs), inference_grids(*runs), [*map(run_command, runs)])


def _of(
    run: Run,
    chart: Literal["front", "lines"] | None,
    runs: tuple[Run, ...],
    found: list[Finding],
    grids: list[Grid],
    commands: list[str],
) -> Ablation:
    study = run.study
    return Ablation(study.name, study.title or study.name, study.question, chart, runs, found, grids, commands)


def run_command(run: Run) -> str:
    """The command that runs a study."""
    return f"pyramid-bert study run {run.file} --model DIR --data DIR"
