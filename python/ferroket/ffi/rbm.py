"""The primitive ``rbm_local_values``: local values with restricted Boltzmann machines, on CPUs."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import mlir

from ferroket.ffi.compact import on_one_device
from ferroket.ffi.family import Attribute, Attributes, Family, for_handler, static
from ferroket.ffi.rules import as_numbers
from ferroket.ffi.varying import align


def rbm_local_values(
    family: Family, x: jax.Array, *tables: jax.Array, machine: Sequence[jax.Array], **attributes: Attribute
) -> jax.Array:
    """The local values of samples, without their connected configurations.

    Args:
        family: The form of the operator, which must have a handler ``_rbm``.
        x: The samples, of shape ``(Ns, N)``. They may not be sharded, except by :func:`jax.shard_map`.
        tables: The operator's numbers, with coefficients of float64 or complex128.
        machine: θ and tanh θ, ``(P, Ns, M)``, the changes of θ by each site, their cosh and sinh, ``(P, N, M)``, and the
            changes of ln ψ by the visible biases, ``(P, N)``, all of float32 or float64; P is 1, or 2 for real and
            imaginary parts.
        attributes: Static numbers, and tuples of them, for the handler.

    Returns:
        The local values, ``(Ns,)`` of complex128.
    """
    args = align([as_numbers(x), *tables, *machine])
    (local,) = rbm_local_values_p.bind(*args, family=family, attributes=static(attributes))
    return local


rbm_local_values_p = Primitive("rbm_local_values")
rbm_local_values_p.multiple_results = True
rbm_local_values_p.def_impl(jax.jit(rbm_local_values_p.bind, static_argnames=("family", "attributes")))


def _types(x: Any, *_: Any, **__: Any) -> list[Any]:
    return [on_one_device(x, x.shape[:1], np.dtype(np.complex128))]


def _call(*args: jax.Array, family: Family, attributes: Attributes) -> list[jax.Array]:
    local = jax.ShapeDtypeStruct(args[0].shape[:1], np.complex128)
    return list(jax.ffi.ffi_call(family.handler("_rbm"), [local])(*args, **for_handler(attributes)))


rbm_local_values_p.def_abstract_eval(_types)
mlir.register_lowering(rbm_local_values_p, mlir.lower_fun(_call, multiple_results=True), platform="cpu")
