"""The ablations: studies that vary a setting, pairs of studies, and measurements of token importance."""

from __future__ import annotations

from dataclasses import dataclass

from ..study.runs import Run
from .charts import varies_schedules
from .collect import Results
from .compare import Finding, findings, importance_findings, inference_findings, is_ablation, twin
from .grids import Grid, configurations_grid, fits_grid, importance_grid, inference_grids

IMPORTANCE = (
    "Remove the k-th most important token at an encoder and measure the mutual information between predictions with "
    "and without it. If rank means importance, the information grows with k. ρ is Spearman's correlation of the two."
)


@dataclass(frozen=True)
class Ablation:
    """One question and its answer.

    Attributes:
        key: For links: the study's name, or "importance".
        title: The experiment file's `title`, or its name.
        question: What is compared, and why: the experiment file's `question`.
        findings: What the records say.
        grids: Its tables.
        commands: The commands that make its numbers again.
        runs: The studies behind it.
    """

    key: str
    title: str
    question: str
    findings: list[Finding]
    grids: list[Grid]
    commands: list[str]
    runs: tuple[Run, ...] = ()


def main_studies(results: Results) -> list[Run]:
    """The studies that compare methods, the largest first."""
    return [run for run in results.runs if not is_ablation(run) and twin(run, results.runs) is None]


def ablations(results: Results) -> list[Ablation]:
    """All ablations by name, and token importance after them."""
    made = []
    for run in sorted(results.runs, key=lambda run: run.study.name):
        words = (run.study.name, run.study.title or run.study.name, run.study.question)
        trained = twin(run, results.runs)
        if trained is not None:
            both = (trained, run)
            commands = [*map(run_command, both)]
            made.append(Ablation(*words, inference_findings(*both), inference_grids(*both), commands, both))
        elif is_ablation(run):
            commands = [run_command(run), *([f"{run_command(run)} --measure"] if run.measured else [])]
            grid = fits_grid(run) if varies_schedules(run) else configurations_grid(run)
            made.append(Ablation(*words, findings(run), [grid], commands, (run,)))
    if entries := results.importance():
        commands = list(dict.fromkeys(entry["command"] for entry in entries))
        words = ("importance", "Does rank mean importance?", IMPORTANCE)
        made.append(Ablation(*words, importance_findings(entries), [importance_grid(entries)], commands))
    return made


def run_command(run: Run) -> str:
    """The command that runs a study."""
    return f"pyramid-bert study run {run.file} --model DIR --data DIR"
