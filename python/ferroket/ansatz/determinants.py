"""Determinants of fermions inside of any network: they are found while it is traced, whoever calls them.

NetKet's ``Slater2nd`` is looked for, alone, in ``MultiSlater2nd``, or among the modules of a network of one's own.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
from jax.extend.core import Jaxpr, Literal

from ferroket._compat.sharding import on_each_device
from ferroket.ansatz.amplitudes import DTYPES
from ferroket.ansatz.equations import CALLS, called
from ferroket.ffi import determinant_ratios, log_determinants
from ferroket.models.fermions import occupations

LogPsi = Callable[[Any, jax.Array], jax.Array]
Orbitals = tuple[jax.Array, ...]
"""Those of each sector, ``(L, f)``."""

_RESHAPING = ("reshape", "squeeze", "expand_dims", "broadcast_in_dim", "copy", "copy_p", "pvary", "pcast")
"""Primitives that leave the elements of an array as they are, and in their order, unless there are more of them."""
_PASSING = (*_RESHAPING, "add", "add_any", "convert_element_type")
"""Primitives that leave a complex number as it is, or add another one to it."""


@contextmanager
def _evaluated_by(evaluate: Callable[[jax.Array, Orbitals], jax.Array | None]) -> Iterator[None]:
    """While a network is traced, has a function of configurations ``(..., N)`` and orbitals give ln ψ of determinants.

    Where it gives None, the module does.
    """

    def interceptor(
        call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], context: nn.module.InterceptorContext
    ) -> Any:
        module = context.module
        if type(module) is nk.models.Slater2nd and context.method_name == "__call__" and not module.is_initializing():
            (x,) = (*args, *kwargs.values())
            # Flax checks the parameters' shapes as the module asks for them.
            orbitals = (module.orbitals,) if module.generalized else tuple(module.orbitals)
            if x.shape[-1] == module.hilbert.size and orbitals[0].dtype in DTYPES:
                log_psi = evaluate(x, orbitals)
                if log_psi is not None:
                    return log_psi
        return call(*args, **kwargs)

    with nn.intercept_methods(interceptor):
        yield


def _by_primitive(x: jax.Array, orbitals: Orbitals) -> jax.Array:
    return log_determinants(occupations(x).reshape(-1, x.shape[-1]), orbitals).reshape(x.shape[:-1])


def with_primitives(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that traces a network, in which determinants are :func:`~ferroket.ffi.log_determinants`.

    So Rust evaluates them. jaxlib 0.10 does so in threads that may wait for each other for ever, if there are several
    spin sectors.
    """

    def traced(*args: Any) -> Any:
        with _evaluated_by(_by_primitive):
            return function(*args)

    return traced


@dataclass(frozen=True)
class WithPrimitives:
    """A model, which samplers call a machine, evaluated :func:`with_primitives` on each device."""

    model: Any

    def apply(self, variables: Any, x: jax.Array) -> jax.Array:
        """The logarithm of ψ at configurations ``(n, N)``, as the model's own ``apply`` gives it."""
        log_psi: jax.Array = on_each_device(with_primitives(self.model.apply), (False, True))(variables, x)
        return log_psi


def has_some(log_psi: LogPsi, variables: Any, x: Any) -> bool:
    """Whether there are determinants in a network; see :func:`beside` for the arguments."""
    leaves, treedef = jax.tree.flatten((variables, x))
    return _has_some(log_psi, treedef, tuple((jnp.shape(leaf), jnp.result_type(leaf)) for leaf in leaves))


@lru_cache(maxsize=256)
def _has_some(log_psi: LogPsi, treedef: Any, leaves: tuple[Any, ...]) -> bool:
    variables, x = jax.tree.unflatten(treedef, [jax.ShapeDtypeStruct(*leaf) for leaf in leaves])
    found: list[Orbitals] = []
    with _evaluated_by(lambda _, orbitals: found.append(orbitals)):
        jax.eval_shape(lambda variables, x: log_psi(variables, x[None]), variables, x)
    return bool(found)


@dataclass(frozen=True)
class DeterminantFactor:
    """A network ln ψ(σ) = ``rest(σ)`` + Σ_d ln det M_d[σ], with at least one determinant."""

    log_psi: LogPsi
    of_configuration: tuple[bool, ...]
    """Which of the determinants that it evaluates, in this order, are those of σ, and not of something else."""

    @property
    def count(self) -> int:
        """How many determinants there are, each a product of those of its sectors."""
        return sum(self.of_configuration)

    def rest(self, variables: Any, x: jax.Array) -> jax.Array:
        """What isn't a determinant, of configurations ``(n, N)``."""
        return self._followed(variables, x)[0]

    def log_of_determinants(self, variables: Any, x: jax.Array) -> jax.Array:
        """Σ_d ln det M_d[σ] of configurations ``(n, N)``, complex ``(n,)``."""
        n, of_each = occupations(x), self._orbitals(variables, x)
        return sum((log_determinants(n, orbitals) for orbitals in of_each[1:]), log_determinants(n, of_each[0]))

    def log_ratios(self, variables: Any, x: jax.Array, samples: jax.Array, sample: jax.Array) -> jax.Array:
        """Σ_d ln (det M_d[x] / det M_d[σ]), see :func:`~ferroket.ffi.determinant_ratios`."""
        states = occupations(x), occupations(samples), sample
        first, *others = self._orbitals(variables, x)
        return sum((determinant_ratios(*states, orbitals) for orbitals in others), determinant_ratios(*states, first))

    def _orbitals(self, variables: Any, x: jax.Array) -> list[Orbitals]:
        """The orbitals of each determinant. Of what gives them XLA leaves out all else."""
        return self._followed(variables, x[:1])[1]

    def _followed(self, variables: Any, x: jax.Array) -> tuple[jax.Array, list[Orbitals]]:
        """The network without determinants, and their orbitals."""
        found: list[Orbitals] = []
        places = iter(self.of_configuration)

        def evaluate(other: jax.Array, orbitals: Orbitals) -> jax.Array:
            if not next(places):
                return _by_primitive(other, orbitals)
            found.append(orbitals)
            return jnp.zeros(other.shape[:-1], _dtype(orbitals))

        with _evaluated_by(evaluate):
            rest = self.log_psi(variables, x)
        assert len(found) == self.count, "another function is evaluated than the one that was read"
        return rest, found


def _dtype(orbitals: Orbitals) -> Any:
    return jnp.promote_types(orbitals[0].dtype, jnp.complex64)


def determinant_factor(log_psi: LogPsi, variables: Any, x: Any) -> DeterminantFactor | None:
    """The determinants that a network is a product with; None if there are none, or if it is another function of them.

    Args:
        log_psi: ``log_psi(variables, x)`` for ``x (n, N)`` gives ``(n,)``.
        variables: Its variables, or their shapes.
        x: A configuration ``(N,)``, or its shape.
    """
    shapes = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)), (variables, x))

    def evaluated(variables: Any, x: jax.Array) -> list[tuple[jax.Array, jax.Array]]:
        found: list[tuple[jax.Array, jax.Array]] = []
        with _evaluated_by(lambda other, orbitals: found.append((other, jnp.zeros((), _dtype(orbitals))))):
            log_psi(variables, x[None])
        return found

    try:
        jaxpr, made = jax.make_jaxpr(evaluated, return_shape=True)(*shapes)
    except jax.errors.UnexpectedTracerError:  # inside of a vmap, say, as in a MultiSlater2nd
        return None
    dtypes = [dtype.dtype for _, dtype in made]
    of_configuration = tuple(_is_same(jaxpr.jaxpr, v, jaxpr.jaxpr.invars[-1]) for v in jaxpr.jaxpr.outvars[::2])
    if not any(of_configuration):
        return None

    def with_given(given: Sequence[jax.Array], variables: Any, x: jax.Array) -> jax.Array:
        places, rest = iter(of_configuration), iter(given)
        with _evaluated_by(lambda other, _: next(rest).reshape(other.shape[:-1]) if next(places) else None):
            return log_psi(variables, x[None]).reshape(())

    given = [jax.ShapeDtypeStruct((), dtype) for dtype, is_of in zip(dtypes, of_configuration, strict=True) if is_of]
    jaxpr = jax.make_jaxpr(with_given)(given, *shapes)
    is_product = all(_is_added(jaxpr.jaxpr, variable) for variable in jaxpr.jaxpr.invars[: len(given)])
    return DeterminantFactor(log_psi, of_configuration) if is_product else None


def _is_same(jaxpr: Jaxpr, result: Any, argument: Any) -> bool:
    """Whether a value is an argument, up to its shape."""
    for eqn in reversed(jaxpr.eqns):
        if result not in eqn.outvars:
            continue
        if eqn.primitive.name in CALLS:
            inner, _ = called(eqn)
            source = inner.outvars[eqn.outvars.index(result)]
            place = next((i for i, v in enumerate(inner.invars) if _is_same(inner, source, v)), None)
        else:
            is_alone = len(eqn.invars) == 1 and eqn.invars[0].aval.size == result.aval.size
            place = 0 if eqn.primitive.name in _RESHAPING and is_alone else None
        if place is None or isinstance(eqn.invars[place], Literal):
            return False
        result = eqn.invars[place]
    return result is argument


def _is_added(jaxpr: Jaxpr, variable: Any) -> bool:
    """Whether the result is this argument, and something that doesn't depend on it."""
    for eqn in jaxpr.eqns:
        if variable not in [v for v in eqn.invars if not isinstance(v, Literal)]:
            continue
        (out, *more), places = eqn.outvars, [place for place, v in enumerate(eqn.invars) if v is variable]
        is_alone = len(places) == 1 and not more
        is_complex = jnp.issubdtype(out.aval.dtype, jnp.complexfloating)
        is_one = out.aval.size == 1
        if eqn.primitive.name in CALLS and is_alone:
            inner, _ = called(eqn)
            passes = _is_added(inner, inner.invars[places[0]])
        else:
            passes = eqn.primitive.name in _PASSING or (eqn.primitive.name == "sub" and places == [0])
        if not (is_alone and is_complex and is_one and passes) or _is_used_again(jaxpr, variable, eqn):
            return False
        variable = out
    return any(v is variable for v in jaxpr.outvars)


def _is_used_again(jaxpr: Jaxpr, variable: Any, user: Any) -> bool:
    """Whether another equation, or the result, takes a variable, too."""
    others = [eqn for eqn in jaxpr.eqns if eqn is not user]
    return any(v is variable for eqn in others for v in eqn.invars) or any(v is variable for v in jaxpr.outvars)
