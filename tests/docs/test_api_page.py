"""docs/api.md names what there is to set."""

from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest

from pyramid_bert.training import TrainSettings

PAGE = Path(__file__).parents[2] / "docs" / "api.md"


def test_every_setting_of_fit_is_described():
    table = PAGE.read_text(encoding="utf-8").partition("## Settings of `fit`")[2].partition("\n## ")[0]
    assert [field.name for field in fields(TrainSettings) if f"`{field.name}`" not in table] == []


@pytest.mark.parametrize(
    "module", ["pyramid_bert.lab.theory", "pyramid_bert.tune", "pyramid_bert.ranking", "pyramid_bert.lab.report"]
)
def test_every_public_name_of_a_package_is_described(module):
    section = PAGE.read_text(encoding="utf-8").partition(f": `{module}`\n")[2].partition("\n## ")[0]
    assert [name for name in import_module(module).__all__ if f"`{name}`" not in section] == []
