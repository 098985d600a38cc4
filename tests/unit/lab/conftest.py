"""What tests of the laboratory share."""

import pytest


@pytest.fixture
def root(tmp_path):
    """A folder with empty folders of results and experiments."""
    (tmp_path / "results").mkdir()
    (tmp_path / "experiments").mkdir()
    return tmp_path
