"""Our operators inside of what NetKet makes of operators: wrappers, sums, embeddings, superoperators, observables."""

import jax
import netket as nk
import numpy as np
import pytest

import ferroket as fk
from ferroket._compat import netket as compat
from support.example_operators import EXAMPLES

op = fk.operator
EMBEDDED = pytest.mark.skipif(not compat.EMBEDDINGS, reason="this version of NetKet has no embeddings")
BESIDE = nk.hilbert.Qubit(1)
THREE = nk.hilbert.Spin(0.5, 3)
TRIANGLE = nk.graph.Chain(3)
BOSONS = nk.hilbert.Fock(2, 2)
EDGE = nk.graph.Graph(edges=[(0, 1)])
ORBITALS = nk.hilbert.SpinOrbitalFermions(3)
X, LOWER = np.array([[0.0, 1], [1, 0]]), np.array([[0.0, 0], [1, 0]])

nko = nk.operator

# One example of each class.
FAMILIES = {ex.ferroket: ex for ex in reversed(EXAMPLES) if ex.ferroket not in ("", "Heisenberg", "GraphOperator")}
# NetKet's compile for long.
CONSERVING = {name for name in FAMILIES if "Conserving" in name} | {"FermiHubbard"}
families = pytest.mark.parametrize("name", FAMILIES)

COMPOSITES = {
    "Adjoint": (lambda a, b: nko.Adjoint(a), lambda A: A.conj().T),
    "Transpose": (lambda a, b: nko.Transpose(a), lambda A: A.T),
    "Squared": (lambda a, b: nko.Squared(a), lambda A: A.conj().T @ A),
    "SumOperator": (lambda a, b: nko.SumOperator(a, b, coefficients=[2.0, -0.5j]), lambda A: (2 - 0.5j) * A),
    "ProductOperator": (lambda a, b: nko.ProductOperator(b, a, coefficient=0.5), lambda A: 0.5 * A @ A),
}


def dense(operator):
    return np.asarray(operator.to_dense())


@pytest.mark.quick("PauliStrings")
@families
def test_wrappers_sums_and_products(name):
    example = FAMILIES[name]
    other = example.ours() if name in CONSERVING else example.theirs
    for title, (compose, expected) in COMPOSITES.items():
        found = dense(compose(example.ours(), other))
        np.testing.assert_allclose(found, expected(example.matrix), rtol=1e-10, atol=1e-10, err_msg=title)


@pytest.mark.quick("FermionOperator2nd")
@EMBEDDED
@families
def test_embeddings(name):
    ours = FAMILIES[name].ours()
    embedded = nko.EmbedOperator(nk.hilbert.TensorHilbert(BESIDE, ours.hilbert), ours, 1)
    A = np.kron(np.eye(2), FAMILIES[name].matrix)
    np.testing.assert_allclose(dense(2 * embedded @ embedded), 2 * A @ A, rtol=1e-10, atol=1e-10)


# Superoperators, which NetKet makes of its operators in numba


def lowering(op):
    return [op.spin.sigmam(THREE, site) for site in range(3)]


def ising(op):
    return op.Ising(THREE, TRIANGLE, h=1.3, J=0.7)


def strings(op):
    return op.PauliStrings(THREE, ["XXI", "IZZ", "ZII"], [1.0, 0.5, -0.25])


def bosons(op):
    return op.BoseHubbard(BOSONS, EDGE, U=1.5, mu=0.3)


def losses(op):
    return [op.boson.destroy(BOSONS, site) for site in range(2)]


LINDBLADS = {
    "Ising": lambda op: (ising(op), lowering(op)),
    "Ising as local matrices": lambda op: (ising(op).to_local_operator(), lowering(op)),
    "Ising and a field": lambda op: (ising(op) + op.spin.sigmaz(THREE, 0), lowering(op)),
    "Ising squared": lambda op: (ising(op) @ ising(op), lowering(op)),
    "Heisenberg": lambda op: (op.Heisenberg(THREE, TRIANGLE), lowering(op)),
    "dense and sparse matrices": lambda op: (
        op.LocalOperator(THREE, [X], [[0]]) + op.spin.sigmaz(THREE, 0),
        [op.spin.sigmam(THREE, 0) + op.LocalOperator(THREE, [0.5 * X], [[0]]), op.spin.sigmam(THREE, 1)],
    ),
    "dense matrices": lambda op: (
        op.LocalOperator(THREE, [X, X], [[0], [1]]),
        [op.LocalOperator(THREE, [LOWER], [[0]])],
    ),
    "strings as local matrices": lambda op: (strings(op).to_local_operator(), lowering(op)),
    "strings and a field": lambda op: (strings(op) + op.spin.sigmax(THREE, 0), lowering(op)),
    "Bose-Hubbard": lambda op: (bosons(op), losses(op)),
    "Bose-Hubbard as local matrices": lambda op: (bosons(op).to_local_operator(), losses(op)),
    "Bose-Hubbard and a drive": lambda op: (
        bosons(op) + op.boson.create(BOSONS, 0) + op.boson.destroy(BOSONS, 0),
        losses(op),
    ),
    "fermions": lambda op: (
        op.FermionOperator2nd(ORBITALS, ["0^ 1", "1^ 0", "2^ 2"], [1.0, 1.0, 0.5]),
        [op.fermion.destroy(ORBITALS, 0)],
    ),
}


def lindbladian(H, jumps):
    """By its definition, on density matrices whose rows follow each other."""
    one = np.eye(len(H))
    K = H - 0.5j * sum(L.conj().T @ L for L in jumps)
    return (
        -1j * np.kron(K, one) + 1j * np.kron(one, K.conj()) + sum((np.kron(L, L.conj()) for L in jumps), np.zeros(()))
    )


@pytest.mark.quick("Ising and a field")
@pytest.mark.parametrize("title", LINDBLADS)
def test_liouvillians(title):
    H, jumps = LINDBLADS[title](op)
    liouvillian = nko.LocalLiouvillian(H, jumps)
    expected = lindbladian(dense(H), [dense(L) for L in jumps])
    np.testing.assert_allclose(dense(liouvillian), expected, atol=1e-12)
    rho = np.arange(len(expected)) + 1j
    np.testing.assert_allclose(liouvillian.to_linear_operator() @ rho, expected @ rho, atol=1e-8)


@pytest.mark.thorough
@pytest.mark.parametrize("title", ["Ising and a field", "Bose-Hubbard"])
def test_a_steady_state(title):
    values = {}
    for name, namespace in (("ours", op), ("theirs", nko)):
        H, jumps = LINDBLADS[title](namespace)
        liouvillian = nko.LocalLiouvillian(H, jumps)
        sampler = nk.sampler.ExactSampler(nk.hilbert.DoubledHilbert(H.hilbert))
        vstate = nk.vqs.MCMixedState(sampler, nk.models.NDM(), n_samples=64, seed=1, sampler_seed=2)
        cost, gradient = vstate.expect_and_grad(nko.Squared(liouvillian))
        values[name] = [
            vstate.expect(H).mean,
            cost.mean,
            *np.concatenate([g.ravel() for g in jax.tree.leaves(gradient)]),
        ]
    np.testing.assert_allclose(values["ours"], values["theirs"], rtol=1e-8, atol=1e-10)


# Observables


OBSERVABLES = {
    "V-score": lambda operator, target: nk.observable.VScore(operator, trace_diagonal=0.0),
    "variance": lambda operator, target: nk.observable.VarianceObservable(operator),
    "infidelity": lambda operator, target: nk.observable.InfidelityOperator(target, operator=operator),
}


@pytest.mark.thorough
@pytest.mark.parametrize("observable", OBSERVABLES)
def test_observables(observable):
    if not hasattr(nk, "observable"):
        pytest.skip("this version of NetKet has no observables")
    values = {}
    for of, namespace in (("ours", op), ("theirs", nko)):
        operator = ising(namespace)
        model = nk.models.RBM(alpha=1, param_dtype=complex)
        target, full = (nk.vqs.FullSumState(THREE, model, seed=seed) for seed in (5, 1))
        values[of] = [full.expect(OBSERVABLES[observable](operator, target)).mean]
        if observable != "infidelity":  # whose samples of the target differ from run to run
            mc = nk.vqs.MCState(nk.sampler.ExactSampler(THREE), model, n_samples=256, seed=1, sampler_seed=2)
            values[of].append(mc.expect(OBSERVABLES[observable](operator, target)).mean)
    np.testing.assert_allclose(values["ours"], values["theirs"], rtol=1e-8)
