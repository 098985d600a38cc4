"""What ablations say beside the paper, from made-up records in which the better way is known."""

import json

import pytest

from pyramid_bert.lab.report.ablations import ABLATIONS, all_ablations
from pyramid_bert.lab.report.answers import answers, commands
from pyramid_bert.lab.report.charts import Fit
from pyramid_bert.lab.report.collect import collect_results
from pyramid_bert.lab.report.findings import Finding, _wider, difference, findings

END = 'variants.CS-1-end = { of = "CS-1", placement = "end" }'
OURS = """variants.CS-1-cosine = { of = "CS-1", metric = "cosine" }
variants.Weighted = { of = "CS-1", weighted = true }"""


@pytest.fixture
def root(tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "experiments").mkdir()
    return tmp_path


def ask(root, key):
    """An ablation and all results."""
    results = collect_results(root / "results", root / "experiments")
    (ablation,) = [one for one in all_ablations(list(results.runs)) if one.key == key]
    return ablation, results


def found(root, key):
    return findings(*ask(root, key))


@pytest.mark.parametrize(
    ("signs", "verdict"),
    [
        ((), "Undecided"),
        ((0, 0), "Undecided"),
        ((1, 1), "As in the paper"),
        ((1, 0), "As in the paper, where it is decided"),
        ((-1, -1), "Differs from the paper"),
        ((0, -1), "Differs from the paper, where it is decided"),
        ((1, -1, 0), "In part as in the paper"),
    ],
)
def test_a_verdict_follows_from_the_parts_of_a_claim(signs, verdict):
    assert Finding("a claim", "a number", signs).verdict == verdict
    assert Finding("", "a number", signs).verdict == "Beyond the paper"


def test_a_difference_is_decided_from_two_standard_errors_on():
    # 1, 2, 3: mean 2, standard deviation 1
    clear = difference([(2, 1), (3, 1), (4, 1)])
    assert (clear.mean, clear.better, clear.pairs, clear.sign) == (2.0, 3, 3, 1)
    assert clear.error == pytest.approx(3**-0.5)
    assert difference([(1, 2), (1, 3), (1, 4)]).sign == -1
    assert difference([(0, 0), (1, 0)]).sign == 0  # mean 0.5, error 0.5
    assert difference([(5, 0)]).sign == 0  # of one pair nothing follows
    assert difference([]) is None


def test_one_centre_at_a_time_by_score_and_by_measured_speed(root, write_study):
    methods = ("CS-1", "CS-0.5", "CS-k-1")
    run = write_study(root, "ablation-m", methods=methods, worse={"CS-0.5": -1.0, "CS-k-1": 0.5}, more="measure = true")
    score, speed = found(root, "m")
    # 2 tasks, 2 configurations, 2 seeds
    assert "CS-1 over CS-0.5: −1.0 points (standard error 0.0), better in 0 of 8 pairs" in score.here
    assert "CS-1 over CS-k-1: +0.5 points (standard error 0.0), better in 8 of 8 pairs" in score.here
    assert score.verdict == "In part as in the paper"
    assert (speed.signs, speed.verdict) == ((0, 0), "Undecided")
    assert "CS-k-1 is 1.00 times as fast as CS-1, faster in 0 of 4 pairs" in speed.here
    for cell in run.cells:
        if cell.method == "CS-1":
            key = cell.measurement(run.study.measure)
            speed = {"0.5@1-1": 1.5, "0.25@1-1": 3.2}[cell.configuration]
            run.store.write(key, {**run.store.read(key), "over_c": speed})
    _, speed = found(root, "m")
    # 1.8 / 1.5 = 1.2, 3.8 / 3.2 = 1.1875
    assert "CS-k-1 is 1.19 times as fast as CS-1, faster in 4 of 4 pairs" in speed.here
    assert speed.verdict == "As in the paper"
    assert commands(*ask(root, "m")) == [
        "pyramid-bert study run experiments/ablation-m.toml --model DIR --data DIR",
        "pyramid-bert study run experiments/ablation-m.toml --model DIR --data DIR --measure",
    ]


def test_without_measurements_speeds_are_not_judged(root, write_study):
    write_study(root, "ablation-m", methods=("CS-1", "CS-k-1"), worse={"CS-k-1": -1.0})
    score, speed = found(root, "m")
    assert score.verdict == "Differs from the paper"
    assert (speed.here, speed.verdict) == ("Not measured; ideal speed-ups do not depend on m.", "Undecided")


def test_ranks_that_mean_importance_and_ranks_that_do_not(root):
    def write(*rhos):
        rows = [
            {"layer": layer, "method": "CS-1", "ranks": list(range(2, 19)), "mutual_information": [0.1] * 17, **rho}
            for layer, rho in enumerate(({"spearman": rho} for rho in rhos), start=1)
        ]
        file = root / "results" / "ablation-importance-sst2.json"
        file.write_text(json.dumps({"command": "make it", "task": "SST-2", "rows": rows}))
        (one,) = found(root, "importance")
        return one

    # 17 ranks: a standard error of 1/4, so that 0.5 is not yet clear
    one = write(0.9, 0.51)
    assert one.verdict == "As in the paper"
    assert "CS-1: ρ from 0.51 to 0.90 over 2 encoders, positive in 2. 2 clearly positive, 0 clearly negative of 2" in (
        one.here
    )
    assert write(0.9, 0.5).verdict == "As in the paper, where it is decided"
    assert write(-0.9, -0.8).verdict == "Differs from the paper"
    assert write(None, float("nan")).verdict == "Undecided"


def test_inference_only_is_compared_on_what_both_studies_have(root, write_study):
    write_study(root, "glue-lite", tasks=("rte", "mrpc", "cola"))
    untuned = write_study(root, "glue-lite-inference", tasks=("mrpc",), more='selection = "inference"', harm=3.0)
    for cell in untuned.cells:
        if cell.seed == 1:
            untuned.store.write(cell.key, {"status": "failed"})
    ablation, results = ask(root, "inference")
    (grid,) = answers(ablation, results)
    assert grid.note.startswith("Points against dense, mean over MRPC; seeds 0;")
    assert ["CS-1", "−1.0", "−3.0", "−2.0", "−6.0", "−4.0", "−12.0"] in grid.rows
    paper, others = findings(ablation, results)
    # 4 points at 2x, 12 at 4x: a mean of 8, and an error of 4
    assert "CS-1 on MRPC: +8.0 points (standard error 4.0), better in 2 of 2 pairs" in paper.here
    assert "RTE" not in paper.here
    assert (paper.verdict, others.paper) == ("Undecided", "")


def test_the_place_of_the_selection(root, write_study):
    write_study(root, "ablation-placement", methods=("CS-1", "CS-1-end"), worse={"CS-1-end": -1.5}, more=END)
    (one,) = found(root, "placement")
    assert "CS-1, middle over end: −1.5 points" in one.here
    assert one.verdict == "Differs from the paper"


def test_ranges_and_lines_of_schedules(root, write_study):
    select = "[" + ", ".join(f"{{ keep_ratio = {p}, last_layer = 1 }}" for p in (0.8, 0.25, 0.125))
    select += ", " + ", ".join(f"{{ random = {n} }}" for n in range(4)) + "]"
    write_study(root, "ablation-schedules", methods=["CS-1"], tasks=["rte"], select=select)
    (one,) = found(root, "schedules")
    # 1.25, 4, 8: standard deviation 2.77; the metric falls by 2 points for each
    assert "RTE: 1.2x to 8.0x (standard deviation 2.77x) and 76.0 to 90.0 % (5.5) (6 exponential)," in one.here
    assert "(8 random)" in one.here
    assert one.verdict == "As in the paper"  # on the same line, but wider both ways
    (grid,) = answers(*ask(root, "schedules"))
    assert grid.rows[0][:5] == ["RTE", "CS-1, exponential", "6", "1.25x–8.00x", "76.0–90.0"]


def test_a_range_is_wider_only_if_its_deviation_is():
    def line(speeds, values, deviations):
        return Fit(slope=0, height=0, spread=0, points=5, speeds=speeds, values=values, deviations=deviations)

    ours = line((1.0, 4.0), (70.0, 80.0), (1.0, 2.0))
    assert _wider(ours, line((1.0, 3.9), (71.0, 80.0), (0.9, 1.9))) == [1, 1]
    assert _wider(ours, line((1.0, 4.1), (71.0, 80.0), (0.9, 2.1))) == [0, 0]
    assert _wider(ours, line((1.0, 4.1), (69.0, 80.0), (1.1, 2.1))) == [-1, -1]


def test_choices_that_the_paper_leaves_open(root, write_study):
    select = '[{ keep_ratio = 0.3, last_layer = 1 }, { keep_ratio = 0.3, last_layer = 1, rounding = "floor" }]'
    methods = ("CS-1", "Weighted", "Merge", "CS-1-cosine")
    worse = {"Weighted": -2.0, "Merge": -3.0, "CS-1-cosine": 0.5}
    write_study(root, "ablation-ours", methods=methods, worse=worse, select=select, more=OURS)
    weighed, others = found(root, "ours")
    assert "Weighing over dropping: +2.0 points" in weighed.here
    assert weighed.verdict == "Differs from the paper"
    assert "Merging over dropping: +3.0 points" in others.here
    assert "CS-1, cosine over Euclidean: −0.5 points" in others.here
    # 256 tokens: 77 or 76 are left, 3.325x or 3.368x
    assert "Rounding down over rounding up: −0.1 points" in others.here
    assert "in 0 of 16 pairs" in others.here


def test_every_ablation_has_an_answer_of_its_own():
    assert [one.letter for one in ABLATIONS] == list("abcdef")
