"""What all tests share."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import ferroket  # noqa: F401 - before JAX starts, so that this jaxlib computes right sums

# XLA compiles most of what the tests run. JAX keeps it, so that test processes, and the next run, have it ready.
_CACHE = Path(__file__).parents[1] / "target" / "jax-cache"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "0")
# The jobs that they start begin with nothing, and leave nothing in the user's cache.
os.environ.setdefault("FERROKET_CACHE", "off")

# A shell has its background jobs ignore Ctrl-C, and so would the jobs that the tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
# So does nohup with the end of the terminal. What is handled here, and not ignored, is as ever in the jobs.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, lambda *_: None)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only a part of the tests that touches everything")


def pytest_configure(config: pytest.Config) -> None:
    """With --quick XLA compiles fast, to slower programs, here and in the jobs that inherit the environment."""
    if config.getoption("quick"):
        from support.mpi import FAST_COMPILATION

        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {FAST_COMPILATION}".strip()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With --quick leaves out what is thorough, and of the tests under mpirun all but those that are marked quick."""
    if not config.getoption("quick"):
        return
    config.hook.pytest_deselected(items=[item for item in items if not is_quick(item)])
    items[:] = [item for item in items if is_quick(item)]


def is_quick(item: pytest.Item) -> bool:
    """Whether a test is quick, or, if the mark names cases, one of these.

    ``quick("mpich")`` keeps the cases whose id is that, or begins or ends with it.
    """
    mark = item.get_closest_marker("quick")
    if mark is None:
        return not any(item.get_closest_marker(name) for name in ("thorough", "mpi", "slurm"))
    case = f"-{item.name.partition('[')[2].removesuffix(']')}-"
    return not mark.args or any(case.startswith(f"-{kept}-") or case.endswith(f"-{kept}-") for kept in mark.args)


@pytest.fixture(scope="module")
def quick_compilation() -> Iterator[None]:
    """For tests most of whose time goes into compilation, for few samples; the benchmarks have all optimizations."""
    import jax

    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)
    jax.clear_caches()
