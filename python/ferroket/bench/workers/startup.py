"""Times the start of a rank; argument: "initialize", or "import" for JAX alone."""

import sys
import time

START = time.perf_counter()

import ferroket as fk  # noqa: E402 - the clock has to run
from ferroket import _lib  # noqa: E402
from ferroket.bench.jobs import report  # noqa: E402


def main() -> None:
    """Measures, and reports {"ready": seconds} of rank 0."""
    if sys.argv[1] == "initialize":
        fk.initialize()
    import jax

    jax.numpy.ones(1).block_until_ready()
    ready = time.perf_counter() - START
    launcher = _lib.detect_launcher()
    if launcher is None or launcher.rank == 0:
        report({"ready": ready})


if __name__ == "__main__":
    main()
