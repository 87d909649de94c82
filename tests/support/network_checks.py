"""What Ferroket makes of a network, beside enumeration and NetKet alone: samples, local energies and updates.

Each network is examined with its gates closed, and then with them open, since what is found out about a network is
kept. Of the samples each single move is compared with the transition matrix, from chains that start as |ψ|² and
anywhere; their log probabilities, the local energies and the updates are compared number by number.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
from jax.flatten_util import ravel_pytree

import ferroket as fk
from ferroket._compat import netket as compat
from support.comparisons import p_value
from support.mpi import FULL
from support.transitions import (
    BOSE_HUBBARD,
    CASES,
    FERMIONS,
    HEISENBERG,
    ISING,
    SPINS_AND_BOSONS,
    TRIANGLE,
    WITH_MORE_STATES,
    Case,
    numbers_of,
)
from support.variational_states import is_single, random_like

TINY = -1e8
"""The ln |ψ| below which a configuration counts as forbidden."""
LEAST = 1e-7
"""The least p-value of the moves of a network's chains, of which there are many."""
N_CHAINS, LENGTH = 2048, 8


class UnsuitableNetworkError(Exception):
    """The network is none that can be compared: NetKet doesn't evaluate it, or its amplitudes are extreme."""


@dataclass(frozen=True)
class Setting:
    """A space with samplers, and an operator of NetKet's on it."""

    case: Case
    operator: Any

    @property
    def n_sites(self) -> int:
        return int(self.case.hilbert.size)


SETTINGS = {
    "local": Setting(CASES["local"], ISING),
    "exchange": Setting(CASES["exchange"], HEISENBERG),
    "Bose-Hubbard": Setting(WITH_MORE_STATES["Bose-Hubbard"], BOSE_HUBBARD),
    "local, spins and bosons": Setting(WITH_MORE_STATES["local, spins and bosons"], SPINS_AND_BOSONS.to_jax_operator()),
    "fermions": Setting(CASES["fermions"], compat.FermiHubbard(FERMIONS, t=1.0, U=0.7, graph=TRIANGLE)),
}


def log_amplitudes(model: nn.Module, variables: Any, x: np.ndarray) -> np.ndarray:
    return np.asarray(jax.jit(model.apply)(variables, x))


def has_moderate_amplitudes(log_psi: np.ndarray) -> bool:
    """Whether ln ψ is a number, or forbids, and the others are of comparable probability."""
    allowed = log_psi.real[log_psi.real > TINY]
    is_number = not np.isnan(log_psi).any() and np.abs(log_psi.imag).max(initial=0) < 1e3
    return bool(is_number and len(allowed) > 1 and np.ptp(allowed) < 15)


def precision(model: nn.Module, variables: Any) -> float:
    """How far a number may be off, as a part of the largest; bfloat16 has eight bits, ratios of ψ have fewer."""
    bits = min(getattr(model, "bits", 64), 32 if is_single(variables) else 64)
    return {16: 0.03, 32: 3e-4, 64: 1e-9}[bits]


def assert_close(what: str, found: Any, expected: Any, tolerance: float) -> None:
    """Up to a part of the largest number, or of those that cancel; what isn't finite in the same places, and alike."""
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape, what
    is_finite = np.isfinite(expected)
    scale = np.abs(expected[is_finite]).max(initial=0.3)
    np.testing.assert_array_equal(np.isfinite(found), is_finite, err_msg=what)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected), err_msg=what)
    off = np.abs(found - expected, where=is_finite, out=np.zeros(expected.shape))
    assert off.max(initial=0) <= tolerance * scale, (
        f"{what}: off by {off.max()}, of numbers up to {scale}: {found.ravel()[off.argmax()]}, "
        f"but {expected.ravel()[off.argmax()]} is right"
    )


def by_netket(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception as error:
        raise UnsuitableNetworkError(f"NetKet: {type(error).__name__}") from error


def by_ours(function: Callable[[], Any]) -> Any:
    fk.enable()
    try:
        return function()
    finally:
        fk.disable()


# Samples


def transition_matrix(case: Case, log_psi: np.ndarray) -> np.ndarray:
    """By Metropolis and Hastings; from where ψ is 0 to where it isn't any move is accepted, and none to another 0."""
    log = 2 * log_psi.real.astype(float)
    there, back = case.proposals, case.proposals.T
    with np.errstate(all="ignore"):
        odds = np.exp(log[None, :] - log[:, None]) * back / there
    moves = there * np.minimum(1, np.where((there > 0) & ~np.isnan(odds), odds, 0))
    return moves + np.diag(1 - moves.sum(axis=1))


def check_samples(setting: Setting, model: nn.Module, variables: Any, log_psi: np.ndarray, tolerance: float) -> None:
    case = setting.case
    sampler = case.make(fk.sampler, n_chains=N_CHAINS, sweep_size=1)
    weights = np.exp(2 * (log_psi.real - log_psi.real.max()).astype(float))
    rng = np.random.default_rng(1)
    start = np.concatenate(
        [
            rng.choice(len(weights), N_CHAINS // 2, p=weights / weights.sum()),
            rng.integers(len(weights), size=N_CHAINS - N_CHAINS // 2),
        ]
    )
    state = sampler.init_state(model, variables, seed=3)
    state = sampler.reset(model, variables, state.replace(σ=jnp.asarray(case.states[start], state.σ.dtype)))
    (samples, log_prob), end = sampler.sample(
        model, variables, state=state, chain_length=LENGTH, return_log_probabilities=True
    )
    numbers = numbers_of(case, np.asarray(samples))
    # Those of forbidden samples, in which some chains start, by themselves: they may be as large as 1e30.
    for which in (log_psi.real[numbers] > TINY, log_psi.real[numbers] <= TINY):
        expected = 2 * log_psi.real[numbers]
        assert_close("log probabilities", np.asarray(log_prob)[which], expected[which], tolerance)
        last = which[:, -1]
        assert_close("last log probabilities", np.asarray(end.log_prob)[last], expected[last, -1], tolerance)
    n = len(weights)
    paths = np.concatenate([start[:, None], numbers], axis=1)
    steps = np.bincount((n * paths[:, :-1] + paths[:, 1:]).ravel(), minlength=n * n).reshape(n, n)
    expected = steps.sum(axis=1)[:, None] * transition_matrix(case, log_psi)
    impossible = (expected == 0) & (steps > 0)
    assert not impossible.any(), f"moves that can't be: {np.argwhere(impossible).tolist()}"
    p = p_value(steps.ravel(), expected.ravel())
    assert p > LEAST, f"the moves have a p-value of {p}"


# Local energies and updates


def state_of(setting: Setting, model: nn.Module, variables: Any, x: np.ndarray) -> Any:
    state = nk.vqs.MCState(nk.sampler.ExactSampler(setting.case.hilbert), model, n_samples=len(x), variables=variables)
    state._samples = jnp.asarray(x)[None]
    return state


def local_energies(setting: Setting, model: nn.Module, variables: Any, x: np.ndarray) -> np.ndarray:
    found = state_of(setting, model, variables, x).local_estimators(setting.operator)
    return np.asarray(getattr(found, "data", found)).ravel()


def updates(
    setting: Setting, model: nn.Module, variables: Any, x: np.ndarray, mode: str
) -> dict[str, Callable[[], Any]]:
    """What NetKet makes of these samples: the Jacobian, S v, and the update of stochastic reconfiguration."""

    def jacobian() -> Any:
        state = state_of(setting, model, variables, x)
        samples = state.samples.reshape(len(x), -1)
        return nk.jax.jacobian(state._apply_fun, state.parameters, samples, state.model_state, mode=mode, dense=True)

    def product(tensor: Any, **settings: Any) -> Any:
        state = state_of(setting, model, variables, x)
        vector = jax.tree.map(lambda leaf: leaf[..., ::-1] * 0.7 + 0.2 if leaf.ndim else leaf, state.parameters)
        return tensor(state, diag_shift=0.1, **settings) @ vector

    def update() -> Any:
        state = state_of(setting, model, variables, x)
        settings = {"diag_shift": 0.1, "mode": mode, "use_ntk": True, "on_the_fly": True}
        driver = nk.driver.VMC_SR(setting.operator, nk.optimizer.Sgd(0.1), variational_state=state, **settings)
        return driver.compute_loss_and_update()[1]

    is_complex = any(map(jnp.iscomplexobj, jax.tree.leaves(variables)))
    on_the_fly = functools.partial(
        product, nk.optimizer.qgt.QGTOnTheFly, **({"holomorphic": False} if is_complex else {})
    )
    dense = functools.partial(product, nk.optimizer.qgt.QGTJacobianDense, mode=mode)
    found = {"Jacobian": jacobian, "S v, on the fly": on_the_fly, "update": update}
    return {**found, "S v, dense": dense} if FULL else found


def check_updates(
    setting: Setting, model: nn.Module, variables: Any, x: np.ndarray, mode: str, tolerance: float
) -> None:
    compared = 0
    for what, function in updates(setting, model, variables, x, mode).items():
        flat = functools.partial(lambda function: np.asarray(ravel_pytree(function())[0]), function)
        try:
            expected = by_netket(flat)
        except UnsuitableNetworkError:
            continue
        if not np.isfinite(expected).all():  # derivatives of products that are zero, for example
            continue
        assert_close(what, by_ours(flat), expected, tolerance)
        compared += 1
    if not compared:
        raise UnsuitableNetworkError("NetKet has no updates of it")


def check_network(setting: Setting, model: nn.Module) -> None:
    x = np.asarray(setting.case.states).astype(np.int8)
    for with_gates in (False, True):
        variables = random_variables(model, setting.n_sites, with_gates=with_gates)
        log_psi = log_amplitudes(model, variables, x)
        if not has_moderate_amplitudes(log_psi):
            raise UnsuitableNetworkError("probabilities differ by many orders of magnitude")
        tolerance = precision(model, variables)
        if not getattr(model, "mixes_samples", False):
            check_samples(setting, model, variables, log_psi, tolerance)
        is_allowed = log_psi.real > TINY
        # Where ψ is tiny, and not zero, the last digits decide about ratios.
        of = x if np.isneginf(log_psi.real[~is_allowed]).all() else x[is_allowed]
        energies = functools.partial(local_energies, setting, model, variables, of)
        expected = by_netket(energies)
        assert_close("local energies", by_ours(energies), expected, tolerance)
        mode = "complex" if np.iscomplexobj(log_psi) else "real"
        check_updates(setting, model, variables, x[is_allowed], mode, 10 * tolerance)
        if not has_gates(variables):
            return


GATE = "gate"
"""What the names of parameters begin with that are zero at the start of a run."""


def has_gates(variables: Any) -> bool:
    paths, _ = jax.tree_util.tree_flatten_with_path(variables)
    return any(path[-1].key.startswith(GATE) for path, _ in paths)


def random_variables(model: nn.Module, n_sites: int, *, with_gates: bool) -> Any:
    """Random parameters; gates are zero, as at the start of a run, or not."""
    shapes = jax.eval_shape(model.init, jax.random.key(0), jax.ShapeDtypeStruct((2, n_sites), np.int8))
    variables = random_like(shapes, 0.3)

    def opened(path: Any, leaf: jax.Array) -> jax.Array:
        return leaf if with_gates or not path[-1].key.startswith(GATE) else 0 * leaf

    return jax.tree_util.tree_map_with_path(opened, variables)
