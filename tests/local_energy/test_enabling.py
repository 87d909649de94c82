"""``fk.enable()``: NetKet's own operators through our kernels, and ``fk.explain``."""

from collections.abc import Iterator
from typing import Any

import jax
import netket as nk
import numpy as np
import pytest
from netket.operator import Squared
from netket.vqs import get_local_kernel, get_local_kernel_arguments
from netket.vqs.mc import kernels

import ferroket as fk
from ferroket.local_energy import enabling
from ferroket.operator.accelerated import Accelerated

CHAIN = nk.graph.Chain(6)
SPINS = nk.hilbert.Spin(0.5, 6)
HAMILTONIANS = {
    "Ising": nk.operator.IsingJax(SPINS, CHAIN, h=0.7),
    "numba": nk.operator.IsingNumba(SPINS, CHAIN, h=0.7),
    "local": nk.operator.Heisenberg(SPINS, CHAIN, cls=nk.operator.LocalOperatorJax),
    "Pauli strings": nk.operator.PauliStringsJax(SPINS, ["XXIIII", "IYYIII"], [0.3, 1.2]),
    "a sum": nk.operator.IsingJax(SPINS, CHAIN, h=0.7) + nk.operator.PauliStringsJax(SPINS, ["XYIIII"], [0.3]),
    "a product": nk.operator.IsingJax(SPINS, CHAIN, h=0.7) @ nk.operator.PauliStringsJax(SPINS, ["XYIIII"], [0.3]),
    "squared": Squared(nk.operator.IsingJax(SPINS, CHAIN, h=0.7)),
    "ours squared": Squared(fk.operator.Ising(SPINS, CHAIN, h=0.7)),
}


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    fk.disable()


def make_state(model: Any = None, **options: Any) -> Any:
    model = nk.models.RBM(alpha=1, kernel_init=jax.nn.initializers.normal(0.3)) if model is None else model
    sampler = nk.sampler.MetropolisLocal(SPINS, n_chains=16)
    return nk.vqs.MCState(sampler, model, n_samples=64, seed=0, sampler_seed=1, **options)


@pytest.mark.parametrize("chunk_size", [None, 4])
@pytest.mark.parametrize("operator", HAMILTONIANS.values(), ids=HAMILTONIANS)
def test_the_same_expectations(operator: Any, chunk_size: int | None) -> None:
    state = make_state(chunk_size=chunk_size)
    expected = state.expect(operator)
    fk.enable()
    _, arguments = get_local_kernel_arguments(state, operator)
    assert isinstance(arguments, Accelerated)
    found = state.expect(operator)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12)
    np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-10)
    local = np.asarray(state.local_estimators(operator))
    np.testing.assert_allclose(local.mean(), expected.mean, rtol=1e-12)


@pytest.mark.parametrize("name", ["numba", "a sum", "a product", "squared"])
@pytest.mark.parametrize("model", [None, nk.models.MLP(param_dtype=complex)], ids=["RBM", "any network"])
def test_the_same_gradients(name: str, model: Any) -> None:
    state, operator = make_state(model), HAMILTONIANS[name]
    _, expected = state.expect_and_grad(operator)
    fk.enable()
    _, found = state.expect_and_grad(operator)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11), found, expected)
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(found)) > 1e-3


def test_disabled_all_is_as_before() -> None:
    state, operators = make_state(), [HAMILTONIANS["Ising"], HAMILTONIANS["numba"], HAMILTONIANS["squared"]]

    def rules() -> list[Any]:
        methods = [*get_local_kernel.methods, *get_local_kernel_arguments.methods]
        found = [get_local_kernel(state, operator, size) for operator in operators for size in (None, 8)]
        return [*found, {(str(method.signature.types), method.implementation) for method in methods}]

    before = rules()
    fk.enable()
    fk.enable()
    assert rules() != before
    fk.disable()
    assert rules() == before
    assert before[0] is kernels.local_value_kernel_jax
    fk.disable()
    assert rules() == before


def test_each_operator_is_accelerated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    monkeypatch.setattr(enabling, "accelerate", lambda operator: made.append(1) or fk.accelerate(operator))
    state, operator = make_state(), nk.operator.Heisenberg(SPINS, CHAIN, cls=nk.operator.LocalOperatorNumba)
    fk.enable()
    for _ in range(3):
        state.expect_and_grad(operator)
    assert len(made) == 1
    size = len(enabling._CACHE)
    del operator
    assert len(enabling._CACHE) == size - 1


@pytest.mark.parametrize("cls", [nk.operator.LocalOperatorJax, nk.operator.LocalOperatorNumba])
def test_operators_that_are_changed_in_place(cls: Any) -> None:
    operator = cls(SPINS, [np.diag([1.0, 0.0])], [[1]])
    more = cls(SPINS, [np.array([[0.0, 1.0], [1.0, 0.0]])], [[1]])
    state = make_state()
    fk.enable()
    for _ in range(3):
        found = state.expect(operator).mean
        fk.disable()
        np.testing.assert_allclose(found, state.expect(operator).mean, rtol=1e-12)
        fk.enable()
        operator += more
    sums = nk.operator.IsingJax(SPINS, CHAIN, h=1.0) + operator
    first = state.expect(sums).mean
    operator += more
    second = state.expect(sums).mean
    np.testing.assert_allclose(second - first, state.expect(more).mean, rtol=1e-10)


def test_what_cannot_be_accelerated_is_netkets() -> None:
    class Mine(nk.operator.IsingJax):
        """A user's own."""

    state, operator = make_state(), Mine(SPINS, CHAIN, h=1.0)
    expected = state.expect(operator).mean
    fk.enable()
    assert get_local_kernel(state, operator) is kernels.local_value_kernel_jax
    assert state.expect(operator).mean == expected
    assert fk.explain(state, operator).path == "NetKet"


def test_density_matrices_are_netkets() -> None:
    sampler = nk.sampler.MetropolisLocal(nk.hilbert.DoubledHilbert(SPINS), n_chains=16)
    state = nk.vqs.MCMixedState(sampler, nk.models.NDM(), n_samples=32, n_samples_diag=32, seed=0, sampler_seed=1)
    expected = [
        state.expect(operator).mean for operator in (HAMILTONIANS["Ising"], fk.accelerate(HAMILTONIANS["Ising"]))
    ]
    np.testing.assert_allclose(*expected, rtol=1e-12)
    fk.enable()
    assert state.expect(HAMILTONIANS["Ising"]).mean == expected[0]
    assert "density matrix" in str(fk.explain(state, HAMILTONIANS["Ising"]))


def test_explanations() -> None:
    state, operator = make_state(), HAMILTONIANS["Ising"]
    assert "call fk.enable()" in str(fk.explain(state, operator))
    ours = fk.explain(state, fk.accelerate(operator))
    assert (ours.path, ours.family, ours.reasons) == ("known ratios", "RBM", [])
    fk.enable()
    assert fk.explain(state, operator) == ours == fk.explain(state, Squared(operator))
    network = fk.explain(make_state(nk.models.MLP()), operator)
    assert network.path == "any network"
    assert network.chunk_size == 256
    assert "MLP is none of the models whose amplitude ratios are known (Jastrow, RBM" in str(network)
    assert fk.explain(make_state(nk.models.MLP(), chunk_size=32), operator).chunk_size == 32
    exact = nk.vqs.FullSumState(SPINS, nk.models.RBM())
    assert "FullSumState is no MCState" in str(fk.explain(exact, operator))


def test_a_rule_of_a_users_own_comes_first() -> None:
    class MyState(nk.vqs.MCState):
        """A user's own."""

    @get_local_kernel.dispatch
    def _(vstate: MyState, operator: nk.operator.DiscreteJaxOperator) -> Any:
        return "mine"

    state = make_state()
    state.__class__ = MyState
    assert get_local_kernel(state, fk.accelerate(HAMILTONIANS["Ising"])) == "mine"
    fk.enable()
    assert get_local_kernel(state, HAMILTONIANS["Ising"]) == "mine"
