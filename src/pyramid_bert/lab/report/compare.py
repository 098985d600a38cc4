"""What a study compares, read from its methods and configurations, and what its records say about it.

Two methods that differ in one setting are compared cell by cell: the same task, configuration and seed. The paper's
claims belong to settings, not to studies, so any study that varies a setting is judged by the claim about it.
"""

from __future__ import annotations

import math
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from ..study.methods import CORESETS, DENSE, Method
from ..study.runs import Run
from ..study.table import Result
from .charts import Fit, fits, varies_schedules
from .collect import Entry, best_axis

DECIDED = 2.0  # standard errors
RULE = f"A difference counts as decided if it exceeds {DECIDED:g} standard errors over its pairs."
HEAD = ("setting", "comparison", "difference", "standard error", "better in", "beside the paper")
DEFAULTS: dict[str, Any] = {"placement": "middle", "metric": "euclidean", "weighted": False, "distills": False}
# Sign of a comparison -> beside the paper's claim, in a table, as a key, and as a verdict.
WORDS = {1: "as in the paper", -1: "opposite", 0: "undecided"}
OUTCOMES = {1: "agrees", -1: "differs", 0: "undecided"}
VERDICTS = {
    "agrees": "As in the paper",
    "differs": "Opposite to the paper",
    "undecided": "Undecided",
    "open": "Not in the paper",
}
PAPER = tomllib.loads(Path(__file__).with_name("assets").joinpath("claims.toml").read_text(encoding="utf-8"))
CLAIMS: dict[str, dict[str, Any]] = PAPER["settings"]


# ---- differences ----


@dataclass(frozen=True)
class Difference:
    """The mean advantage of one way over another, over pairs of cells that differ in nothing else.

    Attributes:
        mean: The mean difference.
        error: Its standard error; infinite for a single pair.
        better: The number of pairs with a difference above 0.
        pairs: The number of pairs.
    """

    mean: float
    error: float
    better: int
    pairs: int

    @property
    def sign(self) -> int:
        """1 or -1 where the difference is decided, else 0."""
        return 0 if abs(self.mean) <= DECIDED * self.error else int(math.copysign(1, self.mean))


def difference(pairs: Iterable[tuple[float, float]]) -> Difference | None:
    """The advantage of the first of each pair over the second; None without pairs.

    Example:
        >>> difference([(3.0, 1.0), (4.0, 4.0)])
        Difference(mean=1.0, error=1.0, better=1, pairs=2)
    """
    found = np.array([first - second for first, second in pairs], dtype=float)
    if not len(found):
        return None
    error = float(np.std(found, ddof=1) / math.sqrt(len(found))) if len(found) > 1 else math.inf
    return Difference(float(found.mean()), error, int((found > 1e-9).sum()), len(found))


def change(points: float) -> str:
    """Points gained or lost, with a sign.

    Example:
        >>> change(-1.24), change(0.31), change(-0.01)
        ('−1.2', '+0.3', '±0.0')
    """
    rounded = round(points, 1)
    return "±0.0" if rounded == 0 else f"{rounded:+.1f}".replace("-", "−")


# ---- findings ----


@dataclass(frozen=True)
class Line:
    """One comparison.

    Attributes:
        cells: Setting, comparison, difference, standard error, better in.
        signs: For each part that the paper's claim covers: 1 if it holds here, -1 if its opposite does, 0 if neither
            is decided. Empty where the paper claims nothing.
    """

    cells: tuple[str, ...]
    signs: tuple[int, ...] = ()

    def row(self) -> list[str]:
        """Its cells under `HEAD`."""
        return [*self.cells, WORDS[self.signs[0]] if len(self.signs) == 1 else _counted(self.signs)]


def _points(setting: str, comparison: str, found: Difference, signs: tuple[int, ...] = ()) -> Line:
    error = "" if math.isinf(found.error) else f"{found.error:.1f}"
    return Line((setting, comparison, f"{change(found.mean)} points", error, f"{found.better} of {found.pairs}"), signs)


@dataclass(frozen=True)
class Finding:
    """What was found here about one claim of the paper, or about a setting it leaves open (`paper` is empty)."""

    paper: str
    lines: tuple[Line, ...]

    @property
    def signs(self) -> tuple[int, ...]:
        """The signs of all lines."""
        return tuple(sign for line in self.lines for sign in line.signs)

    @property
    def outcome(self) -> str:
        """One of "agrees", "differs", "undecided", "mixed" and "open" (the paper makes no claim).

        Only a claim that is decided in every part agrees or differs.
        """
        if not self.paper:
            return "open"
        signs = set(self.signs) or {0}
        return OUTCOMES[signs.pop()] if len(signs) == 1 else "mixed"

    @property
    def verdict(self) -> str:
        """The outcome in words.

        Example:
            >>> Finding("m = 1 is best", (Line((), (1,)), Line((), (0,)))).verdict
            'Of 2 comparisons: 1 as in the paper, 1 undecided'
        """
        return VERDICTS.get(self.outcome, f"Of {len(self.signs)} comparisons: {_counted(self.signs)}")


def _counted(signs: Sequence[int]) -> str:
    counts = Counter(signs)
    return ", ".join(f"{counts[sign]} {WORDS[sign]}" for sign in WORDS if counts[sign])


# ---- pairs of cells ----


def paired(first: Sequence[Result], second: Sequence[Result]) -> list[tuple[Result, Result]]:
    """The results of the same task, configuration and seed."""
    others = {(r.task, r.configuration, r.seed): r for r in second}
    return [(r, others[key]) for r in first if (key := (r.task, r.configuration, r.seed)) in others]


def _gain(first: Sequence[Result], second: Sequence[Result]) -> Difference | None:
    """The advantage of the first results over the second, in points."""
    return difference((100 * a.value, 100 * b.value) for a, b in paired(first, second))


def _of(results: Sequence[Result], method: str) -> list[Result]:
    return [result for result in results if result.method == method]


# ---- what varies ----


def varied(methods: Mapping[str, Method]) -> dict[str, list[tuple[str, str]]]:
    """Setting -> pairs of methods that differ in this setting and nothing else; the value of `CLAIMS` comes first.

    Selectors are left out: comparing them is what the table of a study is for.

    Example:
        >>> from pyramid_bert.lab.study.methods import METHODS
        >>> varied({name: METHODS[name] for name in ("CS-k-1", "CS-1", "Merge", "Rand")})
        {'centers_per_step': [('CS-1', 'CS-k-1')], 'reduce': [('Merge', 'CS-1')]}
    """
    full = {name: {**DEFAULTS, **method.settings, "distills": method.distills} for name, method in methods.items()}
    found: dict[str, list[tuple[str, str]]] = {}
    for one, other in combinations(methods, 2):
        names = dict.fromkeys([*full[one], *full[other]])
        differing = [name for name in names if full[one].get(name) != full[other].get(name)]
        if len(differing) != 1 or differing[0] == "selector" or methods[one].kind != methods[other].kind:
            continue
        (setting,) = differing
        for first, second in ((one, other), (other, one)):
            if setting not in CLAIMS or full[first].get(setting) == CLAIMS[setting]["first"]:
                found.setdefault(setting, []).append((first, second))
                break
    return found


def rounded_down(run: Run) -> dict[str, str]:
    """Configurations that round lengths down -> the same with lengths rounded up."""
    names: dict[str, dict[str, str]] = {}
    for cell in run.cells:
        if cell.schedule is not None:
            fields = {key: value for key, value in cell.schedule.to_dict().items() if key != "rounding"}
            names.setdefault(repr(sorted(fields.items())), {})[cell.schedule.rounding] = cell.configuration
    return {pair["floor"]: pair["ceil"] for pair in names.values() if {"floor", "ceil"} <= pair.keys()}


def is_ablation(run: Run) -> bool:
    """Whether a study varies settings or schedules of one selector; others compare methods."""
    selectors = {method.settings.get("selector") for method in run.study.methods.values()}
    return len(selectors) == 1 and bool(varied(run.study.methods) or varies_schedules(run) or rounded_down(run))


def twin(run: Run, runs: Sequence[Run]) -> Run | None:
    """For a study with selection at inference only: the study that trained most of the same pyramids."""
    if run.study.selection != "inference":
        return None
    trained = [(len(_places(other) & _places(run)), other) for other in runs if other.study.selection != "inference"]
    shared, best = max(trained, key=lambda found: found[0], default=(0, None))
    return best if shared else None


def _places(run: Run) -> set[tuple[Any, ...]]:
    """The finished pyramids; the dense classifier that they are compared with is part of what they are."""
    cells = [cell for cell in run.cells if not cell.is_dense and cell.key in run.records]
    return {(cell.task, cell.method, cell.configuration, cell.seed, cell.dense) for cell in cells}


# ---- findings of a study ----


def findings(run: Run) -> list[Finding]:
    """What a study says about each setting that it varies."""
    results = run.results("ideal-c")
    made: list[Finding] = []
    for setting, pairs in varied(run.study.methods).items():
        claim = CLAIMS.get(setting, {})
        made += [Finding(claim.get("paper", ""), _scores(run, setting, claim, pairs))]
        made += [Finding(claim["speed"], _speeds(run, pairs))] if "speed" in claim else []
    if down := rounded_down(run):
        floored = [replace(r, configuration=down[r.configuration]) for r in results if r.configuration in down]
        both = [pair for name in run.study.methods for pair in paired(_of(floored, name), _of(results, name))]
        found = difference((100 * a.value, 100 * b.value) for a, b in both)
        made += [] if found is None else [Finding("", (_points("rounding", "down over up", found),))]
    if varies_schedules(run):
        made.append(Finding(PAPER["studies"]["schedules"], tuple(_schedules(run))))
    return [finding for finding in made if finding.lines]


def _scores(run: Run, setting: str, claim: Mapping[str, Any], pairs: Sequence[tuple[str, str]]) -> tuple[Line, ...]:
    results, lines = run.results("ideal-c"), []
    # The paper's methods drop tokens and learn from labels only.
    published = {n for n, m in run.study.methods.items() if m.settings.get("reduce") == "drop" and not m.distills}
    for first, second in pairs:
        found = _gain(_of(results, first), _of(results, second))
        if found is not None:
            judged = "paper" in claim and {first, second} <= published
            signs = (claim.get("sign", 1) * found.sign,) if judged else ()
            lines.append(_points(setting, f"{first} over {second}", found, signs))
    return tuple(lines)


def _speeds(run: Run, pairs: Sequence[tuple[str, str]]) -> tuple[Line, ...]:
    """Measured speeds of the other values beside the first one's; a speed does not depend on the seed."""
    if not run.measured:
        return ()
    speeds = {(r.task, r.method, r.configuration): replace(r, seed=0) for r in run.results("measured-c") if r.x}
    lines = []
    for first, second in pairs:
        both = paired(*(_of(list(speeds.values()), method) for method in (second, first)))
        found = difference((math.log(a.x or 1), math.log(b.x or 1)) for a, b in both)
        if found is not None:
            times, better = f"{math.exp(found.mean):.2f} times as fast", f"{found.better} of {found.pairs}"
            lines.append(Line(("measured speed", f"{second} over {first}", times, "", better), (found.sign,)))
    return tuple(lines)


def _schedules(run: Run) -> list[Line]:
    """Ranges grow with the number of schedules and few schedules have uncertain deviations, so both must agree."""
    fitted = {(title, name): line for title, name, line in fits(run, best_axis(run))}
    lines = []
    for title in run.titles.values():
        for method in run.study.methods:
            ours, theirs = (fitted.get((title, f"{method}, {kind}")) for kind in ("exponential", "random"))
            if ours is None or theirs is None:
                continue
            words = f"{method} on {title}, exponential over random"
            for i, (what, unit) in enumerate((("speed-ups", "x"), ("metrics", " %"))):
                spans = [f"{_span(line, i):.1f}{unit} (deviation {line.deviations[i]:.2f})" for line in (ours, theirs)]
                cells = (f"range of {what}", words, " against ".join(spans), "", "")
                lines.append(Line(cells, (wider(ours, theirs, i),)))
            heights = ours.at(2.0), theirs.at(2.0)
            if heights[0] is not None and heights[1] is not None:
                lines.append(Line(("line at 2x", words, f"{change(heights[0] - heights[1])} points", "", "")))
    return lines


def wider(ours: Fit, theirs: Fit, side: int) -> int:
    """1 if ours spread further, by range and by standard deviation; -1 if theirs do; 0 if the two measures disagree.

    `side` is 0 for speed-ups and 1 for metrics.
    """
    by_range = np.sign(_span(ours, side) - _span(theirs, side))
    by_deviation = np.sign(ours.deviations[side] - theirs.deviations[side])
    return int(by_range) if by_range == by_deviation else 0


def _span(line: Fit, side: int) -> float:
    low, high = (line.speeds, line.values)[side]
    return high - low


# ---- findings beyond one study ----


def inference_findings(trained: Run, untrained: Run) -> list[Finding]:
    """What fine-tuning as a pyramid gains over selection at inference only, by method, and for core-sets by task."""
    tuned, plain = ([r for r in run.results("ideal-c") if r.method != DENSE] for run in (trained, untrained))
    judged, others = [], []
    for method in dict.fromkeys(r.method for r in tuned):
        mine = _of(tuned, method), _of(plain, method)
        for task, title in trained.titles.items() if method in CORESETS else ():
            found = _gain(*([r for r in results if r.task == task] for results in mine))
            if found is not None:
                judged.append(_points("fine-tuning", f"{method} on {title}", found, (found.sign,)))
        found = _gain(*mine)
        if found is not None:
            others.append(_points("fine-tuning", f"{method}, all tasks", found))
    return [f for f in (Finding(PAPER["studies"]["inference"], tuple(judged)), Finding("", tuple(others))) if f.lines]


def importance_findings(entries: Sequence[Entry]) -> list[Finding]:
    """Whether rank means importance. The standard error of a rank correlation is 1 / √(ranks − 1)."""
    rows = [row for entry in entries for row in entry["rows"]]
    lines = []
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = [row for row in rows if row["method"] == method]
        known = [row["spearman"] for row in mine if not undefined(row["spearman"])]
        span = f"ρ from {min(known):.2f} to {max(known):.2f}" if known else "ρ is undefined"
        above = f"ρ > 0 in {sum(rho > 0 for rho in known)} of {len(mine)}"
        lines.append(Line(("rank", method, span, "", above), tuple(map(_correlation_sign, mine))))
    return [Finding(PAPER["studies"]["importance"], tuple(lines))] if lines else []


def _correlation_sign(row: Mapping[str, Any]) -> int:
    rho = row["spearman"]
    decided = not undefined(rho) and abs(rho) > DECIDED / math.sqrt(len(row["ranks"]) - 1)
    return int(math.copysign(1, rho)) if decided else 0


def undefined(rho: float | None) -> bool:
    """Whether there is no rank correlation: the information was the same for all ranks."""
    return rho is None or math.isnan(rho)
