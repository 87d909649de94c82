"""What the tests of the natural gradient share."""

import pytest

from ferroket._compat.netket import STEP_METHOD


@pytest.fixture(autouse=True, scope="module")
def _quickly(quick_compilation: None) -> None:
    pass


# What the lowest versions fail at by themselves, by a part of the name of a test.
LOWEST = {
    "more axes": "JAX 0.8 slices by a gather",
    "all states": "NetKet 3.20 makes no FullSumState on a mesh",
    "full sum": "NetKet 3.20 makes no FullSumState on a mesh",
    "full_sum": "NetKet 3.20 makes no FullSumState on a mesh",
    "Equinox": "NetKet 3.20 calls Equinox modules with a key",
    "test_subclasses": "NetKet 3.20 calls other methods of drivers",
    "test_not_a_number": "NetKet 3.20 logs other values",
    "test_checkpoints": "NetKet 3.20 serializes no drivers",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves out, on the lowest versions, what fails without Ferroket, too."""
    if STEP_METHOD != "_forward_and_backward":
        return
    for item in items:
        reason = next((reason for part, reason in LOWEST.items() if part in item.nodeid), None)
        if reason is not None and "natural_gradient" in item.nodeid:
            item.add_marker(pytest.mark.skip(reason=reason))
