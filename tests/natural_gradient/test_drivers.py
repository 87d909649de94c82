"""NetKet's drivers with our updates, ``fk.enable()`` and ``fk.driver``, beside NetKet's alone."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import optax
import pytest
from flax import serialization
from jax.flatten_util import ravel_pytree

import ferroket as fk
from ferroket import limits
from ferroket._compat import netket as compat
from ferroket.natural_gradient import patching
from support.variational_states import CHAIN, SPINS, make_state, random_like

thorough = pytest.mark.thorough

ISING = nk.operator.IsingJax(SPINS, CHAIN, h=0.7)
NETKETS_VMC_SR, NETKETS_INFIDELITY_SR = compat.SR_DRIVERS
MODELS = {
    "complex": nk.models.RBM(alpha=1, param_dtype=complex),
    "real": nk.models.MLP(hidden_dims=(5,), hidden_activations=jnp.tanh, param_dtype=float),
    "two networks": nk.models.RBMModPhase(alpha=1),
}
REPLACEABLE = [*compat.UPDATES.values(), *compat.PRODUCTS.values(), compat.JACOBIAN]
REPLACED = [(module, replaceable.name) for replaceable in REPLACEABLE for module in replaceable.modules]


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    fk.disable()


def state_of(model: Any, kind: str = "samples", n_samples: int = 24) -> Any:
    if kind == "samples":
        return make_state(model, SPINS, n_samples=n_samples, scale=0.3)
    shapes = jax.eval_shape(model.init, jax.random.key(0), jax.ShapeDtypeStruct((1, SPINS.size), np.int8))
    return nk.vqs.FullSumState(SPINS, model, variables=random_like(shapes, 0.3))


def vmc(cls: Any = NETKETS_VMC_SR, name: str = "complex", kind: str = "samples", **settings: Any) -> Any:
    model = MODELS[name] if isinstance(name, str) else name
    settings = {"diag_shift": 1e-2, **settings}
    return cls(ISING, nk.optimizer.Sgd(0.05), variational_state=state_of(model, kind), **settings)


def infidelity(cls: Any = NETKETS_INFIDELITY_SR, name: str = "complex", kind: str = "samples", **settings: Any) -> Any:
    target = nk.vqs.FullSumState(SPINS, nk.models.RBM(alpha=1), seed=5)
    if kind == "samples":
        target = nk.vqs.MCState(nk.sampler.ExactSampler(SPINS), nk.models.RBM(alpha=1), n_samples=24, seed=5)
    optimizer = nk.optimizer.Sgd(0.05)
    settings = {"diag_shift": 1e-2, **settings}
    return cls(target, optimizer, variational_state=state_of(MODELS[name], kind), **settings)


def run(driver: Any, n_steps: int = 3) -> np.ndarray:
    driver.run(n_steps, out=(), show_progress=False)
    return parameters_of(driver)


def parameters_of(driver: Any) -> np.ndarray:
    return np.asarray(ravel_pytree(driver.state.parameters)[0])


def same(make: Callable[..., Any], ours: Any, netkets: Any, n_steps: int = 3, **settings: Any) -> None:
    """NetKet's driver with our updates, and ours, end with the same parameters as NetKet's alone."""
    expected_driver = make(netkets, **settings)
    start = parameters_of(expected_driver)
    expected = run(expected_driver, n_steps)
    assert np.linalg.norm(expected - start) > 1e-3
    fk.enable()
    enabled = make(netkets, **settings)
    assert fk.natural_gradient.explain(enabled).path == "factors"
    found = {"enabled": run(enabled, n_steps)}
    fk.disable()
    found["ours"] = run(make(ours, **settings), n_steps)
    for way, parameters in found.items():
        np.testing.assert_allclose(parameters, expected, rtol=1e-9, atol=1e-9, err_msg=way)


VMC: dict[str, dict[str, Any]] = {
    "NTK": {"use_ntk": True, "on_the_fly": True},
    "flat NTK": {"use_ntk": True, "on_the_fly": False},
    "QGT": {"use_ntk": False},
    "as NetKet chooses": {"momentum": 0.7},
    "momentum, flat": {"use_ntk": True, "on_the_fly": False, "momentum": 0.7},
    "momentum, QGT": {"use_ntk": False, "momentum": 0.7},
    "schedules": {
        "use_ntk": True,
        "diag_shift": optax.linear_schedule(0.1, 0.001, 3),
        "momentum": optax.linear_schedule(0.1, 0.8, 3),
    },
    "projection": {"use_ntk": True, "on_the_fly": True, "proj_reg": 0.5},
    "projection, flat": {"use_ntk": True, "on_the_fly": False, "proj_reg": optax.linear_schedule(0.5, 0.2, 3)},
    "real": {"name": "real", "use_ntk": True},
    "real, QGT": {"name": "real", "use_ntk": False},
    "real mode of complex values": {"name": "two networks", "use_ntk": True, "mode": "real"},
    "complex mode of real values": {"name": "real", "use_ntk": True, "mode": "complex"},
    "two networks": {"name": "two networks", "use_ntk": True},
    "two networks, QGT": {"name": "two networks", "use_ntk": False},
    "all states": {"kind": "all states"},
    "all states, real": {"name": "real", "kind": "all states"},
    "all states, momentum": {"kind": "all states", "momentum": 0.5},
    "chunks": {"use_ntk": True, "chunk_size_bwd": 8},
    "chunks, QGT": {"use_ntk": False, "chunk_size_bwd": 8},
    "another solver": {"use_ntk": True, "linear_solver": nk.optimizer.solver.pinv_smooth},
    "another solver, QGT": {"use_ntk": False, "linear_solver": nk.optimizer.solver.cholesky},
}
QUICK = ("NTK", "QGT", "momentum, flat", "schedules", "all states", "real")


@pytest.mark.parametrize("case", [pytest.param(case, marks=() if case in QUICK else thorough) for case in VMC])
def test_vmc(case: str) -> None:
    same(vmc, fk.driver.VMC_SR, NETKETS_VMC_SR, **VMC[case])


@pytest.mark.parametrize(
    "case", ["NTK", *(pytest.param(case, marks=thorough) for case in ("flat NTK", "QGT", "schedules", "all states"))]
)
def test_infidelity(case: str) -> None:
    same(infidelity, fk.driver.Infidelity_SR, NETKETS_INFIDELITY_SR, **VMC[case])


# enable, disable


def test_what_is_replaced() -> None:
    before = [getattr(module, name) for module, name in REPLACED]
    assert len(before) == 9
    fk.natural_gradient.enable()
    fk.natural_gradient.enable()
    assert fk.natural_gradient.is_enabled()
    assert all(getattr(*place) is not netkets for place, netkets in zip(REPLACED, before, strict=True))
    fk.natural_gradient.disable()
    assert [getattr(module, name) for module, name in REPLACED] == before
    fk.natural_gradient.disable()
    assert [getattr(module, name) for module, name in REPLACED] == before
    assert not fk.natural_gradient.is_enabled()


def in_place() -> list[Any]:
    return [getattr(module, name) for module, name in REPLACED]


@pytest.mark.parametrize("make", [vmc, infidelity])
def test_a_driver_of_ours_leaves_things_as_they_are(make: Callable[..., Any]) -> None:
    """Also while it makes a step, in which other threads may run drivers of NetKet's."""
    before, within = in_place(), []

    def solve(matrix: jax.Array, right: jax.Array) -> Any:
        within.append(in_place())
        return nk.optimizer.solver.cholesky(matrix, right)

    driver = make(getattr(fk.driver, make().__class__.__name__), use_ntk=True, linear_solver=solve)
    run(driver, 1)
    assert within
    assert all(found == before for found in [*within, in_place()])
    assert fk.natural_gradient.explain(driver).path == "factors"
    fk.enable()
    run(driver, 1)
    assert fk.natural_gradient.is_enabled()


def test_a_step_of_another_netket() -> None:
    class Other(NETKETS_VMC_SR):  # type: ignore[misc,valid-type]
        """Makes its update in another way."""

    setattr(Other, compat.STEP_METHOD, lambda self: self.state.srt())
    message = rf"no call of sr, srt_onthefly in Other.{compat.STEP_METHOD}, in whose place Ferroket"
    with pytest.raises(compat.MissingNameError, match=message):
        patching.with_our_updates(Other)


@pytest.mark.parametrize("replaceable", REPLACEABLE, ids=lambda r: r.name)
def test_another_netket(replaceable: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module = replaceable.modules[-1]
    message = rf"NetKet .* has no {module.__name__}\.{replaceable.name}\(.*\), in whose place Ferroket"
    replaceable.find()
    monkeypatch.setattr(module, replaceable.name, lambda log_psi, samples: None)
    with pytest.raises(compat.MissingNameError, match=message):
        replaceable.find()
    monkeypatch.delattr(module, replaceable.name)
    with pytest.raises(compat.MissingNameError, match=message):
        replaceable.find()


# Users' own


class Halved(NETKETS_VMC_SR):  # type: ignore[misc,valid-type]
    """Makes half of an update."""


def _halve(netkets: Any) -> Any:
    def step(self: Any) -> Any:
        loss, change = netkets(self)
        return loss, jax.tree.map(lambda x: x / 2, change)

    return step


setattr(Halved, compat.STEP_METHOD, _halve(getattr(NETKETS_VMC_SR, compat.STEP_METHOD)))


class HalvedOurs(fk.driver.VMC_SR):
    """Makes half of an update of ours."""


setattr(HalvedOurs, compat.STEP_METHOD, _halve(getattr(fk.driver.VMC_SR, compat.STEP_METHOD)))


def test_subclasses() -> None:
    same(vmc, HalvedOurs, Halved, n_steps=1, use_ntk=True)
    assert fk.natural_gradient.explain(vmc(HalvedOurs, use_ntk=True)).path == "factors"
    assert fk.natural_gradient.explain(vmc(Halved, use_ntk=True)).path == "NetKet"
    start = parameters_of(vmc())
    whole, half = (run(vmc(cls, use_ntk=True), 1) - start for cls in (fk.driver.VMC_SR, HalvedOurs))
    np.testing.assert_allclose(half, whole / 2, rtol=1e-12, atol=1e-14)


def solve_real(matrix: jax.Array, right: jax.Array) -> Any:
    """A user's own, for real matrices alone."""
    assert matrix.dtype == right.dtype == float
    return jax.scipy.linalg.solve(matrix, right), {"trace": jnp.trace(matrix)}


@pytest.mark.parametrize("use_ntk", [True, pytest.param(False, marks=thorough)])
def test_a_users_own_solver(use_ntk: bool) -> None:
    settings = {"use_ntk": use_ntk, "linear_solver": solve_real}
    expected, found = vmc(**settings), vmc(fk.driver.VMC_SR, **settings)
    np.testing.assert_allclose(run(found, 1), run(expected, 1), rtol=1e-9, atol=1e-11)
    np.testing.assert_allclose(found.info["trace"], expected.info["trace"], rtol=1e-10)
    assert "the solver isn't known" in str(fk.natural_gradient.explain(found))


class Mixing(nn.Module):
    """Subtracts a mean over the samples."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = nn.Dense(4, param_dtype=float)(x.astype(float))
        return jnp.tanh(y - 0.5 * y.mean(axis=0)).sum(axis=-1)


@pytest.mark.parametrize(
    "case", ["NTK", *(pytest.param(case, marks=thorough) for case in ("flat NTK", "QGT", "momentum, flat"))]
)
def test_networks_that_mix_samples(case: str) -> None:
    """NetKet's update is what it is for them, and remains so; their energies depend on what is evaluated together."""
    make = {"name": Mixing(), **VMC[case]}
    expected = run(vmc(**make))
    fk.natural_gradient.enable()
    driver = vmc(**make)
    explained = fk.natural_gradient.explain(driver)
    assert explained.path == "NetKet"
    assert "mixes samples" in str(explained)
    np.testing.assert_allclose(run(driver), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "others", [{}, *(pytest.param(o, marks=thorough) for o in ({"on_the_fly": False}, {"use_ntk": False}))]
)
def test_derivatives_that_are_larger_than_memory(others: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """They are made anew, those of a few samples at a time, and the update remains what it is."""
    model = nk.models.RBMSymm(symmetries=CHAIN.translation_group(), alpha=2, param_dtype=complex)
    settings = {"name": model, "use_ntk": True, "chunk_size_bwd": 8, **others}
    expected = run(vmc(**settings))
    fk.natural_gradient.enable()
    explained = fk.natural_gradient.explain(vmc(**settings))
    rows = 2 * 6 + 2 + 1  # of the kernel and the biases
    matrix = 24**2 // 2 if settings["use_ntk"] else 2 * rows**2
    assert (explained.path, explained.memory, explained.memory_of_matrix) == ("factors", 24 * 16 * rows, 16 * matrix)
    limit = 16 * (matrix + 24 * rows)
    monkeypatch.setenv("FERROKET_MEMORY", str(limit))
    assert fk.natural_gradient.explain(vmc(**settings)).reasons == explained.reasons
    monkeypatch.setenv("FERROKET_MEMORY", f"{(limit - 1) / 1000:f} kB")
    jax.clear_caches()  # of programs that have them all
    driver = vmc(**settings)
    text = str(fk.natural_gradient.explain(driver))
    assert "not faster, because log-derivatives are made anew for 5 samples at once" in text
    assert fk.natural_gradient.explain(driver).memory == 4 * 5 * 16 * rows
    np.testing.assert_allclose(run(driver), expected, rtol=1e-9, atol=1e-9)
    jax.clear_caches()


def test_a_matrix_that_is_larger_than_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERROKET_MEMORY", "1kB")
    fk.natural_gradient.enable()
    assert "the matrix alone takes more than the 9.31e-07 GiB of FERROKET_MEMORY" in str(
        fk.natural_gradient.explain(vmc(use_ntk=True))
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [("4096", 4096), ("2GiB", 2 << 30), (" 2.5 GB ", 2_500_000_000), ("1.5kB", 1500), ("1MiB", 1 << 20)],
)
def test_limits_of_memory(text: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERROKET_MEMORY", text)
    assert limits.memory_for_updates() == expected
    monkeypatch.delenv("FERROKET_MEMORY")
    assert limits.memory_for_updates() == limits.memory_of_ranks(2)


@pytest.mark.parametrize("text", ["much", "0", "-1GB", "3 GB of it", "1kb"])
def test_a_limit_of_memory_that_is_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERROKET_MEMORY", text)
    with pytest.raises(ValueError, match=re.escape(f"FERROKET_MEMORY is {text!r}, but has to be a number of bytes")):
        fk.natural_gradient.explain(vmc(fk.driver.VMC_SR, use_ntk=True))


class Hybrid(nn.Module):
    """Real and complex parameters."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = nn.Dense(3, param_dtype=float)(x.astype(float))
        return nn.Dense(1, param_dtype=complex)(jnp.tanh(y))[..., 0]


def test_real_and_complex_parameters_are_refused() -> None:
    """By NetKet's drivers, so by ours."""
    for cls in (NETKETS_VMC_SR, fk.driver.VMC_SR):
        with pytest.raises(ValueError, match="all real or all complex parameters"):
            vmc(cls, Hybrid(), use_ntk=True)


class Constant(nn.Module):
    """No parameters."""

    def __call__(self, x: jax.Array) -> jax.Array:
        return 0.1 * x.sum(axis=-1).astype(float)


def test_no_parameters() -> None:
    state = nk.vqs.MCState(nk.sampler.ExactSampler(SPINS), Constant(), n_samples=24, variables={"params": {}})
    with pytest.raises(ValueError, match="has no parameters"):
        run(fk.driver.VMC_SR(ISING, nk.optimizer.Sgd(0.05), variational_state=state, diag_shift=0.1, use_ntk=True), 1)


@pytest.mark.parametrize("use_ntk", [True, False])
def test_not_a_number(use_ntk: bool) -> None:
    """What NetKet makes of it."""
    found = []
    for cls in (NETKETS_VMC_SR, fk.driver.VMC_SR):
        driver = vmc(cls, use_ntk=use_ntk)
        assert driver.state.samples.size  # drawn before
        driver.state.parameters = jax.tree.map(lambda x: x.at[(0,) * x.ndim].set(np.nan), driver.state.parameters)
        found.append(getattr(driver, compat.STEP_METHOD)()[1])
    netkets, ours = (np.asarray(ravel_pytree(change)[0]) for change in found)
    np.testing.assert_array_equal(np.isnan(ours), np.isnan(netkets))
    assert np.isnan(ours).all()


@pytest.mark.parametrize(
    "case", ["as NetKet chooses", *(pytest.param(c, marks=thorough) for c in ("momentum, flat", "momentum, QGT"))]
)
def test_checkpoints(case: str) -> None:
    """A run that is interrupted ends as one that isn't, also where NetKet's driver goes on with what ours has begun."""
    expected = run(vmc(fk.driver.VMC_SR, **VMC[case]), 3)
    begun = vmc(fk.driver.VMC_SR, **VMC[case])
    run(begun, 2)
    kept = serialization.to_bytes(begun)
    for cls in (fk.driver.VMC_SR, NETKETS_VMC_SR):
        driver = serialization.from_bytes(vmc(cls, **VMC[case]), kept)
        assert driver.step_count == 2
        np.testing.assert_allclose(run(driver, 1), expected, rtol=1e-9, atol=1e-9)


def test_what_is_no_such_driver() -> None:
    driver = nk.driver.VMC(ISING, nk.optimizer.Sgd(0.05), variational_state=state_of(MODELS["real"]))
    with pytest.raises(TypeError, match="VMC is no driver of stochastic reconfiguration"):
        fk.natural_gradient.explain(driver)
