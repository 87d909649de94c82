"""What the tests of the samplers share."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def _quick_compilation() -> Iterator[None]:
    """Most of the time of these tests goes into compilation of NetKet's samplers."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()
