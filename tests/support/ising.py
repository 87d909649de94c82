"""Ising Hamiltonians by definition, slow and plain, and random ones for hypothesis."""

from dataclasses import dataclass
from typing import Any

import jax
import netket as nk
import numpy as np
from hypothesis import strategies as st


def dense(n_sites: int, edges: Any, h: complex, J: complex) -> np.ndarray:
    """-h Σ σˣ + J Σ σᶻσᶻ by Kronecker products; site 0 is the leftmost, index 0 of a site the first basis state."""
    sigma_x, sigma_z = np.array([[0, 1], [1, 0]]), np.diag([1, -1])

    def on(site: int, matrix: np.ndarray) -> np.ndarray:
        result = np.eye(1)
        for i in range(n_sites):
            result = np.kron(result, matrix if i == site else np.eye(2))
        return result

    total = np.zeros((2**n_sites, 2**n_sites), complex)
    for i in range(n_sites):
        total -= h * on(i, sigma_x)
    for i, j in edges:
        total += J * on(i, sigma_z) @ on(j, sigma_z)
    return total


def basis(hilbert: Any) -> np.ndarray:
    """All configurations of an unconstrained space, in the order of `dense`."""
    indices = np.indices((2,) * hilbert.size).reshape(hilbert.size, -1).T
    return np.asarray(hilbert.local_states)[indices]


def loop(sample: np.ndarray, states: list[float], edges: Any, h: complex, J: complex) -> tuple[np.ndarray, np.ndarray]:
    """The connected elements of one sample, from the formula, in NetKet's order."""
    first, second = states
    other = {first: second, second: first}
    configurations, elements = [sample.copy()], [sum(J * (1 if sample[i] == sample[j] else -1) for i, j in edges)]
    for site in range(len(sample)):
        flipped = sample.copy()
        flipped[site] = other[float(sample[site])]
        configurations.append(flipped)
        elements.append(-h)
    return np.array(configurations), np.array(elements)


@dataclass(frozen=True)
class Problem:
    """Constructor's arguments, samples and the seed of the random numbers in them."""

    hilbert: Any
    edges: np.ndarray
    h: Any
    J: Any
    dtype: str | None
    x: np.ndarray


def hilberts(n_sites: int) -> st.SearchStrategy[Any]:
    return st.sampled_from(
        [
            nk.hilbert.Spin(0.5, n_sites),
            nk.hilbert.Spin(0.5, n_sites, inverted_ordering=not _is_inverted(n_sites)),
            nk.hilbert.Qubit(n_sites),
            nk.hilbert.Fock(1, n_sites),
        ]
    )


def _is_inverted(n_sites: int) -> bool:
    """Which ordering is NetKet's default has changed; this is the default's."""
    return list(nk.hilbert.Spin(0.5, n_sites).local_states) == [-1, 1]


SAMPLE_DTYPES = [
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "complex64",
    "complex128",
]
UNSIGNED = ["uint8", "uint16", "uint32", "uint64", "bool"]


@st.composite
def problems(draw: Any) -> Problem:
    n_sites = draw(st.integers(1, 9))
    hilbert = draw(hilberts(n_sites))
    site = st.integers(0, n_sites - 1)
    edges = draw(st.lists(st.tuples(site, site), max_size=12))
    dtype = draw(st.sampled_from([None, "float32", "float64", "complex64", "complex128"]))
    # Whose sums are exact: Rust's counts and XLA's elements may differ by rounding errors otherwise.
    number = st.integers(-64, 64).map(lambda n: n / 16)
    if dtype and dtype.startswith("complex"):
        number = st.builds(complex, number, number)
    batch = draw(st.lists(st.integers(0, 5), max_size=3))
    unsigned = UNSIGNED if min(hilbert.local_states) >= 0 else []
    x_dtype = draw(st.sampled_from(SAMPLE_DTYPES + unsigned))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = rng.choice(np.asarray(hilbert.local_states), (*batch, n_sites)).astype(jax.numpy.dtype(x_dtype))
    h = draw(st.one_of(st.none(), st.just(0), number))
    return Problem(hilbert, np.array(edges, np.int64).reshape(-1, 2), h, draw(number), dtype, x)
