"""JAX's collectives against numpy, on every MPI: the matrix of dtypes, sizes and meshes, and random programs."""

from pathlib import Path

import pytest

from support.mpi import FAST_COMPILATION, FULL, MPIS, PREFIXES, run_ranks

pytestmark = pytest.mark.mpi

HERE = Path(__file__).parent
WORKING = 14 * 8 - 5  # dtypes and collectives, less what XLA refuses; each over four groups of ranks
PROGRAMS = 25 if FULL else 12  # others on each MPI


@pytest.mark.quick("mpich")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mpi", MPIS)
def test_matrix(mpi: str) -> None:
    """Tells, too, that a launcher gets the library that belongs to it: none is named but that of the standard ABI.

    One MPI gets three sizes, one of each other family two, and the rest one.
    """
    if FULL:
        sizes, comparisons = ["1", "7", "1024", "4194304", "--all"], 4 * 4 * WORKING
    elif mpi == "mpich":
        sizes, comparisons = ["1", "1024", "4194304"], 9 * WORKING
    elif mpi in PREFIXES:
        sizes, comparisons = ["7", "4194304"], 5 * WORKING
    else:
        sizes, comparisons = ["7"], 4 * WORKING
    job = run_ranks(HERE / "matrix.py", 4, *sizes, mpi=mpi, timeout=580, XLA_FLAGS=FAST_COMPILATION).ok()
    counts, path = job.stdout.strip().rsplit(", ", 1)
    assert counts.startswith(f"9 contexts, 11 refusals, {comparisons} comparisons on {MPIS[mpi].version}")
    assert Path(path).name.startswith(MPIS[mpi].library)
    assert Path(path).is_relative_to(MPIS[mpi].prefix.resolve())


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mpi", MPIS if FULL else PREFIXES)
def test_random_programs(mpi: str) -> None:
    first = list(MPIS).index(mpi) * PROGRAMS
    seeds = (str(first), str(first + PROGRAMS))
    job = run_ranks(HERE / "programs.py", 4, *seeds, mpi=mpi, timeout=580, XLA_FLAGS=FAST_COMPILATION).ok()
    assert job.stdout.endswith(f"{PROGRAMS} programs are right\n")
