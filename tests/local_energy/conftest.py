"""What the tests of the local energies share."""

import pytest


@pytest.fixture(autouse=True, scope="module")
def _quickly(quick_compilation: None) -> None:
    pass
