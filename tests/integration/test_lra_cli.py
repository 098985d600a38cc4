"""`pyramid-bert lra`: images made, shown and loaded as a user does it."""

import json
import re
import shlex
import subprocess
import sys

import numpy as np
import pytest

from pyramid_bert.cli import _parser, main
from pyramid_bert.errors import DataError
from pyramid_bert.lab.lra.data import load_lra
from pyramid_bert.lab.lra.pathfinder.draw import draw_pathfinder
from pyramid_bert.lab.lra.pathfinder.settings import PathfinderSettings


def made(folder, *options):
    return main(["lra", "make-pathfinder", "--out", str(folder), "--difficulty", "easy", "--jobs", "1", *options])


def test_make_load_and_show(tmp_path, capsys):
    assert made(tmp_path / "images", "--n", "20", "--seed", "4", "--json") == 0
    captured = capsys.readouterr()
    record = json.loads(captured.out)
    assert record["made"] == 20
    rate = re.search(r"made 20 images in [\d.]+ s, (\d+) a second; 0 were there", captured.err)
    assert int(rate[1]) == round(20 / record["seconds"])
    assert (record["images"], record["seed"], record["settings"]["contour_length"]) == (20, 4, 6)
    first = draw_pathfinder(PathfinderSettings.of("easy"), 4, 0)
    data = load_lra("pathfinder32", tmp_path / "images", "train")
    assert np.array_equal(data.ids[0], first.image.ravel())

    assert made(tmp_path / "images", "--n", "20", "--seed", "4") == 0
    captured = capsys.readouterr()
    assert captured.out == f"20 images in {tmp_path / 'images'}, sha256 {record['sha256']}\n"
    assert "made 0 images" in captured.err
    assert "20 were there" in captured.err

    picture = tmp_path / "new" / "pathfinder.png"
    assert main(["lra", "show", str(tmp_path / "images"), "--out", str(picture), "--n", "7"]) == 0
    assert capsys.readouterr().out == f"{picture}\n"
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_several_processes(tmp_path):
    """The command itself, in a process of its own, starts others; none of them waits for torch."""
    code = (
        "import sys; sys.argv = ['pyramid-bert', *sys.argv[1:]]\n"
        "from pyramid_bert.cli import main\n"
        "if __name__ == '__main__':\n"
        "    code = main()\n"
        "    assert 'torch' not in sys.modules\n"
        "    sys.exit(code)\n"
    )
    script = tmp_path / "pyramid-bert.py"
    script.write_text(code)
    command = [sys.executable, str(script), "lra", "make-pathfinder", "--n", "600", "--difficulty", "easy"]
    done = subprocess.run([*command, "--out", str(tmp_path / "two"), "--jobs", "2"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert made(tmp_path / "one", "--n", "600") == 0
    names = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert names == ["images-00000.npz", "images-00001.npz", "pathfinder.json"]
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.parametrize(("option", "value", "least"), [("--n", "0", 1), ("--seed", "-1", 0), ("--jobs", "0", 1)])
def test_options_that_are_wrong(tmp_path, capsys, option, value, least):
    given = {"--out": str(tmp_path / "out"), "--n": "10", option: value}
    assert main(["lra", "make-pathfinder", *(word for pair in given.items() for word in pair)]) == 2
    assert f"{option} must be at least {least}, got {value}" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_folders_that_are_wrong(tmp_path, capsys, monkeypatch):
    def fails(code, found, message):
        assert found == code
        assert message in capsys.readouterr().err

    assert made(tmp_path, "--n", "5") == 0
    fails(1, made(tmp_path, "--n", "5", "--seed", "1"), "holds images of seed 0, not 1")
    (tmp_path / "file").touch()
    fails(1, made(tmp_path / "file", "--n", "5"), "it is a file; name a folder")

    def shown(folder, picture, n):
        return main(["lra", "show", str(folder), "--out", str(tmp_path / picture), "--n", n])

    fails(2, shown(tmp_path, "a.png", "6"), "--n must be in 1-5")
    fails(1, shown(tmp_path, "a.txt", "1"), "name it .png, .svg or .pdf")
    fails(1, shown(tmp_path / "none", "a.png", "1"), "make images with `pyramid-bert lra make-pathfinder")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    missing = "drawing images needs matplotlib: pip install 'pyramid-bert[plot]'"
    fails(1, shown(tmp_path, "a.png", "1"), missing)


@pytest.mark.parametrize("folder", [None, "my images"])
def test_the_advised_command_parses(tmp_path, folder):
    place = None if folder is None else tmp_path / folder
    with pytest.raises(DataError) as error:
        load_lra("pathfinder32", place, "train")
    program, *words = shlex.split(re.search(r"`(.*)`", str(error.value))[1])
    args = _parser().parse_args(words)
    assert (program, args.action, args.out) == ("pyramid-bert", "make-pathfinder", str(place or "DIR"))
