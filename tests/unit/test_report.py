"""The report from made-up results: numbers worked by hand, what is missing, and that no text can break the page."""

import json
import re

import numpy as np
import pytest

from pyramid_bert.errors import MissingExtraError, PyramidError
from pyramid_bert.explain.explanation import Explanation, LayerView
from pyramid_bert.lab.report.charts import chart, fits
from pyramid_bert.lab.report.collect import axes_of, best_axis, collect_results
from pyramid_bert.lab.report.headline import headline_table
from pyramid_bert.lab.report.markup import command, table, tag, text
from pyramid_bert.lab.report.model import EncoderView, ModelView
from pyramid_bert.lab.report.page import Call, pictures_of, report_html

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
    encoders = tuple(EncoderView(n, np.array([0.1, 0.5, 0.9]), np.array([2, 3])) for n in (1, 2))
    fields = {
        "name": "my-model",
        "layers": 2,
        "settings": {},
        "trained": True,
        "explanations": explanations or (explanation(),),
        "encoders": encoders,
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


@pytest.fixture
def root(tmp_path):
    (tmp_path / "results").mkdir()
    (tmp_path / "experiments").mkdir()
    return tmp_path


# ---- pieces ----


def test_strings_are_escaped_once_wherever_they_go():
    assert text("<b>") == "&lt;b&gt;"
    assert tag("p", tag("b", "<"), "&", title='"x"') == '<p title="&quot;x&quot;"><b>&lt;</b>&amp;</p>'
    assert tag("input", id="i", hidden=None) == '<input id="i">'
    assert "<i>" not in table(["<i>"], [["<i>", "<i>"]]) + command("<i>")


# ---- studies ----


def test_the_headline_reads_fronts_at_the_speeds_and_marks_the_best(root, write_study):
    run = write_study(root, "glue-lite")
    html = headline_table(run.table("ideal-c", (1.5, 2.0, 3.0, 5.0)))
    groups = html.split("at ")
    # CS-1 loses 2 points at 2x: 88.0 and 88.5 by seed; Rand another.
    assert "CS-1 88.2 ± 0.4 −2.0 88.2 ± 0.4 −2.0 88.2 ± 0.4 −2.0" in words_of(groups[2])
    assert "Rand 87.2 ± 0.4 −3.0" in words_of(groups[2])
    assert groups[2].count("<b>88.2") == 3
    assert "<b>87.2" not in groups[2]
    assert "Nothing this fast was observed." in groups[4]
    assert "CS-1" not in groups[4]


def test_a_study_has_its_table_chart_and_commands(root, write_study):
    write_study(root, "glue-lite", more="measure = true")
    page = page_of(root)
    assert "pyramid-bert study table experiments/glue-lite.toml --axis measured-c --at 1.5,2,3" in page
    assert "pyramid-bert study plot experiments/glue-lite.toml --axis measured-c" in page
    data = json.loads(embedded(page))
    assert [c["name"] for c in data["charts"].values()] == ["glue-lite"]
    assert 'data-chart="chart-0"' in page
    assert "glue-lite: 20 of 20 cells done, seeds 0, 1; 8 of 8 speeds measured." in page


def test_measured_speeds_are_used_only_where_nothing_lacks_one(root, write_study):
    run = write_study(root, "s", more="measure = true")
    assert (best_axis(run), axes_of(run)[0]) == ("measured-c", "measured-c")
    run.store.write(next(iter(run.measurements)), {"status": "failed"})
    again = collect_results(root / "results", root / "experiments").runs["s"]
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


def test_a_folder_of_results_without_its_experiment_is_named(root, write_study):
    write_study(root, "kept")
    write_study(root, "lost")
    (root / "experiments" / "lost.toml").unlink()
    page = page_of(root)
    assert "results/lost holds results, but there is no experiment file" in page
    assert "results/kept holds" not in page


# ---- what is not there ----


def test_an_empty_folder_makes_a_page_that_says_what_to_run(root):
    (root / "experiments" / "ablation-placement.toml").write_text(
        'name = "ablation-placement"\nmethods = ["CS-1"]\ntasks = ["rte"]\n'
        "configurations.select = [{ keep_ratio = 0.5, last_layer = 1 }]"
    )
    page = page_of(root)
    for line in (
        "pyramid-bert study run experiments/glue-lite.toml --model DIR --data DIR",
        "pyramid-bert study run experiments/ablation-placement.toml --model DIR --data DIR",
        "pyramid-bert bench --json",
        "pyramid-bert report --results results --model DIR --out report.html",
    ):
        assert line in page.replace("&gt;", ">")
    assert "no experiment ablation-m.toml yet" in page
    assert "data-chart=" not in page
    assert 'id="theory"' not in page


def test_no_folder_and_a_damaged_file_are_refused_by_name(root):
    with pytest.raises(PyramidError, match=r"no folder .*nowhere"):
        collect_results(root / "nowhere", root)
    (root / "results" / "bench-x.json").write_text("{")
    with pytest.raises(PyramidError, match=r"bench-x.json is damaged"):
        collect_results(root / "results", root)


# ---- measurements ----


def test_speeds_come_from_their_files(root):
    entry = {
        "entries": {
            "pyramid": {
                "speedup_over": {"padded": 4.0, "dynamic": 3.0, "sorted": 2.5},
                "ideal_over": {"sorted": 2.75},
            }
        },
        "settings": {"schedule": {"last_layer": 3, "keep_ratio": 0.25}, "centers_per_step": "all"},
        "workload": {"padded_length": 128},
        "batch_size": 8,
        "optimization": None,
        "realised_over": {"sorted": 0.91},
    }
    (root / "results" / "bench-mine.json").write_text(json.dumps([entry]))
    (root / "results" / "bench-other.json").write_text("[1, 2]")
    page = words_of(page_of(root))
    assert "(3, 0.25) all 128 8 as loaded 4.00x 3.00x 2.50x 2.75x 91%" in page


# ---- ablations ----


def test_ablations_that_are_done_come_first_and_others_are_listed(root, write_study):
    write_study(root, "glue-lite")
    write_study(root, "glue-lite-inference", more='selection = "inference"', harm=3.0)
    write_study(root, "ablation-m", methods=("CS-1", "CS-0.5"))
    write_study(root, "ablation-more")
    page = page_of(root)
    done, _, todo = page.partition("Not run yet")
    for key in ("m", "inference", "more"):
        assert f'<h3 id="ablation-{key}"' in done
    for key in ("importance", "placement", "schedules", "ours"):
        assert f'<li id="ablation-{key}"' in todo
    # 1.5x, 2x, 3x: fine-tuned beside inference only, in points; and by task at 2x.
    assert "CS-1 −1.0 −3.0 −2.0 −6.0 −4.0 −12.0" in words_of(done)
    assert "CS-1 inference only −6.0 −6.0 −6.0" in words_of(done)
    # by 4 and 12 points, twice
    assert "CS-1 on RTE: +8.0 points (standard error 2.3), better in 4 of 4 pairs" in done
    assert "CS-1 0.25@1-1 84.2 ± 0.4 84.2 ± 0.4 −6.0 4.00x" in words_of(done)
    for line in ("glue-lite.toml", "glue-lite-inference.toml", "ablation-m.toml"):
        assert f"<code>pyramid-bert study run experiments/{line} --model DIR --data DIR</code>" in done
    # An ablation is no study of the headline.
    names = [c["name"] for c in json.loads(embedded(page))["charts"].values()]
    assert names == ["glue-lite", "ablation-m", "ablation-more"]
    assert page.count('id="study-') == 1


def test_schedules_are_compared_by_lines_through_all_cells(root, write_study):
    select = "[" + ", ".join(f"{{ keep_ratio = {p}, last_layer = 1 }}" for p in (0.5, 0.25, 0.125))
    select += ", " + ", ".join(f"{{ random = {n} }}" for n in range(3)) + "]"
    run = write_study(root, "ablation-schedules", methods=["CS-1"], tasks=["rte"], select=select)
    found = {name: line for _, name, line in fits(run, "ideal-c")}
    assert list(found) == ["CS-1, exponential", "CS-1, random"]
    line = found["CS-1, exponential"]
    assert line.points == 6
    assert line.slope == pytest.approx(-2.0)
    assert line.at(2.0) == pytest.approx(88.25)
    assert line.at(1.9) is None  # nothing that slow was run
    assert (line.speeds, line.values) == ((2.0, 8.0), pytest.approx((76.0, 88.5)))
    assert line.spread == pytest.approx(0.25)  # half of the distance between the seeds
    data = chart(run, fit=True)
    assert data["panels"][0]["lines"]["ideal-c"]["CS-1, exponential"] == [[2.0, 88.25], [8.0, 76.25]]
    assert "CS-1, random" in words_of(page_of(root))


def test_importance_is_shown_with_its_numbers_and_refused_without_them(root):
    row = {"layer": 3, "method": "CS-1", "ranks": [2, 3], "mutual_information": [0.1, 0.4], "spearman": 0.87}
    file = root / "results" / "ablation-importance-sst2.json"
    file.write_text(json.dumps({"command": "make it", "task": "SST-2", "rows": [row]}))
    results = collect_results(root / "results", root / "experiments")
    (picture,) = pictures_of(results, None)
    (line,) = picture.figure.axes[0].lines
    assert line.get_ydata().tolist() == [0.1, 0.4]
    page = report_html(results, None, [picture], Call(), "")
    assert "SST-2 3 CS-1 – 0.100 0.400 0.87" in words_of(page)
    assert "Undecided Paper: The less important a token" in words_of(page)  # of two ranks nothing follows
    row["spearman"] = None  # the same information for all
    file.write_text(json.dumps({"command": "make it", "rows": [row], "model": {"layers": 6}}))
    again = collect_results(root / "results", root / "experiments")
    page = report_html(again, None, pictures_of(again, None), Call(), "")
    assert "ablation-importance-sst2 3 of 6 CS-1 – 0.100 0.400 –" in words_of(page)
    assert "no ρ is defined" in page
    assert "<code>make it</code>" in page
    assert page.count("<svg") == 2  # the logo, and the figure
    file.write_text(json.dumps({"rows": []}))
    with pytest.raises(PyramidError, match=r"ablation-importance-sst2 in .* lacks command or rows"):
        page_of(root)


# ---- the whole page ----


@pytest.mark.parametrize("words", ATTACKS)
def test_no_text_can_leave_its_place(root, write_study, words):
    write_study(root, "glue-lite")
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
    write_study(root, "glue-lite")
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


def test_the_viewer_says_what_the_model_is(root):
    differs = explanation("a dull film")
    other = Explanation(**{**vars(differs), "dense_prediction": "b"})
    page = words_of(page_of(root, view_of(differs, other, trained=False)))
    assert "dense weights with the default schedule" in page
    assert "the same answer to 1 of 2 examples" in page
    assert "1/2 examples on which my-model" in page
    number = Explanation(**{**vars(differs), "probabilities": {}, "prediction": 3.1, "dense_prediction": 3.2})
    assert "give the same answer" not in words_of(page_of(root, view_of(number)))


def test_the_command_is_the_call():
    call = Call({"--out": "r.html", "--results": "my results", "--model": "m", "--examples": "3"})
    line = "pyramid-bert report --results 'my results' --model m --examples 3 --out r.html --figures f"
    assert call.line("--figures", "f") == line


def test_figures_need_matplotlib(root, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"needs matplotlib: pip install 'pyramid-bert\[report\]'"):
        pictures_of(collect_results(root / "results", root / "experiments"), view_of())
