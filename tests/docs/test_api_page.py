"""docs/api.md names what there is to set."""

from dataclasses import fields
from pathlib import Path

from pyramid_bert.training import TrainSettings

PAGE = Path(__file__).parents[2] / "docs" / "api.md"


def test_every_setting_of_fit_is_described():
    table = PAGE.read_text(encoding="utf-8").partition("## Settings of `fit`")[2].partition("\n## ")[0]
    assert [field.name for field in fields(TrainSettings) if f"`{field.name}`" not in table] == []
