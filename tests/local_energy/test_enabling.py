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
from ferroket.operator import cache
from ferroket.operator.algebra.accelerated import Accelerated
from support.mpi import FULL
from support.variational_states import CHAIN, MODELS, SPINS, make_state

RBM, MLP = MODELS["RBM"], nk.models.MLP(param_dtype=complex)
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


@pytest.fixture
def experimental() -> Iterator[None]:
    """NetKet computes the gradients of operators that aren't Hermitian only then."""
    nk.config.update("netket_experimental", True)
    yield
    nk.config.update("netket_experimental", False)


IN_CHUNKS = list(HAMILTONIANS) if FULL else ["Ising", "squared"]


@pytest.mark.quick("numba-None", "a product-None", "ours squared-None", "squared-4")
@pytest.mark.parametrize(
    ("name", "chunk_size"), [*((name, None) for name in HAMILTONIANS), *((name, 4) for name in IN_CHUNKS)]
)
def test_the_same_expectations(name: str, chunk_size: int | None) -> None:
    state, operator = make_state(RBM, SPINS, chunk_size=chunk_size), HAMILTONIANS[name]
    expected = state.expect(operator)
    fk.enable()
    _, arguments = get_local_kernel_arguments(state, operator)
    assert isinstance(arguments, Accelerated)
    found = state.expect(operator)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12)
    np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-10)


NAMES = ["numba", "a sum", "a product", "squared"]
OF_MODELS = {"RBM": NAMES if FULL else NAMES[2:], "any network": NAMES if FULL else ["numba", "squared"]}


@pytest.mark.quick("RBM-a product", "any network-squared")
@pytest.mark.parametrize(("model", "name"), [(model, name) for model, names in OF_MODELS.items() for name in names])
@pytest.mark.usefixtures("experimental")
def test_the_same_gradients(model: str, name: str) -> None:
    state, operator = make_state(RBM if model == "RBM" else MLP, SPINS), HAMILTONIANS[name]
    _, expected = state.expect_and_grad(operator)
    fk.enable()
    _, found = state.expect_and_grad(operator)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11), found, expected)
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(found)) > 1e-3


def test_disabled_all_is_as_before() -> None:
    state, operators = make_state(RBM, SPINS), [HAMILTONIANS["Ising"], HAMILTONIANS["numba"], HAMILTONIANS["squared"]]

    def rules() -> list[Any]:
        methods = [*get_local_kernel.methods, *get_local_kernel_arguments.methods]
        found = [get_local_kernel(state, operator, *size) for operator in operators for size in ((), (8,))]
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


def test_enabled_for_a_block() -> None:
    """Our kernels inside, NetKet's outside, with the same numbers; also nested, and after an error."""
    state, operator = make_state(RBM, SPINS), HAMILTONIANS["Ising"]

    def is_netkets() -> bool:
        return get_local_kernel(state, operator) is kernels.local_value_kernel_jax

    expected = state.expect(operator)
    assert is_netkets()
    with fk.enable():
        assert fk.explain(state, operator).path == "known ratios"
        assert not is_netkets()
        found = state.expect(operator)
        with fk.enable():
            assert not is_netkets()
        assert not is_netkets()
    assert is_netkets()
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12)
    assert state.expect(operator).mean == expected.mean
    with pytest.raises(ArithmeticError), fk.enable():
        raise ArithmeticError
    assert is_netkets()


def test_a_block_ends_as_it_began() -> None:
    parts = fk.local_energy, fk.sampler, fk.natural_gradient

    def enabled() -> list[bool]:
        return [part.is_enabled() for part in parts]

    block = fk.enable()
    assert enabled() == [True] * 3
    with fk.enable():
        fk.disable()
    assert enabled() == [True] * 3  # as before without a block
    fk.disable()
    fk.sampler.enable()
    with fk.enable():
        assert enabled() == [True] * 3
    assert enabled() == [False, True, False]
    with block:  # of a call when nothing was enabled
        assert enabled() == [True] * 3
    assert enabled() == [False] * 3


def test_nothing_is_enabled_if_a_part_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise RuntimeError("this NetKet lacks a function")

    fk.sampler.enable()
    monkeypatch.setattr(fk.natural_gradient, "enable", fails)
    with pytest.raises(RuntimeError, match="lacks a function"):
        fk.enable()
    assert [part.is_enabled() for part in (fk.local_energy, fk.sampler, fk.natural_gradient)] == [False, True, False]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The operators that are accelerated, one after another."""
    made: list[Any] = []
    monkeypatch.setattr(cache, "accelerate", lambda operator: made.append(operator) or fk.accelerate(operator))
    return made


@pytest.mark.parametrize("cls", [nk.operator.LocalOperatorJax, nk.operator.LocalOperatorNumba])
def test_each_operator_is_accelerated_once(made: list[Any], cls: Any) -> None:
    state, operator = make_state(RBM, SPINS), nk.operator.Heisenberg(SPINS, CHAIN, cls=cls)
    fk.enable()
    state.expect(operator)
    for _ in range(3):
        state.expect_and_grad(operator)
    assert len(made) == 1
    # What NetKet computes of an operator, and keeps.
    assert operator.is_hermitian
    assert operator.max_conn_size > 1
    operator.to_sparse()
    state.expect(operator)
    assert len(made) == 1


def test_nothing_is_kept_of_an_operator_that_is_gone() -> None:
    state, operator = make_state(RBM, SPINS), nk.operator.Heisenberg(SPINS, CHAIN, cls=nk.operator.LocalOperatorNumba)
    fk.enable()
    state.expect(operator)
    size = len(cache._CACHE)
    del operator
    assert len(cache._CACHE) == size - 1


@pytest.mark.parametrize(
    ("local", "strings"),
    [
        (nk.operator.LocalOperatorJax, nk.operator.PauliStringsJax),
        (nk.operator.LocalOperatorNumba, nk.operator.PauliStringsNumba),
    ],
    ids=["jax", "numba"],
)
def test_operators_that_are_changed_in_place(local: Any, strings: Any) -> None:
    operator = local(SPINS, [np.diag([1.0, 0.0])], [[1]])
    more = local(SPINS, [np.array([[0.0, 1.0], [1.0, 0.0]])], [[1]])
    state = make_state(RBM, SPINS)
    for _ in range(3):
        expected = state.expect(operator).mean
        fk.enable()
        np.testing.assert_allclose(state.expect(operator).mean, expected, rtol=1e-12)
        fk.disable()
        operator += more
    sums = strings(SPINS, ["XXIIII"], [0.7]) + operator
    assert any(part is operator for part in sums.operators)
    fk.enable()
    first = state.expect(sums).mean
    operator += more
    second = state.expect(sums).mean
    np.testing.assert_allclose(second - first, state.expect(more).mean, rtol=1e-10)
    assert abs(second - first) > 0.1


@pytest.mark.parametrize("jax_or_numba", ["Jax", "Numba"])
def test_numbers_that_are_changed_in_place(jax_or_numba: str) -> None:
    """NetKet's numba operators keep them as arrays without dimensions, which stay the same objects."""
    ising = getattr(nk.operator, f"Ising{jax_or_numba}")
    bosons = getattr(nk.operator, f"BoseHubbard{jax_or_numba}")
    space = nk.hilbert.Fock(2, 3)
    fk.enable()
    for operator, more in [
        (ising(SPINS, CHAIN, h=0.7), ising(SPINS, CHAIN, h=0.4)),
        (bosons(space, nk.graph.Chain(3), U=1.0, J=0.5), bosons(space, nk.graph.Chain(3), U=0.3, J=0.2)),
    ]:
        before = cache.accelerated(operator)
        assert cache.accelerated(operator) is before
        operator.__iadd__(more)
        after = cache.accelerated(operator)
        assert after is not before
        np.testing.assert_array_equal(after.to_dense(), fk.accelerate(operator).to_dense())
        assert np.abs(after.to_dense() - before.to_dense()).max() > 0.1


@pytest.mark.parametrize("given", [3, object(), None, RBM], ids=lambda given: type(given).__name__)
def test_what_is_no_operator(given: Any) -> None:
    state, cls = make_state(RBM, SPINS), type(given).__name__
    message = f"^the operator is an instance of {cls}: give an operator of netket.operator or of fk.operator$"
    with pytest.raises(TypeError, match=message):
        fk.local_energy.explain(state, given)
    with fk.enable(), pytest.raises(TypeError, match=message):
        fk.local_energy.explain(state, given)


def test_what_cannot_be_accelerated_is_netkets() -> None:
    @jax.tree_util.register_pytree_node_class
    class Mine(nk.operator.IsingJax):
        """A user's own."""

    state, operator = make_state(RBM, SPINS), Mine(SPINS, CHAIN, h=1.0)
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
    state, operator = make_state(RBM, SPINS), HAMILTONIANS["Ising"]
    assert "call fk.enable()" in str(fk.explain(state, operator))
    ours = fk.explain(state, fk.accelerate(operator))
    assert (ours.path, ours.ansatz, ours.reasons) == ("known ratios", "RBM", [])
    fk.enable()
    assert fk.explain(state, operator) == ours == fk.explain(state, Squared(operator))
    network = fk.explain(make_state(MLP, SPINS), operator)
    assert network.path == "any network"
    assert network.chunk_size == 256
    assert "MLP is none of the models whose amplitude ratios are known (DensityJastrow, DoublonHolon, " in str(network)
    # What Rust evaluates needs no chunks of the user's.
    assert fk.explain(make_state(MLP, SPINS, chunk_size=32), operator).chunk_size == 256
    evaluated_by_xla = nk.models.MLP(hidden_dims=(4,), hidden_activations=jax.lax.erf, param_dtype=float)
    assert fk.explain(make_state(evaluated_by_xla, SPINS, chunk_size=32), operator).chunk_size == 32
    exact = nk.vqs.FullSumState(SPINS, nk.models.RBM())
    assert "FullSumState is no MCState" in str(fk.explain(exact, operator))


def test_a_rule_of_a_users_own_comes_first() -> None:
    class MyState(nk.vqs.MCState):
        """A user's own."""

    @get_local_kernel.dispatch
    def _(vstate: MyState, operator: nk.operator.DiscreteJaxOperator) -> Any:
        return "mine"

    state = make_state(RBM, SPINS)
    state.__class__ = MyState
    assert get_local_kernel(state, fk.accelerate(HAMILTONIANS["Ising"])) == "mine"
    fk.enable()
    assert get_local_kernel(state, HAMILTONIANS["Ising"]) == "mine"
