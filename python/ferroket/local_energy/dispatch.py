"""The dispatch rules by which NetKet's Monte Carlo states find the local energies of our operators."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import netket.jax as nkjax
from netket.operator import DiscreteJaxOperator, Squared
from netket.vqs import MCState, get_local_kernel, get_local_kernel_arguments
from netket.vqs.mc import check_hilbert

from ferroket._compat.netket import log_psi_of, model_of
from ferroket.local_energy import any_network, known_model
from ferroket.local_energy.patching import replacement
from ferroket.local_energy.plan import plan
from ferroket.operator.algebra.accelerated import Accelerated

PRECEDENCE = -1
"""That of our rules: below others, so that a rule of a user's own for a kind of states is no conflict."""


_NETKETS = get_local_kernel.invoke(MCState, DiscreteJaxOperator)
_CHUNKED_NETKETS = get_local_kernel.invoke(MCState, DiscreteJaxOperator, int)


def kernel(vstate: MCState, operator: Accelerated, *chunk_size: int) -> Callable[..., Any]:
    """What evaluates an operator for a model, by the plan that ``explain`` shows."""
    found = plan(vstate, operator)
    if found.is_netkets:
        netkets: Callable[..., Any] = (_CHUNKED_NETKETS if chunk_size else _NETKETS)(vstate, operator, *chunk_size)
        return netkets
    log_psi = log_psi_of(vstate)
    if found.known is not None:
        return nkjax.HashablePartial(
            known_model.local_values, ansatz=found.known, model=model_of(vstate), vstate_logpsi=log_psi
        )
    is_updated = found.determinants or found.structure.first_layer is not None
    return nkjax.HashablePartial(any_network.local_values, updates=log_psi if is_updated else False)


@partial(get_local_kernel_arguments.dispatch, precedence=PRECEDENCE)
def _arguments(vstate: MCState, operator: Accelerated) -> tuple[jax.Array, Accelerated]:
    check_hilbert(vstate.hilbert, operator.hilbert)
    return vstate.samples, operator


@partial(get_local_kernel.dispatch, precedence=PRECEDENCE)
def _kernel(vstate: MCState, operator: Accelerated) -> Callable[..., Any]:
    return kernel(vstate, operator)


@partial(get_local_kernel.dispatch, precedence=PRECEDENCE)
def _chunked_kernel(vstate: MCState, operator: Accelerated, chunk_size: int) -> Callable[..., Any]:
    return kernel(vstate, operator, chunk_size)


# A†A, of which NetKet evaluates |A_loc|². Its rules for this class are replaced, since one for Squared[Accelerated]
# would have plum look into the types of all operators.

_ARGUMENTS = get_local_kernel_arguments.invoke(MCState, Squared)
_KERNEL = get_local_kernel.invoke(MCState, Squared)
_CHUNKED_KERNEL = get_local_kernel.invoke(MCState, Squared, int)


def _squared(of_parent: Callable[..., Any], *args: Any, **kwargs: Any) -> jax.Array:
    return jnp.abs(of_parent(*args, **kwargs)) ** 2


def _parent(operator: Squared) -> Accelerated | None:
    """What is squared, if it is evaluated by kernels of ours."""
    return replacement(operator.parent)


@get_local_kernel_arguments.dispatch
def _arguments_of_squared(vstate: MCState, operator: Squared) -> Any:
    parent = _parent(operator)
    return _ARGUMENTS(vstate, operator) if parent is None else get_local_kernel_arguments(vstate, parent)


@get_local_kernel.dispatch
def _kernel_of_squared(vstate: MCState, operator: Squared) -> Callable[..., Any]:
    parent = _parent(operator)
    return _KERNEL(vstate, operator) if parent is None else nkjax.HashablePartial(_squared, kernel(vstate, parent))


@get_local_kernel.dispatch
def _chunked_kernel_of_squared(vstate: MCState, operator: Squared, chunk_size: int) -> Callable[..., Any]:
    parent = _parent(operator)
    if parent is None:
        return _CHUNKED_KERNEL(vstate, operator, chunk_size)
    return nkjax.HashablePartial(_squared, kernel(vstate, parent, chunk_size))
