"""A few mutations of every file that is read; `make fuzz` runs thousands."""

import pytest

from tests.fuzz.targets import TARGETS, attack


@pytest.mark.parametrize("name", TARGETS)
def test_damage_gives_an_answer_or_one_line(tmp_path, name):
    for seed in range(1000, 1012):
        attack(name, seed, tmp_path / str(seed))
