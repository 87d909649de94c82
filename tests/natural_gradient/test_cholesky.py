"""Linear systems that devices share, against NumPy: the factorisation, fk.optimizer.solver, and the updates with it."""

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import ferroket as fk
from ferroket import ffi
from ferroket._compat.sharding import AXIS
from ferroket.natural_gradient import blocks as cuts
from ferroket.natural_gradient import cholesky as kernel
from ferroket.natural_gradient import memory
from ferroket.natural_gradient import solve as systems
from ferroket.natural_gradient.blocks import Blocks
from ferroket.natural_gradient.ntk import log_derivatives_of, ntk
from ferroket.natural_gradient.vmc_sr import update_by_ntk, update_by_qgt
from support.mpi import START, path_to, run_on_devices, run_ranks

thorough = pytest.mark.thorough
solver = fk.optimizer.solver

WELL, BADLY = 1e2, 1e13
"""The quotients of the largest and the smallest eigenvalue."""


def system(side: int, dtype: Any = float, condition: float = WELL) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(side)
    basis = np.linalg.qr(rng.normal(size=(side, side)) + 1j * rng.normal(size=(side, side)))[0]
    if not np.issubdtype(dtype, np.complexfloating):
        basis = np.linalg.qr(basis.real)[0]
    matrix = basis * np.geomspace(1, 1 / condition, side) @ basis.conj().T
    right = rng.normal(size=side) + 1j * rng.normal(size=side)
    right = right if np.issubdtype(dtype, np.complexfloating) else right.real
    return ((matrix + matrix.conj().T) / 2).astype(dtype), right.astype(dtype)


def indefinite(side: int, place: int) -> np.ndarray:
    matrix = system(side)[0]
    matrix[place, place] = -1e-3
    return matrix


def difference(found: Any, expected: Any) -> float:
    """Relative."""
    found, expected = (ravel_pytree(tree)[0] for tree in (found, expected))
    return float(jnp.linalg.norm(found - expected) / jnp.linalg.norm(expected))


def residual(matrix: np.ndarray, right: np.ndarray, solution: Any) -> float:
    """The backward error."""
    rest = np.linalg.norm(right - matrix @ np.asarray(solution))
    return float(rest / (np.linalg.norm(matrix, 2) * np.linalg.norm(solution)))


# The factorisation


FORMS = {"in Rust": kernel._solve_rows, "by XLA": kernel._solve_by_xla}
"""The first as devices call it, and what GPUs have."""
forms = pytest.mark.parametrize("form", FORMS)


def on_devices(n_devices: int, matrix: np.ndarray, right: np.ndarray, form: str = "in Rust") -> np.ndarray:
    """The solution as devices find it, each of which is an element of a batch here."""
    side = len(matrix)
    fill = -side % n_devices
    rows, padded = (np.pad(array, [(0, fill)] * array.ndim) for array in (matrix, right))
    solve = jax.vmap(partial(FORMS[form], side), (0, None), axis_name=AXIS)
    found = jax.jit(solve)(rows.reshape(n_devices, -1, side + fill), padded)
    if form == "by XLA" and not np.isfinite(found).all():
        return np.full(side, np.nan)
    return np.asarray(found).reshape(-1)[:side]


@pytest.mark.parametrize("n_devices", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("side", [1, 5, 48, pytest.param(101, marks=thorough), pytest.param(500, marks=thorough)])
@forms
def test_sizes(n_devices: int, side: int, form: str) -> None:
    """Those that the devices, or their blocks, don't divide, and fewer rows than devices."""
    matrix, right = system(side)
    assert difference(on_devices(n_devices, matrix, right, form), np.linalg.solve(matrix, right)) < 1e-12


@forms
@pytest.mark.parametrize(("dtype", "tolerance"), [(float, 1e-12), (complex, 1e-12), ("f4", 1e-4), ("c8", 1e-4)])
def test_types(dtype: Any, tolerance: float, form: str) -> None:
    matrix, right = system(90, np.dtype(dtype).type)
    found = on_devices(4, matrix, right, form)
    assert found.dtype == matrix.dtype
    assert difference(found, np.linalg.solve(matrix, right)) < tolerance


@forms
@pytest.mark.parametrize("n_steps", [2, 7, 16, 17, 40])
@pytest.mark.parametrize("dtype", [float, pytest.param(complex, marks=thorough)])
def test_steps(n_steps: int, dtype: Any, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as are written one after the other, and more, in loops. Blocks of four rows on two devices."""
    monkeypatch.setattr(cuts, "_ROWS", 1)
    monkeypatch.setattr(cuts, "_STEPS", n_steps)
    monkeypatch.setattr(cuts, "_SHARE", 1)
    n_rows = 4 * n_steps - 1
    matrix, right = system(2 * n_rows, dtype)
    assert Blocks.of(n_rows, 2) == Blocks(2, 4, n_steps)
    for n_devices in (2, 3):
        assert difference(on_devices(n_devices, matrix, right, form), np.linalg.solve(matrix, right)) < 1e-12


@forms
def test_panels_of_one_row_of_each_device(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuts, "_WIDTH", 8)
    assert Blocks.of(5, 8).n_rows == 1
    matrix, right = system(39, float)
    assert difference(on_devices(8, matrix, right, form), np.linalg.solve(matrix, right)) < 1e-12


@forms
@pytest.mark.parametrize("dtype", [float, complex])
def test_badly_conditioned(dtype: Any, form: str) -> None:
    """What is left is of the order of NumPy's, whatever the condition is."""
    matrix, right = system(200, dtype, BADLY)
    theirs = residual(matrix, right, np.linalg.solve(matrix, right))
    assert theirs < 1e-15
    assert residual(matrix, right, on_devices(4, matrix, right, form)) < 5 * max(theirs, 1e-16)


@forms
@pytest.mark.parametrize("place", [0, 40, 99])
@pytest.mark.parametrize("value", [-1e-3, np.nan])
def test_not_positive_definite(place: int, value: float, form: str) -> None:
    """Or not a number, wherever it is."""
    matrix, right = system(100)
    matrix[place, place] = value
    assert np.isnan(on_devices(3, matrix, right, form)).all()
    matrix, right = system(100)
    right[place] = np.nan
    assert np.isnan(on_devices(3, matrix, right, form)).all()


@pytest.mark.parametrize(
    ("n_rows", "n_devices", "length", "n_steps"),
    [
        *[(1, 8, 1, 1), (15, 2, 16, 1), (64, 2, 16, 4), (512, 8, 32, 16), (2048, 2, 128, 16), (1024, 64, 23, 45)],
        *[(64, 64, 4, 16), (16, 256, 1, 16), (4, 1024, 1, 4)],  # of many devices few rows are enough
    ],
)
def test_blocks(n_rows: int, n_devices: int, length: int, n_steps: int) -> None:
    blocks = Blocks.of(n_rows, n_devices)
    assert (blocks.n_rows, blocks.n_steps) == (length, n_steps)
    stages = blocks.stages()
    assert len(stages) == min(n_steps, 16)
    assert [step for stage in stages for step in range(*stage)] == list(range(n_steps))


# On one device


@pytest.mark.parametrize("side", [1, 127, 128, 129, 300])
@pytest.mark.parametrize(("dtype", "tolerance"), [(float, 1e-13), (complex, 1e-13), ("f4", 1e-5), ("c8", 1e-5)])
def test_tiles(side: int, dtype: Any, tolerance: float) -> None:
    matrix, right = system(side, np.dtype(dtype).type)
    found = ffi.solve_positive(matrix, right)
    assert found.dtype == matrix.dtype
    assert residual(matrix, right, found) < tolerance


@pytest.mark.parametrize("place", [0, 127, 128, 299])
def test_no_solution(place: int) -> None:
    for value in (-1e-3, np.nan):
        matrix, right = system(300)
        matrix[place, place] = value
        assert np.isnan(ffi.solve_positive(matrix, right)).all()


def test_derivatives_and_batches() -> None:
    matrix, right = system(5)
    rng = np.random.default_rng(1)
    directions = rng.normal(size=(3, 5, 5))
    directions += directions.transpose(0, 2, 1)

    def solve(step: jax.Array, direction: jax.Array) -> jax.Array:
        return ffi.solve_positive(jnp.asarray(matrix) + step * direction, (1 + step) * right)

    found = jax.vmap(jax.jacfwd(solve), (None, 0))(0.0, directions)
    for along, direction in zip(found, directions, strict=True):
        solution = np.linalg.solve(matrix, right)
        np.testing.assert_allclose(along, np.linalg.solve(matrix, right - direction @ solution), rtol=1e-9)


def test_types_that_differ() -> None:
    matrix, right = system(3)
    with pytest.raises(TypeError, match="the matrix is float64 and the right-hand side float32: make them the same"):
        ffi.solve_positive(matrix, right.astype("f4"))


# Its public face


def test_trees() -> None:
    matrix, right = system(7)
    tree = {"a": jnp.asarray(right[:4]).reshape(2, 2), "b": jnp.asarray(right[4:])}
    for solve in (solver.cholesky, solver.cg):
        found, _ = solve(jnp.asarray(matrix), tree, x0=tree)
        assert jax.tree.map(jnp.shape, found) == {"a": (2, 2), "b": (3,)}
        assert difference(found, jnp.linalg.solve(matrix, right)) < 1e-9
        again, _ = solve()(jnp.asarray(matrix), tree)  # as NetKet's, of which arguments make another solver
        assert difference(again, found) < 1e-9


def test_operators() -> None:
    """A quantum geometric tensor."""
    state = nk.vqs.MCState(nk.sampler.MetropolisLocal(nk.hilbert.Spin(0.5, 4), n_chains=16), nk.models.RBM(alpha=1))
    tensor = fk.optimizer.qgt.quantum_geometric_tensor(state, diag_shift=0.1)
    right = jax.tree.map(jnp.ones_like, state.parameters)
    expected = np.linalg.solve(tensor.to_dense(), ravel_pytree(right)[0])
    for solve in (solver.cholesky, solver.cg):
        assert difference(solve(tensor, right)[0], expected) < 1e-9


def test_types_of_the_sides() -> None:
    """That of a real matrix and a complex vector."""
    matrix, _ = system(6)
    right = system(6, complex)[1]
    for solve in (solver.cholesky, solver.cg):
        assert difference(solve(jnp.asarray(matrix), jnp.asarray(right))[0], np.linalg.solve(matrix, right)) < 1e-9


@pytest.mark.parametrize("dtype", [float, complex])
def test_conjugate_gradients(dtype: Any) -> None:
    matrix, right = (jnp.asarray(array) for array in system(60, dtype))
    expected = np.linalg.solve(matrix, right)
    found, info = solver.cg(matrix, right)
    assert difference(found, expected) < 1e-8
    assert info["residual"] < np.finfo(float).eps ** (2 / 3)
    for tol in (1e-2, 1e-6):
        found, info = solver.cg(tol=tol)(matrix, right)
        assert tol / 100 < info["residual"] <= tol
        np.testing.assert_allclose(info["residual"], jnp.linalg.norm(right - matrix @ found) / jnp.linalg.norm(right))
    assert solver.cg(matrix, right, x0=expected, maxiter=0)[1]["residual"] < 1e-14
    assert solver.cg(matrix, right, maxiter=0)[1]["residual"] == 1
    assert solver.cg(matrix, right, maxiter=3)[1]["residual"] > 1e-3
    assert solver.cg(matrix, 0 * right)[1]["residual"] == 0
    matrix, right = (jnp.asarray(array) for array in system(60, np.complex64 if dtype is complex else np.float32))
    assert solver.cg(matrix, right)[1]["residual"] < 1e-4


@pytest.mark.parametrize("dtype", [np.float64, np.complex128, np.float32])
@pytest.mark.parametrize(
    ("least", "is_inverse"), [(1.0, True), (1e-4, True), (1e-9, None), (3e-14, False), (0.0, False), (-1e-3, False)]
)
def test_smooth_inverse(least: float, is_inverse: bool | None, dtype: type) -> None:
    """Of eigenvalues down to one that NetKet's leaves out, or all but."""
    rng = np.random.default_rng(6)
    numbers = rng.normal(size=(60, 60)) + (1j * rng.normal(size=(60, 60)) if dtype is np.complex128 else 0)
    vectors = np.linalg.qr(numbers)[0]
    values = np.geomspace(1, max(least, 1e-2), 60)
    values[-1] = least
    matrix = jnp.asarray(((vectors * values) @ vectors.conj().T).astype(dtype))
    right = jnp.asarray(vectors.sum(axis=1).astype(dtype))
    found, info = solver.pinv_smooth(matrix, right)
    if dtype is np.float32:  # whose rounding makes of an eigenvalue of 1e-4 no small one
        is_inverse = least == 1.0
    assert is_inverse is None or bool(info["is_inverse"]) == is_inverse
    expected = nk.optimizer.solver.pinv_smooth(matrix, right)[0]
    if dtype is not np.float32 or is_inverse:
        eps = float(jnp.finfo(dtype).eps)
        assert difference(found, expected) < 100 * eps / max(abs(least), 1e-12)
    if not info["is_inverse"]:
        np.testing.assert_array_equal(found, jax.jit(nk.optimizer.solver.pinv_smooth)(matrix, right)[0])


def test_smooth_inverse_with_bounds() -> None:
    matrix, right = (jnp.asarray(array) for array in system(60))
    pytree = {"a": right[:20], "b": right[20:]}
    for rtol in (1e-14, 1e-3):
        found, info = solver.pinv_smooth(rtol=rtol, rtol_smooth=0.1 * rtol)(matrix, pytree)
        expected, _ = nk.optimizer.solver.pinv_smooth(matrix, pytree, rtol=rtol, rtol_smooth=0.1 * rtol)
        assert bool(info["is_inverse"]) == (rtol == 1e-14)
        for name in pytree:
            assert difference(found[name], expected[name]) < 1e-11


FALLBACK = getattr(nk.optimizer.solver, "nan_fallback", None)
with_fallback = pytest.mark.skipif(FALLBACK is None, reason="NetKet 3.20 has no fallback")


@with_fallback
def test_takes_complex() -> None:
    assert FALLBACK is not None
    pinv = nk.optimizer.solver.pinv_smooth
    assert systems.takes_complex(solver.cholesky)
    assert systems.takes_complex(solver.cg(tol=1e-3))
    assert systems.takes_complex(FALLBACK(solver.cholesky, pinv(rtol=1e-3)))
    assert not systems.takes_complex(FALLBACK(solver.cholesky, jnp.linalg.solve))
    assert not systems.takes_complex(jnp.linalg.solve)


@with_fallback
def test_fallback_on_one_device() -> None:
    """Of a matrix that isn't positive definite."""
    matrix, right = indefinite(150, 140), system(150)[1]
    netkets = nk.optimizer.solver.cholesky_with_fallback
    assert systems.replaced(netkets, 150) is not netkets
    found, _ = systems.solve(netkets, jnp.asarray(matrix), jnp.asarray(right))
    assert difference(found, np.linalg.solve(matrix, right)) < 1e-9


# On several devices


def sharded(array: np.ndarray) -> jax.Array:
    if jax.device_count() == 1:  # NetKet's function wants a mesh
        return jnp.asarray(array)
    return nk.jax.sharding.distribute_to_devices_along_axis(array)


SIDES = {"fewer than devices": 3, "not divided": 150, "divided": 240}


def solutions() -> dict[str, np.ndarray]:
    """Of systems that several devices share."""
    found = {}
    for name, side in SIDES.items():
        for dtype in (float, complex):
            matrix, right = system(side, dtype)
            matrix = sharded(matrix) if name == "divided" else jnp.asarray(matrix)
            for solve in (solver.cholesky, solver.cg, solver.pinv_smooth):
                found[f"{name}, {dtype.__name__}, {solve.__name__}"] = solve(matrix, jnp.asarray(right))[0]
    right = jnp.asarray(system(240)[1])
    found["indefinite"] = solver.cholesky(sharded(indefinite(240, 200)), right)[0]
    if FALLBACK is not None:
        both = FALLBACK(solver.cholesky, nk.optimizer.solver.pinv_smooth)
        for name, matrix in (("fallback", indefinite(240, 200)), ("no fallback", system(240)[0])):
            found[name], info = both(sharded(matrix), right)
            assert bool(info["solver_fallback"]) == (name == "fallback")
    return {name: np.asarray(value) for name, value in found.items()}


def check(found: Any) -> None:
    """What :func:`solutions` gives."""
    for name, side in SIDES.items():
        for dtype in (float, complex):
            expected = np.linalg.solve(*system(side, dtype))
            for solve in ("cholesky", "pinv_smooth"):
                assert difference(found[f"{name}, {dtype.__name__}, {solve}"], expected) < 1e-12
            assert difference(found[f"{name}, {dtype.__name__}, cg"], expected) < 1e-8
    assert np.isnan(found["indefinite"]).all()
    if FALLBACK is not None:
        right = system(240)[1]
        assert difference(found["fallback"], np.linalg.solve(indefinite(240, 200), right)) < 1e-9
        assert difference(found["no fallback"], np.linalg.solve(system(240)[0], right)) < 1e-12


JOB = f"""{START}
import sys
import numpy as np
from test_cholesky import solutions
found = solutions()
if info.rank == 0:
    np.savez(sys.argv[1], **found)
"""


@pytest.mark.mpi
@pytest.mark.quick("2")
@pytest.mark.parametrize("n", [2, 3, 8], ids=str)
def test_on_ranks(n: int, tmp_path: Path) -> None:
    results = tmp_path / "solutions.npz"
    job = run_ranks(JOB, n, str(results), timeout=500, PYTHONPATH=path_to(__file__), JAX_DISABLE_MOST_OPTIMIZATIONS="1")
    assert job.returncode == 0, job.stdout + job.stderr
    check(np.load(results))


SAMPLES, SITES = 64, 6
MODELS = {"holomorphic": nk.models.RBM(alpha=3, param_dtype=complex), "real": nk.models.RBM(alpha=3, param_dtype=float)}
UPDATES = {"on the fly": update_by_ntk, "by parameters": update_by_qgt}
CASES = [("on the fly", "holomorphic", "cholesky"), ("by parameters", "real", "cholesky_with_fallback")]
if FALLBACK is None:
    CASES = [case for case in CASES if case[2] == "cholesky"]


def arguments(model: Any) -> tuple[Any, ...]:
    hilbert = nk.hilbert.Spin(0.5, SITES)
    samples = hilbert.random_state(jax.random.key(1), SAMPLES)
    variables = model.init(jax.random.key(2), samples)
    variables = jax.tree.map(lambda leaf: leaf + 0.2 * jnp.arange(leaf.size).reshape(leaf.shape) / leaf.size, variables)
    energies = np.random.default_rng(3).normal(size=(2, SAMPLES))
    energies, samples = map(sharded, (energies[0] + 1j * energies[1], np.asarray(samples)))
    return model.apply, energies, variables["params"], {}, samples


def updates() -> dict[str, np.ndarray]:
    """With NetKet's solvers as they are, and with those that devices share in their place."""
    found = {}
    for shared_from in (1, SAMPLES * SAMPLES):
        systems.SHARED_FROM = shared_from
        jax.clear_caches()
        for kind, name, default in CASES:
            settings = {"diag_shift": 1e-2, "mode": "real" if name == "real" else "complex"}
            solve = getattr(nk.optimizer.solver, default)
            tree = UPDATES[kind](*arguments(MODELS[name]), solver_fn=solve, **settings)[0]
            found[f"{kind}, {name}, {default}, {shared_from}"] = np.asarray(ravel_pytree(tree)[0])
    return found


def in_one_process() -> dict[str, np.ndarray]:
    """Of four devices: all of it, and no device writes any of the matrix."""
    assert jax.device_count() == 4
    found = updates()
    systems.SHARED_FROM = 1
    cuts._ROWS = 4  # so that a panel isn't all of the matrix
    jax.clear_caches()
    settings = {"diag_shift": 1e-2, "solver_fn": nk.optimizer.solver.cholesky, "mode": "real"}
    compiled = update_by_ntk.lower(*arguments(MODELS["real"]), **settings).compile().as_text()
    assert "ferroket_shared_start_of_gram" in compiled
    assert not re.search(rf"\[({SAMPLES}|{SAMPLES // 4}),(1,)?{SAMPLES}[,\]]", compiled)
    log_psi, _, parameters, state, samples = arguments(MODELS["real"])
    of_sample = memory.log_derivatives_of_sample(log_psi, parameters, state, samples[:1], "real")
    sizes = [memory.bytes_of_kernel(of_sample, SAMPLES, is_formed) for is_formed in (False, True)]
    assert sizes == [2 * SAMPLES**2, 6 * SAMPLES**2]  # a fourth of the matrix, and two copies of it
    words = [(systems.text_of_solver(solver, side), systems.reason_not_to_share(solver)) for solver, side in WORDS]
    return {**found, **solutions(), "words": np.array(json.dumps(words))}


def save_in_one_process(file: str) -> None:
    np.savez(file, **in_one_process())


WORDS = [
    (nk.optimizer.solver.cholesky, 9),
    (nk.optimizer.solver.cholesky, 0),
    (nk.optimizer.solver.pinv_smooth(rtol=1e-3), 9),
    (solver.cholesky, 0),
    (solver.cg(tol=1e-3), 9),
]


def test_on_four_devices(tmp_path: Path) -> None:
    results = tmp_path / "updates.npz"
    run_on_devices(save_in_one_process, 4, str(results), timeout=250, JAX_DISABLE_MOST_OPTIMIZATIONS="1").ok()
    found = np.load(results)
    check(found)
    theirs = [name for name in found.files if name.endswith(f", {SAMPLES * SAMPLES}")]
    assert len(theirs) == len(CASES)
    for name in theirs:
        ours = name.replace(f", {SAMPLES * SAMPLES}", ", 1")
        assert 0 < difference(found[ours], found[name]) < 1e-11, name
    assert json.loads(str(found["words"])) == [
        ["fk.optimizer.solver.cholesky in the place of cholesky: 4 devices share the matrix", None],
        ["cholesky, on each device: fewer than 1 unknowns aren't worth sharing", None],
        [
            "pinv_smooth, on each device",
            "each device solves the whole system: the solver doesn't share the matrix",
        ],
        ["fk.optimizer.solver.cholesky: 4 devices share the matrix", None],
        ["fk.optimizer.solver.cg: 4 devices share the matrix", None],
    ]


def test_ntk_is_hermitian() -> None:
    """So that one half of it is enough."""
    log_psi, _, parameters, state, samples = arguments(MODELS["holomorphic"])
    rows = log_derivatives_of(log_psi, parameters, state, samples, mode="complex")
    matrix = np.asarray(ntk(rows)).reshape(SAMPLES, SAMPLES)
    assert np.abs(matrix - matrix.conj().T).max() < 1e-14 * np.abs(matrix).max()
