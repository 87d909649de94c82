"""The rules by which NetKet's variational states find the local energies of our operators."""

from collections.abc import Callable
from typing import Any

import netket.jax as nkjax
from netket.operator import DiscreteJaxOperator
from netket.vqs import MCMixedState, MCState, get_local_kernel, get_local_kernel_arguments
from netket.vqs.mc import check_hilbert

from ferroket.local_energy import any_network, rbm
from ferroket.operator.accelerated import Accelerated


def kernel(vstate: MCState, operator: Accelerated) -> Callable[..., Any]:
    """The fastest kernel for a model and an operator."""
    if rbm.why_not(vstate.model, operator) is None:
        return nkjax.HashablePartial(rbm.local_values, model=vstate.model)
    return any_network.local_values


@get_local_kernel_arguments.dispatch
def _arguments(vstate: MCState, operator: Accelerated) -> tuple[Any, Accelerated]:
    check_hilbert(vstate.hilbert, operator.hilbert)
    return vstate.samples, operator


@get_local_kernel.dispatch
def _kernel(vstate: MCState, operator: Accelerated) -> Callable[..., Any]:
    return kernel(vstate, operator)


@get_local_kernel.dispatch
def _chunked_kernel(vstate: MCState, operator: Accelerated, chunk_size: int) -> Callable[..., Any]:
    return kernel(vstate, operator)


# Density matrices have rules for any operator in JAX: without these, theirs and ours would be equally good.


@get_local_kernel_arguments.dispatch
def _arguments_of_mixed(vstate: MCMixedState, operator: Accelerated) -> Any:
    return get_local_kernel_arguments.invoke(MCMixedState, DiscreteJaxOperator)(vstate, operator)


@get_local_kernel.dispatch
def _kernel_of_mixed(vstate: MCMixedState, operator: Accelerated) -> Any:
    return get_local_kernel.invoke(MCMixedState, DiscreteJaxOperator)(vstate, operator)


@get_local_kernel.dispatch
def _chunked_kernel_of_mixed(vstate: MCMixedState, operator: Accelerated, chunk_size: int) -> Any:
    return get_local_kernel.invoke(MCMixedState, DiscreteJaxOperator, int)(vstate, operator, chunk_size)
