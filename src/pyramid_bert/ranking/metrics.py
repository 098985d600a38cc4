"""How good rankings are, by query: nDCG, MRR, MAP and recall, and paired bootstrap intervals against another ranking.

nDCG has trec_eval's gain: the grade itself (`gain="exponential"` is 2^grade - 1). Its ideal order is that of all judged
documents, whether they are ranked or not. MRR, MAP and recall count a document as relevant from `relevant_from` on.
A document without a judgement has the grade 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log2
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..checks import check_choice, check_number
from ..errors import DataError, shown

Gain = Literal["linear", "exponential"]
Ranking = Sequence[str]  # ids of documents, the best first
Grades = Mapping[str, float]  # id of a document -> how relevant it is to a query
GAINS = ("linear", "exponential")


@dataclass(frozen=True, eq=False)
class Quality:
    """How good the rankings of n queries are.

    Attributes:
        queries: The ids of the queries.
        values: Name of a metric -> its value (n,) for each query, the metric that counts first.
    """

    queries: tuple[str, ...]
    values: Mapping[str, NDArray[np.float64]]

    @property
    def metric(self) -> str:
        """The metric that counts: nDCG."""
        return next(iter(self.values))

    def means(self) -> dict[str, float]:
        """The mean over the queries, by metric."""
        return {name: float(values.mean()) for name, values in self.values.items()}


@dataclass(frozen=True)
class Comparison:
    """A metric of rankings beside that of other rankings of the same queries.

    Attributes:
        value: The mean of the metric.
        reference: The mean for the other rankings.
        difference: The first less the second.
        interval: The bootstrap interval of the difference.
        retained: The share of the reference that is left; NaN if the reference is 0.
        retained_interval: The bootstrap interval of that share.
    """

    value: float
    reference: float
    difference: float
    interval: tuple[float, float]
    retained: float
    retained_interval: tuple[float, float]


def measure(
    rankings: Mapping[str, Ranking],
    qrels: Mapping[str, Grades],
    *,
    k: int = 10,
    recall_at: int = 100,
    gain: Gain = "linear",
    relevant_from: float = 1,
) -> Quality:
    """The metrics of each query: nDCG@k, MRR@k, MAP and recall@`recall_at`.

    Args:
        rankings: Query -> ids of its documents, the best first.
        qrels: Query -> id of a document -> grade.
        k: How many of the best documents nDCG and MRR look at.
        recall_at: How many of the best documents recall looks at.
        gain: What a grade g is worth in nDCG: g ("linear"), or 2^g - 1 ("exponential").
        relevant_from: The least grade that counts as relevant in MRR, MAP and recall.

    Example:
        >>> found = measure({"q": ["b", "a"]}, {"q": {"a": 1}})
        >>> {name: round(value, 3) for name, value in found.means().items()}
        {'ndcg@10': 0.631, 'mrr@10': 0.5, 'map': 0.5, 'recall@100': 1.0}
    """
    for name, value in (("k", k), ("recall_at", recall_at)):
        check_number(name, value, 1, whole=True, error=DataError)
    check_number("relevant_from", relevant_from, above=True, error=DataError)
    check_choice("gain", gain, GAINS)
    if not rankings:
        raise DataError("no rankings given; give at least one query with its documents")
    rows = []
    for query, ranking in rankings.items():
        grades = _grades_of(query, ranking, qrels, relevant_from)
        found = [float(grades.get(document, 0)) for document in ranking]
        ideal = sorted(map(float, grades.values()), reverse=True)
        relevant = [grade >= relevant_from for grade in found]
        total = sum(grade >= relevant_from for grade in ideal)
        first = next((place for place, is_relevant in enumerate(relevant[:k], start=1) if is_relevant), None)
        hits = np.cumsum(relevant)
        precise = sum(int(hits[i]) / (i + 1) for i, is_relevant in enumerate(relevant) if is_relevant)
        rows.append(
            (
                _discounted(found[:k], gain) / _discounted(ideal[:k], gain),
                0.0 if first is None else 1 / first,
                precise / total,
                sum(relevant[:recall_at]) / total,
            )
        )
    names = (f"ndcg@{k}", f"mrr@{k}", "map", f"recall@{recall_at}")
    columns = np.array(rows, dtype=np.float64).T
    return Quality(tuple(rankings), dict(zip(names, columns, strict=True)))


def compare(
    found: Quality, reference: Quality, *, samples: int = 10_000, level: float = 0.95, seed: int = 0
) -> dict[str, Comparison]:
    """Each metric beside that of other rankings of the same queries, with paired bootstrap intervals over queries.

    Args:
        found: The rankings that are judged.
        reference: Those they are compared with.
        samples: How often the queries are drawn again.
        level: The share of the samples inside the interval.
        seed: Of the draws.

    Example:
        >>> qrels = {"q": {"a": 1}, "r": {"a": 1}}
        >>> good, bad = (measure({"q": order, "r": order}, qrels) for order in (["a", "b"], ["b", "a"]))
        >>> compare(good, bad)["mrr@10"].interval
        (0.5, 0.5)
    """
    check_number("samples", samples, 1, 10_000_000, whole=True)
    check_number("level", level, 0, 0.9999, above=True)
    place = {query: i for i, query in enumerate(reference.queries)}
    missing = [query for query in found.queries if query not in place]
    if missing or len(found.queries) != len(reference.queries):
        named = f"query {shown(missing[0])} is only in the first" if missing else "the second has further queries"
        raise DataError(f"rankings of different queries cannot be compared: {named}; rank the same queries")
    if list(found.values) != list(reference.values):
        names = " and ".join(", ".join(one.values) for one in (found, reference))
        raise DataError(f"different metrics cannot be compared, {names}; measure both in the same way")
    order = [place[query] for query in found.queries]
    n, generator = len(order), np.random.default_rng(seed)
    # How often each query is drawn, (samples, n): the mean of a draw is then one product.
    weights = generator.multinomial(n, np.full(n, 1 / n), size=samples) / n
    limits = ((1 - level) / 2, (1 + level) / 2)
    compared = {}
    for name, values in found.values.items():
        other = reference.values[name][order]
        ours, theirs = weights @ values, weights @ other
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(theirs > 0, ours / theirs, np.nan)
        value, against = float(values.mean()), float(other.mean())
        compared[name] = Comparison(
            value,
            against,
            value - against,
            _interval(ours - theirs, limits),
            value / against if against > 0 else float("nan"),
            _interval(shares, limits),
        )
    return compared


def _grades_of(query: str, ranking: Ranking, qrels: Mapping[str, Grades], relevant_from: float) -> Grades:
    """The grades of a query's documents; raises for what no metric can be computed of."""
    if isinstance(ranking, str | bytes) or not all(isinstance(document, str) for document in ranking):
        raise DataError(f"the ranking of query {shown(query)} must be a list of document ids, got {shown(ranking)}")
    if not len(ranking):
        raise DataError(f"the ranking of query {shown(query)} is empty; give it at least one document")
    if len(set(ranking)) < len(ranking):
        twice = next(document for i, document in enumerate(ranking) if document in ranking[:i])
        raise DataError(f"the ranking of query {shown(query)} has document {shown(twice)} twice; rank each once")
    if query not in qrels:
        raise DataError(f"qrels do not know query {shown(query)}; judge it, or leave it out of the rankings")
    grades = qrels[query]
    if not any(grade >= relevant_from for grade in grades.values()):
        raise DataError(
            f"qrels have no positive for query {shown(query)}, no grade of at least {relevant_from:g}; judge one, or "
            "leave the query out of the rankings"
        )
    return grades


def _discounted(grades: Sequence[float], gain: Gain) -> float:
    """The discounted cumulative gain of grades in the order of a ranking; grades below 0 are worth nothing."""
    worth = [max(grade, 0) if gain == "linear" else 2 ** max(grade, 0) - 1 for grade in grades]
    return sum(value / log2(place + 1) for place, value in enumerate(worth, start=1))


def _interval(values: NDArray[np.float64], limits: tuple[float, float]) -> tuple[float, float]:
    if np.isnan(values).any():
        return float("nan"), float("nan")
    low, high = np.quantile(values, limits)
    return float(low), float(high)
