"""The report from made-up results: numbers worked by hand, what is missing, and that no text can break the page."""

import json
import re

import numpy as np
import pytest

from pyramid_bert.errors import MissingExtraError, PyramidError
from pyramid_bert.explain.explanation import Explanation, LayerView
from pyramid_bert.lab.report.charts import chart, fits
from pyramid_bert.lab.report.collect import axes_of, best_axis, collect_results
from pyramid_bert.lab.report.model import EncoderView, ModelView
from pyramid_bert.lab.report.page import Call, headline, pictures_of, report_html

ATTACK = "</script><script>alert('$x$')</script>"
ATTACKS = [ATTACK, "<!--<script>", "]]>&lt;\"'`\\", "שלום 👍🏽 \u2028", "__SCRIPT__ __DATA__ $x^2$"]


def explanation(words="a fine film"):
    return Explanation(
        text=words,
        tokens=("[CLS]", words, "fine", "##ly", "[SEP]"),
        layers=(LayerView(1, (0, 2, 3), (0, 3, 2, 3, 0), 4.2), LayerView(2, (0, 2), (0, 2, 2, 2, 0), 5.1)),
        prediction=words,
        probabilities={words: 0.98, "other": 0.02},
        dense_prediction=words,
        settings={"reduce": "merge", "selector": words},
    )


def view_of(*explanations, **changes):
    fields = {
        "name": "my-model",
        "layers": 2,
        "settings": {},
        "trained": True,
        "explanations": explanations or (explanation(),),
        "encoders": tuple(EncoderView(n, np.array([0.1, 0.5, 0.9]), np.array([2, 3])) for n in (1, 2)),
        "radius": np.array([[0.0, 1.0], [0.0, 2.0]]),
        "kept": {16: (16, 8)},
        "lengths": {"RTE": [5, 7, 9]},
    }
    return ModelView(**{**fields, **changes})


def page_of(root, view=None, pictures=()):
    results = collect_results(root / "results", root / "experiments")
    return report_html(results, view, pictures, Call(), "2026-01-01")


def words_of(html):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def embedded(page):
    (found,) = re.findall(r'<script type="application/json" id="report-data">(.*?)</script>', page, flags=re.DOTALL)
    return found


# ---- studies ----


def test_the_headline_reads_fronts_at_the_speeds_and_marks_the_best(root, write_study):
    found = headline(write_study(root, "any"), (1.5, 2.0, 3.0, 5.0))
    _, (at, name, rows), _, fast = found["groups"]
    assert (at, name, found["columns"]) == ("2", "2x", ["RTE", "MRPC", "mean"])
    # CS-1 loses 2 points at 2x: 88.0 and 88.5 by seed; Rand another.
    cells = {method: [(text, best, round(lost, 6)) for text, best, lost in row] for method, _, row in rows}
    assert cells == {"CS-1": [("88.2 ± 0.4", True, 2.0)] * 3, "Rand": [("87.2 ± 0.4", False, 3.0)] * 3}
    assert fast == ("5", "5x", [])  # nothing is that fast
    page = page_of(root)
    assert "<b>88.2 ± 0.4</b>" in page
    assert "<b>87.2 ± 0.4</b>" not in page
    words = words_of(page)
    assert re.search(r"at 2x CS-1 (88.2 ± 0.4 −2.0 ){3}Rand (87.2 ± 0.4 −3.0 ){3}", words)


def test_a_study_has_its_table_chart_and_commands(root, write_study):
    write_study(root, "any", more='measure = true\ntitle = "All <b>of it</b>"\nquestion = "Why & how?"')
    page = page_of(root)
    assert "pyramid-bert study table experiments/any.toml --axis measured-c --at 1.5,2,3" in page
    assert "pyramid-bert study plot experiments/any.toml --axis measured-c" in page
    assert "All &lt;b&gt;of it&lt;/b&gt;</h3>" in page
    assert "Why &amp; how?" in page
    assert [c["name"] for c in json.loads(embedded(page))["charts"].values()] == ["any"]
    for part in ('data-chart="chart-0"', "20 of 20 cells", "8 of 8 speeds"):
        assert part in page


def test_the_largest_study_leads_and_results_without_their_experiment_are_named(root, write_study):
    write_study(root, "a-small-one", tasks=("rte",))
    write_study(root, "the-large-one")
    write_study(root, "lost")
    (root / "experiments" / "lost.toml").unlink()
    page = page_of(root)
    assert re.findall(r'id="study-([^"]+)"', page) == ["the-large-one", "a-small-one"]
    assert re.findall(r"results/(lost|a-small-one|the-large-one)\b", page) == ["lost"]


def test_measured_speeds_are_used_only_where_nothing_lacks_one(root, write_study):
    run = write_study(root, "s", more="measure = true")
    assert (best_axis(run), axes_of(run)[0]) == ("measured-c", "measured-c")
    run.store.write(next(iter(run.measurements)), {"status": "failed"})
    (again,) = collect_results(root / "results", root / "experiments").runs
    assert best_axis(again) == "ideal-c"
    assert axes_of(again) == ["ideal-c", "ideal-a", "space", "measured-c", "measured-a"]


def test_a_chart_holds_means_over_seeds_with_configuration_speeds_and_command(root, write_study):
    run = write_study(root, "s", more="measure = true")
    data = chart(run)
    assert [axis["key"] for axis in data["axes"]] == ["measured-c", "ideal-c", "ideal-a", "space", "measured-a"]
    assert [panel["title"] for panel in data["panels"]] == ["RTE", "MRPC"]
    points = data["panels"][0]["points"]
    (quarter,) = [p for p in points if (p["series"], p["configuration"]) == ("CS-1", "0.25@1-1")]
    assert (quarter["value"], quarter["std"], quarter["seeds"]) == (84.25, 0.3536, 2)
    assert quarter["x"] == {"measured-c": 3.8, "ideal-c": 4.0, "measured-a": 4.0, "ideal-a": 12.0, "space": 0.75}
    assert re.fullmatch(r"pyramid-bert study run experiments/s.toml --only \w+ --again", quarter["command"])
    (dense,) = [p for p in points if p["series"] == ""]
    assert (dense["value"], dense["x"]["ideal-c"]) == (90.25, 1.0)
    assert data["panels"][0]["lines"]["ideal-c"]["CS-1"] == [[1.0, 90.25], [2.0, 88.25], [4.0, 84.25]]
    looks = {(series["colour"], series["marker"]) for series in data["series"]}
    assert len(looks) == len(data["series"]) == 2


# ---- what is not there ----


def test_an_empty_folder_makes_a_page_that_says_what_to_run(root, write_study):
    run = write_study(root, "later", more='title = "Not <now>"')
    run.store.path.unlink()
    page = page_of(root)
    where = ("study run experiments/later.toml --model DIR --data DIR", "bench --json")
    for command in (*where, "report --results results --model DIR --out report.html"):
        assert f"pyramid-bert {command}" in page
    assert "<b>Not &lt;now&gt;</b>" in page
    assert "data-chart=" not in page
    assert 'id="theory"' not in page


def test_no_folder_and_a_damaged_file_are_refused_by_name(root):
    with pytest.raises(PyramidError, match=r"nowhere"):
        collect_results(root / "nowhere", root)
    (root / "results" / "bench-x.json").write_text("{")
    with pytest.raises(PyramidError, match=r"bench-x.json is damaged"):
        collect_results(root / "results", root)


# ---- measurements ----


LEDGER = {
    "entries": {
        "pyramid": {"speedup_over": {"padded": 4.0, "dynamic": 3.0, "sorted": 2.5}, "ideal_over": {"sorted": 2.75}}
    },
    "settings": {"schedule": {"last_layer": 3, "keep_ratio": 0.25}, "centers_per_step": "all"},
    "workload": {"padded_length": 128},
    "batch_size": 8,
    "optimization": None,
    "realised_over": {"sorted": 0.91},
}
RATE = {
    "task": "imdb",
    "mean_length": 200.4,
    "texts_per_second": {"onnx": 10.0, "dense": 9.0, "pyramid": 27.0},
    "best_other": "onnx",
    "pyramid_over_best": 2.7,
    "pyramid_over_dense": 3.0,
    "ideal": 2.5,
}
TRAINING = {
    "n": 512,
    "batch_size": 8,
    "steps_per_second": {"dense": 0.04, "pyramid": 0.2},
    "speedup": 5.0,
    "peak_bytes": {"dense": 200, "pyramid": 50},
}
BOUND = {
    "command": "measure it",
    "settings": {"schedule": {"last_layer": 3, "keep_ratio": 0.25}},
    "observed": {"mean": 0.125},
    "bounds": {"printed": {"mean": 1500.0, "loose": 12000.0}, "direct": {"loose": 30.0}},
}


@pytest.mark.parametrize(
    ("entry", "row"),
    [
        (LEDGER, "(3, 0.25) all 128 8 as loaded 4.00x 3.00x 2.50x 2.75x 91%"),
        (RATE, "imdb 200 10.0 (onnx) 9.0 27.0 2.70x 3.00x"),
        (TRAINING, "BERT 512 8 0.040 0.200 5.00x 25%"),
        ({**TRAINING, "backbone": "performer", "task": "text"}, "performer on text 512 8 0.040 0.200 5.00x 25%"),
        (BOUND, "(–, 3, 0.25) 0.125 1.5e+03 12,000x 30x"),
    ],
)
def test_measurements_are_known_by_what_they_hold(root, entry, row):
    (root / "results" / "any name.json").write_text(json.dumps([entry]))
    (root / "results" / "other.json").write_text("[1, 2]")
    assert row in words_of(page_of(root))


# ---- ablations ----


def test_ablations_stand_in_their_section(root, write_study):
    write_study(root, "full")
    write_study(root, "cheap", more='selection = "inference"', harm=3.0)
    write_study(root, "centres", methods=("CS-1", "CS-0.5"))
    page = page_of(root)
    assert re.findall(r'<h3 id="ablation-([^"]+)"', page) == ["centres", "cheap"]
    assert re.findall(r'id="study-([^"]+)"', page) == ["full"]
    words = words_of(page)
    # 1.5x, 2x, 3x: fine-tuned beside inference only, in points; and by task at 2x.
    assert "CS-1 −1.0 −3.0 −2.0 −6.0 −4.0 −12.0" in words
    assert "CS-1 inference only −6.0 −6.0 −6.0" in words
    assert "CS-1 on RTE +8.0 points 2.3 4 of 4" in words  # by 4 and 12 points, twice
    assert "CS-1 0.25@1-1 84.2 ± 0.4 84.2 ± 0.4 −6.0 4.00x" in words
    assert re.findall(r'"finding" data-verdict="(\w+)"', page) == ["undecided", "agrees"]
    for line in ("full.toml", "cheap.toml", "centres.toml"):
        assert f"<code>pyramid-bert study run experiments/{line} --model DIR --data DIR</code>" in page
    assert [c["name"] for c in json.loads(embedded(page))["charts"].values()] == ["full", "centres"]


def test_schedules_are_compared_by_lines_through_all_cells(root, write_study):
    select = "[" + ", ".join(f"{{ keep_ratio = {p}, last_layer = 1 }}" for p in (0.5, 0.25, 0.125))
    select += ", " + ", ".join(f"{{ random = {n} }}" for n in range(3)) + "]"
    run = write_study(root, "any", methods=["CS-1"], tasks=["rte"], select=select)
    found = {name: line for _, name, line in fits(run, "ideal-c")}
    assert list(found) == ["CS-1, exponential", "CS-1, random"]
    line = found["CS-1, exponential"]
    assert line.points == 6
    assert line.slope == pytest.approx(-2.0)
    assert line.at(2.0) == pytest.approx(88.25)
    assert line.at(1.9) is None  # nothing that slow was run
    assert (line.speeds, line.values) == ((2.0, 8.0), pytest.approx((76.0, 88.5)))
    assert line.spread == pytest.approx(0.25)  # half of the distance between the seeds
    data = chart(run)
    assert data["panels"][0]["lines"]["ideal-c"]["CS-1, exponential"] == [[2.0, 88.25], [8.0, 76.25]]
    assert {point["series"] for point in data["panels"][0]["points"]} == {"", *found}


def test_importance_is_shown_with_its_numbers_and_refused_without_its_command(root):
    row = {"layer": 3, "method": "CS-1", "ranks": [2, 3], "mutual_information": [0.1, 0.4], "spearman": 0.87}
    file = root / "results" / "any.json"
    file.write_text(json.dumps({"command": "make it", "task": "SST-2", "rows": [row]}))
    results = collect_results(root / "results", root / "experiments")
    (picture,) = pictures_of(results, None)
    (line,) = picture.figure.axes[0].lines
    assert line.get_ydata().tolist() == [0.1, 0.4]
    page = report_html(results, None, [picture], Call(), "")
    assert "SST-2 3 CS-1 – 0.100 0.400 0.87" in words_of(page)
    assert 'data-verdict="undecided"' in page  # nothing follows from two ranks
    row["spearman"] = None  # the same information for all
    file.write_text(json.dumps({"command": "make it", "rows": [row], "model": {"layers": 6}}))
    again = collect_results(root / "results", root / "experiments")
    page = report_html(again, None, pictures_of(again, None), Call(), "")
    assert "any 3 of 6 CS-1 – 0.100 0.400 –" in words_of(page)
    assert "<code>make it</code>" in page
    assert page.count("<svg") == 2  # the logo, and the figure
    file.write_text(json.dumps({"rows": [row]}))
    with pytest.raises(PyramidError, match=r"any in .* lacks command"):
        page_of(root)


# ---- the whole page ----


@pytest.mark.parametrize("words", ATTACKS)
def test_no_text_can_leave_its_place(root, write_study, words):
    write_study(root, "any")
    view = view_of(explanation(words), name=words, lengths={words: [1, 2]})
    results = collect_results(root / "results", root / "experiments")
    pictures = pictures_of(results, view)
    page = report_html(results, view, pictures, Call({"--model": words, "--texts": words}), words)
    data = embedded(page)
    assert data.isascii()
    assert not re.search("[<>&]", data)
    example = json.loads(data)["examples"][0]
    assert (example["text"], example["tokens"][1]["text"], example["pyramid"]) == (words, words, f"{words} 0.98")
    assert page.count("<script") == page.count("</script>") == 2
    assert "alert(" not in re.sub(r"&lt;script&gt;alert\(", "", page.replace(data, ""))
    assert page.rstrip().endswith("</html>")


def test_the_page_needs_no_network_and_writes_text_only_as_text(root, write_study):
    write_study(root, "any")
    results = collect_results(root / "results", root / "experiments")
    page = report_html(results, view_of(), pictures_of(results, view_of()), Call(), "2026-01-01")
    outside = re.sub(r'(xmlns(:xlink)?=|SVG = )"http://www\.w3\.org/[\w/]+"', "", page)
    assert not re.search(r"https?:|\bsrc=|@import|url\((?!#)|fetch\(|\bimport\b", outside)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", page)
    assert "default-src 'none'" in page
    ids = re.findall(r'\sid="([^"]*)"', page)
    assert len(ids) == len(set(ids))
    for target in re.findall(r'(?:href="#|url\(#)([^")]+)', page):
        assert target in ids


def test_the_viewer_counts_equal_answers(root):
    differs = explanation("a dull film")
    other = Explanation(**{**vars(differs), "dense_prediction": "b"})
    page = page_of(root, view_of(differs, other, trained=False))
    assert "<b>1/2</b>" in page
    number = Explanation(**{**vars(differs), "probabilities": {}, "prediction": 3.1, "dense_prediction": 3.2})
    assert "<b>0/1</b>" not in page_of(root, view_of(number))  # numbers never quite agree


def test_figures_need_matplotlib(root, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"pyramid-bert\[report\]"):
        pictures_of(collect_results(root / "results", root / "experiments"), view_of())
