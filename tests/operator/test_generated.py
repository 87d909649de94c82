"""Thousands of random operators: Ferroket's on CPUs and as on GPUs, NetKet's in JAX and in numba, and the reference.

What is compared are sets: for each sample the configurations and their elements, whatever the order.
"""

import functools

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ferroket._compat import netket as compat
from ferroket.operator.compiled import Matrices
from support.comparisons import assert_rows, flattened_rows, on_a_gpu, rows, tolerance
from support.generated_operators import FAMILIES, OPERATORS_IN_A_GROUP, WITHOUT_NUMBA, Generated, checks, groups

GROUPS = 21
assert GROUPS * OPERATORS_IN_A_GROUP * len(FAMILIES) >= 2000

families = pytest.mark.parametrize("family", FAMILIES)


def by_reference(generated: Generated, x: np.ndarray) -> list:
    return [generated.reference.elements(sample) for sample in x]


def assert_padded(operator, generated: Generated, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What holds for all padded elements, beside the numbers."""
    xp, mels = (np.asarray(array) for array in operator.get_conn_padded(x))
    n_conn = operator.max_conn_size
    assert xp.shape == (*x.shape[:-1], n_conn, x.shape[-1])
    assert mels.shape == (*x.shape[:-1], n_conn)
    assert (xp.dtype, mels.dtype) == (x.dtype, operator.dtype)
    # Padding is a configuration of the space as well, and no element leads out of its sector.
    assert generated.space.holds(xp.astype(float))
    for sample, configurations, elements in zip(x, xp, mels, strict=True):
        active = np.flatnonzero(elements)
        different = {configuration.tobytes() for configuration in configurations[active]}
        diagonal = (configurations[active] == sample).all(axis=-1)
        assert diagonal.sum() <= 1
        assert (not diagonal.any()) or diagonal[0]
        if not isinstance(operator._form, Matrices):
            assert len(different) == active.size
        unused = configurations[len(elements) - padding(configurations, elements, sample) :]
        assert (unused == sample).all()
    return xp, mels


def padding(configurations: np.ndarray, elements: np.ndarray, sample: np.ndarray) -> int:
    """How many of the last elements are the sample itself with the matrix element 0."""
    empty = (elements == 0) & (configurations == sample).all(axis=-1)
    return int(np.argmin(empty[::-1])) if not empty.all() else empty.size


@pytest.mark.quick(
    "LocalOperator",
    "PauliStrings",
    "BoseHubbard",
    "FermionOperator2nd",
    "ParticleNumberAndSpinConservingFermioperator2nd",
)
@families
def test_on_cpus(family):
    seen = []

    settings = checks(GROUPS)

    @settings
    @given(data=st.data())
    def check(data):
        group = data.draw(groups(family))
        x = group.x
        for generated in group.operators:
            operator = generated.build("ferroket")
            expected = by_reference(generated, x)
            xp, mels = assert_padded(operator, generated, x)
            tol = tolerance(operator.dtype)
            assert_rows(rows(xp, mels), expected, tol)
            n_conn = np.asarray(operator.n_conn(x))
            np.testing.assert_array_equal(n_conn, (mels != 0).sum(axis=-1))
            if family not in WITHOUT_NUMBA and not (family == "Ising" and "Spin" not in repr(generated.space.hilbert)):
                # Numba compiles for each dtype anew: samples and coefficients have one here.
                theirs = generated.build("numba", dtype=None)
                assert_rows(rows(*theirs.get_conn_padded(x.astype(np.int8))), expected, tol, "NetKet's numba operator")
            seen.append(generated)
        # Compiled once for the group.
        sections = np.empty(len(x), int)
        flat = operator.get_conn_flattened(x, sections)
        np.testing.assert_array_equal(sections, np.cumsum(n_conn))
        for mine, padded in zip(flat, (xp, mels), strict=True):
            np.testing.assert_array_equal(mine, padded[mels != 0])
        assert_rows(flattened_rows(*flat, sections), expected, tol)

    check()
    assert len(seen) >= 0.9 * settings.max_examples * OPERATORS_IN_A_GROUP


@pytest.mark.thorough
@families
def test_compact(family):
    """Piece by piece, with a capacity that no sample's elements fit in, or all at once."""

    @checks(10)
    @given(data=st.data(), capacity=st.sampled_from([1, 7, 64]), off_diagonal_only=st.booleans())
    def check(data, capacity, off_diagonal_only):
        group = data.draw(groups(family))
        x = group.x
        for generated in group.operators[:2]:
            operator = generated.build("ferroket")
            pieces, cursor = [], jnp.zeros(2, jnp.int32)
            for _ in range(x.shape[0] * max(operator.max_conn_size, 1) + 1):
                *piece, cursor = operator._form.compact(x, cursor, capacity, off_diagonal_only)
                xp, mels, sample = (np.asarray(array) for array in piece)
                used = sample < len(x)
                assert (xp.shape, mels.shape, sample.shape) == ((capacity, x.shape[-1]), (capacity,), (capacity,))
                assert (mels[used] != 0).all()
                assert (mels[~used] == 0).all()
                assert (sample[~used] == len(x)).all()
                local = [np.isin(xp[:, site], states) for site, states in enumerate(generated.space.sites)]
                assert np.all(local)
                pieces.append((xp[used], mels[used], sample[used]))
                if cursor[0] == len(x):
                    break
                assert used.all()
            assert cursor[0] == len(x)
            xp, mels, sample = (np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
            padded_xp, padded_mels = (np.asarray(array) for array in operator.get_conn_padded(x))
            wanted = padded_mels != 0
            if off_diagonal_only:
                wanted &= (padded_xp != x[:, None]).any(axis=-1)
            np.testing.assert_array_equal(xp, padded_xp[wanted])
            np.testing.assert_array_equal(mels, padded_mels[wanted])
            np.testing.assert_array_equal(sample, np.nonzero(wanted)[0])
            counts = operator._form.count(x, off_diagonal_only)
            np.testing.assert_array_equal(counts, wanted.sum(axis=-1))

    check()


@pytest.mark.quick("LocalOperator", "FermionOperator2nd")
@families
def test_as_on_gpus(family):
    """Order and padding included: the same arrays as on CPUs."""

    @checks(4)
    @given(data=st.data())
    def check(data):
        group = data.draw(groups(family))
        x = group.x
        operators = [generated.build("ferroket") for generated in group.operators]
        shapes = [(jax.tree.structure(op), [jnp.shape(leaf) for leaf in jax.tree.leaves(op)]) for op in operators]
        compiled = on_a_gpu(lambda op, x: (op.get_conn_padded(x), op.n_conn(x)), operators[0], x)
        # Where terms have cancelled, the shapes are others, and would take another compilation.
        for operator in (op for op, of_op in zip(operators, shapes, strict=True) if of_op == shapes[0]):
            (xp, mels), n_conn = compiled(operator, x)
            expected_xp, expected_mels = operator.get_conn_padded(x)
            assert (xp.dtype, mels.dtype, n_conn.dtype) == (expected_xp.dtype, expected_mels.dtype, jnp.int32)
            np.testing.assert_array_equal(xp, expected_xp)
            np.testing.assert_allclose(mels, expected_mels, rtol=0, atol=tolerance(operator.dtype))
            np.testing.assert_array_equal(n_conn, operator.n_conn(x))

    check()


@pytest.mark.thorough
@families
def test_netkets_in_jax(family):
    @checks(2)
    @given(data=st.data())
    def check(data):
        group = data.draw(groups(family))
        generated, x = group.operators[0], group.x
        operator = generated.build("ferroket")
        assert_rows(rows(*operator.get_conn_padded(x)), by_reference(generated, x), tolerance(operator.dtype))
        if family.startswith("Particle"):
            assume(netket_can_write(generated))
        if family.startswith("ParticleNumberAndSpin") and netket_mixes_up_spins():
            return
        if family == "PauliStrings":
            assume(generated.arguments[0])  # NetKet 3.20 can't be without a string
        theirs = generated.build("jax")
        assert operator.dtype == theirs.dtype
        assert operator.max_conn_size <= max(theirs.max_conn_size, 1)
        found = rows(*theirs.get_conn_padded(x.astype(np.int8)))
        assert_rows(found, by_reference(generated, x), tolerance(operator.dtype), "NetKet's JAX operator")

    check()


def netket_can_write(generated: Generated) -> bool:
    """Whether there are terms, none of which vanishes, and reordering them gives no further constants.

    NetKet's conserving operators are assertions or IndexErrors otherwise.
    """
    terms = [term for term, weight in generated.reference.terms.items() if weight]
    ordered = all(
        len(set(term)) == len(term) and sorted(term, key=lambda factor: -factor[1]) == list(term) for term in terms
    )
    return ordered and any(terms) and len(set(map(frozenset, terms))) == len(terms)


@functools.cache
def netket_mixes_up_spins() -> bool:
    """Whether NetKet's operators that conserve both spins are wrong for terms with both, as those of 3.20 are."""
    hilbert = nk.hilbert.SpinOrbitalFermions(2, s=1 / 2, n_fermions_per_spin=(1, 1))
    exchange = nk.operator.FermionOperator2ndJax(hilbert, [((2, 1), (1, 1), (0, 0), (3, 0))])
    conserving = compat.ParticleNumberAndSpinConserving.from_fermionoperator2nd(exchange)
    return not np.array_equal(conserving.to_dense(), exchange.to_dense())


@pytest.mark.thorough
@families
def test_shapes_of_batches(family):
    @checks(2)
    @given(data=st.data(), batch=st.lists(st.integers(0, 3), max_size=3))
    def check(data, batch):
        group = data.draw(groups(family))
        generated = group.operators[0]
        operator = generated.build("ferroket")
        x = generated.space.samples(np.random.default_rng(0), tuple(batch)).astype(group.x.dtype)
        xp, mels = operator.get_conn_padded(x)
        assert xp.shape == (*batch, operator.max_conn_size, x.shape[-1])
        assert mels.shape == (*batch, operator.max_conn_size)
        assert operator.n_conn(x).shape == tuple(batch)
        flat = x.reshape(-1, x.shape[-1]) if x.size else np.empty((int(np.prod(batch)), x.shape[-1]), x.dtype)
        assert_rows(rows(xp, mels), by_reference(generated, flat), tolerance(operator.dtype))

    check()
