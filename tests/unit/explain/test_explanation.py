"""The pictures of an explanation: what they say, and that no text can break them."""

import io
import json
import re
from importlib import resources

import pytest
from rich.cells import cell_len
from rich.console import Console

from pyramid_bert.errors import PyramidError
from pyramid_bert.explain.explanation import Explanation, LayerView
from pyramid_bert.explain.html import explanation_html
from pyramid_bert.explain.terminal import FATES, token_pyramid

DATA = '<script type="application/json">'
ATTACK = "</script><script>alert(1)</script>"


def explain(tokens, *kept, homes=None, text="", settings=None, **changes):
    """An explanation in which every dropped token goes to the nearest kept position, the last layer's `homes` apart."""
    layers = []
    for number, positions in enumerate(kept, start=1):
        home = [min(positions, key=lambda other: (abs(other - p), other)) for p in range(len(tokens))]
        for position, other in (homes or {}).items():
            home[position] = other if other in positions else home[position]
        before = tuple(range(len(tokens))) if number == 1 else kept[number - 2]
        radius = 2.5 * number if positions != before else 0.0
        layers.append(LayerView(number, tuple(positions), tuple(home), radius))
    fields = {
        "text": text or " ".join(tokens),
        "tokens": tuple(tokens),
        "layers": tuple(layers),
        "prediction": "positive",
        "probabilities": {"negative": 0.02, "positive": 0.98},
        "dense_prediction": "positive",
        "settings": {"reduce": "merge"} if settings is None else settings,
    }
    return Explanation(**{**fields, **changes})


def draw(explanation, width=80, columns=None, **console):
    """The picture `width` wide, printed with far more columns than that: rich must have nothing to cut off."""
    file = io.StringIO()
    Console(file=file, width=columns or 10 * width, **console).print(token_pyramid(explanation, width=width))
    return file.getvalue()


def rows(drawn):
    """The lines up to the first blank one, without the line of titles."""
    return drawn.split("\n\n")[0].splitlines()[1:]


def payload(page):
    found = re.findall(f"{DATA}(.*?)</script>", page, flags=re.DOTALL)
    assert len(found) == 1
    return json.loads(found[0])


UNBREAKABLE = explain(["[CLS]", "x" * 300, "##" + "电" * 90, "y"], (0, 1, 2), (0, 2), homes={1: 2})


@pytest.fixture(autouse=True)
def _no_wishes_about_colour(monkeypatch):
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def small():
    tokens = ["[CLS]", "a", "charm", "##ing", "film", ".", "[SEP]"]
    return explain(tokens, (0, 2, 3, 4), (0, 2, 4), homes={1: 4, 5: 0, 6: 0})


@pytest.fixture
def long():
    words = "the quiet light ##house keeper never said a word , we believed him .".split()
    tokens = ["[CLS]", *words * 11, "[SEP]"]
    return explain(tokens, range(0, len(tokens), 2), range(0, len(tokens), 4), range(0, len(tokens), 12))


def test_tokens_stay_in_their_columns_and_survivors_are_listed_with_the_tokens_they_stand_for(small):
    assert draw(small).splitlines()[1:-2] == [
        "input     7/7       –  [CLS] a charming film . [SEP]",
        "layer 1   4/7    2.50  [CLS] · charming film ·   ·",
        "layer 2   3/7    5.00  [CLS] · charm ·  film ·   ·",
        "",
        "where the others went (survivor ← tokens merged into it)",
        "  [CLS] ← “.”, [SEP]",
        "  charm ← …ing",
        "   film ← a",
    ]


def test_aligned_rows_break_at_the_same_columns():
    words = [f"word{i:02}" for i in range(14)]
    drawn = rows(draw(explain(["[CLS]", *words], (0, 3, 13), (0,))))
    assert len(drawn) == 5  # the last row has nothing left in its second line
    for word, whole, some in (("word02", *drawn[0:3:2]), ("word12", *drawn[1:4:2])):
        assert whole.index(word) == some.index(word)


def test_a_wide_token_takes_its_two_cells_in_every_row():
    drawn = rows(draw(explain(["[CLS]", "好", "电影", "👍", "end"], (0, 2, 4), (0, 4))))
    columns = [cell_len(line[: line.index("end")]) for line in drawn]
    assert len(columns) == 3
    assert len(set(columns)) == 1


@pytest.mark.parametrize("width", [20, 40, 80, 120])
@pytest.mark.parametrize("tokens", ["small", "long", "unbreakable"])
def test_no_line_is_longer_than_the_width(width, tokens, small, long):
    drawn = draw({"small": small, "long": long, "unbreakable": UNBREAKABLE}[tokens], width)
    assert max(map(cell_len, drawn.splitlines())) <= width
    last = drawn.strip().split("\n\n")[-1]
    assert " ".join(last.split()) == "pyramid: positive 0.98 · dense: positive"


def test_a_token_too_wide_for_a_line_is_cut_where_it_is_left_and_a_dot_where_not():
    blocks = draw(UNBREAKABLE, 40).split("\n\n")[0]
    assert blocks.count("xxx…") == 2
    assert blocks.count("电…") == 3
    assert draw(explain(["[CLS]", "x" * 300], (0,)), 40).split("\n\n")[0].endswith("radius 2.50\n  [CLS]")


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_long_text_lists_every_token_that_is_left(width, long):
    drawn = re.sub(r"\s+", " ", draw(long, width).split("\n\n")[0])
    last = drawn.split("layer 3")[1]
    kept = [long.tokens[position].removeprefix("##") for position in long.layers[-1].kept]
    assert [word for word in re.split(r"[ ·]+", last) if word][-len(kept) :] == kept


def test_lines_do_not_break_inside_a_word_that_fits(long):
    for width in range(40, 121):
        assert draw(long, width).split("layer 1")[0].count("lighthouse") == 11


def test_the_console_gives_the_width_and_no_more_than_it_has_is_used(long):
    for picture in (long, token_pyramid(long)):  # an explanation draws itself
        file = io.StringIO()
        Console(file=file, width=60).print(picture)
        assert file.getvalue() == draw(long, 60) == draw(long, 120, columns=60)
    assert file.getvalue() != draw(long, 120)
    with pytest.raises(PyramidError, match=r"at least 20 columns, got 12"):
        token_pyramid(long, width=12)


def test_equal_layers_share_a_row_and_one_that_drops_nothing_has_no_radius():
    drawn = rows(draw(explain(["[CLS]", "a", "b", "c"], (0, 1, 2, 3), (0, 1, 2), (0, 2), (0, 2), (0, 2))))
    assert [line.split("  ")[0].strip() for line in drawn] == ["input", "layer 1", "layer 2", "layers 3–5"]
    counts_and_radii = [line.split("[CLS]")[0].split()[-2:] for line in drawn]
    assert counts_and_radii == [["4/4", "–"], ["4/4", "–"], ["3/4", "5.00"], ["2/4", "7.50"]]


def test_pieces_of_a_word_are_listed_as_one_and_repeated_words_counted():
    tokens = ["[CLS]", "un", "##fold", "##ing", "the", "the", "end"]
    drawn = draw(explain(tokens, (0, 6), homes=dict.fromkeys(range(1, 6), 6)))
    assert "  end ← unfolding, the ×2\n  only themselves: [CLS]\n" in drawn


def test_many_survivors_are_cut_to_those_that_stand_for_most():
    tokens = ["[CLS]", *(f"{kind}{i}" for i in range(20) for kind in ("keep", "drop")), "more"]
    kept = (0, *range(1, 41, 2))
    homes = {position + 1: position for position in kept[1:]} | {41: 39}
    drawn = draw(explain(tokens, kept, homes=homes), 120)
    assert drawn.count("←") == 1 + 12
    assert "keep19 ← drop19, more" in drawn
    assert "and 8 more, with 8 tokens: keep11, keep12," in drawn


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"reduce": "drop"}, "nearest kept token"),
        ({"reduce": "merge"}, "merged into"),
        ({"reduce": "replace"}, "replaced by"),
        ({"reduce": "drop", "selector": "pool"}, "pooled into"),
    ],
)
def test_both_pictures_say_what_happened_to_the_tokens(settings, key):
    example = explain(["[CLS]", "a", "b"], (0, 1), settings=settings)
    assert f"({FATES[key]})" in draw(example)
    assert payload(explanation_html(example))["fate"] == key


def test_tokens_that_nothing_stands_for_are_forgotten():
    example = explain(["[CLS]", "a", "b", "c"], (0, 1))
    view = LayerView(1, (0, 1), (0, 1, -1, -1), 1.0)
    drawn = draw(Explanation(**{**vars(example), "layers": (view,)}))
    assert "  forgotten: b, c\n" in drawn
    assert "forgotten" not in draw(example)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "pyramid: positive 0.98 · dense: positive"),
        ({"dense_probabilities": {"positive": 0.9, "negative": 0.1}}, "pyramid: positive 0.98 · dense: positive 0.90"),
        ({"dense_prediction": "negative"}, "pyramid: positive 0.98 · dense: negative (differs)"),
        ({"prediction": 3.14159, "dense_prediction": 3.5, "probabilities": {}}, "pyramid: 3.142 · dense: 3.5"),
        ({"prediction": "good\x1b[2J\n", "probabilities": {}}, "pyramid: good\ufffd[2J\ufffd · dense: positive"),
        ({"prediction": 1, "dense_prediction": 1, "probabilities": {"1": 0.75}}, "pyramid: 1 0.75 · dense: 1"),
    ],
)
def test_the_last_line_puts_the_answer_beside_the_dense_one(changes, line):
    assert draw(explain(["[CLS]", "a"], (0,), **changes)).splitlines()[-1] == line


def test_colour_is_for_terminals_that_have_it(small, monkeypatch):
    terminal = {"force_terminal": True, "color_system": "standard"}
    assert "\x1b[1;35m[CLS]" in draw(small, **terminal)  # CLS in its own colour
    plain = draw(small)
    assert "\x1b" not in plain
    monkeypatch.setenv("NO_COLOR", "1")
    without = draw(small, **terminal)
    assert not re.search(r"\x1b\[[\d;]*3\d[;m]", without)
    assert re.sub(r"\x1b\[[\d;]*m", "", without) == plain


def test_control_characters_in_tokens_do_not_reach_the_terminal():
    drawn = draw(explain(["[CLS]", "\x1b[2Jgone", "a\nb", "\u202eright", "\u0301", "\u200d", ""], (0, 1, 2, 3), (0, 1)))
    assert not re.search("[\x1b\u202e\u200d\r]", drawn)
    assert len(rows(drawn)) == 3
    assert cell_len(rows(drawn)[0]) == len("input    7/7       –  [CLS] ?[2Jgone a?b ?right o ? ?") + 1


def test_an_output_that_is_not_unicode_gets_what_it_can_hold():
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    Console(file=file, width=80).print(token_pyramid(explain(["[CLS]", "电影", "a", "."], (0, 2), homes={1: 2, 3: 2})))
    file.flush()
    written = file.buffer.getvalue().decode("ascii")
    assert "layer 1   2/4    2.50  [CLS] .  a .\n" in written
    assert '  a < "??", "."' in written


@pytest.mark.parametrize(
    ("tokens", "kept", "count"), [((), (), "0/0"), (("[CLS]",), (), "1/1"), (("[CLS]",), ((0,), (0,)), "1/1")]
)
def test_a_text_of_no_or_one_token_is_drawn(tokens, kept, count):
    example = explain(tokens, *kept)
    drawn = draw(example)
    assert count in drawn
    assert "where the others went" not in drawn
    assert drawn.splitlines()[-1].startswith("pyramid: positive")
    assert len(payload(explanation_html(example))["tokens"]) == len(tokens)


def test_the_page_holds_what_it_draws(small):
    data = payload(explanation_html(small))
    assert [token["text"] for token in data["tokens"]] == ["[CLS]", "a", "charm", "ing", "film", ".", "[SEP]"]
    assert [token["attached"] for token in data["tokens"]] == [False, False, False, True, False, False, False]
    assert [stage["label"] for stage in data["stages"]] == ["input", "layer 1", "layer 2"]
    assert [stage["radius"] for stage in data["stages"]] == [None, 2.5, 5.0]
    assert data["stages"][-1]["kept"] == [0, 2, 4]
    assert data["stages"][-1]["home"] == [0, 4, 2, 2, 4, 0, 0]
    assert (data["pyramid"], data["dense"], data["differ"]) == ("positive 0.98", "positive", False)


@pytest.mark.parametrize(
    "text", [ATTACK, "<!--<script>", "]]>&lt;\"'`\\", "שלום 👍🏽 \u2028", "\ud800", "__EXPLANATION__"]
)
def test_no_text_can_leave_its_place_in_the_page(text):
    harmless = explanation_html(explain(["[CLS]", "a"], (0,), text="a", settings={"seed": "a"}, prediction="a"))
    page = explanation_html(explain(["[CLS]", text], (0,), text=text, settings={text: {text: text}}, prediction=text))
    data = payload(page)
    assert (data["text"], data["tokens"][1]["text"], data["pyramid"]) == (text, text, text)
    assert data["settings"] == [[text, f"{text}={text}"]]
    script = f"({DATA}).*?(</script>)"
    assert re.sub(script, r"\1\2", page, flags=re.DOTALL) == re.sub(script, r"\1\2", harmless, flags=re.DOTALL)
    assert ATTACK not in page
    embedded = re.search(script, page, flags=re.DOTALL)[0].removeprefix(DATA).removesuffix("</script>")
    assert embedded.isascii()
    assert not re.search("[<>&]", embedded)


def test_the_page_needs_no_network_writes_text_only_as_text_and_clashes_with_no_other(small):
    page = explanation_html(small)
    assert page.startswith("<!doctype html>")
    assert not re.search(r"https?:|src=|@import|url\(|fetch\(|\bimport\b", page)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", page)
    assert "color-scheme: light dark" in page
    assert "light-dark(" in page
    assert not re.search(r"\sid=|getElementById", page)
    assert "attachShadow" in page
    assert small._repr_html_() == page


def test_a_radius_that_is_no_number_leaves_the_page_readable():
    example = explain(["[CLS]", "a"], (0,))
    layers = tuple(LayerView(n, (0,) * n, (0, 0), value) for n, value in ((1, float("nan")), (2, float("inf"))))
    data = payload(explanation_html(Explanation(**{**vars(example), "layers": layers})))
    assert [stage["radius"] for stage in data["stages"]] == [None, None, None]


def test_pages_have_the_reports_security_policy():
    report = resources.files("pyramid_bert.lab.report").joinpath("assets", "report.html").read_text(encoding="utf-8")
    policy = re.search('<meta http-equiv="Content-Security-Policy".*', report)[0]
    assert "default-src 'none'" in policy
    assert policy in explanation_html(explain(["[CLS]", "a"], (0,)))
