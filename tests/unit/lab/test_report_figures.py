"""The report's figures: what they draw, and how they become part of a page; and what a model shows."""

import re

import numpy as np
import pytest
import torch

from pyramid_bert import PyramidClassifier, Schedule
from pyramid_bert.errors import DataError, MissingExtraError
from pyramid_bert.explain.explanation import Explanation, LayerView
from pyramid_bert.lab.report import figures
from pyramid_bert.lab.report.figures import write_pictures
from pyramid_bert.lab.report.model import EncoderView, lengths_of, look_at, look_inside

TEXTS = ["the film is good", "a sad story and some sweet music for you", "dull"]


@pytest.fixture
def views():
    return [EncoderView(n, np.array([-0.2, 0.1, 0.1, 0.9]), np.array([1, 4, 4, 40])) for n in (1, 3, 6)]


@pytest.fixture(scope="module")
def classifier(tiny_model_dir):
    return PyramidClassifier.from_pretrained(tiny_model_dir, Schedule.exponential(0.5, last_layer=2))


# ---- what is drawn ----


def test_similarities_and_clusters_are_shares(views):
    figure = figures.cls_similarity(views)
    assert [axes.get_title() for axes in figure.axes] == [f"encoder {n}: mean 0.23" for n in (1, 3, 6)]
    heights = [bar.get_height() for bar in figure.axes[0].patches]
    assert (sum(heights), max(heights)) == pytest.approx((100, 50))  # of all tokens
    figure = figures.clusters(views)
    assert sum(bar.get_height() for bar in figure.axes[2].patches) == pytest.approx(100)  # of all texts
    assert figure.axes[0].get_title() == "encoder 1: mean 12.2"


def test_lengths_name_mean_and_median_of_each_task():
    figure = figures.length_distributions({"RTE": [2, 4, 90], "SST-2": [5, 5, 5]})
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["RTE", "SST-2"]
    assert [note.get_text() for note in axes.texts] == ["mean 32, median 4", "mean 5, median 5"]


def test_the_pyramid_has_a_bar_for_the_input_and_each_layer():
    figure = figures.schedule_pyramid({16: (16, 8, 8), 64: (64, 32, 32)})
    bars = figure.axes[1].patches
    assert [bar.get_width() for bar in bars] == [64, 64, 32, 32]
    assert [bar.get_x() for bar in bars] == [-32, -32, -16, -16]
    colours = [bar.get_facecolor() for bar in bars]
    assert colours[2] != colours[1] == colours[3]  # the layer that drops stands out


def test_layers_that_drop_nothing_have_no_box():
    (axes,) = figures.radius_by_layer(np.array([[0.0, 1.0, 0.0], [0.0, 3.0, 0.0]])).axes
    assert [note.xy[0] for note in axes.texts] == [1, 3]


def test_a_token_pyramid_shows_who_is_left_whatever_the_tokens_are():
    tokens = ("[CLS]", "$x^{", "##ly", "电影", "[SEP]")
    layers = (LayerView(1, (0, 2, 4), (0, 2, 2, 4, 4), 1.0), LayerView(2, (0, 2), (0, 2, 2, 2, 0), 2.0))
    example = Explanation("t", tokens, layers, "a", {}, "a", {})
    figure = figures.token_pyramid_figure(example)
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["input (5)", "layer 1 (3)", "layer 2 (2)"]
    left = [[bar.get_alpha() == 1 for bar in axes.patches[row * 5 : row * 5 + 5]] for row in range(3)]
    assert left == [[True] * 5, [True, False, True, False, True], [True, False, True, False, False]]
    assert [note.get_text() for note in axes.texts] == ["[CLS]", "$x^{", "…ly", "电影", "[SEP]"]
    assert "$x^{" in figures.svg_of(figure)


# ---- files ----


def test_a_figure_in_a_page_takes_its_ink_and_keeps_its_ids_to_itself(views):
    with figures.styled():
        alone, again = (figures.svg_of(figures.cls_similarity(views)) for _ in range(2))
        inside = figures.svg_of(figures.cls_similarity(views), prefix="one")
    assert alone == again
    assert alone.startswith("<?xml")
    assert figures.INK in alone
    assert inside.startswith("<svg")
    assert "<metadata" not in inside
    assert figures.INK not in inside
    assert "currentColor" in inside
    assert all(name.startswith("one-") for name in re.findall(r'\bid="([^"]+)"', inside))
    assert set(re.findall(r'(?:url\(#|href="#)([^)"]+)', inside)) <= set(re.findall(r'\bid="([^"]+)"', inside))


def test_pictures_become_png_and_svg(views, tmp_path):
    picture = figures.Picture("clusters", "t", "c", figures.clusters(views))
    files = write_pictures([picture], tmp_path / "new")
    assert [file.name for file in files] == ["clusters.png", "clusters.svg"]
    assert files[0].read_bytes().startswith(b"\x89PNG")
    assert "<svg" in files[1].read_text()


# ---- what a model shows ----


def test_inside_are_the_dense_vectors_of_first_middle_and_last_encoder(classifier, tiny_bert):
    pytest.importorskip("sklearn")
    found = look_inside(classifier, TEXTS)
    assert [view.layer for view in found] == [1, 2, 4]
    dense = tiny_bert()
    similarity, counts = {n: [] for n in (1, 2, 4)}, {n: [] for n in (1, 2, 4)}
    for item in classifier.encode(TEXTS):
        with torch.no_grad():
            hidden = dense.bert(torch.tensor([item.input_ids]), output_hidden_states=True).hidden_states
        for layer in (1, 2, 4):
            cosine = torch.nn.functional.cosine_similarity(hidden[layer][0, :, None], hidden[layer][0, None], dim=-1)
            similarity[layer] += cosine[0, 1:].tolist()
            # With one point enough for a cluster, clusters are what is connected by steps of at most 0.2.
            reach = torch.linalg.matrix_power((1 - cosine <= 0.2).double(), len(cosine)) > 0
            counts[layer].append(len({tuple(row) for row in reach.tolist()}))
    for view in found:
        assert view.similarity.tolist() == pytest.approx(similarity[view.layer], abs=1e-4)
        assert view.clusters.tolist() == counts[view.layer]
    assert len({tuple(view.clusters) for view in found}) > 1


def test_a_dense_model_is_looked_at_with_the_default_schedule(tiny_model_dir, tmp_path, classifier):
    steps = []
    view = look_at(tiny_model_dir, TEXTS, examples=2, others={"all": TEXTS}, stepped=lambda: steps.append(1))
    assert not view.trained
    assert [one.text for one in view.explanations] == TEXTS[:2]
    assert len(steps) == 2 + len(TEXTS)
    assert view.radius.shape == (3, 4)
    assert (view.radius[1] > 0).any()
    assert list(view.kept) == [16, 64, 256]
    assert view.lengths == {"all": [6, 11, 3]}
    classifier.save(tmp_path / "pyramid")
    saved = look_at(tmp_path / "pyramid", TEXTS)
    assert saved.trained
    assert saved.kept[16] == (12, 8, 8, 8)


def test_long_texts_are_cut_for_the_model_and_counted_in_full(tiny_model_dir):
    long = "the film " * 200
    view = look_at(tiny_model_dir, [long], others={"long": [long]})
    assert len(view.explanations[0].tokens) == 128
    assert view.lengths["long"] == [402]


def test_no_text_and_no_scikit_learn_are_refused(tiny_model_dir, classifier, monkeypatch):
    with pytest.raises(DataError, match="no texts"):
        look_at(tiny_model_dir, [])
    monkeypatch.setitem(__import__("sys").modules, "sklearn.cluster", None)
    with pytest.raises(MissingExtraError, match=r"pyramid-bert\[report\]"):
        look_inside(classifier, TEXTS)


def test_lengths_are_those_of_the_tokenizer(tokenizer):
    assert lengths_of(tokenizer, [("good", "a film")]) == [6]
    assert lengths_of(tokenizer, ["good film", "a"]) == [4, 3]
