"""What README.md and docs/families.md say of the table of families is what the table gives."""

from pathlib import Path

import pytest

from pyramid_bert.lab.pages.families import BLOCKS, filled

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("page", BLOCKS)
def test_the_families_are_those_of_the_table(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for name in BLOCKS[page]:
        assert f"<!-- {name} -->\n" in text
    assert filled(text, BLOCKS[page]) == text, "run python -m pyramid_bert.lab.pages.families"
