"""Pathfinder images: the label follows from the drawn paths, snakes keep apart, and a seed fixes everything."""

import dataclasses
import hashlib
from itertools import combinations, pairwise
from math import dist, inf, nan

import numpy as np
import pytest

from pyramid_bert.cli.lra import DIFFICULTIES as OFFERED
from pyramid_bert.errors import DataError, PyramidError, UnknownNameError
from pyramid_bert.lab.lra.pathfinder import draw as drawing_module
from pyramid_bert.lab.lra.pathfinder import store
from pyramid_bert.lab.lra.pathfinder.draw import draw_pathfinder
from pyramid_bert.lab.lra.pathfinder.settings import DIFFICULTIES, PathfinderSettings
from pyramid_bert.lab.lra.pathfinder.store import make_pathfinder, read_pathfinder, read_record

EASY = PathfinderSettings.of("easy")
IMAGES = 15  # of each difficulty


@pytest.fixture(scope="module")
def drawings():
    return [draw_pathfinder(PathfinderSettings.of(name), 0, i) for name in DIFFICULTIES for i in range(IMAGES)]


def line(snake):
    """The path of a snake, gaps included: (points, 2)."""
    return np.array([point for dash in snake.dashes for point in (dash.tail, dash.head)])


def dots(snake):
    """Nine points on each of its dashes: (dashes, 9, 2)."""
    ends = line(snake).reshape(-1, 2, 2)
    return ends[:, :1] + np.linspace(0, 1, 9)[:, None] * (ends[:, 1:] - ends[:, :1])


def distances(some, others):
    return np.linalg.norm(np.reshape(some, (-1, 1, 2)) - np.reshape(others, (1, -1, 2)), axis=-1)


def crosses(one, other):
    """Whether two lines through points cross."""

    def sides(a, b, c):
        return (b[..., 0] - a[..., 0]) * (c[..., 1] - a[..., 1]) - (b[..., 1] - a[..., 1]) * (c[..., 0] - a[..., 0])

    a, b, c, d = one[:-1, None], one[1:, None], other[None, :-1], other[None, 1:]
    return bool(((sides(a, b, c) * sides(a, b, d) < 0) & (sides(c, d, a) * sides(c, d, b) < 0)).any())


def test_the_checker_finds_crossings():
    square = np.array([(0, 0), (0, 2), (2, 2), (2, 0)])
    assert crosses(square, np.array([(1, 1), (1, 3)]))
    assert not crosses(square, np.array([(1, 1), (1, -3)]))


# ---- what is drawn ----


def test_the_label_follows_from_the_paths(drawings):
    for drawing in drawings:
        homes = [[n for n, snake in enumerate(drawing.snakes) if disc in snake.tips] for disc in drawing.discs]
        assert [len(home) for home in homes] == [1, 1]
        assert drawing.label == (homes[0] == homes[1])
        if drawing.label:
            assert set(drawing.discs) == set(drawing.snakes[homes[0][0]].tips)
    assert {drawing.label for drawing in drawings} == {0, 1}
    # Either snake may have the first disc.
    assert {drawing.discs[0] == drawing.snakes[0].tips[0] for drawing in drawings} == {True, False}


def test_both_labels_are_about_as_frequent():
    settings = PathfinderSettings(contour_length=3, distractors=0)
    labels = [draw_pathfinder(settings, 5, index).label for index in range(400)]
    assert 160 < sum(labels) < 240  # four standard deviations


def test_the_image_shows_the_discs_every_dash_and_nothing_else(drawings):
    for drawing in drawings:
        image, snakes = drawing.image, (*drawing.snakes, *drawing.distractors)
        assert (image.shape, image.dtype, image.min(), image.max()) == ((32, 32), np.uint8, 0, 255)
        for row, column in drawing.discs:
            spot = image[max(0, row - 1) : row + 2, max(0, column - 1) : column + 2]
            assert spot.min() > 100  # a dash is nowhere so wide
        for snake in snakes:
            rows, columns = np.rint(dots(snake)[:, ::2]).astype(int).reshape(-1, 2).T
            assert image[rows, columns].min() > 20
        drawn = [*(dots(snake).reshape(-1, 2) for snake in snakes), drawing.discs]
        lit = np.argwhere(image > 0)
        assert distances(lit, np.concatenate(drawn)).min(axis=1).max() < 2.3  # a disc, and half a pixel's diagonal


def test_snakes_have_the_dashes_asked_for(drawings):
    for number, (name, dashes) in enumerate(DIFFICULTIES.items()):
        settings = PathfinderSettings.of(name)
        for drawing in drawings[IMAGES * number : IMAGES * (number + 1)]:
            assert [len(snake.dashes) for snake in drawing.snakes] == [dashes, dashes]
            assert {len(snake.dashes) for snake in drawing.distractors} == {settings.distractor_length}
            assert len(drawing.distractors) <= settings.distractors
            for snake in (*drawing.snakes, *drawing.distractors):
                assert all(dist(dash.tail, dash.head) == pytest.approx(2) for dash in snake.dashes)
                # Twice the margin, up to the rounding of both ends to pixels.
                assert all(0.5 < dist(a.head, b.tail) < 3.5 for a, b in pairwise(snake.dashes))


def test_snakes_begin_where_they_should_and_neither_cross_nor_touch_nor_leave(drawings):
    for drawing in drawings:
        first, second = (snake.tips[0] for snake in drawing.snakes)
        assert all(14 <= at <= 17 for at in first)
        assert 6.2 < dist(first, second) < 7.8
        for one, other in combinations((*drawing.snakes, *drawing.distractors), 2):
            assert not crosses(line(one), line(other))
            assert distances(dots(one), dots(other)).min() > 1.5  # dashes are half a pixel thick, margins one pixel
        for snake in (*drawing.snakes, *drawing.distractors):
            path = line(snake)
            assert not any(crosses(path[i : i + 2], path[i + 2 :]) for i in range(len(path) - 3))
            assert path.min() >= 1
            assert path.max() <= 30


@pytest.mark.parametrize(("thickness", "margin"), [(0.2, 0.61), (1.42, 0)])
def test_snakes_keep_apart_with_the_least_settings(thickness, margin):
    least = {"dash_thickness": thickness, "dash_margin": margin, "seed_distance": 1, "contour_length": 3}
    settings = PathfinderSettings(**least, continuity=0, distractors=0)
    for index in range(60):
        drawing = draw_pathfinder(settings, 0, index)
        ends = {tip for snake in drawing.snakes for tip in snake.tips if tip == tuple(map(int, tip))}
        assert len(ends) == 4
        one, other = (set(map(tuple, np.rint(dots(snake)).reshape(-1, 2))) for snake in drawing.snakes)
        assert not one & other


def test_continuity_makes_snakes_straighter():
    def turns(continuity):
        settings = PathfinderSettings(contour_length=3, distractors=0, continuity=continuity)
        for index in range(20):
            for snake in draw_pathfinder(settings, 0, index).snakes:
                for a, b in pairwise(snake.dashes):
                    cosine = np.dot(np.subtract(a.head, a.tail), np.subtract(b.head, b.tail)) / 4
                    yield np.degrees(np.arccos(np.clip(cosine, -1, 1)))

    loose, straight = list(turns(0.8)), list(turns(3.0))
    assert max(straight) <= 31  # 90 degrees / 3, rounded to degrees
    assert np.mean(straight) < np.mean(loose)


# ---- seeds ----


def test_an_image_depends_only_on_seed_and_number():
    one, again = draw_pathfinder(EASY, 3, 71), draw_pathfinder(EASY, 3, 71)
    assert np.array_equal(one.image, again.image)
    assert one.snakes == again.snakes
    others = [draw_pathfinder(EASY, 4, 71), draw_pathfinder(EASY, 3, 72), draw_pathfinder(EASY, 37, 1)]
    assert not any(np.array_equal(one.image, other.image) for other in others)


def test_images_stay_what_they_are():
    # Written down once: it must not change with versions of anything. If it has to, raise the format of the files.
    images = [draw_pathfinder(PathfinderSettings(), 0, index).image for index in range(5)]
    assert hashlib.sha256(np.stack(images).tobytes()).hexdigest()[:12] == "8e73e434ca98"


# ---- bad settings ----


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"window": 4}, "window must be an integer of at least 5, got 4"),
        ({"window": 32.5}, "window must be an integer .* got 32.5"),
        ({"contour_length": 2}, "contour_length must be an integer of at least 3, got 2; Long Range Arena has 14"),
        ({"distractors": -1}, "distractors must be an integer of at least 0, got -1"),
        ({"dash_length": -2}, "dash_length must be a number above 0, got -2"),
        ({"dash_length": nan}, "dash_length must be a number above 0, got nan"),
        ({"dash_margin": -1}, "dash_margin must be a number of at least 0, got -1"),
        ({"continuity": inf}, "continuity must be a number of at least 0, got inf"),
        ({"marker_radius": "big"}, "marker_radius must be a number above 0, got 'big'"),
        ({"marker_radius": 17}, "marker_radius 17 are larger than the 32x32 window; it must be at most 16"),
        ({"seed_distance": 0.9}, "seed_distance must be a number of at least 1, got 0.9; Long Range Arena has 7"),
        ({"dash_thickness": 0.1}, "dash_thickness must be a number of at least 0.2, got 0.1; Long Range Arena has 0.5"),
        ({"dash_margin": 0.4}, "a disc could lie on two snakes: .* 0.71, got 0.65; make dash_margin at least 0.46"),
        ({"padding": 16}, "a padding of 16 leaves nothing of a 32x32 window"),
        ({"seed_distance": 8}, "a seed_distance of 8 leaves no place .* must be below 8"),
        ({"dash_length": 60, "seed_distance": 2}, "dash_length 60 .* does not fit into a 32x32 window"),
        ({"target_contrast": 0}, "target_contrast must be a number above 0, got 0"),
    ],
)
def test_settings_that_cannot_be(settings, message):
    with pytest.raises(PyramidError, match=message):
        PathfinderSettings(**settings)


def test_snakes_that_find_no_room(tmp_path, monkeypatch):
    monkeypatch.setattr(drawing_module, "PAIR_TRIES", 20)
    for length, message in (
        (200, r"contour_length 200 need at least \d+ pixels .* has 900; make the snakes"),
        (60, r"no room for two snakes in 20 tries: contour_length 60 with dash_length 2"),
    ):
        with pytest.raises(PyramidError, match=message):
            make_pathfinder(tmp_path / "out", 10, PathfinderSettings(contour_length=length))
        assert not (tmp_path / "out").exists()


def test_difficulties_and_settings_by_name():
    assert tuple(DIFFICULTIES) == OFFERED
    assert PathfinderSettings.of("hard") == PathfinderSettings()
    assert (EASY.contour_length, EASY.distractor_length, EASY.distractors) == (6, 2, 10)
    with pytest.raises(UnknownNameError, match=r"unknown difficulty 'esy'; did you mean 'easy'"):
        PathfinderSettings.of("esy")
    with pytest.raises(UnknownNameError, match=r"unknown Pathfinder setting 'windw'; did you mean 'window'"):
        PathfinderSettings.from_dict({"windw": 32})


# ---- files ----


@pytest.fixture
def small_shards(monkeypatch):
    monkeypatch.setattr(store, "SHARD_IMAGES", 4)


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_folder_holds_the_images_of_its_seed(tmp_path, small_shards):
    folder, settings = tmp_path / "new" / "folder", dataclasses.replace(EASY, continuity=1.5)
    record = make_pathfinder(folder, 10, settings, seed=2)
    made = read_pathfinder(folder)
    assert made.record == record == read_record(folder)
    assert (record.settings, record.seed, record.images) == (settings, 2, 10)
    assert sorted(contents(folder)) == [*(f"images-0000{i}.npz" for i in range(3)), store.RECORD]
    for index in range(10):
        drawing = draw_pathfinder(settings, 2, index)
        assert np.array_equal(made.images[index], drawing.image)
        assert made.labels[index] == drawing.label


def test_a_stopped_run_goes_on_and_more_images_can_be_added(tmp_path, small_shards, monkeypatch):
    whole, grown, parts = (tmp_path / name for name in ("whole", "grown", "parts"))
    make_pathfinder(whole, 10, EASY)
    for images in (6, 10):
        make_pathfinder(grown, images, EASY)
    assert contents(grown) == contents(whole)
    draw, drawn, counts = store.draw_pathfinder, [], []

    def stop(settings, seed, index):
        if index == 6:
            raise KeyboardInterrupt
        return draw(settings, seed, index)

    monkeypatch.setattr(store, "draw_pathfinder", stop)
    with pytest.raises(KeyboardInterrupt):
        make_pathfinder(parts, 10, EASY)
    assert sorted(contents(parts)) == ["images-00000.npz", store.RECORD]
    with pytest.raises(DataError, match=r"not complete; run the command that made them again"):
        read_pathfinder(parts)
    monkeypatch.setattr(store, "draw_pathfinder", lambda *call: drawn.append(call[2]) or draw(*call))
    make_pathfinder(parts, 10, EASY, progress=counts.append)
    assert drawn == [0, *range(4, 10)]  # the first one tries the settings out
    assert counts == [4, 4, 2]
    assert contents(parts) == contents(whole)


def test_other_images_are_not_mixed(tmp_path):
    make_pathfinder(tmp_path, 10, EASY)
    before = contents(tmp_path)
    for images, settings, seed, message in [
        (10, EASY, 1, "holds images of seed 0, not 1; choose another folder"),
        (10, PathfinderSettings(), 0, "holds images of contour_length 6, not 14"),
        (5, EASY, 0, "is for 10 images, more than 5"),
    ]:
        with pytest.raises(PyramidError, match=message):
            make_pathfinder(tmp_path, images, settings, seed=seed)
        assert contents(tmp_path) == before
    (tmp_path / store.RECORD).unlink()
    alone = r"holds images-00000\.npz and no pathfinder\.json .*; remove the images, or"
    with pytest.raises(PyramidError, match=alone):
        make_pathfinder(tmp_path, 10, EASY)
    assert contents(tmp_path) == {name: data for name, data in before.items() if name != store.RECORD}


@pytest.mark.parametrize(("name", "value", "least"), [("images", 0, 1), ("seed", -1, 0), ("jobs", 0, 1)])
def test_numbers_that_cannot_be(tmp_path, name, value, least):
    with pytest.raises(PyramidError, match=f"{name} must be an integer of at least {least}, got {value}"):
        make_pathfinder(tmp_path / "out", **{"images": 10, name: value})
    assert not (tmp_path / "out").exists()


def test_damaged_folders(tmp_path, small_shards):
    make_pathfinder(tmp_path, 10, EASY)
    good = contents(tmp_path)
    first, second, third = (f"images-0000{i}.npz" for i in range(3))

    def broken(name, data, message):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(DataError, match=message):
            read_pathfinder(tmp_path)
        (tmp_path / name).write_bytes(good[name])

    broken(second, good[second][:300], r"images-00001\.npz is damaged")
    broken(second, good[third], r"images-00001\.npz has 2 images, not 4")
    broken(second, good[first], r"are not those of its pathfinder\.json")
    for data in (b"{}", b"\xff"):
        broken(store.RECORD, data, r"pathfinder\.json is damaged")
    newer = good[store.RECORD].replace(b'"format": 1', b'"format": 9')
    broken(store.RECORD, newer, r"has the format 9, this version reads 1")
    (tmp_path / second).unlink()
    with pytest.raises(DataError, match=r"no such file: .*images-00001\.npz; run the command"):
        read_pathfinder(tmp_path)
    make_pathfinder(tmp_path, 10, EASY)
    assert contents(tmp_path) == good
    (tmp_path / store.RECORD).unlink()
    with pytest.raises(DataError, match=r"no such file: .*pathfinder\.json; make images with `pyramid-bert lra make-p"):
        read_pathfinder(tmp_path)


def zeros(*shape):
    return np.zeros(shape, np.uint8)


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (np.array([{}] * 4, object), zeros(4), r" is damaged .*allow_pickle"),
        (zeros(4, 16, 16), zeros(4), r": the images are uint8 \(16, 16\), not uint8 \(32, 32\)"),
        (zeros(4, 32, 32), zeros(3), r": the labels are uint8 \(3,\), not uint8 \(4,\)"),
        (zeros(4, 32, 32), np.array([0, 1, 2, 1], np.uint8), r", row 3: the label is 2; Pathfinder has 0 and 1"),
    ],
)
def test_shards_of_another_kind(tmp_path, small_shards, images, labels, message):
    make_pathfinder(tmp_path, 4, EASY)
    np.savez(tmp_path / "images-00000.npz", images=images, labels=labels)
    with pytest.raises(DataError, match=r"images-00000\.npz" + message):
        read_pathfinder(tmp_path)
