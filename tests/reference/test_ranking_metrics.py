"""Metrics of rankings against scikit-learn, a slow bootstrap, and figures of the shared collections."""

import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, ndcg_score

from pyramid_bert.ranking import Collection, compare, measure

GRADES = st.lists(st.integers(0, 3), min_size=2, max_size=30).filter(any)


def ranking_of(grades):
    """A query whose documents come in the order of `grades`, all of them judged."""
    names = [str(i) for i in range(len(grades))]
    return {"q": names}, {"q": dict(zip(names, grades, strict=True))}


@given(GRADES)
def test_ndcg_is_scikit_learns_with_the_gain_of_trec_eval(grades):
    scores = -np.arange(len(grades))[None]
    for gain, worth in (("linear", lambda g: g), ("exponential", lambda g: 2**g - 1)):
        found = measure(*ranking_of(grades), gain=gain).means()["ndcg@10"]
        assert found == pytest.approx(ndcg_score([[worth(g) for g in grades]], scores, k=10))


@given(GRADES, st.integers(1, 3))
def test_map_is_scikit_learns(grades, least):
    if max(grades) < least:
        grades = [*grades, least]
    found = measure(*ranking_of(grades), relevant_from=least).means()["map"]
    assert found == pytest.approx(average_precision_score([g >= least for g in grades], -np.arange(len(grades))))


@given(GRADES, st.integers(1, 5))
def test_reciprocal_rank_and_recall_by_their_definitions(grades, k):
    found = measure(*ranking_of(grades), k=k, recall_at=k).means()
    ranks = [i for i, grade in enumerate(grades, start=1) if grade]
    assert found[f"mrr@{k}"] == (1 / ranks[0] if ranks[0] <= k else 0)
    assert found[f"recall@{k}"] == sum(rank <= k for rank in ranks) / len(ranks)


def test_documents_that_are_not_ranked_count_in_the_ideal_order():
    found = measure({"q": ["a"]}, {"q": {"a": 1, "b": 3}}).means()
    assert found["ndcg@10"] == pytest.approx(1 / (3 + 1 / np.log2(3)))
    assert found["map"] == found["recall@100"] == 0.5


def test_unjudged_documents_are_irrelevant():
    assert measure({"q": ["x", "a"]}, {"q": {"a": 2}}).means()["mrr@10"] == 0.5


def test_intervals_are_those_of_a_bootstrap_drawn_query_by_query():
    generator = np.random.default_rng(5)
    qrels = {str(q): {"0": 1} for q in range(40)}
    one, other = (measure({q: [str(d) for d in generator.permutation(12)] for q in qrels}, qrels) for _ in range(2))
    found = compare(one, other, samples=20_000)["ndcg@10"]
    ours, theirs = one.values["ndcg@10"], other.values["ndcg@10"]
    draws = generator.integers(0, 40, (20_000, 40))
    differences = (ours - theirs)[draws].mean(1)
    assert found.interval == pytest.approx(np.quantile(differences, (0.025, 0.975)), abs=0.01)
    shares = ours[draws].mean(1) / theirs[draws].mean(1)
    assert found.retained_interval == pytest.approx(np.quantile(shares, (0.025, 0.975)), abs=0.05)
    assert found.difference == pytest.approx((ours - theirs).mean())


def test_queries_are_paired_by_name():
    qrels = {q: {"a": 1} for q in "xyz"}
    orders = {"x": ["a", "b"], "y": ["b", "a"], "z": ["b", "c", "a"]}
    same = compare(measure(orders, qrels), measure(dict(reversed(orders.items())), qrels))
    assert {found.interval for found in same.values()} == {(0.0, 0.0)}
    assert {found.retained_interval for found in same.values()} == {(1.0, 1.0)}


@pytest.mark.parametrize(
    ("name", "bm25", "best"), [("dl19-mini", 0.574, 0.964), ("cranfield", 0.349, 0.797)], ids=lambda value: str(value)
)
def test_figures_of_the_shared_collections(name, bm25, best):
    data = os.environ.get("PYRAMID_DATA")
    folder = Path(data or "") / "rerank" / name
    if not data or not folder.is_dir():
        pytest.skip(f"PYRAMID_DATA names no folder with rerank/{name}")
    found = Collection.load(folder)
    ideal = {
        query: sorted(ranked, key=lambda document: -found.qrels[query].get(document, 0))
        for query, ranked in found.candidates.items()
    }
    for order, expected in ((found.candidates, bm25), (ideal, best)):
        assert measure(order, found.qrels, gain="exponential").means()["ndcg@10"] == pytest.approx(expected, abs=5e-4)
