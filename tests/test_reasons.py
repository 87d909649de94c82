"""Reasons why something isn't faster: each has a kind, on which a program can branch."""

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest

import ferroket as fk
from ferroket import Reason, ReasonKind
from ferroket.local_energy import Explanation

CHAIN = nk.graph.Chain(4)
SPINS, SPINS_ONE = nk.hilbert.Spin(0.5, 4), nk.hilbert.Spin(1, 4)
FERMIONS = nk.hilbert.SpinOrbitalFermions(4, s=1 / 2, n_fermions_per_spin=(2, 2))
ISING = fk.operator.Ising(SPINS, CHAIN, h=1.0)
HUBBARD = fk.operator.FermiHubbard(FERMIONS, CHAIN, t=1.0, U=4.0)
RBM = nk.models.RBM(param_dtype=float)


class Sorted(nn.Module):
    """The kernels of networks have no sort of numbers."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.sort(nn.Dense(4, param_dtype=float)(x.astype(float)), axis=-1)[..., -1] ** 2


class OfTheBatch(nn.Module):
    """The value of one sample depends on the others."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = nn.Dense(4, param_dtype=float)(x.astype(float))
        return nk.nn.activation.log_cosh(y - y.mean(axis=0)).sum(axis=-1)


class Half(nn.Module):
    """Numbers of 16 bits."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = nn.Dense(4, param_dtype=jnp.bfloat16, dtype=jnp.bfloat16)(x)
        return nk.nn.activation.log_cosh(y).sum(axis=-1)


class Subclass(nk.models.RBM):
    """May be another function."""


def state_of(model: Any, hilbert: Any = SPINS, sampler: Any = None) -> Any:
    sampler = sampler or fk.sampler.MetropolisLocal(hilbert, n_chains=4)
    return nk.vqs.MCState(sampler, model, n_samples=8, seed=1)


def on_fermions(model: Any) -> Any:
    return state_of(model, sampler=fk.sampler.MetropolisFermionHop(FERMIONS, graph=CHAIN, n_chains=4))


def driver_of(state: Any, operator: Any = ISING, cls: Any = fk.driver.VMC_SR, **settings: Any) -> Any:
    settings = {"diag_shift": 0.1, "use_ntk": True, **settings}
    return cls(operator, nk.optimizer.Sgd(0.1), variational_state=state, **settings)


def flips() -> Any:
    return fk.operator.LocalOperator(SPINS_ONE, [np.ones((3, 3))] * 4, [[site] for site in range(4)])


def of_update(make: Callable[[], Any], **settings: Any) -> Callable[[], Explanation]:
    return lambda: fk.explain(driver_of(make(), **settings)).update


PLANS: dict[str, tuple[Callable[[], Explanation], list[ReasonKind]]] = {
    "known": (lambda: fk.explain(state_of(RBM), ISING), []),
    "sort": (lambda: fk.explain(state_of(Sorted()), ISING), [ReasonKind.MODEL, ReasonKind.OPERATION]),
    "batch": (lambda: fk.explain(state_of(OfTheBatch()), ISING), [ReasonKind.MIXES_SAMPLES]),
    "subclass": (lambda: fk.explain(state_of(Subclass()), ISING), [ReasonKind.MODEL]),
    "bfloat16": (
        lambda: fk.explain(state_of(Half()), ISING),
        [ReasonKind.MODEL, ReasonKind.DTYPE, ReasonKind.DTYPE],
    ),
    "spins 1": (lambda: fk.explain(state_of(RBM, SPINS_ONE), flips()), [ReasonKind.LOCAL_STATES]),
    "density matrix": (
        lambda: fk.explain(
            nk.vqs.MCMixedState(nk.sampler.MetropolisLocal(nk.hilbert.DoubledHilbert(SPINS)), RBM), ISING
        ),
        [ReasonKind.STATE],
    ),
    "NetKet's operator": (
        lambda: fk.explain(state_of(RBM), nk.operator.IsingJax(SPINS, CHAIN, h=1.0)),
        [ReasonKind.NOT_ENABLED],
    ),
    "permutation": (
        lambda: fk.explain(
            state_of(RBM),
            fk.accelerate(nk.operator.permutation.PermutationOperator(SPINS, CHAIN.translation_group().elems[1])),
        ),
        [ReasonKind.OPERATOR_FORM],
    ),
    "other space": (
        lambda: fk.explain(on_fermions(nk.models.Slater2nd(nk.hilbert.SpinOrbitalFermions(8, n_fermions=4))), HUBBARD),
        [ReasonKind.HILBERT_SPACE, ReasonKind.UNREADABLE],
    ),
    "chains": (lambda: fk.sampler.explain(state_of(Sorted())), [ReasonKind.MODEL, ReasonKind.OPERATION]),
    "exact sampler": (
        lambda: fk.sampler.explain(state_of(RBM, sampler=nk.sampler.ExactSampler(SPINS))),
        [ReasonKind.SAMPLER],
    ),
    "rule": (
        lambda: fk.sampler.explain(
            state_of(RBM, sampler=fk.sampler.MetropolisSampler(SPINS, nk.sampler.rules.FixedRule(), n_chains=4))
        ),
        [ReasonKind.TRANSITION_RULE],
    ),
    "full sum": (lambda: fk.sampler.explain(nk.vqs.FullSumState(SPINS, RBM)), [ReasonKind.STATE]),
    "update": (of_update(lambda: state_of(RBM)), []),
    "update, sort": (of_update(lambda: state_of(Sorted())), [ReasonKind.OPERATION]),
    "update, batch": (of_update(lambda: state_of(OfTheBatch())), [ReasonKind.MIXES_SAMPLES]),
    "update, RBMSymm": (
        of_update(lambda: state_of(nk.models.RBMSymm(symmetries=CHAIN.translation_group(), param_dtype=float))),
        [ReasonKind.NO_FACTORS],
    ),
    "update, solver": (
        of_update(lambda: state_of(RBM), linear_solver=nk.optimizer.solver.pinv_smooth),
        [ReasonKind.SOLVER],
    ),
    "update, determinants": (
        of_update(lambda: on_fermions(nk.models.Slater2nd(FERMIONS)), operator=HUBBARD),
        [ReasonKind.OPERATION],
    ),
    "NetKet's driver": (of_update(lambda: state_of(RBM), cls=nk.driver.VMC_SR), [ReasonKind.NOT_ENABLED]),
    "no update": (
        lambda: fk.explain(nk.driver.VMC(ISING, nk.optimizer.Sgd(0.1), variational_state=state_of(RBM))).update,
        [ReasonKind.DRIVER],
    ),
}


@pytest.mark.parametrize(("make", "kinds"), PLANS.values(), ids=PLANS)
def test_reasons_of_plans(make: Callable[[], Explanation], kinds: list[ReasonKind]) -> None:
    found = make()
    assert all(type(reason.kind) is ReasonKind for reason in found.reasons)
    assert [reason.kind for reason in found.reasons] == kinds, found.reasons
    assert all(f"not faster, because {reason}" in str(found) for reason in found.reasons)


def test_determinants_are_differentiated_in_rust() -> None:
    found = fk.explain(driver_of(on_fermions(nk.models.Slater2nd(FERMIONS)), operator=HUBBARD)).update
    assert found.derivatives == "differentiated by XLA, and by Rust for determinants"
    assert found.reasons == ["XLA differentiates it: 'log_determinants' is a call of its own"]


class Known(fk.ansatz.Ansatz):
    """An ansatz of a user's own, whose reason is a plain text."""

    name = "known"

    def unsupported_reason(self, model: Any) -> str | None:
        return None if isinstance(model, Sorted) else "it isn't sorted"

    def why_not_on(self, model: Any, hilbert: Any) -> str | None:
        return "the space isn't ours"

    def amplitudes(self, model: Any, variables: Any, first: Any, step: Any) -> Any:
        raise AssertionError("the space isn't that of the ansatz")


def test_plain_texts_of_a_users_ansatz_have_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fk.ansatz.registry, "REGISTERED", [Known()])
    reasons = fk.explain(state_of(Sorted()), ISING).reasons
    assert (reasons[0], reasons[0].kind) == ("the space isn't ours", ReasonKind.HILBERT_SPACE)


def test_a_reason_is_a_text() -> None:
    reason = Reason("the sampler is slow", ReasonKind.SAMPLER)
    assert reason == "the sampler is slow"
    assert repr(reason) == "'the sampler is slow'"
    assert json.dumps({"kind": reason.kind, "text": reason}) == '{"kind": "sampler", "text": "the sampler is slow"}'
    for copied in (copy.deepcopy(reason), pickle.loads(pickle.dumps(reason))):
        assert (type(copied), copied, copied.kind) == (Reason, reason, ReasonKind.SAMPLER)
    later = reason.after("it waits, since ")
    assert (later, later.kind) == ("it waits, since the sampler is slow", ReasonKind.SAMPLER)
    assert Reason.of(reason, ReasonKind.MODEL) is reason
    assert Reason.of("it", ReasonKind.MODEL).kind is ReasonKind.MODEL
