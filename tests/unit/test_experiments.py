"""The shipped experiments hold what their comments promise."""

import tomllib
from collections import Counter
from pathlib import Path

from pyramid_bert.lab.lra.presets import LRA_NAMES
from pyramid_bert.lab.study.methods import DENSE
from pyramid_bert.lab.study.preflight import all_cells
from pyramid_bert.lab.study.spec import load_study

EXPERIMENTS = Path(__file__).parents[2] / "experiments"


def test_lra_lite():
    path = EXPERIMENTS / "lra-lite.toml"
    study = load_study(path)
    cells = all_cells(study)
    assert study.name == "lra-lite"
    assert len({cell.id for cell in cells}) == len(cells) == 228
    methods = tomllib.loads(path.read_text(encoding="utf-8"))["methods"]
    assert len(methods) == 9
    # Six models, two seeds; each method keeps 0.49 and 0.8.
    assert Counter(cell.method for cell in cells) == {DENSE: 6 * 2, **dict.fromkeys(methods, 6 * 2 * 2)}
    assert {cell.schedule.keep_ratio for cell in cells if not cell.is_dense} == {0.49, 0.8}
    assert Counter(cell.task for cell in cells) == dict.fromkeys(LRA_NAMES, 38)
    assert [cell.seed for cell in cells] == [0] * 114 + [1] * 114
