"""The quantum geometric tensor from factors, and Jacobians from factors, beside NetKet's."""

import warnings
from collections.abc import Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import netket.experimental as nkx
import numpy as np
import pytest
from jacobians import close
from jax.flatten_util import ravel_pytree
from netket.optimizer.qgt import QGTJacobianDense, QGTJacobianPyTree, QGTOnTheFly, qgt_onthefly

import ferroket as fk
from ferroket.natural_gradient import dense, patching
from ferroket.optimizer.qgt import QGTFactors, quantum_geometric_tensor
from support.variational_states import CHAIN, SPINS, make_state, random_like

pytestmark = [
    # Whether a network is holomorphic isn't said, and there are few samples.
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings(r"ignore:\s*The number of samples"),
]
thorough = pytest.mark.thorough


class Conjugate(nk.models.RBM):
    """Complex parameters, of which ln ψ is no holomorphic function."""

    def __call__(self, x: jax.Array) -> jax.Array:
        y = super().__call__(x)
        return y + 0.1 * jnp.abs(y)


class Norm(nk.models.RBM):
    """Complex parameters and a real ln ψ."""

    def __call__(self, x: jax.Array) -> jax.Array:
        return super().__call__(x).real


MODELS = {
    "real": nk.models.MLP(hidden_dims=(4,), hidden_activations=jnp.tanh, param_dtype=float),
    "holomorphic": nk.models.RBM(alpha=1, param_dtype=complex),
    "two networks": nk.models.RBMModPhase(alpha=1),
    "not holomorphic": Conjugate(alpha=1, param_dtype=complex),
    "complex, real values": Norm(alpha=1, param_dtype=complex),
}
ISING = nk.operator.IsingJax(SPINS, CHAIN, h=0.7)
SHIFT = 0.03


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    fk.disable()


def state_of(name: str, kind: str = "samples", chunk_size: int | None = None) -> Any:
    model = MODELS[name]
    if kind == "samples":
        return make_state(model, SPINS, n_samples=24, scale=0.3, chunk_size=chunk_size)
    shapes = jax.eval_shape(model.init, jax.random.key(0), jax.ShapeDtypeStruct((1, SPINS.size), np.int8))
    return nk.vqs.FullSumState(SPINS, model, variables=random_like(shapes, 0.3), chunk_size=chunk_size)


def holomorphic(name: str) -> dict[str, Any]:
    """What NetKet wants to be told of complex parameters."""
    return {"holomorphic": name == "holomorphic"} if jnp.iscomplexobj(_leaf(name)) else {}


def _leaf(name: str) -> jax.Array:
    return jax.tree.leaves(state_of(name).parameters)[0]


def vector_like(parameters: Any) -> Any:
    return jax.tree.map(lambda leaf: leaf[::-1] * 0.7 + 0.2 * leaf.conj(), parameters)


def flat(tree: Any) -> jax.Array:
    found: jax.Array = ravel_pytree(tree)[0]
    return found


CASES = [
    pytest.param(name, kind, marks=() if kind == "samples" or name == "holomorphic" else thorough)
    for name in MODELS
    for kind in ("samples", "all states")
]


@pytest.mark.quick("holomorphic-samples", "not holomorphic-samples")
@pytest.mark.parametrize(("name", "kind"), CASES)
def test_the_matrix(name: str, kind: str) -> None:
    """As a matrix, and in products with pytrees and arrays."""
    state = state_of(name, kind)
    tensor = quantum_geometric_tensor(state, diag_shift=SHIFT)
    assert isinstance(tensor, QGTFactors)
    settings = {"diag_shift": SHIFT, **holomorphic(name)}
    expected = QGTJacobianDense(state, **settings)
    matrix = expected.to_dense()
    assert float(jnp.linalg.norm(matrix - SHIFT * jnp.eye(len(matrix)))) > 0.1
    close(tensor.to_dense(), matrix, 1e-12)
    close((tensor + 0.2).to_dense(), matrix + 0.2 * jnp.eye(len(matrix)), 1e-12)
    vector = vector_like(state.parameters)
    for other in (expected, QGTJacobianPyTree(state, **settings), QGTOnTheFly(state, **settings)):
        product = other @ vector
        assert jax.tree.structure(tensor @ vector) == jax.tree.structure(product)
        close(flat(tensor @ vector), flat(product), 1e-12)
    close(tensor @ flat(vector), flat(product), 1e-12)
    close(flat(tensor(vector)), flat(product), 1e-12)
    close(flat((tensor + 0.2) @ vector), flat(product) + 0.2 * flat(vector), 1e-12)


@pytest.mark.quick("holomorphic", "not holomorphic")
@pytest.mark.parametrize("name", MODELS)
def test_the_matrix_of_weighted_samples_in_parts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the rows of a few samples after those of others, the last ones fewer, beside a Jacobian."""
    state = state_of(name)
    samples = state.samples.reshape(-1, SPINS.size)
    mass = jnp.arange(1.0, 1 + len(samples))
    mass /= mass.sum()
    rows = quantum_geometric_tensor(state).rows
    layout = dense.layout_of(rows, "complex")
    jacobian = nk.jax.jacobian(
        state._apply_fun,
        state.parameters,
        samples,
        state.model_state,
        mode=layout,
        pdf=mass,
        center=True,
        dense=True,
        _sqrt_rescale=True,
    )
    jacobian = np.asarray(jacobian).reshape(-1, jacobian.shape[-1])
    monkeypatch.setattr(dense, "PART", 7 * jacobian.nbytes // len(samples))
    close(dense.dense_tensor(rows, mass, layout), jacobian.conj().T @ jacobian, 1e-12)


def test_chunks_and_settings() -> None:
    """In chunks of the state, or of the tensor; the parts of complex parameters apart, when that is asked for."""
    state = state_of("holomorphic")
    expected = quantum_geometric_tensor(state, diag_shift=SHIFT)
    for tensor in (
        quantum_geometric_tensor(state, chunk_size=7, diag_shift=SHIFT),
        quantum_geometric_tensor(state_of("holomorphic", chunk_size=5), diag_shift=SHIFT),
        quantum_geometric_tensor(diag_shift=SHIFT, chunk_size=7)(state),
        state.quantum_geometric_tensor(quantum_geometric_tensor(diag_shift=SHIFT)),
        quantum_geometric_tensor(state, holomorphic=True, diag_shift=SHIFT),
    ):
        close(tensor.to_dense(), expected.to_dense(), 1e-12)
    apart = quantum_geometric_tensor(state, holomorphic=False, diag_shift=SHIFT)
    close(apart.to_dense(), QGTJacobianDense(state, holomorphic=False, diag_shift=SHIFT).to_dense(), 1e-12)
    assert len(apart.to_dense()) == 2 * len(expected.to_dense())


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="holomorphic=True, but"):
        quantum_geometric_tensor(state_of("not holomorphic"), holomorphic=True)
    with pytest.raises(NotImplementedError, match="diag_scale needs a Jacobian"):
        quantum_geometric_tensor(state_of("real"), diag_scale=0.1)
    tensor = quantum_geometric_tensor(state_of("real"))
    with pytest.raises(ValueError, match=r"the vector has shape \(3,\), and the parameters"):
        tensor @ jnp.ones(3)


SOLVERS = {
    "cg": partial(jax.scipy.sparse.linalg.cg, tol=1e-12, maxiter=500),
    "gmres": partial(jax.scipy.sparse.linalg.gmres, tol=1e-12, maxiter=50),
    "cholesky": nk.optimizer.solver.cholesky,
    "svd": nk.optimizer.solver.svd,
    "pinv_smooth": partial(nk.optimizer.solver.pinv_smooth, rtol=1e-14, rtol_smooth=1e-14),
    "LU": nk.optimizer.solver.LU,
}


@pytest.mark.parametrize(
    ("name", "solver"),
    [
        pytest.param(name, solver, marks=() if solver in ("cg", "cholesky") else thorough)
        for name in MODELS
        for solver in SOLVERS
    ],
)
def test_solutions(name: str, solver: str) -> None:
    """Of NetKet's system, for a pytree, an array, and from another start."""
    state = state_of(name)
    tensor = quantum_geometric_tensor(state, diag_shift=SHIFT)
    expected = QGTJacobianDense(state, diag_shift=SHIFT, **holomorphic(name))
    vector = vector_like(state.parameters)
    solution, _ = expected.solve(SOLVERS["cholesky"], vector)
    found, _ = tensor.solve(SOLVERS[solver], vector)
    assert jax.tree.structure(found) == jax.tree.structure(solution)
    assert [leaf.dtype for leaf in jax.tree.leaves(found)] == [leaf.dtype for leaf in jax.tree.leaves(vector)]
    close(flat(found), flat(solution), 1e-8)
    close(flat(tensor @ found), flat(vector), 1e-8)
    if solver in ("cg", "cholesky"):
        again, _ = tensor.solve(SOLVERS[solver], flat(vector), x0=flat(solution))
        close(again, flat(solution), 1e-8)


@pytest.mark.parametrize("chunk_size", [None, 8])
@pytest.mark.parametrize(("name", "kind"), CASES)
@pytest.mark.quick("holomorphic-samples-8", "two networks-samples-None")
def test_netkets_products_under_enable(name: str, kind: str, chunk_size: int | None) -> None:
    """Those of its ``QGTOnTheFly``, whose values, solutions and matrix stay as they are."""
    state = state_of(name, kind)
    vector = vector_like(state.parameters)
    settings = {"diag_shift": SHIFT, "chunk_size": chunk_size, **holomorphic(name)}
    expected = QGTOnTheFly(state, **settings)
    fk.enable()
    found = QGTOnTheFly(state, **settings)
    assert "LogDerivatives" in str(jax.tree.structure(found))
    assert "LogDerivatives" not in str(jax.tree.structure(expected))
    each = jax.tree.unflatten(jax.tree.structure(vector), range(len(jax.tree.leaves(vector))))
    for one, other in (
        (found, expected),
        (found + 0.2, expected + 0.2),
        (found.replace(diag_shift=each), expected.replace(diag_shift=each)),
    ):
        assert jax.tree.structure(one @ vector) == jax.tree.structure(other @ vector)
        close(flat(one @ vector), flat(other @ vector), 1e-12)
        close(one @ flat(vector), flat(other @ vector), 1e-12)
    close(flat(found.solve(SOLVERS["cg"], vector)[0]), flat(expected.solve(SOLVERS["cg"], vector)[0]), 1e-8)
    if name in ("real", "holomorphic"):  # NetKet refuses others
        close(found.to_dense(), expected.to_dense(), 1e-12)


def test_netkets_products_where_ours_are_not_for() -> None:
    """Networks that mix samples, and samples that a program is traced for."""

    class Mixing(nk.models.RBM):
        def __call__(self, x: jax.Array) -> jax.Array:
            y = super().__call__(x)
            return y - y.mean()

    fk.enable()
    state = make_state(Mixing(alpha=1, param_dtype=float), SPINS, n_samples=24, scale=0.3)
    assert "LogDerivatives" not in str(jax.tree.structure(QGTOnTheFly(state)))
    state = state_of("real")
    vector = vector_like(state.parameters)

    @jax.jit
    def traced(samples: jax.Array) -> Any:
        return qgt_onthefly.mat_vec_factory(state._apply_fun, state.parameters, state.model_state, samples)(
            vector, SHIFT
        )

    close(flat(traced(state.samples.reshape(24, -1))), flat(QGTOnTheFly(state, diag_shift=SHIFT) @ vector), 1e-12)


# In NetKet's drivers


def vmc(preconditioner: Any, state: Any) -> np.ndarray:
    driver = nk.driver.VMC(ISING, nk.optimizer.Sgd(0.05), variational_state=state, preconditioner=preconditioner)
    driver.run(3, out=(), show_progress=False)
    return np.asarray(flat(state.parameters))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(name, kind, marks=() if (name, kind) == ("holomorphic", "samples") else thorough)
        for name in MODELS
        for kind in ("samples", "all states")
    ],
)
def test_sr(name: str, kind: str) -> None:
    solver = partial(jax.scipy.sparse.linalg.cg, tol=1e-13, maxiter=500)
    expected = vmc(
        nk.optimizer.SR(
            qgt=QGTJacobianDense, solver=nk.optimizer.solver.cholesky, diag_shift=SHIFT, **holomorphic(name)
        ),
        state_of(name, kind),
    )
    assert np.linalg.norm(expected - flat(state_of(name, kind).parameters)) > 1e-2
    for sr in (
        fk.optimizer.SR(solver=solver, diag_shift=SHIFT),
        fk.optimizer.SR(solver=nk.optimizer.solver.cholesky, diag_shift=lambda step: SHIFT),
        fk.optimizer.SR(solver=solver, diag_shift=SHIFT, solver_restart=True),
    ):
        np.testing.assert_allclose(vmc(sr, state_of(name, kind)), expected, rtol=1e-8, atol=1e-8)


def test_its_name() -> None:
    """What is printed says which tensor it is."""
    assert "quantum_geometric_tensor" in repr(fk.optimizer.SR(diag_shift=SHIFT))
    assert repr(quantum_geometric_tensor(state_of("real"), diag_shift=SHIFT)) == f"QGTFactors(diag_shift={SHIFT})"


JACOBIANS = [
    (name, mode)
    for name, modes in {
        "real": ("real", "complex"),
        "holomorphic": ("real", "complex", "holomorphic"),
        "two networks": ("real", "complex"),
        "not holomorphic": ("complex",),
        "complex, real values": ("real",),
    }.items()
    for mode in modes
]


@pytest.mark.quick("holomorphic-complex", "two networks-real")
@pytest.mark.parametrize(
    ("name", "mode"),
    [pytest.param(*case, marks=() if case[0] in ("holomorphic", "two networks") else thorough) for case in JACOBIANS],
)
def test_jacobians(name: str, mode: str) -> None:
    """``nk.jax.jacobian`` is NetKet's in all that can be asked of it, errors too."""
    state = state_of(name)
    samples = state.samples.reshape(-1, SPINS.size)
    pdf = jnp.asarray(np.random.default_rng(3).dirichlet(np.ones(len(samples))))
    netkets = nk.jax.jacobian
    fk.natural_gradient.enable()
    ours = nk.jax.jacobian
    assert ours is not netkets
    if name == "real" and mode == "complex":
        messages = []
        for function in (netkets, ours):
            with pytest.raises(TypeError) as error:
                function(state._apply_fun, state.parameters, samples, mode=mode)
            messages.append(str(error.value))
        assert messages[0] == messages[1]
        return
    args = state._apply_fun, state.parameters, samples, state.model_state, pdf
    found, expected = (all_jacobians(function, mode, *args) for function in (ours, netkets))
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    assert float(jnp.linalg.norm(flat(expected[4]))) > 1  # centred, and not zero for that
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.dtype == b.dtype
        close(a, b, 1e-12)
    in_chunks = ours(*args[:3], mode=mode, chunk_size=7, dense=True)
    close(in_chunks, ours(*args[:3], mode=mode, dense=True), 1e-12)


@partial(jax.jit, static_argnums=(0, 1, 2))
def all_jacobians(function: Any, mode: str, log_psi: Any, parameters: Any, samples: Any, state: Any, pdf: Any) -> Any:
    """By all settings, in one program."""
    return [
        function(
            log_psi, parameters, samples, state, mode=mode, dense=dense, center=center, pdf=weights, _sqrt_rescale=scale
        )
        for dense in (False, True)
        for center in (False, True)
        for weights in (None, pdf)
        for scale in (False, True)
    ]


def test_jacobians_with_the_state_by_name() -> None:
    """As NetKet's own ``is_probably_holomorphic`` gives it."""
    state = state_of("holomorphic")
    jacobian = partial(nk.jax.jacobian, state._apply_fun, state.parameters, state.samples.reshape(-1, SPINS.size))
    expected = jacobian(state.model_state, mode="holomorphic", dense=True)
    fk.enable()
    jacobian = partial(nk.jax.jacobian, *jacobian.args)
    close(jacobian(model_state=state.model_state, mode="holomorphic", dense=True), expected, 1e-12)
    arguments = state._apply_fun, state.parameters, state.samples, state.model_state
    assert nk.utils.is_probably_holomorphic(*arguments)


def test_what_jacobians_refuse() -> None:
    state = state_of("holomorphic")
    fk.natural_gradient.enable()
    jacobian = partial(nk.jax.jacobian, state._apply_fun, state.parameters)
    with pytest.raises(ValueError, match="samples must be a 2D array"):
        jacobian(state.samples, mode="complex")
    with pytest.raises(NotImplementedError, match="'imaginary'"):
        jacobian(state.samples.reshape(-1, SPINS.size), mode="imaginary")


@pytest.mark.parametrize("dense", [True, pytest.param(False, marks=thorough)])
def test_netkets_tensors_when_enabled(dense: bool) -> None:
    """Are made of our Jacobians, and the same."""
    make = QGTJacobianDense if dense else QGTJacobianPyTree
    state = state_of("not holomorphic")
    settings = {"diag_shift": SHIFT, "diag_scale": 0.02, "holomorphic": False}
    expected = make(state, **settings).to_dense()
    fk.enable()
    assert patching.is_enabled()
    close(make(state, **settings).to_dense(), expected, 1e-12)


def evolved(name: str, kind: str) -> np.ndarray:
    state = state_of(name, kind)
    settings: dict[str, Any] = {"propagation_type": "real" if name == "holomorphic" else "imag"}
    if name == "holomorphic":
        settings["qgt"] = nk.optimizer.qgt.QGTJacobianDense(holomorphic=True)
    driver = nkx.TDVP(ISING, state, nkx.dynamics.Heun(dt=0.01), linear_solver=_pinv, **settings)
    driver.run(0.03, out=(), show_progress=False)
    return np.asarray(flat(state.parameters))


_pinv = partial(nk.optimizer.solver.pinv_smooth, rtol=1e-8, rtol_smooth=1e-8)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("two networks", "samples"),
        pytest.param("two networks", "all states", marks=thorough),
        pytest.param("holomorphic", "all states", marks=thorough),
    ],
)
def test_tdvp(name: str, kind: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = evolved(name, kind)
        fk.enable()
        found = evolved(name, kind)
    assert np.linalg.norm(expected - flat(state_of(name, kind).parameters)) > 1e-3
    np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-8)


def test_the_tensor_of_other_samples_compiles_nothing() -> None:
    state = make_state(MODELS["holomorphic"], SPINS)
    compiled: list[str] = []
    is_over = False

    def note(name: str, *_: Any, **__: Any) -> None:
        if name.endswith("backend_compile_duration") and not is_over:
            compiled.append(name)

    jax.monitoring.register_event_duration_secs_listener(note)
    for is_first in (True, False):
        state.sample()
        before = len(compiled)
        tensor = quantum_geometric_tensor(state, diag_shift=SHIFT)
        assert (len(compiled) > before) == is_first
    is_over = True
    assert tensor.to_dense().shape == (state.n_parameters,) * 2
