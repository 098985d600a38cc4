"""What studies compare, and what that says beside the paper, from made-up records in which the better way is known."""

import json

import pytest

from pyramid_bert.errors import ExperimentError
from pyramid_bert.lab.report.charts import Fit
from pyramid_bert.lab.report.collect import collect_results
from pyramid_bert.lab.report.compare import Finding, Line, difference, varied, wider
from pyramid_bert.lab.report.grids import ablations, main_studies
from pyramid_bert.lab.study.methods import METHODS

END = 'variants.CS-1-end = { of = "CS-1", placement = "end" }\nvariants.Merge-end = { of = "Merge", placement = "end" }'
OURS = """variants.CS-1-cosine = { of = "CS-1", metric = "cosine" }
variants.Weighted = { of = "CS-1", weighted = true }"""


def ask(root, key):
    """The ablation of a key."""
    (found,) = [one for one in ablations(collect_results(root / "results", root / "experiments")) if one.key == key]
    return found


def rows(ablation):
    """Comparison -> difference, standard error, better in, beside the paper."""
    return {tuple(row[:2]): row[2:] for one in ablation.findings for row in (line.row() for line in one.lines)}


# ---- statistics ----


@pytest.mark.parametrize(
    ("signs", "outcome"),
    [
        ((), "undecided"),
        ((0, 0), "undecided"),
        ((1, 1), "agrees"),
        ((1, 0), "mixed"),  # what is not decided does not agree
        ((-1, -1), "differs"),
        ((0, -1), "mixed"),
        ((1, -1, 0), "mixed"),
    ],
)
def test_an_outcome_follows_from_the_parts_of_a_claim(signs, outcome):
    lines = tuple(Line((), (sign,)) for sign in signs)
    assert Finding("a claim", lines).outcome == outcome
    assert Finding("", lines).outcome == "open"


def test_a_difference_is_decided_from_two_standard_errors_on():
    # 1, 2, 3: mean 2, standard deviation 1
    clear = difference([(2, 1), (3, 1), (4, 1)])
    assert (clear.mean, clear.better, clear.pairs, clear.sign) == (2.0, 3, 3, 1)
    assert clear.error == pytest.approx(3**-0.5)
    assert difference([(1, 2), (1, 3), (1, 4)]).sign == -1
    assert difference([(0, 0), (1, 0)]).sign == 0  # mean 0.5, error 0.5
    assert difference([(5, 0)]).sign == 0  # nothing follows from one pair
    assert difference([]) is None


def test_a_range_is_wider_only_if_its_deviation_is():
    def line(speeds, values, deviations):
        return Fit(slope=0, height=0, spread=0, points=5, speeds=speeds, values=values, deviations=deviations)

    def both(theirs):
        return [wider(ours, theirs, side) for side in (0, 1)]

    ours = line((1.0, 4.0), (70.0, 80.0), (1.0, 2.0))
    assert both(line((1.0, 3.9), (71.0, 80.0), (0.9, 1.9))) == [1, 1]
    assert both(line((1.0, 4.1), (71.0, 80.0), (0.9, 2.1))) == [0, 0]
    assert both(line((1.0, 4.1), (69.0, 80.0), (1.1, 2.1))) == [-1, -1]


# ---- what varies ----


def test_only_methods_that_differ_in_one_setting_are_pairs():
    names = ("CS-0.5", "Merge+KD", "CS-1", "Pool", "Att", "Merge", "Pool+KD")
    assert varied({name: METHODS[name] for name in names}) == {
        "centers_per_step": [("CS-1", "CS-0.5")],
        "distills": [("Merge+KD", "Merge"), ("Pool+KD", "Pool")],
        "reduce": [("Merge", "CS-1")],
    }


def test_what_a_study_holds_decides_where_it_stands_whatever_its_name(root, write_study):
    write_study(root, "ablation-of-selectors", methods=("CS-1", "Rand"))
    write_study(root, "one", methods=("CS-1",))
    write_study(root, "big", methods=("CS-1", "CS-0.5"), more='title = "Centres"\nquestion = "How many?"')
    write_study(root, "cheap", more='selection = "inference"', harm=3.0)
    random = "[{ keep_ratio = 0.5, last_layer = 1 }, { random = 0 }]"
    write_study(root, "shapes", methods=("CS-1",), select=random)
    results = collect_results(root / "results", root / "experiments")
    assert [run.study.name for run in main_studies(results)] == ["ablation-of-selectors", "one"]
    found = {one.key: one for one in ablations(results)}
    assert list(found) == ["big", "cheap", "shapes"]
    assert (found["big"].title, found["big"].question) == ("Centres", "How many?")
    # Of the studies with the same pyramids the one that shares most cells.
    assert [run.study.name for run in found["cheap"].runs] == ["ablation-of-selectors", "cheap"]
    assert found["cheap"].title == "cheap"


def test_titles_and_questions_are_texts(root, write_study):
    with pytest.raises(ExperimentError, match=r"title must be a text, got 3\n  question must be a text, got \[\]"):
        write_study(root, "s", more="title = 3\nquestion = []")


def test_a_study_at_inference_without_a_trained_twin_stands_alone(root, write_study):
    write_study(root, "cheap", more='selection = "inference"')
    write_study(root, "other", methods=("Rand", "1st"), tasks=("cola",))
    results = collect_results(root / "results", root / "experiments")
    assert {run.study.name for run in main_studies(results)} == {"cheap", "other"}


# ---- settings ----


def test_one_centre_at_a_time_by_score_and_by_measured_speed(root, write_study):
    methods = ("CS-1", "CS-0.5", "CS-k-1")
    run = write_study(root, "s", methods=methods, worse={"CS-0.5": -1.0, "CS-k-1": 0.5}, more="measure = true")
    score, speed = ask(root, "s").findings
    # 2 tasks, 2 configurations, 2 seeds
    assert [line.row()[1:5] for line in score.lines] == [
        ["CS-1 over CS-0.5", "−1.0 points", "0.0", "0 of 8"],
        ["CS-1 over CS-k-1", "+0.5 points", "0.0", "8 of 8"],
    ]
    assert (score.signs, score.outcome) == ((-1, 1), "mixed")
    assert (speed.signs, speed.outcome) == ((0, 0), "undecided")
    for cell in run.cells:
        if cell.method == "CS-1":
            key = cell.measurement(run.study.measure)
            speed = {"0.5@1-1": 1.5, "0.25@1-1": 3.2}[cell.configuration]
            run.store.write(key, {**run.store.read(key), "over_c": speed})
    _, speed = ask(root, "s").findings
    # 1.8 / 1.5 = 1.2, 3.8 / 3.2 = 1.1875
    assert speed.lines[1].cells[1:] == ("CS-k-1 over CS-1", "1.19 times as fast", "", "4 of 4")
    assert speed.outcome == "agrees"
    assert [line.endswith("--measure") for line in ask(root, "s").commands] == [False, True]


def test_without_measurements_speeds_are_not_judged(root, write_study):
    write_study(root, "s", methods=("CS-1", "CS-k-1"), worse={"CS-k-1": -1.0})
    (score,) = ask(root, "s").findings
    assert score.outcome == "differs"


def test_the_place_of_the_selection_is_judged_for_methods_that_drop(root, write_study):
    methods = ("CS-1", "CS-1-end", "Merge", "Merge-end")
    write_study(root, "s", methods=methods, worse={"CS-1-end": -1.5, "Merge-end": 2.0}, more=END)
    found = rows(ask(root, "s"))
    assert found["placement", "CS-1 over CS-1-end"][0] == "−1.5 points"
    assert found["placement", "Merge over Merge-end"][::3] == ["+2.0 points", ""]
    assert [one.outcome for one in ask(root, "s").findings] == ["differs", "open"]


def test_choices_that_the_paper_leaves_open(root, write_study):
    select = '[{ keep_ratio = 0.3, last_layer = 1 }, { keep_ratio = 0.3, last_layer = 1, rounding = "floor" }]'
    methods = ("CS-1", "Weighted", "Merge", "CS-1-cosine")
    worse = {"Weighted": -2.0, "Merge": -3.0, "CS-1-cosine": 0.5}
    write_study(root, "s", methods=methods, worse=worse, select=select, more=OURS)
    found = rows(ask(root, "s"))
    assert found["weighted", "Weighted over CS-1"][0] == "+2.0 points"
    assert found["reduce", "Merge over CS-1"][0] == "+3.0 points"
    assert found["metric", "CS-1-cosine over CS-1"][0] == "−0.5 points"
    # 256 tokens: 77 or 76 are left, 3.325x or 3.368x
    assert found["rounding", "down over up"][::2] == ["−0.1 points", "0 of 16"]
    assert [one.outcome for one in ask(root, "s").findings] == ["differs", "open", "open", "open"]


def test_a_gain_that_is_not_decided_neither_needs_nor_refutes_weights(root, write_study):
    write_study(root, "s", methods=("CS-1", "Weighted"), worse={}, more=OURS.splitlines()[1])
    assert [one.outcome for one in ask(root, "s").findings] == ["undecided"]


def test_ranges_and_lines_of_schedules(root, write_study):
    select = "[" + ", ".join(f"{{ keep_ratio = {p}, last_layer = 1 }}" for p in (0.8, 0.25, 0.125))
    select += ", " + ", ".join(f"{{ random = {n} }}" for n in range(4)) + "]"
    write_study(root, "s", methods=["CS-1"], tasks=["rte"], select=select)
    one = ask(root, "s")
    (finding,) = one.findings
    assert finding.outcome == "agrees"  # on the same line, but wider both ways
    # 1.25, 4, 8: standard deviation 2.77; the metric falls by 2 points for each
    assert finding.lines[0].cells[2].startswith("6.8x (deviation 2.77) against")
    assert finding.lines[1].cells[2].startswith("14.0 % (deviation 5.55) against")
    (grid,) = one.grids
    assert grid.rows[0][:5] == ["RTE", "CS-1, exponential", "6", "1.25x–8.00x", "76.0–90.0"]
    assert grid.rows[1][:3] == ["RTE", "CS-1, random", "8"]


# ---- beyond one study ----


def test_inference_only_is_compared_on_what_both_studies_have(root, write_study):
    write_study(root, "full", tasks=("rte", "mrpc", "cola"))
    untuned = write_study(root, "cheap", tasks=("mrpc",), more='selection = "inference"', harm=3.0)
    for cell in untuned.cells:
        if cell.seed == 1:
            untuned.store.write(cell.key, {"status": "failed"})
    one = ask(root, "cheap")
    (grid,) = one.grids
    assert ["CS-1", "−1.0", "−3.0", "−2.0", "−6.0", "−4.0", "−12.0"] in grid.rows
    judged, others = one.findings
    # 4 points at 2x, 12 at 4x: a mean of 8, and an error of 4
    assert [line.cells[1:] for line in judged.lines] == [("CS-1 on MRPC", "+8.0 points", "4.0", "2 of 2")]
    assert (judged.outcome, others.outcome) == ("undecided", "open")
    assert [line.cells[1] for line in others.lines] == ["CS-1, all tasks", "Rand, all tasks"]


@pytest.mark.parametrize(
    ("rhos", "outcome"),
    [  # 17 ranks: a standard error of 1/4, so that 0.5 is not yet clear
        ((0.9, 0.51), "agrees"),
        ((0.9, 0.5), "mixed"),
        ((-0.9, -0.8), "differs"),
        ((None, float("nan")), "undecided"),
    ],
)
def test_ranks_that_mean_importance_and_ranks_that_do_not(root, rhos, outcome):
    fields = {"method": "CS-1", "ranks": list(range(2, 19)), "mutual_information": [0.1] * 17}
    found = [{"layer": layer, **fields, "spearman": rho} for layer, rho in enumerate(rhos, start=1)]
    (root / "results" / "any.json").write_text(json.dumps({"command": "make it", "task": "SST-2", "rows": found}))
    (one,) = ask(root, "importance").findings
    assert one.outcome == outcome
