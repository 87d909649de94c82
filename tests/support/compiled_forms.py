"""The compiled forms by definition, slow and plain, and random ones."""

import itertools
from typing import Any

import jax
import netket as nk
import numpy as np

from ferroket.operator.algebra.compiling import form_of_matrices
from ferroket.operator.compiled import Form, LocalStates, Matrices, Terms, local_states
from ferroket.operator.sums.local_matrices import Entries

Elements = list[tuple[list[float], complex]]


def values_of_sites(sites: LocalStates) -> list[list[float]]:
    """The local states of each site, by index."""
    kinds = [
        [start + i * step for i in range(size)]
        for start, step, size in zip(sites.starts, sites.steps, sites.sizes, strict=True)
    ]
    return [kinds[k] for k in (sites.kind if len(sites.kind) else [0] * sites.n_sites)]


def _as_int(words: np.ndarray) -> int:
    return sum(int(word) << (32 * i) for i, word in enumerate(words))


def terms_by_definition(form: Terms, sample: np.ndarray) -> Elements:
    """The active elements of a sample, in order."""
    states = values_of_sites(form.sites)
    sigma = sum(states[i].index(value) << i for i, value in enumerate(sample.tolist()))
    elements = []
    for g, flip in enumerate(form.flip):
        mel, active = 0, form.diagonal and g == 0
        for t in range(form.first[g], form.first[g + 1]):
            if sigma & _as_int(form.mask[t]) == _as_int(form.pattern[t]):
                active = True
                mel += form.values[t] * (-1) ** (sigma & _as_int(form.sign[t])).bit_count()
        if active:
            moved = sigma ^ _as_int(flip)
            elements.append(([states[i][moved >> i & 1] for i in range(len(sample))], mel))
    return elements


def matrices_by_definition(form: Matrices, sample: np.ndarray) -> Elements:
    """The active elements of a sample, in order."""
    states = values_of_sites(form.sites)
    indices = [states[i].index(value) for i, value in enumerate(sample.tolist())]
    diagonal, others = 0, []
    for t, matrix in enumerate(form.table):
        where = form.acting_on[form.first_site[t] : form.first_site[t + 1]].tolist()
        row = 0
        for site in where:
            row = row * len(states[site]) + indices[site]
        begin, end = form.first_entry[form.first_row[matrix] + row : form.first_row[matrix] + row + 2]
        for column, value in zip(form.columns[begin:end].tolist(), form.values[begin:end], strict=True):
            if column == row:
                diagonal += value
                continue
            moved = list(indices)
            for site in reversed(where):
                column, moved[site] = divmod(column, len(states[site]))  # noqa: PLW2901
            others.append(([states[i][index] for i, index in enumerate(moved)], value))
    return ([(sample.tolist(), diagonal)] if form.diagonal else []) + others


def by_definition(form: Form, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The padded connected elements of samples ``(Ns, N)``."""
    of_sample = terms_by_definition if isinstance(form, Terms) else matrices_by_definition
    xp = np.repeat(x[:, None], form.max_conn_size, axis=1)
    mels = np.zeros((len(x), form.max_conn_size), form.dtype)
    for i, sample in enumerate(x):
        for k, (configuration, mel) in enumerate(of_sample(form, sample)):
            xp[i, k], mels[i, k] = configuration, mel
    return xp, mels


def nonzero(form: Form, x: np.ndarray, off_diagonal_only: bool = False) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The elements that aren't zero, and their samples."""
    xp, mels = by_definition(form, x)
    wanted = mels != 0
    wanted[:, : int(off_diagonal_only and form.diagonal)] = False
    return xp[wanted], mels[wanted], np.nonzero(wanted)[0]


def random_values(rng: np.random.Generator, n: int, dtype: Any, zeros: float = 0.1) -> np.ndarray:
    """Coefficients, some of them zero, which all dtypes hold exactly."""
    values = rng.integers(-8, 9, n) / (1 if np.issubdtype(dtype, np.integer) else 8)
    if np.issubdtype(dtype, np.complexfloating):
        values = values + 1j * rng.integers(-8, 9, n) / 8
    return np.where(rng.random(n) < zeros, 0, values).astype(dtype)


def random_samples(rng: np.random.Generator, sites: LocalStates, n_samples: int, dtype: Any) -> np.ndarray:
    columns = [rng.choice(states, n_samples) for states in values_of_sites(sites)]
    return np.stack(columns, axis=-1).astype(dtype)


def random_terms(
    rng: np.random.Generator,
    hilbert: Any,
    n_terms: int,
    n_groups: int,
    dtype: Any = float,
    *,
    diagonal: bool = True,
    unconditional: bool = False,
) -> Terms:
    """Terms that look at few sites, in groups of which some have no terms; shapes don't depend on the numbers."""
    n_sites = hilbert.size
    width = -(-n_sites // 32)

    def masks(n: int, n_bits: int) -> np.ndarray:
        words = np.zeros((n, width), np.uint32)
        for _ in range(n_bits):
            site = rng.integers(0, n_sites, n)
            words[np.arange(n), site // 32] |= np.uint32(1) << (site % 32).astype(np.uint32)
        return words

    flip = masks(n_groups, 3)
    flip[0] *= not diagonal
    mask = masks(n_terms, 2) * np.uint32(not unconditional)
    pattern = mask & masks(n_terms, n_sites)
    first = np.array([0, *np.sort(rng.integers(0, n_terms + 1, n_groups - 1)), n_terms])
    if unconditional:
        first = np.linspace(0, n_terms, n_groups + 1).astype(int)
    values = random_values(rng, n_terms, dtype)
    return Terms.from_arrays(
        local_states(hilbert), flip, first, mask, pattern, masks(n_terms, 5), values, diagonal=diagonal
    )


def from_matrices(
    sites: LocalStates,
    terms: list[Any],
    *,
    cutoff: float = 0.0,
    dtype: Any = None,
    diagonal: bool | None = None,
    most: int | None = None,
) -> Matrices:
    """From terms, each the sites it acts on, most significant first, and its dense matrix ⟨row|O|column⟩."""
    local = [(tuple(where), Entries.of(np.asarray(matrix), cutoff)) for where, matrix in terms]
    if dtype is None:
        dtype = np.result_type(float, *(matrix for _, matrix in terms)) if terms else float
    return form_of_matrices(sites, local, dtype=dtype, diagonal=diagonal, most=most)


def random_matrices(
    rng: np.random.Generator, hilbert: Any, acting_on: list[list[int]], dtype: Any = float, *, diagonal: bool = True
) -> Matrices:
    """Sparse matrices on these sites, equal ones among them."""
    sites = local_states(hilbert)
    terms: list[tuple[list[int], np.ndarray]] = []
    for where in acting_on:
        rows = int(np.prod(sites.sizes_of_sites[where]))
        matrix = random_values(rng, rows**2, dtype, zeros=0.6).reshape(rows, rows)
        if not diagonal:
            np.fill_diagonal(matrix, 0)
        same = [other for _, other in terms if len(other) == rows]
        terms.append((where, same[0] if same and rng.random() < 0.5 else matrix))
    return from_matrices(sites, terms, diagonal=diagonal or None, dtype=dtype)


def basis(sites: LocalStates) -> np.ndarray:
    """All configurations, in the order of a Kronecker product."""
    return np.array(list(itertools.product(*values_of_sites(sites))))


def matrix(form: Form) -> np.ndarray:
    """The matrix of a form, from its connected elements, in the order of :func:`basis`."""
    x = basis(form.sites)
    number = {tuple(configuration): i for i, configuration in enumerate(x.tolist())}
    result = np.zeros((len(x), len(x)), form.dtype)
    xp, mels = form.padded(x)
    for row, configurations, elements in zip(result, np.asarray(xp).tolist(), np.asarray(mels), strict=True):
        for configuration, mel in zip(configurations, elements, strict=True):
            row[number[tuple(configuration)]] += mel
    return result


MIXED = nk.hilbert.Spin(1, 2) * nk.hilbert.Qubit(2) * nk.hilbert.Fock(3, 1)


def some_forms(seed: int = 0, dtype: Any = float) -> dict[str, Form]:
    """One form of each sort, on few sites."""
    rng = np.random.default_rng(seed)
    return {
        "terms": random_terms(rng, nk.hilbert.Spin(0.5, 6), 30, 12, dtype),
        "kinds": random_terms(rng, nk.hilbert.Spin(0.5, 3) * nk.hilbert.Qubit(3), 20, 8, dtype, diagonal=False),
        "matrices": random_matrices(rng, MIXED, [[0], [1, 0], [3, 4], [2, 1, 4], []], dtype),
    }


def states_of(form: Form, n_samples: int, seed: int = 1, dtype: Any = np.int8) -> np.ndarray:
    return random_samples(np.random.default_rng(seed), form.sites, n_samples, dtype)


reference = jax.jit(
    lambda form, x, states=True: form.family.reference(
        x, *form.tables, n_conn=form.max_conn_size, states=states, **form.attributes
    ),
    static_argnames="states",
)
"""The connected elements in pure JAX."""
