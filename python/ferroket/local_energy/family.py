"""Families of models whose amplitude ratios are known, and how to add one."""

import functools
from abc import ABC, abstractmethod
from typing import Any

import jax
import jax.numpy as jnp
import netket.jax as nkjax
import numpy as np
from netket.vqs import MCState

from ferroket.ffi import Attribute, known_local_values
from ferroket.ffi.varying import align
from ferroket.local_energy import any_network
from ferroket.operator.accelerated import Accelerated
from ferroket.operator.compiled import Form, Tables, Terms

DTYPES = tuple(np.dtype(dtype) for dtype in (np.float32, np.float64, np.complex64, np.complex128))
"""The dtypes that parameters may have."""


class Family(ABC):
    """Models of one kind, whose local values need no connected configurations.

    A family of your own is a subclass, an instance of which is given to :func:`register`. Its ``local_values`` may use
    a :class:`~ferroket.local_energy.machine.Machine`, or any function of JAX.
    """

    name: str
    """What :func:`ferroket.explain` calls it."""

    @abstractmethod
    def why_not(self, model: Any) -> str | None:
        """Why this family doesn't evaluate a model, as the end of a sentence; None if it does.

        Compare the exact type: a subclass may be another function.
        """

    @abstractmethod
    def local_values(self, model: Any, variables: Any, form: Terms, samples: jax.Array) -> jax.Array:
        """The local values of samples ``(Ns, N)``, ``(Ns,)``, on one CPU device; this is traced.

        Derivatives needn't exist: they are those of :func:`ferroket.local_energy.local_values`.
        """


_N_SAMPLES = 4096
"""So many samples are evaluated at once if nobody says how many: what is kept of each takes memory."""
_MIN_SAMPLES = 1024
"""Chunks smaller than this would save little of it, and take time."""

FAMILIES: list[Family] = []
"""Those there are; the first one that takes a model evaluates it."""


def register(family: Family) -> Family:
    """Adds a family, which is asked before those that are there already. Returns it."""
    FAMILIES.insert(0, family)
    return family


def find(vstate: MCState, operator: Accelerated) -> tuple[Family | None, list[str]]:
    """The family that evaluates the model of a state, if there is one, and otherwise why there is none."""
    model = vstate._model
    form = operator._form
    reasons = [*_of_state(vstate), *_of_operator(form)]
    about_model = []
    for family in FAMILIES:
        reason = family.why_not(model)
        if reason is None:
            reasons = [*_of_parameters(vstate), *reasons]
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


def _of_state(vstate: MCState) -> list[str]:
    if set(vstate.variables) != {"params"}:
        return ["the state has variables other than parameters"]
    dtypes = {np.dtype(leaf.dtype) for leaf in jax.tree.leaves(vstate.variables)}
    return [f"there are parameters of {dtype}" for dtype in dtypes if dtype not in DTYPES]


def _of_parameters(vstate: MCState) -> list[str]:
    """A model ignores parameters that it doesn't have, and casts others: a family would not."""
    found = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), dict(vstate.variables))
    try:
        own = _parameters(vstate._model, vstate.hilbert.size)
    except TypeError:  # the model can't be hashed
        own = _parameters.__wrapped__(vstate._model, vstate.hilbert.size)
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
        of_chunk = nkjax.HashablePartial(family.local_values, model)
        local = nkjax.apply_chunked(
            of_chunk,
            in_axes=(None, None, 0),
            chunk_size=max(chunk_size or _N_SAMPLES, _MIN_SAMPLES),
            axis_0_is_sharded=False,
        )(variables, form, samples)
        local = (local if jnp.issubdtype(dtype, jnp.complexfloating) else local.real).astype(dtype)
        # All parameters are part of every ψ(σ), and so of every ratio.
        finite = jnp.array([jnp.isfinite(leaf).all() for leaf in jax.tree.leaves(variables)]).all()
        local, _ = align([jnp.where(finite, local, any_network.nan(dtype)), samples])
        return local

    def elsewhere(variables: Any, form: Terms, samples: jax.Array) -> jax.Array:
        return any_network.forward(logpsi, chunk_size, variables, form, samples)

    return jax.lax.platform_dependent(variables, form, samples, cpu=on_cpu, default=elsewhere)


def of_amplitudes(
    amplitudes: str, numbers: list[jax.Array], form: Terms, samples: jax.Array, **attributes: Attribute
) -> jax.Array:
    """The local values by a kernel in Rust; ``numbers`` are real, or all planes of complex numbers already."""
    tables = map(jnp.asarray, form.tables)
    return known_local_values(
        form.family, amplitudes, samples, *tables, of_amplitudes=numbers, **form.attributes, **attributes
    )


def planes(numbers: jax.Array) -> jax.Array:
    """Real and imaginary parts, or real numbers alone, along a new first dimension."""
    is_complex = jnp.issubdtype(numbers.dtype, jnp.complexfloating)
    return jnp.stack([numbers.real, numbers.imag]) if is_complex else numbers[None]


def steps(form: Terms, dtype: Any) -> jax.Array:
    """By how much the second local state of each site exceeds the first one, ``(N,)``."""
    sites = form.sites
    each = jnp.asarray(sites.steps, jnp.finfo(dtype).dtype)[sites.kind if sites.kind.size else 0]
    return jnp.broadcast_to(each, (sites.n_sites,))
