"""The three Long Range Arena tasks from every layout, and what is wrong with files."""

import dataclasses
import gzip
import pickle
import sys

import numpy as np
import pytest
from PIL import Image

from pyramid_bert.errors import DataError, MissingExtraError, PyramidError, UnknownNameError
from pyramid_bert.lab.glue.tasks import load_task
from pyramid_bert.lab.lra.cifar import CLASSES, grey
from pyramid_bert.lab.lra.data import LRA_TASKS, load_lra, sample_balanced
from pyramid_bert.lab.lra.pathfinder.settings import PathfinderSettings
from pyramid_bert.lab.lra.pathfinder.store import make_pathfinder, read_pathfinder

RANDOM = np.random.default_rng(0)


def images_of(rows, *shape):
    return RANDOM.integers(0, 256, (rows, *shape), dtype=np.uint8)


def write_arrays(path, train=20, test=10, **changes):
    """The layout of one NumPy file; returns its arrays."""
    arrays = {"classes": np.array(CLASSES)}
    for name, rows in (("train", train), ("test", test)):
        arrays |= {f"{name}_images": images_of(rows, 32, 32), f"{name}_labels": np.arange(rows, dtype=np.uint8) % 10}
    arrays = {name: values for name, values in {**arrays, **changes}.items() if values is not None}
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez(path, **arrays)
    return arrays


def write_batch(path, rows=4, label=None):
    """A file of the official binary version; returns the images, (rows, 32, 32, 3), and their labels."""
    path.parent.mkdir(parents=True, exist_ok=True)
    images = images_of(rows, 32, 32, 3)
    labels = np.arange(rows, dtype=np.uint8) % 10 if label is None else np.full(rows, label, np.uint8)
    planes = images.transpose(0, 3, 1, 2).reshape(rows, -1)
    path.write_bytes(np.concatenate([labels[:, None], planes], axis=1).tobytes())
    return images, labels


def refused(message, *call, error=DataError, **settings):
    with pytest.raises(error, match=message):
        load_lra(*call, **settings)


BATCHES = [f"data_batch_{i}.bin" for i in range(1, 6)]


# ---- all tasks ----


def test_the_tasks():
    assert {name: (t.name, t.length, t.vocabulary, t.classes) for name, t in LRA_TASKS.items()} == {
        "cifar10": ("cifar10", 1024, 256, 10),
        "text": ("text", 1000, 256, 2),
        "pathfinder32": ("pathfinder32", 1024, 256, 2),
    }


def test_names_that_are_wrong(tmp_path):
    refused(r"task 'cifar'; did you mean 'cifar10'", "cifar", tmp_path, "train", error=UnknownNameError)
    unknown = r"unknown split of CIFAR-10 'test'.*Known: dev, train"
    refused(unknown, "cifar10", tmp_path, "test", error=UnknownNameError)
    refused("rows must be an integer of at least 1, got 0", "cifar10", tmp_path, "train", error=PyramidError, rows=0)


@pytest.mark.parametrize(("rows", "quotas"), [(100, [60, 30, 10]), (15, [9, 4, 2]), (3, [2, 1, 0]), (1, [1, 0, 0])])
def test_a_sample_has_the_shares_of_the_whole(rows, quotas):
    labels = np.repeat([2, 0, 1], [300, 600, 100])
    RANDOM.shuffle(labels)
    draws = [(rows, 0), (rows, 0), (rows, 1), (500, 0)]
    keep, again, other, larger = (sample_balanced(labels, count, seed=seed).tolist() for count, seed in draws)
    assert np.bincount(labels[keep], minlength=3).tolist() == [quotas[0], quotas[2], quotas[1]]
    assert keep == sorted(set(keep)) == again
    assert rows < 3 or keep != other
    assert set(keep) < set(larger)
    for every in (1000, 1001, None):
        assert sample_balanced(labels, every, seed=3).tolist() == list(range(1000))


# ---- CIFAR-10 ----


@pytest.mark.parametrize("inner", ["", "cifar10"])
def test_cifar_from_one_file(tmp_path, inner):
    arrays = write_arrays(tmp_path / inner / "cifar10_gray.npz")
    for split, name in (("train", "train"), ("dev", "test")):
        data = load_lra("cifar10", tmp_path, split)
        assert (data.ids.dtype, data.lengths.dtype, data.labels.dtype) == (np.int16, np.int64, np.int64)
        assert np.array_equal(data.ids, arrays[f"{name}_images"].reshape(-1, 1024))
        assert np.array_equal(data.labels, arrays[f"{name}_labels"])
        assert set(data.lengths.tolist()) == {1024}
    assert data.ids.max() > 127  # bytes above 127 stay positive


def test_a_sample_of_cifar(tmp_path):
    arrays = write_arrays(tmp_path / "cifar10.npz", train=40)
    data = load_lra("cifar10", tmp_path, "train", rows=20, seed=1)
    assert np.bincount(data.labels).tolist() == [2] * 10
    rows = [np.flatnonzero((arrays["train_images"].reshape(40, -1) == ids).all(1)).item() for ids in data.ids]
    assert rows == sorted(rows)
    assert arrays["train_labels"][rows].tolist() == data.labels.tolist()


@pytest.mark.parametrize("inner", ["", "cifar-10-batches-bin", "cifar10/cifar-10-batches-bin"])
def test_cifar_from_the_official_files(tmp_path, inner):
    train = [write_batch(tmp_path / inner / name) for name in BATCHES]
    test = write_batch(tmp_path / inner / "test_batch.bin", rows=3)
    data = load_lra("cifar10", tmp_path, "train")
    assert np.array_equal(data.ids, np.concatenate([grey(images).reshape(-1, 1024) for images, _ in train]))
    assert np.array_equal(data.labels, np.concatenate([labels for _, labels in train]))
    assert np.array_equal(load_lra("cifar10", tmp_path, "dev").ids, grey(test[0]).reshape(-1, 1024))


def test_grey_is_tensorflows():
    """Scaled to 0-1, weighted, and cut after a scale of 255.5, as tf.image.rgb_to_grayscale does."""
    rgb = images_of(2000, 3)
    luma = (rgb.astype(np.float64) / 255) @ np.array([0.2989, 0.5870, 0.1140])
    assert np.array_equal(grey(rgb), np.floor(luma * 255.5).astype(np.uint8))
    assert grey(np.full((1, 3), 255, np.uint8)).tolist() == [255]


def test_the_pickled_version_is_refused_unread(tmp_path):
    class Trap:
        def __reduce__(self):
            return (sys.exit, ("the pickle was loaded",))

    for folder in (tmp_path / "a", tmp_path / "b" / "cifar-10-batches-py"):
        folder.mkdir(parents=True)
        (folder / "data_batch_1").write_bytes(pickle.dumps(Trap()))
    for name in "ab":
        refused(r"holds the Python version .* pickled .* take the binary version", "cifar10", tmp_path / name, "train")


def test_official_files_that_are_wrong(tmp_path):
    for name in BATCHES:
        write_batch(tmp_path / name)
    refused(r"has no test_batch\.bin; unpack cifar-10-binary", "cifar10", tmp_path, "dev")
    for name in BATCHES[1:4]:
        (tmp_path / name).unlink()
    missing = r"has no data_batch_2\.bin, data_batch_3\.bin, data_batch_4\.bin; unpack"
    refused(missing, "cifar10", tmp_path, "train")
    test = tmp_path / "test_batch.bin"
    write_batch(test, label=10)
    refused(r"test_batch\.bin, row 1: the label is 10; CIFAR-10 has classes 0-9", "cifar10", tmp_path, "dev")
    test.write_bytes(test.read_bytes()[:-5])
    refused(r"test_batch\.bin is cut short in row 4: 12287 bytes, rows have 3073", "cifar10", tmp_path, "dev")
    test.write_bytes(b"")
    refused(r"test_batch\.bin has no rows", "cifar10", tmp_path, "dev")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train_images": np.zeros((20, 8, 8), np.uint8)}, r"train_images is uint8 of shape \(20, 8, 8\); expected"),
        ({"train_images": np.zeros((20, 32, 32))}, r"train_images is float64 .*expected uint8"),
        ({"train_labels": np.zeros(19, np.uint8)}, r"train_labels is uint8 of shape \(19,\); .* the 20 images"),
        ({"train_labels": np.zeros(20)}, r"train_labels is float64 .* expected whole numbers"),
        ({"train_labels": np.repeat([3, 12], [6, 14])}, r"train_labels, row 7: the label is 12; CIFAR-10 has classes"),
        ({"train_labels": np.repeat([-1, 2], [1, 19])}, r"train_labels, row 1: the label is -1"),
        ({"train_labels": None}, r"has no array 'train_labels'; it has .*test_labels"),
        ({"train_images": np.array([{}] * 20, object)}, r"cifar10\.npz is damaged or holds pickles"),
    ],
)
def test_arrays_that_are_wrong(tmp_path, changes, message):
    write_arrays(tmp_path / "cifar10.npz", **changes)
    refused(message, "cifar10", tmp_path, "train")


def test_files_that_are_damaged_missing_or_two(tmp_path):
    folder = rf"no such folder: {tmp_path}/none; give a folder with the official binary"
    refused(folder, "cifar10", tmp_path / "none", "train")
    refused(r"no CIFAR-10 in .*: looked for data_batch_1\.bin and cifar10\*\.npz", "cifar10", tmp_path, "train")
    write_arrays(tmp_path / "cifar10.npz")
    whole = (tmp_path / "cifar10.npz").read_bytes()
    for data in (b"", b"nothing", whole[: len(whole) // 2]):
        (tmp_path / "cifar10.npz").write_bytes(data)
        refused(r"cifar10\.npz is damaged", "cifar10", tmp_path, "train")
    write_arrays(tmp_path / "cifar10_b.npz")
    refused(r"holds cifar10\.npz, cifar10_b\.npz; keep one", "cifar10", tmp_path, "train")


def test_cifar_from_the_hub(monkeypatch):
    images, asked = images_of(4, 32, 32, 3), []

    def load(*name, split):
        asked.append((*name, split))
        return [{"img": Image.fromarray(image), "label": i} for i, image in enumerate(images)]

    monkeypatch.setattr("datasets.load_dataset", load)
    data = load_lra("cifar10", None, "dev")
    assert asked == [("uoft-cs/cifar10", "test")]
    assert np.array_equal(data.ids, grey(images).reshape(4, -1))
    assert data.labels.tolist() == [0, 1, 2, 3]
    images = [*images[:2], images_of(1, 28, 30, 3)[0]]
    refused(r"uoft-cs/cifar10 train, row 3: the image is 30x28, not 32x32", "cifar10", None, "train")
    monkeypatch.setitem(sys.modules, "datasets", None)
    refused(r"CIFAR-10 from the hub needs datasets", "cifar10", None, "train", error=MissingExtraError)


# ---- IMDB by bytes ----

REVIEWS = [("a fine film – really", 1), ("dull", 0), ("x" * 1500, 1), ("é" * 501, 0)]


def write_reviews(folder, split="train", reviews=REVIEWS):
    """The plain layout."""
    folder.mkdir(parents=True, exist_ok=True)
    text = "sentence\tlabel\n" + "".join(f"{review}\t{label}\n" for review, label in reviews)
    (folder / f"{split}.tsv.gz").write_bytes(gzip.compress(text.encode()))


def write_official(folder, reviews=REVIEWS):
    for split in ("train", "test"):
        for number, (review, label) in enumerate(reviews):
            path = folder / split / ("neg", "pos")[label] / f"{number}_7.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(review, encoding="utf-8")
    (folder / "train" / "unsup").mkdir()
    (folder / "train" / "unsup" / "0_0.txt").write_text("no label")


def texts_in(data):
    return [bytes(ids[:length].astype(np.uint8)) for ids, length in zip(data.ids, data.lengths, strict=True)]


def test_reviews_as_bytes(tmp_path):
    write_reviews(tmp_path / "imdb")
    data = load_lra("text", tmp_path, "train")
    assert data.ids.shape == (4, 1000)
    assert (data.ids.dtype, data.lengths.dtype, data.labels.dtype) == (np.int16, np.int64, np.int64)
    assert texts_in(data) == [text.encode()[:1000] for text, _ in REVIEWS]
    assert data.lengths.tolist() == [len("a fine film – really".encode()), 4, 1000, 1000]
    assert data.labels.tolist() == [1, 0, 1, 0]
    assert (data.ids[1, 4:] == -1).all()
    assert data.ids.max() > 127


@pytest.mark.parametrize("inner", ["", "aclImdb", "imdb/aclImdb"])
def test_reviews_from_the_official_folders(tmp_path, inner):
    write_official(tmp_path / inner)
    data = load_lra("text", tmp_path, "dev")
    assert data.labels.tolist() == [0, 0, 1, 1]
    assert texts_in(data) == [REVIEWS[i][0].encode()[:1000] for i in (1, 3, 0, 2)]
    assert load_task("imdb", tmp_path, "train").texts == [REVIEWS[i][0] for i in (1, 3, 0, 2)]


def test_reviews_that_are_wrong(tmp_path):
    write_official(tmp_path / "official")
    first = tmp_path / "official" / "train" / "pos" / "0_7.txt"
    first.write_bytes(b"caf\xe9")
    refused(r"train/pos/0_7\.txt is not UTF-8 text \(byte 3\)", "text", tmp_path / "official", "train")
    first.write_text(" \n")
    refused(r"train/pos/0_7\.txt is empty", "text", tmp_path / "official", "train")
    for path in (tmp_path / "official" / "test" / "neg").iterdir():
        path.unlink()
    refused(r"no texts in .*test/neg: looked for \*\.txt", "text", tmp_path / "official", "dev")
    write_reviews(tmp_path)
    refused(r"no dev file of IMDB .*aclImdb/test; there is only train\.tsv\.gz", "text", tmp_path, "dev")


def test_reviews_from_the_hub(monkeypatch):
    rows = [{"text": text, "label": label} for text, label in REVIEWS]
    monkeypatch.setattr("datasets.load_dataset", lambda name, split: rows)
    data = load_lra("text", None, "dev", rows=2)
    assert sorted(data.labels.tolist()) == [0, 1]
    assert data.ids.shape == (2, 1000)


# ---- Pathfinder ----

TINY = PathfinderSettings(contour_length=3, distractors=0)


@pytest.mark.parametrize("inner", ["", "pathfinder32"])
def test_pathfinder_by_position(tmp_path, inner):
    make_pathfinder(tmp_path / inner, 25, TINY)
    made = read_pathfinder(tmp_path / inner)
    train, dev = (load_lra("pathfinder32", tmp_path, split) for split in ("train", "dev"))
    assert np.array_equal(train.ids, made.images[:20].reshape(20, 1024))
    assert np.array_equal(dev.ids, made.images[20:22].reshape(2, 1024))
    assert train.labels.tolist() + dev.labels.tolist() == made.labels[:22].tolist()
    assert (train.ids.dtype, train.lengths.tolist(), train.labels.dtype) == (np.int16, [1024] * 20, np.int64)


def test_pathfinder_folders_that_are_wrong(tmp_path):
    refused(r"not on the hub; make it with `pyramid-bert lra make-pathfinder", "pathfinder32", None, "train")
    refused(r"no such file: .*pathfinder\.json", "pathfinder32", tmp_path, "train")
    make_pathfinder(tmp_path / "few", 4, TINY)
    few = r"has 4 images, too few for the split 'dev'; make at least 10"
    refused(few, "pathfinder32", tmp_path / "few", "dev")
    make_pathfinder(tmp_path / "large", 10, dataclasses.replace(TINY, window=40))
    refused(r"are 40x40, not 32x32", "pathfinder32", tmp_path / "large", "dev")
