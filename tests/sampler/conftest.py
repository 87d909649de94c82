"""What the tests of the samplers share."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def _quickly(quick_compilation: None) -> None:
    pass
