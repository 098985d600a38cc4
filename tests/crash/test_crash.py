"""A few kills of every command that resumes; `make crash` has hundreds."""

import pytest

from tests.crash.runner import CASES, crash


@pytest.mark.serial
@pytest.mark.parametrize("name", CASES)
def test_a_command_that_is_killed_and_given_again_ends_the_same(name):
    if name == "export":
        pytest.importorskip("openvino", reason="OpenVINO is not installed: pip install 'pyramid-bert[openvino]'")
    assert crash(name, 3) == 3
