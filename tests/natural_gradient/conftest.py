"""What the tests of the natural gradient share."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def _quickly(quick_compilation: None) -> None:
    pass
