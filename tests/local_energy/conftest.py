"""What the tests of the local energies share."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True, scope="module")
def _quick_compilation() -> Iterator[None]:
    """Most of the time of these tests goes into compilation, for few samples; the benchmark has all optimizations."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()
