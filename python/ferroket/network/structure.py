"""What of a network is evaluated in another way than by the network itself."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from ferroket.ansatz import first_layer
from ferroket.ansatz.first_layer import FirstLayer
from ferroket.ansatz.verification import cached_answer, shapes_of
from ferroket.network.program import Program
from ferroket.network.reader import UnreadableError
from ferroket.network.trace import read
from ferroket.reasons import Reason

LogPsi = Callable[[Any, jax.Array], jax.Array]


@dataclass(frozen=True)
class Structure:
    """A network ln ψ(σ) = rest(σ, sums), and what the kernels evaluate of it.

    Attributes:
        first_layer: sums over the sites, which are updated; those of a network that has none are the configuration.
        rest: what the kernels evaluate behind them; None where XLA does.
        reason: why XLA does, or why nothing is updated, as a sentence.
    """

    first_layer: FirstLayer | None = None
    rest: Program | None = None
    reason: Reason | None = None

    @property
    def is_updated(self) -> bool:
        """Whether there is a first layer of several sites' sums."""
        return self.first_layer is not None and not self.first_layer.is_configuration


def structure(log_psi: LogPsi, variables: Any, x: Any, *, key: Any) -> Structure:
    """The structure of a network.

    Args:
        log_psi: ``log_psi(variables, x)`` for ``x (n, N)`` gives ``(n,)``.
        variables: its variables, or their shapes.
        x: a configuration ``(N,)``, or its shape.
        key: what tells the network from others: hashable.
    """

    def answer() -> Structure:
        return _found(log_psi, shapes_of(variables), jax.ShapeDtypeStruct(x.shape, x.dtype))

    try:
        hash(key)
    except TypeError:
        return answer()
    # A program belongs to the mesh under which it was traced.
    subject = key, x.shape, str(x.dtype), jax.sharding.get_abstract_mesh()
    found: Structure = cached_answer("structure", subject, variables, answer)
    return found


def _found(log_psi: LogPsi, variables: Any, x: Any) -> Structure:
    layer = first_layer.read(log_psi, variables, x)
    if layer is not None:
        with suppress(UnreadableError):
            return Structure(layer, _rest(layer, variables, x))
    dtype = jax.eval_shape(log_psi, variables, jax.ShapeDtypeStruct((1, *x.shape), x.dtype)).dtype
    whole = first_layer.of_configuration(log_psi, jnp.finfo(dtype).dtype, x)
    try:
        return Structure(whole, _rest(whole, variables, x))
    except UnreadableError as error:
        what = "it" if layer is None else "the rest"
        return Structure(layer, None, error.reason.after(f"XLA evaluates {what}: "))


def _rest(layer: FirstLayer, variables: Any, x: Any) -> Program:
    def rest(variables: Any, x: jax.Array, sums: jax.Array) -> jax.Array:
        return layer.rest(variables, x, sums)

    return read(rest, variables, jax.eval_shape(layer.sums, variables, x), x)
