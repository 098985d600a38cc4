"""The paper's table of Long Range Arena, as data."""

import pytest

from pyramid_bert.cost import space_reduction
from pyramid_bert.errors import DataError, UnknownNameError
from pyramid_bert.lab.lra.presets import LRA_NAMES, load_presets, preset_for

# The rows of the paper's table, one backbone after the other: CIFAR-10, Pathfinder-32, text.
TABLE = {
    "learning_rate": (5e-4, 5e-4, 2.5e-2, 5e-4, 3e-4, 2.5e-2),
    "epochs": (200, 200, 625) * 2,
    "batch_size": (256, 512, 32) * 2,
    "layers": (1, 4, 1) * 2,
    "heads": (4, 2, 4, 8, 8, 4),
    "hidden_size": (128, 64, 256, 128, 32, 256),
    "qkv_size": (64, 32, 256, 64, 16, 256),
    "feed_forward_size": (128, 64, 1024, 128, 32, 1024),
    "block_size": (8, 8, 64, None, None, None),
}
TASKS = ("cifar10", "pathfinder32", "text")
COLUMNS = [f"{backbone}-{task}" for backbone in ("bigbird", "performer") for task in TASKS]


def test_presets_are_the_papers_table():
    presets = load_presets()
    assert {field: tuple(getattr(presets[name], field) for name in COLUMNS) for field in TABLE} == TABLE
    assert set(presets) == set(LRA_NAMES)
    # The peak of a schedule that divides by the root of the step.
    assert preset_for("performer", "text").peak == pytest.approx(2.5e-2 / 8000**0.5, rel=0.01)
    assert preset_for("performer", "cifar10").peak == 5e-4


@pytest.mark.parametrize(("name", "n"), [("performer-cifar10", 1025), ("performer-text", 1001)])
def test_seventy_and_thirty_per_cent_by_both_readings(name, n):
    preset = load_presets()[name]
    for keep, saved in ((0.5, 0.7), (0.8, 0.3)):
        found = preset.space_saved(round(keep * n), n)
        assert found["printed"] == found["attention_input"] == pytest.approx(saved, abs=0.05)
        assert found["tokens"] == pytest.approx(1 - keep, abs=0.01)


def test_readings_agree_only_at_the_input():
    lengths = (8, 8)
    assert space_reduction(lengths, 16, 4, reading="printed") == space_reduction(lengths, 16, 4, placement="input")
    assert space_reduction(lengths, 16, 4) < space_reduction(lengths, 16, 4, placement="input")


def test_unknown_names():
    with pytest.raises(UnknownNameError, match="unknown backbone 'perfomer'; did you mean 'performer'"):
        preset_for("perfomer", "text")
    with pytest.raises(UnknownNameError, match="unknown Long Range Arena task 'cifar'; did you mean 'cifar10'"):
        preset_for("performer", "cifar")


GOOD = """
[performer.cifar10]
learning_rate = 1e-3
epochs = 2
batch_size = 8
layers = 1
heads = 2
hidden_size = 16
qkv_size = 8
feed_forward_size = 16
"""
BIGBIRD = GOOD.replace("performer", "bigbird")


def test_a_file_of_the_same_form(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(GOOD)
    assert preset_for("performer", "cifar10", path).hidden_size == 16
    with pytest.raises(DataError, match=r"no table \[bigbird.text\]; it has performer-cifar10"):
        preset_for("bigbird", "text", path)
    path.write_text(GOOD.replace("hidden_size = 16", "hidden_size = 32"))
    assert preset_for("performer", "cifar10", path).hidden_size == 32  # a file is read each time
    with pytest.raises(DataError, match="cannot read the presets"):
        load_presets(tmp_path / "none.toml")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = [", "is not a TOML file"),
        ("[perfomer.text]\n", "unknown backbone"),
        ("[performer.txt]\n", "unknown Long Range Arena task"),
        ("[performer.text]\nlayers = 1\n", "lacks learning_rate, epochs"),
        (GOOD + "head = 2\n", "unknown key 'head'; did you mean 'heads'"),
        (GOOD.replace("heads = 2", "heads = 2.5"), r"heads must be an integer in 1-1e\+06, got 2.5"),
        (GOOD.replace("heads = 2", "heads = 0"), "heads must be an integer .* got 0"),
        (GOOD.replace("heads = 2", "heads = 3"), "qkv_size must be a multiple of its 3 heads, got 8"),
        (GOOD.replace("hidden_size = 16", "hidden_size = 0"), "hidden_size must be an integer .* got 0"),
        (GOOD.replace("epochs = 2", "epochs = true"), "epochs must be a number in 1e-06-10000, got True"),
        (GOOD + "dropout = 1.5\n", "performer.cifar10: dropout must be a number in 0-0.99, got 1.5"),
        (GOOD + "dropout = nan\n", "dropout must be .* got nan"),
        (GOOD + "warmup_epochs = inf\n", "warmup_epochs must be .* got inf"),
        (BIGBIRD + "block_size = 0\n", "block_size must be an integer .* got 0"),
        (BIGBIRD.replace("heads = 2", "heads = 3\nblock_size = 8"), "hidden_size must be a multiple of its 3 heads"),
        (GOOD + "block_size = 8\n", "performer has none"),
        (BIGBIRD, "bigbird needs one"),
    ],
)
def test_what_a_preset_file_refuses(tmp_path, text, words):
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises((DataError, UnknownNameError), match=words):
        load_presets(path)
