"""Updates by the neural tangent kernel, against NetKet's with and without a Jacobian."""

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import netket as nk
import netket.experimental as nkx
import numpy as np
import pytest
from flax import nnx
from jax.flatten_util import ravel_pytree
from netket._src.ngd.sr_srt_common import srt
from netket._src.ngd.srt_onthefly import srt_onthefly

from ferroket import network
from ferroket.ansatz import verification
from ferroket.natural_gradient import gram, log_derivatives, tiles
from ferroket.natural_gradient.in_chunks import DerivativesInChunks
from ferroket.natural_gradient.ntk import log_derivatives_of
from ferroket.natural_gradient.verification import unsupported_reason
from ferroket.natural_gradient.vmc_sr import update_by_flat_ntk, update_by_ntk, update_by_qgt
from support.mpi import run_on_devices
from support.variational_states import random_like

SPINS = nk.hilbert.Spin(0.5, 6)
CHAIN = nk.graph.Chain(6)
FERMIONS = nk.hilbert.SpinOrbitalFermions(6, n_fermions=3)
PARTICLES = nkx.hilbert.Particle(3, geometry=nkx.geometry.Cell(d=1, L=(4.0,), pbc=True))
N_SAMPLES = 16

thorough = pytest.mark.thorough
cholesky = nk.optimizer.solver.cholesky


def arguments(model: Any, hilbert: Any = SPINS, dtype: Any = None, scale: float = 0.3) -> tuple[Any, ...]:
    """What an update starts from: random parameters, samples and local energies."""
    samples = hilbert.random_state(jax.random.key(2), N_SAMPLES, dtype=dtype)
    shapes = jax.eval_shape(model.init, jax.random.key(0), samples)
    return with_energies(model.apply, random_like(shapes, scale), samples)


def with_energies(log_psi: Any, variables: Any, samples: jax.Array) -> tuple[Any, ...]:
    rng = np.random.default_rng(4)
    energies = rng.normal(size=len(samples)) + 1j * rng.normal(size=len(samples))
    if any(leaf.dtype in (np.float32, np.complex64) for leaf in jax.tree.leaves(variables)):
        energies = energies.astype(np.complex64)
    state = {name: value for name, value in variables.items() if name != "params"}
    return log_psi, jnp.asarray(energies), variables["params"], state, samples


def difference(found: Any, expected: Any) -> float:
    """Relative, of all parameters together."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert a.shape == b.shape
        assert a.dtype == b.dtype
    a, b = (ravel_pytree(tree)[0] for tree in (found, expected))
    return float(jnp.linalg.norm(a - b) / jnp.linalg.norm(b))


UPDATES = {"on the fly": (update_by_ntk, srt_onthefly), "flat": (update_by_flat_ntk, srt)}


def compare(
    kind: str, args: tuple[Any, ...], mode: str, *, steps: int = 1, tolerance: float = 1e-9, **settings: Any
) -> Any:
    """Holds an update, or the last of some with momentum, and what is kept for the next against NetKet's."""
    ours, theirs = UPDATES[kind]
    settings = {"diag_shift": 1e-3, "solver_fn": cholesky, "mode": mode, **settings}
    old, expected_old = None, None
    for _ in range(steps):
        found, old, _ = ours(*args, old_updates=old, **settings)
        expected, expected_old, _ = theirs(*args, old_updates=expected_old, **settings)
        assert difference(found, expected) < tolerance
        assert (old is None) == (expected_old is None)
        if old is not None:
            assert difference(old, expected_old) < tolerance
    assert float(jnp.linalg.norm(ravel_pytree(expected)[0])) > 1e-3
    return found


class Conjugate(nk.models.MLP):
    """Complex parameters, of which ln ψ is no holomorphic function."""

    def __call__(self, x: jax.Array) -> jax.Array:
        y = super().__call__(x)
        return y + 0.3 * jnp.abs(y) ** 2


MLP = partial(nk.models.MLP, hidden_dims=(5,), hidden_activations=jnp.tanh)
KINDS = {
    "real": MLP(param_dtype=float),
    "holomorphic": MLP(param_dtype=complex),
    "not holomorphic": Conjugate(hidden_dims=(5,), hidden_activations=jnp.tanh, param_dtype=complex),
    "two networks": nk.models.RBMModPhase(alpha=1),
}


def modes(name: str, kind: str) -> list[str]:
    """In which NetKet has both: a Jacobian of real functions is real, one by complex parameters complex."""
    if kind == "on the fly":
        return ["real", "complex"]
    return ["real"] if name == "real" else ["complex"]


@pytest.mark.parametrize(
    ("kind", "name", "mode"), [(kind, name, mode) for kind in UPDATES for name in KINDS for mode in modes(name, kind)]
)
def test_modes(kind: str, name: str, mode: str) -> None:
    compare(kind, arguments(KINDS[name]), mode)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "holomorphic" else thorough) for name in KINDS]
)
@pytest.mark.parametrize("kind", UPDATES)
def test_momentum(kind: str, name: str) -> None:
    mode = "real" if name == "real" else "complex"
    compare(kind, arguments(KINDS[name]), mode, steps=3, momentum=0.8)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "holomorphic" else thorough) for name in KINDS]
)
@pytest.mark.parametrize("kind", UPDATES)
def test_projection(kind: str, name: str) -> None:
    mode = "real" if name == "real" else "complex"
    args = arguments(KINDS[name])
    found = compare(kind, args, mode, proj_reg=0.7, momentum=0.9, steps=2)
    without = compare(kind, args, mode, momentum=0.9, steps=2)
    assert difference(found, without) < 1e-9  # what is projected out of centred rows is nothing


@pytest.mark.skipif(not hasattr(nk.optimizer.solver, "cholesky_with_fallback"), reason="NetKet 3.20 has no fallback")
@pytest.mark.parametrize("name", ["real", "holomorphic", "two networks"])
def test_fallback(name: str) -> None:
    """Where the kernel isn't positive definite: it is formed for the pseudo-inverse, and only then."""
    args, mode = arguments(KINDS[name]), "real" if name == "real" else "complex"
    settings: Any = {"solver_fn": nk.optimizer.solver.cholesky_with_fallback, "mode": mode}
    for diag_shift in (1e-3, -0.05):
        compare("on the fly", args, diag_shift=diag_shift, **settings)
        info = update_by_ntk(*args, diag_shift=diag_shift, **settings)[2]
        assert info["solver_fallback"] == (diag_shift < 0)


@pytest.mark.parametrize("chunk_size", [1, 4, pytest.param(16, marks=thorough)])
def test_chunks(chunk_size: int) -> None:
    args = arguments(KINDS["holomorphic"])
    compare("on the fly", args, "complex", chunk_size=chunk_size)


@thorough
@pytest.mark.parametrize("chunk_size", [3, 7, 100])
def test_chunks_that_do_not_divide(chunk_size: int) -> None:
    """Which NetKet doesn't take here."""
    args = arguments(KINDS["holomorphic"])
    settings: Any = {"diag_shift": 1e-3, "solver_fn": cholesky, "mode": "complex"}
    found, _, _ = update_by_ntk(*args, chunk_size=chunk_size, **settings)
    assert difference(found, srt_onthefly(*args, **settings)[0]) < 1e-9


def solve_real(matrix: jax.Array, right: jax.Array) -> Any:
    """A user's own solver, with something to tell."""
    assert matrix.dtype == right.dtype == float
    assert matrix.shape == (2 * N_SAMPLES, 2 * N_SAMPLES)
    return jax.scipy.linalg.solve(matrix, right, assume_a="pos"), {"trace": jnp.trace(matrix)}


@pytest.mark.parametrize("kind", UPDATES)
def test_a_users_own_solver(kind: str) -> None:
    """Gets what NetKet gives it, a real matrix, also where ln ψ is holomorphic."""
    args = arguments(KINDS["holomorphic"])
    compare(kind, args, "complex", solver_fn=solve_real)
    settings: Any = {"diag_shift": 1e-3, "solver_fn": solve_real, "mode": "complex"}
    (*_, found), (*_, expected) = (update(*args, **settings) for update in UPDATES[kind])
    np.testing.assert_allclose(found["trace"], expected["trace"], rtol=1e-12)


SOLVERS = {
    "pinv_smooth": partial(nk.optimizer.solver.pinv_smooth, rtol=1e-10, rtol_smooth=1e-10),
    "pinv_smooth, as it is": nk.optimizer.solver.pinv_smooth,
    "pinv": nk.optimizer.solver.pinv,
    "svd": nk.optimizer.solver.svd,
    "LU": nk.optimizer.solver.LU,
    "cg": lambda matrix, right: jax.scipy.sparse.linalg.cg(matrix, right, tol=1e-13, maxiter=500),
}


@pytest.mark.parametrize("solver", [pytest.param(s, marks=() if s == "pinv_smooth" else thorough) for s in SOLVERS])
def test_solvers(solver: str) -> None:
    args = arguments(KINDS["holomorphic"])
    compare("on the fly", args, "complex", solver_fn=SOLVERS[solver], diag_shift=1e-2)


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """So little that log-derivatives are made anew, a few samples at a time."""
    monkeypatch.setenv("FERROKET_MEMORY", "8kB")
    jax.clear_caches()  # of programs with more
    yield
    jax.clear_caches()


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    ("kind", "name", "mode"), [(kind, name, mode) for kind in UPDATES for name in KINDS for mode in modes(name, kind)]
)
def test_in_chunks(kind: str, name: str, mode: str) -> None:
    args = arguments(KINDS[name])
    settings = {"mode": mode, "bytes_of_matrix": lambda of_sample: 1 << 20}
    chunked = log_derivatives_of(args[0], args[2], args[3], args[4], **settings)
    assert isinstance(chunked, DerivativesInChunks)
    assert 1 <= chunked.chunk_size < 16
    compare(kind, args, mode, steps=2, momentum=0.8)


@pytest.mark.parametrize("name", ["holomorphic", pytest.param("two networks", marks=thorough)])
def test_small_pieces(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the Gram matrix, and of the samples that are differentiated at once."""
    monkeypatch.setitem(tiles._LENGTH, "cpu", 6)
    for module in (gram, log_derivatives):
        monkeypatch.setattr(module, "MEMORY", 4096)
    jax.clear_caches()
    compare("on the fly", arguments(KINDS[name]), "complex")


@pytest.mark.parametrize("prefers", [True, False])
def test_rows_and_factors(prefers: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both ways to a Gram matrix, where there are several positions."""
    monkeypatch.setattr(gram.Cost, "prefers_rows", prefers)
    monkeypatch.setattr(log_derivatives.Factors, "prefer_rows", False)
    monkeypatch.setattr(verification, "_known", {})
    jax.clear_caches()
    model = nk.models.GCNN(symmetries=CHAIN, layers=2, features=2, param_dtype=complex)
    compare("on the fly", arguments(model, scale=0.1), "complex")


@pytest.mark.parametrize("name", ["real", "holomorphic", pytest.param("not holomorphic", marks=thorough)])
def test_single_precision(name: str) -> None:
    """As near to the update in double precision as single precision can be."""
    mode = "real" if name == "real" else "complex"
    log_psi, energies, parameters, state, samples = arguments(KINDS[name])
    settings: Any = {"diag_shift": 1e-2, "solver_fn": cholesky, "mode": mode}
    to = {np.dtype(float): np.float32, np.dtype(complex): np.complex64}
    small = jax.tree.map(lambda leaf: leaf.astype(to[leaf.dtype]), (energies, parameters))
    wide = jax.tree.map(lambda leaf, like: leaf.astype(like.dtype), small, (energies, parameters))
    model = KINDS[name].clone(param_dtype=np.float32 if name == "real" else np.complex64)
    found, _, _ = update_by_ntk(model.apply, *small, state, samples.astype(np.float32), **settings)
    expected, _, _ = srt_onthefly(log_psi, *wide, state, samples, **settings)
    assert {leaf.dtype for leaf in jax.tree.leaves(found)} == {np.dtype(model.param_dtype)}
    a, b = (ravel_pytree(tree)[0] for tree in (found, expected))
    assert float(jnp.linalg.norm(a - b) / jnp.linalg.norm(b)) < 5e-4


def test_weights_are_refused() -> None:
    args = arguments(KINDS["real"])
    with pytest.raises(NotImplementedError, match="Weighted samples"):
        update_by_ntk(*args, diag_shift=1e-3, solver_fn=cholesky, mode="real", weights=jnp.ones(N_SAMPLES))


@pytest.mark.parametrize("update", [update_by_ntk, update_by_flat_ntk, update_by_qgt])
def test_on_gpus_it_is_pure_jax(update: Any) -> None:
    """Beside the solver, which is JAX's."""
    log_psi, *arrays = arguments(KINDS["holomorphic"])
    settings = {"diag_shift": 1e-3, "solver_fn": cholesky, "mode": "complex", "momentum": 0.5}
    traced = jax.jit(lambda *arrays: update(log_psi, *arrays, **settings)).trace(*arrays)
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert set(re.findall(r"custom_call @(\w+)", text)) <= {"cusolver_potrf_ffi"}


# Models of NetKet's


class Sets(nk.models.DeepSetMLP):
    """Each site is an element with one feature."""

    def __call__(self, x: jax.Array) -> jax.Array:
        return super().__call__(x[..., None])


NETKETS: dict[str, tuple[Callable[[], Any], Any]] = {
    "RBM": (lambda: nk.models.RBM(alpha=2), SPINS),
    "RBM, complex": (lambda: nk.models.RBM(alpha=2, param_dtype=complex), SPINS),
    "RBMSymm": (lambda: nk.models.RBMSymm(symmetries=CHAIN.translation_group(), alpha=2, param_dtype=complex), SPINS),
    "RBMMultiVal": (lambda: nk.models.RBMMultiVal(n_classes=2, alpha=1, param_dtype=complex), nk.hilbert.Fock(1, 6)),
    "Jastrow": (lambda: nk.models.Jastrow(param_dtype=complex), SPINS),
    "Jastrow, real": (lambda: nk.models.Jastrow(param_dtype=float), SPINS),
    "MLP": (lambda: nk.models.MLP(hidden_dims=(6, 4), param_dtype=complex), SPINS),
    "LogStateVector": (lambda: nk.models.LogStateVector(SPINS), SPINS),
    "DeepSetMLP": (lambda: Sets(features_phi=(4,), features_rho=(3,)), nk.hilbert.Fock(3, 6)),
    "DeepSetRelDistance": (
        lambda: nk.models.DeepSetRelDistance(
            hilbert=PARTICLES, layers_phi=1, layers_rho=2, features_phi=4, features_rho=(3, 1)
        ),
        PARTICLES,
    ),
    "Gaussian": (nk.models.Gaussian, PARTICLES),
    "GCNN": (lambda: nk.models.GCNN(symmetries=CHAIN, layers=2, features=2), SPINS),
    "GCNN, irreps": (lambda: nk.models.GCNN(symmetries=CHAIN, layers=2, features=2, mode="irreps"), SPINS),
    "ARNNDense": (lambda: nk.models.ARNNDense(hilbert=SPINS, layers=2, features=3), SPINS),
    "ARNNConv1D": (lambda: nk.models.ARNNConv1D(hilbert=SPINS, layers=2, features=3, kernel_size=2), SPINS),
    "FastARNNDense": (lambda: nk.models.FastARNNDense(hilbert=SPINS, layers=2, features=3), SPINS),
    "FastARNNConv1D": (
        lambda: nk.models.FastARNNConv1D(hilbert=SPINS, layers=2, features=3, kernel_size=2),
        SPINS,
    ),
    "GRUNet1D": (lambda: nkx.models.GRUNet1D(hilbert=SPINS, layers=1, features=3), SPINS),
    "MPSPeriodic": (lambda: nk.models.tensor_networks.MPSPeriodic(SPINS, bond_dim=2), SPINS),
    "Slater2nd": (lambda: nk.models.Slater2nd(FERMIONS, param_dtype=float), FERMIONS),
    "MultiSlater2nd": (lambda: nk.models.MultiSlater2nd(FERMIONS, 2, param_dtype=complex), FERMIONS),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in ("RBM, complex", "Jastrow") else thorough) for name in NETKETS]
)
def test_models(name: str) -> None:
    make, hilbert = NETKETS[name]
    model = make()
    args = arguments(model, hilbert, scale=0.2)
    log_psi = jax.eval_shape(model.apply, {"params": args[2], **args[3]}, args[4])
    # NetKet differentiates in shard_map on the fly, where its loops' carries have other types than their starts.
    kind = "flat" if name in ("GRUNet1D", "MPSPeriodic") else "on the fly"
    compare(kind, args, "complex" if jnp.issubdtype(log_psi.dtype, jnp.complexfloating) else "real")


# Frameworks


class NnxNetwork(nnx.Module):
    def __init__(self, rngs: nnx.Rngs) -> None:
        self.first = nnx.Linear(6, 5, rngs=rngs, param_dtype=jnp.float64)
        self.second = nnx.Linear(5, 2, rngs=rngs, param_dtype=jnp.float64)

    def __call__(self, x: jax.Array) -> jax.Array:
        y = self.second(jnp.tanh(self.first(x)))
        return y[..., 0] + 1j * y[..., 1]


class EquinoxNetwork(eqx.Module):
    first: eqx.nn.Linear
    activation: Callable[[jax.Array], jax.Array]
    second: eqx.nn.Linear

    def __init__(self, key: jax.Array) -> None:
        self.first = eqx.nn.Linear(6, 5, key=key, dtype=jnp.complex128)
        self.activation = jnp.tanh
        self.second = eqx.nn.Linear(5, "scalar", key=key, dtype=jnp.complex128)

    def __call__(self, x: jax.Array) -> jax.Array:
        return jax.vmap(lambda s: self.second(self.activation(self.first(s))))(x)


def _init(keys: dict[str, jax.Array], x: jax.Array) -> Any:
    return {"params": {"w": jax.random.normal(keys["params"], (x.shape[-1], 4)), "a": jnp.ones(4)}}


def _apply(variables: Any, x: jax.Array, **_: Any) -> jax.Array:
    p = variables["params"]
    return jnp.tanh(x @ p["w"]) @ p["a"]


FRAMEWORKS: dict[str, Callable[[], dict[str, Any]]] = {
    "linen": lambda: {"model": KINDS["two networks"]},
    "NNX": lambda: {"model": NnxNetwork(nnx.Rngs(0))},
    "Equinox": lambda: {"model": EquinoxNetwork(jax.random.key(0))},
    "functions": lambda: {"init_fun": _init, "apply_fun": _apply},
}


def arguments_of_state(framework: str) -> tuple[Any, ...]:
    settings = FRAMEWORKS[framework]()
    model = (settings.pop("model"),) if "model" in settings else ()
    state = nk.vqs.MCState(nk.sampler.ExactSampler(SPINS), *model, n_samples=N_SAMPLES, seed=1, **settings)
    return with_energies(state._apply_fun, state.variables, state.samples.reshape(-1, 6))


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_frameworks(framework: str) -> None:
    compare("on the fly", arguments_of_state(framework), "real" if framework == "functions" else "complex")


@pytest.mark.parametrize("name", ["real", "two networks"])
def test_derivatives_are_read_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison by value, and the updates after it, have one program: reading a deep network takes seconds."""
    n_read = 0

    def read_function(*args: Any) -> Any:
        nonlocal n_read
        n_read += 1
        return network.read_function(*args)

    monkeypatch.setattr(log_derivatives, "read_function", read_function)
    monkeypatch.setattr(verification, "_known", {})
    mode = "real" if name == "real" else "complex"
    log_psi, energies, *variables, samples = arguments(KINDS[name])
    assert unsupported_reason(log_psi, *variables, samples) is None
    for weight in (1.0, 2.0):
        update_by_ntk(log_psi, weight * energies, *variables, samples, diag_shift=0.1, solver_fn=cholesky, mode=mode)
    assert n_read == 1


# Several devices

SHARDED = {"holomorphic": "complex", "not holomorphic": "complex", "real": "real", "two networks": "complex"}


def sharded_updates(chunk_size: int | None) -> dict[str, np.ndarray]:
    """The second update of each network with momentum, for samples that the devices share."""
    found = {}
    for name, mode in SHARDED.items():
        log_psi, energies, parameters, state, samples = arguments(KINDS[name])
        energies, samples = map(nk.jax.sharding.distribute_to_devices_along_axis, (energies, samples))
        assert len(samples.sharding.device_set) == jax.device_count()
        old = None
        for _ in range(2):
            updates, old, _ = update_by_ntk(
                log_psi,
                energies,
                parameters,
                state,
                samples,
                diag_shift=0.1,
                solver_fn=cholesky,
                mode=mode,
                momentum=0.7,
                old_updates=old,
                chunk_size=chunk_size,
            )
        found[name] = np.asarray(ravel_pytree(updates)[0])
    return found


def on_four_devices(file: str) -> None:
    assert jax.device_count() == 4
    np.savez(file, **sharded_updates(None))  # type: ignore[arg-type]


@thorough
def test_on_four_devices(tmp_path: Path) -> None:
    results = tmp_path / "updates.npz"
    run_on_devices(on_four_devices, 4, str(results), JAX_DISABLE_MOST_OPTIMIZATIONS="1").ok()
    expected = sharded_updates(None)
    found = np.load(results)
    assert set(found.files) == set(expected)
    for name, update in expected.items():
        assert np.linalg.norm(found[name] - update) < 1e-12 * np.linalg.norm(update), name
