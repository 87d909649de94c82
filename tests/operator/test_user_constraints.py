"""Operators on spaces with constraints of a user's own are projected on them: P O P, against dense matrices."""

import pickle
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest

import ferroket as fk
from ferroket.operator.compiled import Terms
from support.comparisons import COLLECTIVES, elements, on_a_gpu
from support.constrained_spaces import CASES, RING, RYDBERG, SPINS, Blockade, Case, Untraceable, X
from support.mpi import run_on_devices

cases = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def matrix_of(case: Case, xp: Any, mels: Any, of_sample: Any) -> np.ndarray:
    """The matrix of connected elements, given the sample of each; an error if one is outside of the space."""
    number = {tuple(row): i for i, row in enumerate(case.states.tolist())}
    result = np.zeros((len(case.states),) * 2, complex)
    for row, configuration, mel in zip(of_sample, np.asarray(xp).tolist(), np.asarray(mels), strict=True):
        result[row, number[tuple(configuration)]] += mel
    return result


def assert_matrix(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-12, atol=1e-12)


# Connected elements


@pytest.mark.quick("Rydberg atoms", "matrices")
@cases
def test_connected_elements(case: Case) -> None:
    operator, x = case.make(fk.operator, case.hilbert), case.states
    assert abs(case.free_matrix).sum() > abs(case.matrix).sum()
    n_samples, n_conn = len(x), operator.max_conn_size

    def check_padded(xp: Any, mels: Any) -> None:
        assert (xp.dtype, mels.dtype) == (x.dtype, operator.dtype)
        assert mels.shape == (n_samples, n_conn)
        # Also what fills up is of the space.
        samples = np.repeat(np.arange(n_samples), n_conn)
        assert_matrix(matrix_of(case, xp.reshape(-1, x.shape[-1]), mels.ravel(), samples), case.matrix)

    check_padded(*operator.get_conn_padded(x))
    check_padded(*jax.jit(lambda operator, x: operator.get_conn_padded(x))(operator, x))
    xp, mels = jax.vmap(operator.get_conn_padded)(x)
    check_padded(xp, mels)
    counts = np.asarray(operator.n_conn(x))
    np.testing.assert_array_equal(counts, (np.asarray(mels) != 0).sum(axis=-1))
    sections = np.empty(n_samples, int)
    xp, mels = operator.get_conn_flattened(x, sections)
    np.testing.assert_array_equal(sections, counts.cumsum())
    assert (mels != 0).all()
    assert_matrix(matrix_of(case, xp, mels, np.repeat(np.arange(n_samples), counts)), case.matrix)
    xp, mels = operator.get_conn(x[-1])
    assert_matrix(matrix_of(case, xp, mels, [n_samples - 1] * len(mels))[-1], case.matrix[-1])


@pytest.mark.quick("True-matrices", "False-Rydberg atoms")
@cases
@pytest.mark.parametrize("off_diagonal_only", [False, True])
def test_compact_elements(case: Case, off_diagonal_only: bool) -> None:
    operator, x = case.make(fk.operator, case.hilbert), case.states
    compact = jax.jit(lambda o, x, cursor: o.get_conn_compact(x, 7, cursor, off_diagonal_only))
    total = np.zeros_like(case.matrix, complex)
    n_elements, cursor = 0, np.zeros(2, int)
    while cursor[0] < len(x):
        xp, mels, sample, cursor = compact(operator, x, cursor)
        used = np.asarray(sample) < len(x)
        assert not np.asarray(mels)[~used].any()
        assert (np.asarray(mels)[used] != 0).all()
        assert (np.diff(sample) >= 0).all()
        total += matrix_of(case, xp, mels, np.minimum(sample, len(x) - 1))
        n_elements += used.sum()
    expected = case.matrix * (1 - np.eye(len(x))) if off_diagonal_only else case.matrix
    assert_matrix(total, expected)
    assert n_elements == operator._form.count(x, off_diagonal_only).sum()


@pytest.mark.quick("Rydberg atoms")
@cases
def test_matrices(case: Case) -> None:
    operator = case.make(fk.operator, case.hilbert)
    assert_matrix(operator.to_sparse().toarray(), case.matrix)
    assert_matrix(operator.to_dense(), case.matrix)
    assert_matrix(operator.to_sparse(jax_=True).todense(), case.matrix)
    if jax.tree.leaves(operator):  # a permutation has none, of which a traced function would know it
        assert_matrix(jax.jit(lambda operator: operator.to_dense())(operator), case.matrix)
    assert_matrix(operator.trace(), case.matrix.trace())
    vector = np.arange(len(case.states)) + 1j
    assert_matrix(operator @ vector, case.matrix @ vector)


@pytest.mark.quick("matrices")
@cases
def test_on_a_gpu(case: Case) -> None:
    """By the pure JAX of GPUs."""
    operator, x = case.make(fk.operator, case.hilbert), jnp.asarray(case.states)
    if case is CASES["a permutation"]:
        pytest.skip("a constraint in NumPy is a call of the host")

    def all_forms(operator: Any, x: Any) -> Any:
        return (*operator.get_conn_padded(x), operator.n_conn(x), *operator.get_conn_compact(x, 9))

    for mine, expected in zip(on_a_gpu(all_forms, operator, x)(operator, x), all_forms(operator, x), strict=True):
        np.testing.assert_allclose(mine, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.thorough
def test_four_devices() -> None:
    """Samples sharded over four devices: no communication, and the numbers of one; likewise states and samplers."""
    job = run_on_devices(check_on_four_devices, 4, timeout=280)
    assert job.returncode == 0, job.stderr[-8000:]


def check_on_four_devices() -> None:
    assert jax.device_count() == 4
    check_connected_elements()
    check_states()


def check_connected_elements() -> None:
    for name in ("Rydberg atoms", "Ising", "matrices"):
        case = CASES[name]
        operator = case.make(fk.operator, case.hilbert)
        x = case.states[np.arange(16) % len(case.states)]
        expected = elements(operator, x)
        sharded = nk.jax.sharding.shard_along_axis(jax.numpy.asarray(x), axis=0)
        compiled = elements.lower(operator, sharded).compile()
        assert not [name for name in COLLECTIVES if name in compiled.as_text()]
        for mine, right in zip(compiled(operator, sharded), expected, strict=True):
            assert mine.sharding.is_equivalent_to(sharded.sharding, mine.ndim)
            np.testing.assert_allclose(mine, right, rtol=1e-12)


def check_states() -> None:
    case = CASES["Rydberg atoms"]
    operator = case.make(fk.operator, RYDBERG)
    model = nk.models.RBM(alpha=1, kernel_init=jax.nn.initializers.normal(0.3))
    sampler = fk.sampler.MetropolisHamiltonian(RYDBERG, operator, n_chains=64)
    state = nk.vqs.MCState(sampler, model, n_samples=8192, seed=1, sampler_seed=2)
    assert bool(Blockade()(state.samples).all())
    psi = np.asarray(state.to_array())
    energy, gradient = state.expect_and_grad(operator)
    assert abs(energy.mean - psi.conj() @ case.matrix @ psi) < 5 * energy.error_of_mean
    local = state.local_estimators(operator)
    local = np.asarray(getattr(local, "data", local)).ravel()  # an array before NetKet 3.23
    of_all = (case.matrix @ psi) / psi
    number = {tuple(row): i for i, row in enumerate(case.states.tolist())}
    samples = np.asarray(state.samples).reshape(-1, 6).tolist()
    np.testing.assert_allclose(local, of_all[[number[tuple(row)] for row in samples]], rtol=1e-10)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


# What is made of them


@pytest.mark.quick("Rydberg atoms", "a product of spaces")
@cases
def test_accelerate(case: Case) -> None:
    accelerated = fk.accelerate(case.make(nk.operator, case.hilbert))
    assert_matrix(accelerated.to_dense(), case.matrix)
    assert accelerated == case.make(fk.operator, case.hilbert)


def test_pickles() -> None:
    operator = CASES["Rydberg atoms"].make(fk.operator, RYDBERG)
    again = pickle.loads(pickle.dumps(operator))
    assert again == operator
    assert hash(again) == hash(operator)
    assert_matrix(again.to_dense(), CASES["Rydberg atoms"].matrix)


@pytest.mark.quick("fermions")
@cases
def test_sums_and_multiples(case: Case) -> None:
    operator = case.make(fk.operator, case.hilbert)
    identity = np.eye(len(case.states))
    assert_matrix((2.5 * operator).to_dense(), 2.5 * case.matrix)
    assert_matrix((-operator).to_dense(), -case.matrix)
    assert_matrix((operator + operator).to_dense(), 2 * case.matrix)
    assert_matrix(operator.H.to_dense(), case.matrix.conj().T)
    assert_matrix(operator.transpose().to_dense(), case.matrix.T)
    if not isinstance(operator, fk.operator.PermutationOperator):
        assert_matrix((operator + 0.5).to_dense(), case.matrix + 0.5 * identity)
        assert_matrix(jax.jit(lambda o: (3 * o).to_dense())(operator), 3 * case.matrix)


def test_operators_of_two_families() -> None:
    flips, strings = (CASES[name].make(fk.operator, SPINS) for name in ("Ising", "Pauli strings"))
    case = CASES["Ising"]
    of_flips, of_strings = case.free_matrix, CASES["Pauli strings"].free_matrix
    assert_matrix((flips + strings).to_dense(), case.projected(of_flips + of_strings))
    assert_matrix((flips @ strings).to_dense(), case.projected(of_flips @ of_strings))
    assert_matrix(strings.to_local_operator().to_dense(), CASES["Pauli strings"].matrix)
    assert_matrix(flips.to_pauli_strings().to_dense(), case.matrix)


@pytest.mark.parametrize("name", ["Rydberg atoms", "Pauli strings", "matrices", "fermions"])
def test_products_may_leave_the_space_in_between(name: str) -> None:
    """As NetKet's products of these, which are those of the matrices on single sites."""
    case = CASES[name]
    operator = case.make(fk.operator, case.hilbert)
    expected = case.projected(case.free_matrix @ case.free_matrix)
    assert abs(expected - case.matrix @ case.matrix).max() > 0.1
    assert_matrix((operator @ operator).to_dense(), expected)
    theirs = case.make(nk.operator, case.hilbert)
    assert_matrix(fk.accelerate(theirs @ theirs).to_dense(), expected)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["Rydberg atoms", "Pauli strings"])
def test_squares_do_not(name: str) -> None:
    """What NetKet squares is the operator on the space: |O_loc|² is its local value."""
    case = CASES[name]
    squared = fk.accelerate(nk.operator.Squared(case.make(nk.operator, case.hilbert)))
    expected = case.matrix.conj().T @ case.matrix
    assert_matrix(squared.to_dense(), expected)
    sampler = nk.sampler.ExactSampler(case.hilbert)
    state = nk.vqs.MCState(sampler, nk.models.RBM(param_dtype=complex), n_samples=20_000, seed=1, sampler_seed=1)
    psi = np.asarray(state.to_array())
    energy = state.expect(squared)
    assert abs(energy.mean - psi.conj() @ expected @ psi) < 5 * energy.error_of_mean


def test_a_product_too_large_for_one_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Factor by factor it would be another one."""
    monkeypatch.setattr("ferroket.operator.sums.term_list._MAX_PRODUCT", 3)
    with pytest.raises(TypeError, match=r"too many terms for one operator on .* if each factor keeps to the const"):
        CASES["Ising"].make(fk.operator, SPINS) @ CASES["Pauli strings"].make(fk.operator, SPINS)


def test_derivatives_by_the_coefficients() -> None:
    case = CASES["Ising"]
    x = case.states
    weights = jnp.asarray(np.random.default_rng(0).normal(size=(len(x), 7)))

    def function(h: Any, J: Any) -> Any:
        _, mels = fk.operator.Ising(SPINS, RING, h=h, J=J).get_conn_padded(x)
        return (weights * mels).sum()

    found = jax.grad(function, argnums=(0, 1))(1.3, 0.7)
    for i, one in enumerate(jnp.eye(2)):
        np.testing.assert_allclose(found[i], function(*one), rtol=1e-12)

    def of_compact(h: Any) -> Any:
        return fk.operator.Ising(SPINS, RING, h=h, J=0.7).get_conn_compact(x, 500)[1].sum()

    n_flips = (case.matrix * (1 - np.eye(len(x))) != 0).sum()
    np.testing.assert_allclose(jax.grad(of_compact)(1.3), -n_flips, rtol=1e-12)


def test_the_spectrum_of_the_pxp_model() -> None:
    """Turner, Michailidis, Abanin, Serbyn, Papić (2018): symmetric about zero, and as many states as Lucas numbers."""
    hilbert = nk.hilbert.Fock(1, 8, constraint=Blockade())
    operator = fk.operator.LocalOperator(hilbert, [X] * 8, [[i] for i in range(8)])
    energies = np.linalg.eigvalsh(operator.to_sparse().toarray())
    assert len(energies) == 47
    np.testing.assert_allclose(energies, -energies[::-1], atol=1e-12)
    # As a product of projectors and flips in the space of all configurations.
    full = nk.hilbert.Fock(1, 8)
    empty = np.diag([1.0, 0.0])
    pxp = np.kron(np.kron(empty, X), empty)
    terms = fk.operator.LocalOperator(full, [pxp] * 8, [[(i - 1) % 8, i, (i + 1) % 8] for i in range(8)])
    lowest = np.linalg.eigvalsh(terms.to_sparse().toarray())[0]
    np.testing.assert_allclose(energies[0], lowest, rtol=1e-12)


# What has no such constraint


def test_other_spaces_have_other_forms() -> None:
    """The constraints of NetKet's own are known to the kernels."""
    electrons = nk.hilbert.SpinOrbitalFermions(3, s=0.5, n_fermions_per_spin=(1, 1))
    for operator in (
        fk.operator.Ising(nk.hilbert.Spin(0.5, 6), RING, h=1.0),
        fk.operator.Heisenberg(nk.hilbert.Spin(0.5, 6, total_sz=0), RING),
        fk.operator.FermionOperator2nd(electrons, ["0^ 1"]),
        fk.operator.LocalOperator(nk.hilbert.Spin(0.5, 2, total_sz=0) * nk.hilbert.Fock(1, 2), [X], [[3]]),
    ):
        assert isinstance(operator._form, Terms)


# Constraints that can't be kept


class Scalar(Untraceable):
    """One answer for all configurations."""

    def __call__(self, x: Any) -> Any:
        return (x > 0).all()


class Secretive(nk.hilbert.Fock):
    """A space that says that it has a constraint, and not which."""

    @property
    def constrained(self) -> bool:
        return True


MAKERS = {
    "Ising": lambda hilbert: fk.operator.Ising(hilbert, RING, h=1.0),
    "LocalOperator": lambda hilbert: fk.operator.LocalOperator(hilbert, X, [0]),
    "PauliStrings": lambda hilbert: fk.operator.PauliStrings(hilbert, ["XXIIII"]),
    "BoseHubbard": lambda hilbert: fk.operator.BoseHubbard(hilbert, RING, U=1.0),
    "FermionOperator2nd": lambda hilbert: fk.operator.FermionOperator2nd(hilbert, ["0^ 1"]),
    "accelerate": lambda hilbert: fk.accelerate(nk.operator.LocalOperator(hilbert, X, [0])),
    "MetropolisLocal": fk.sampler.MetropolisLocal,
    "a product of spaces": lambda hilbert: fk.operator.LocalOperator(nk.hilbert.Spin(0.5, 1) * hilbert, X, [0]),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_constraints_that_can_not_be_traced(make: Any) -> None:
    hilbert = nk.hilbert.Fock(1, 6, constraint=Untraceable())
    message = r"the constraint Untraceable of .*Fock.* can't be traced by JAX.*: give the space a subclass of"
    with pytest.raises(TypeError, match=message):
        make(hilbert)


def test_other_constraints_that_can_not_be_kept() -> None:
    with pytest.raises(TypeError, match=r"the constraint Scalar.* gives ShapeDtypeStruct.* for 2 configurations of 6"):
        MAKERS["LocalOperator"](nk.hilbert.Fock(1, 6, constraint=Scalar()))
    with pytest.raises(TypeError, match=r"has a constraint, but no function that tells what it allows: give"):
        MAKERS["LocalOperator"](Secretive(1, 6))


def test_equal_constraints_are_one_program() -> None:
    class Counted(Blockade):
        def __call__(self, x: Any) -> Any:
            traced.append(1)
            return super().__call__(x)

    traced: list[int] = []
    elements = jax.jit(lambda operator, x: operator.get_conn_padded(x))
    for _ in range(2):
        hilbert = nk.hilbert.Fock(1, 6, constraint=Counted())
        operator = fk.operator.LocalOperator(hilbert, [X] * 6, [[i] for i in range(6)])
        elements(operator, CASES["Rydberg atoms"].states)
        calls = len(traced)
    assert calls <= 3


def test_no_samples() -> None:
    operator = CASES["Rydberg atoms"].make(fk.operator, RYDBERG)
    none = np.zeros((0, 6), np.int8)
    assert operator.get_conn_padded(none)[1].shape == (0, 7)
    assert operator.n_conn(none).shape == (0,)
    assert operator.get_conn_flattened(none, np.empty(0, int))[1].shape == (0,)
    assert operator.get_conn_compact(none, 4)[0].shape == (4, 6)


def test_a_single_sample() -> None:
    operator = CASES["Rydberg atoms"].make(fk.operator, RYDBERG)
    x = np.array([0, 1, 0, 0, 0, 0], np.int8)
    xp, mels = operator.get_conn_padded(x)
    assert xp.shape == (7, 6)
    assert int(operator.n_conn(x)) == (np.asarray(mels) != 0).sum() == 5
