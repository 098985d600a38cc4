"""What the ablations say, computed from their records, beside what the paper found."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..study.methods import DENSE
from ..study.runs import Run
from ..study.table import Result
from .ablations import Ablation
from .charts import Fit, fits
from .collect import Results, best_axis
from .headline import change

DECIDED = 2.0  # a difference counts from so many standard errors on
RULE = f"A difference counts as decided from {DECIDED:g} standard errors over its pairs on."
FLOOR = "+floor"  # how the name of a configuration ends whose lengths are rounded down


@dataclass(frozen=True)
class Finding:
    """One thing that the paper found, or that it leaves open, and what was found here.

    Attributes:
        paper: The paper's finding; empty where it has none.
        here: Ours, in numbers.
        signs: For each part of the claim 1 where it holds here, -1 where its opposite does, 0 where neither is clear.
    """

    paper: str
    here: str
    signs: tuple[int, ...] = ()

    @property
    def verdict(self) -> str:
        """Whether both agree, in a few words.

        Example:
            >>> Finding("m = 1 is best", "it is not", (-1, -1)).verdict
            'Differs from the paper'
        """
        if not self.paper:
            return "Beyond the paper"
        if not any(self.signs):
            return "Undecided"
        if {1, -1} <= set(self.signs):
            return "In part as in the paper"
        words = "As in the paper" if 1 in self.signs else "Differs from the paper"
        return words if all(self.signs) else f"{words}, where it is decided"


@dataclass(frozen=True)
class Difference:
    """The mean of what one way has more than another, over pairs of cells that differ in nothing else.

    Attributes:
        mean: The mean difference.
        error: Its standard error; infinite for a single pair.
        better: In how many pairs it is more than 0.
        pairs: How many there are.
    """

    mean: float
    error: float
    better: int
    pairs: int

    @property
    def sign(self) -> int:
        """1 or -1 where the difference is decided, else 0."""
        return 0 if abs(self.mean) <= DECIDED * self.error else int(math.copysign(1, self.mean))

    def points(self) -> str:
        """In words, for points of a metric."""
        doubt = "" if math.isinf(self.error) else f" (standard error {self.error:.1f})"
        return f"{change(self.mean)} points{doubt}, better in {self.better} of {self.pairs} pairs"


def difference(pairs: Iterable[tuple[float, float]]) -> Difference | None:
    """What the first of each pair has more than the second; None without pairs.

    Example:
        >>> difference([(3.0, 1.0), (4.0, 4.0)])
        Difference(mean=1.0, error=1.0, better=1, pairs=2)
    """
    found = np.array([first - second for first, second in pairs], dtype=float)
    if not len(found):
        return None
    error = float(np.std(found, ddof=1) / math.sqrt(len(found))) if len(found) > 1 else math.inf
    return Difference(float(found.mean()), error, int((found > 1e-9).sum()), len(found))


def findings(ablation: Ablation, results: Results) -> list[Finding]:
    """What an ablation says; all of its results have to be there. Empty for one that nobody knows."""
    if ablation.kind == "importance":
        return _importance([entry for _, entry in results.importance()])
    runs = [results.runs[name] for name in ablation.studies]
    about: Callable[[Sequence[Run]], list[Finding]] | None = {
        "m": _centres,
        "inference": _inference,
        "placement": _placement,
        "schedules": _schedules,
        "ours": _ours,
    }.get(ablation.key)
    return about(runs) if about else []


# ---- pairs ----


def _of(results: Sequence[Result], method: str) -> list[Result]:
    return [result for result in results if result.method == method]


def paired(first: Sequence[Result], second: Sequence[Result]) -> list[tuple[Result, Result]]:
    """The results of the same task, configuration and seed."""
    others = {(r.task, r.configuration, r.seed): r for r in second}
    keyed = [(r, others.get((r.task, r.configuration, r.seed))) for r in first]
    return [(r, other) for r, other in keyed if other is not None]


def _gain(first: Sequence[Result], second: Sequence[Result]) -> Difference | None:
    """Points that the first results have more than the second."""
    return difference((100 * a.value, 100 * b.value) for a, b in paired(first, second))


def _compared(names: Mapping[str, Difference | None]) -> tuple[str, tuple[int, ...]]:
    """Named differences in a sentence, and their signs; those without pairs are left out."""
    known = {name: found for name, found in names.items() if found is not None}
    words = "; ".join(f"{name}: {found.points()}" for name, found in known.items())
    return f"{words}." if words else "", tuple(found.sign for found in known.values())


# ---- each ablation ----


def _centres(runs: Sequence[Run]) -> list[Finding]:
    (run,) = runs
    results = run.results("ideal-c")
    others = [name for name in run.study.methods if name != "CS-1"]
    here, signs = _compared({f"CS-1 over {name}": _gain(_of(results, "CS-1"), _of(results, name)) for name in others})
    paper = "m = 1 scores best in 7 of 8 rows on MNLI, 0.4 points above m = k − 1 on average."
    made = [Finding(paper, here, signs)] if here else []
    paper = "m = 1 has the smallest measured speed-up: 2.5x where m = k − 1 has 3.6x, 1.7x where it has 1.8x."
    if not run.measured:
        return [*made, Finding(paper, "Not measured; ideal speed-ups do not depend on m.")]
    speeds = {(r.task, r.method, r.configuration): replace(r, seed=0) for r in run.results("measured-c") if r.x}
    words: list[str] = []
    faster: list[int] = []
    for name in others:
        pairs = paired(*(_of(list(speeds.values()), method) for method in (name, "CS-1")))
        found = difference((math.log(a.x or 1), math.log(b.x or 1)) for a, b in pairs)
        if found is not None:
            times = f"{math.exp(found.mean):.2f} times as fast as CS-1"
            words.append(f"{name} is {times}, faster in {found.better} of {found.pairs} pairs")
            faster.append(found.sign)
    return [*made, Finding(paper, "; ".join(words) + ".", tuple(faster))] if words else made


def _importance(entries: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """A correlation is decided like a difference; its standard error is 1 / √(ranks − 1)."""
    rows = [row for entry in entries for row in entry["rows"]]
    words: list[str] = []
    signs: list[int] = []
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = [row for row in rows if row["method"] == method]
        known = [row["spearman"] for row in mine if not undefined(row["spearman"])]
        for row in mine:
            clear = not undefined(row["spearman"]) and abs(row["spearman"]) > DECIDED / math.sqrt(len(row["ranks"]) - 1)
            signs.append(int(math.copysign(1, row["spearman"])) if clear else 0)
        span = f"ρ from {min(known):.2f} to {max(known):.2f}" if known else "no ρ is defined"
        words.append(f"{method}: {span} over {len(mine)} encoders, positive in {sum(rho > 0 for rho in known)}")
    counted = f"{signs.count(1)} clearly positive, {signs.count(-1)} clearly negative"
    paper = (
        "The less important a token, the more information is left without it (ρ > 0), at encoders 1, 3, 6 and 9 of "
        "BERT-base on SST-2, for CS-1 and CS-k-1; a figure, no number."
    )
    return [Finding(paper, f"{'; '.join(words)}. {counted} of {len(signs)}.", tuple(signs))]


def undefined(rho: float | None) -> bool:
    """Whether there is no rank correlation, since the information was the same for all ranks."""
    return rho is None or math.isnan(rho)


def _inference(runs: Sequence[Run]) -> list[Finding]:
    tuned, untuned = ([r for r in run.results("ideal-c") if r.method != DENSE] for run in runs)
    by_task = {title: _task_gain(tuned, untuned, task) for task, title in runs[0].titles.items()}
    here, signs = _compared({f"CS-1 on {title}": found for title, found in by_task.items()})
    paper = (
        "Fine-tuning with selection is needed: at (3, 0.2) it gains 5.7 points on SST-2, 2.6 on CoLA, 2.3 on MRPC, 1.9 "
        "on STS-B and 17.7 on QNLI over selection at inference only."
    )
    made = [Finding(paper, f"Gained by fine-tuning, {here}", signs)] if here else []
    others = dict.fromkeys(r.method for r in tuned if r.method != "CS-1")
    here, _ = _compared({name: _gain(_of(tuned, name), _of(untuned, name)) for name in others})
    return [*made, Finding("", f"Gained by fine-tuning over all tasks, {here}")] if here else made


def _task_gain(tuned: Sequence[Result], untuned: Sequence[Result], task: str) -> Difference | None:
    mine = [[r for r in _of(found, "CS-1") if r.task == task] for found in (tuned, untuned)]
    return _gain(*mine)


def _placement(runs: Sequence[Run]) -> list[Finding]:
    (run,) = runs
    results = run.results("ideal-c")

    def middle(name: str) -> tuple[str, tuple[int, ...]]:
        return _compared({f"{name}, middle over end": _gain(_of(results, name), _of(results, f"{name}-end"))})

    paper = "The middle is better on MRPC (1.8 points), RTE (3.0) and MNLI (0.8 and 1.3), at (3, 0.2)."
    here, signs = middle("CS-1")
    made = [Finding(paper, here, signs)] if here else []
    here, _ = middle("Merge")
    return [*made, Finding("", here)] if here else made


def _schedules(runs: Sequence[Run]) -> list[Finding]:
    """Ranges grow with the number of schedules, and so few have uncertain deviations: what both say is decided."""
    (run,) = runs
    lines = {(title, name): line for title, name, line in fits(run, best_axis(run))}
    words: list[str] = []
    signs: list[int] = []
    for title in run.titles.values():
        ours, theirs = (lines.get((title, f"CS-1, {kind}")) for kind in ("exponential", "random"))
        if ours is None or theirs is None:
            continue
        signs += _wider(ours, theirs)
        line = f"{title}: {_ranges(ours)} ({ours.points} exponential), {_ranges(theirs)} ({theirs.points} random)"
        heights = ours.at(2.0), theirs.at(2.0)
        if heights[0] is not None and heights[1] is not None:
            line += f"; at 2x the exponential line has {change(heights[0] - heights[1])} points against the random one"
        words.append(line)
    paper = "Exponential schedules offer a wider range of metrics and speed-ups than random ones (30 of each)."
    return [Finding(paper, ". ".join(words) + ".", tuple(signs))] if words else []


def _wider(ours: Fit, theirs: Fit) -> list[int]:
    """Of speed-ups and of metrics: 1 where ours lie farther apart, -1 where theirs do, 0 where it is not clear."""
    signs = []
    for i, side in enumerate(("speeds", "values")):
        (low, high), (their_low, their_high) = getattr(ours, side), getattr(theirs, side)
        by_range = np.sign((high - low) - (their_high - their_low))
        by_deviation = np.sign(ours.deviations[i] - theirs.deviations[i])
        signs.append(int(by_range) if by_range == by_deviation else 0)
    return signs


def _ranges(line: Fit) -> str:
    speeds, values = line.deviations
    words = f"{line.speeds[0]:.1f}x to {line.speeds[1]:.1f}x (standard deviation {speeds:.2f}x) and "
    return words + f"{line.values[0]:.1f} to {line.values[1]:.1f} % ({values:.1f})"


def _ours(runs: Sequence[Run]) -> list[Finding]:
    (run,) = runs
    results = run.results("ideal-c")
    weighed = _gain(_of(results, "Weighted"), _of(results, "CS-1"))
    made = []
    if weighed is not None:
        paper = "Once a model is fine-tuned as a pyramid, weighing attention by what a token stands for is not needed."
        sign = -1 if weighed.sign > 0 else 1
        made.append(Finding(paper, f"Weighing over dropping: {weighed.points()}.", (sign,)))
    pairs = {"Merging over dropping": ("Merge", "CS-1")}
    pairs |= {f"{name}, cosine over Euclidean": (f"{name}-cosine", name) for name in ("CS-1", "Merge")}
    found = {title: _gain(_of(results, first), _of(results, second)) for title, (first, second) in pairs.items()}
    down = [r for r in results if r.configuration.endswith(FLOOR)]
    down = [replace(r, configuration=r.configuration.removesuffix(FLOOR)) for r in down]
    both = [pair for name in run.study.methods for pair in paired(_of(down, name), _of(results, name))]
    found["Rounding down over rounding up"] = difference((100 * a.value, 100 * b.value) for a, b in both)
    here, _ = _compared(found)
    return [*made, Finding("", here)] if here else made
