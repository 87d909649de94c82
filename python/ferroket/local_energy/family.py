"""Families of models whose amplitude ratios are known, and how to add one."""

import functools
from abc import ABC, abstractmethod
from typing import Any

import jax
import jax.numpy as jnp
import netket.jax as nkjax
import numpy as np
from netket.vqs import MCState

from ferroket.ffi.varying import align
from ferroket.local_energy import any_network
from ferroket.local_energy.amplitudes import Amplitudes
from ferroket.operator.algebra.accelerated import Accelerated
from ferroket.operator.compiled import Form, LocalStates, Restricted, Tables, Terms

DTYPES = tuple(np.dtype(dtype) for dtype in (np.float32, np.float64, np.complex64, np.complex128))
"""The dtypes that parameters may have."""


class Family(ABC):
    """Models of one kind, whose local values need no connected configurations.

    A family of your own is a subclass, an instance of which is given to :func:`register`.
    """

    name: str
    """What :func:`ferroket.explain` calls it."""

    @abstractmethod
    def why_not(self, model: Any) -> str | None:
        """Why this family doesn't evaluate a model, as the end of a sentence; None if it does.

        Compare the exact type: a subclass may be another function.
        """

    @abstractmethod
    def amplitudes(self, model: Any, variables: Any, first: jax.Array, step: jax.Array) -> Amplitudes:
        """What ψ of the model is, up to a factor; this is traced.

        Args:
            model: The model.
            variables: Its variables.
            first: The value of the first local state of each site, ``(N,)``.
            step: What is added to it for the second one. Both are as precise as samples and parameters together.

        Returns:
            A :class:`Machine`, a :class:`ModulusAndPhase` or a :class:`Quadratic`.
        """


FAMILIES: list[Family] = []
"""Those there are; the first one that takes a model evaluates it."""


def register(family: Family) -> Family:
    """Adds a family, which is asked before those that are there already. Returns it."""
    FAMILIES.insert(0, family)
    return family


def find(vstate: MCState, operator: Accelerated) -> tuple[Family | None, list[str]]:
    """The family that evaluates the model of a state, if there is one, and otherwise why there is none."""
    found, reasons = of_model(vstate._model, vstate.variables, vstate.hilbert.size)
    reasons = [*reasons, *_of_operator(operator._form)]
    return (None if reasons else found), reasons


def of_model(model: Any, variables: Any, n_sites: int) -> tuple[Family | None, list[str]]:
    """The family of a model with these variables, if there is one, and otherwise why there is none."""
    reasons = _of_variables(variables)
    about_model = []
    for family in FAMILIES:
        reason = family.why_not(model)
        if reason is None:
            reasons = [*_of_parameters(model, variables, n_sites), *reasons]
            return (None, reasons) if reasons else (family, [])
        if reason.startswith(_ALMOST):
            about_model.append(reason.removeprefix(_ALMOST))
    name = f"{type(model).__module__.split('.')[0]}'s {type(model).__name__}"
    if not about_model:
        kinds = ", ".join(sorted({family.name for family in FAMILIES}))
        about_model = [f"{name} is none of the models whose amplitude ratios are known ({kinds})"]
    return None, [*about_model, *reasons]


_ALMOST = "almost: "


def almost(reason: str) -> str:
    """Marks the reason of a family that the model nearly belongs to, for which :func:`find` tells it alone."""
    return _ALMOST + reason


def _of_variables(variables: Any) -> list[str]:
    if set(variables) != {"params"}:
        return ["the state has variables other than parameters"]
    dtypes = {np.dtype(leaf.dtype) for leaf in jax.tree.leaves(variables)}
    return [f"there are parameters of {dtype}" for dtype in dtypes if dtype not in DTYPES]


def _of_parameters(model: Any, variables: Any, n_sites: int) -> list[str]:
    """A model ignores parameters that it doesn't have, and casts others: a family would not."""
    found = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), dict(variables))
    try:
        own = _parameters(model, n_sites)
    except TypeError:  # the model can't be hashed
        own = _parameters.__wrapped__(model, n_sites)
    same = jax.tree.structure(found) == jax.tree.structure(own) and jax.tree.leaves(found) == jax.tree.leaves(own)
    return [] if same else ["the parameters aren't those that the model has when it is new"]


@functools.lru_cache(maxsize=256)
def _parameters(model: Any, n_sites: int) -> Any:
    """The shapes and dtypes of a model's variables."""
    return dict(jax.eval_shape(model.init, jax.random.key(0), jax.ShapeDtypeStruct((1, n_sites), float)))


def _of_operator(form: Form) -> list[str]:
    if isinstance(form, Terms):
        return []
    if isinstance(form, Tables):
        return ["the operator acts on sites that have more than two local states"]
    if isinstance(form, Restricted):
        return ["the Hilbert space has a constraint of its own, which the kernels don't know"]
    return ["the operator is no sum of terms that lead from a configuration to one other each"]


def local_values(
    logpsi: any_network.LogPsi,
    variables: Any,
    samples: jax.Array,
    operator: Accelerated,
    *,
    family: Family,
    vstate_logpsi: Any = None,
    model: Any,
    chunk_size: int | None = None,
) -> jax.Array:
    """The local values of samples ``(Ns, N)``: as :func:`ferroket.local_energy.any_network.local_values`.

    If ``logpsi`` isn't ``vstate_logpsi``, the function that the family stands for, that is evaluated as any network.
    Only then, where there are no CPUs, and for derivatives does ``chunk_size`` matter.
    """
    if vstate_logpsi is not None and logpsi != vstate_logpsi:
        return any_network.local_values(logpsi, variables, samples, operator, chunk_size=chunk_size)
    forward = nkjax.HashablePartial(_forward, family, model)
    return any_network.differentiable(forward, logpsi, variables, samples, operator, chunk_size)


def _forward(
    family: Family,
    model: Any,
    logpsi: any_network.LogPsi,
    chunk_size: int | None,
    variables: Any,
    form: Terms,
    samples: jax.Array,
) -> jax.Array:
    sample = jax.ShapeDtypeStruct((1, samples.shape[-1]), samples.dtype)
    dtype = jnp.result_type(form.dtype, jax.eval_shape(logpsi, variables, sample).dtype)

    def on_cpu(variables: Any, form: Terms, samples: jax.Array) -> jax.Array:
        first, step = local_states(form.sites, jnp.result_type(samples, *jax.tree.leaves(variables)))
        local = family.amplitudes(model, variables, first, step).local_values(form, samples)
        local = (local if jnp.issubdtype(dtype, jnp.complexfloating) else local.real).astype(dtype)
        # All parameters are part of every ψ(σ), and so of every ratio.
        finite = jnp.array([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(variables)]).all()
        local, _ = align([jnp.where(finite, local, any_network.nan(dtype)), samples])
        return local

    def elsewhere(variables: Any, form: Terms, samples: jax.Array) -> jax.Array:
        return any_network.forward(logpsi, chunk_size, variables, form, samples)

    return jax.lax.platform_dependent(variables, form, samples, cpu=on_cpu, default=elsewhere)


def local_states(sites: LocalStates, dtype: Any) -> list[jax.Array]:
    """The first local state of each site, and how much the second one exceeds it, ``(N,)`` of real numbers."""
    real = jnp.finfo(dtype).dtype
    kind = sites.kind if sites.kind.size else np.zeros(sites.n_sites, np.int32)
    return [jnp.asarray(of_kinds, real)[kind] for of_kinds in (sites.starts, sites.steps)]
