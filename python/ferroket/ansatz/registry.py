"""The models that are known, and how to add one."""

import functools
from abc import ABC, abstractmethod
from typing import Any, Self

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np

from ferroket.ansatz.amplitudes import DTYPES, Amplitudes, first_and_step
from ferroket.ansatz.determinants import with_primitives
from ferroket.ansatz.verification import TRACED, Subject, are_traced, cached_answer, mismatch_reason
from ferroket.reasons import Reason, ReasonKind


class Almost(Reason):
    """Why a model is only nearly of an ansatz: then this reason is told, and not those of others."""

    def __new__(cls, text: str, kind: ReasonKind = ReasonKind.MODEL) -> Self:
        """See :class:`~ferroket.reasons.Reason`."""
        return super().__new__(cls, text, kind)


def other_type(model: Any, cls: type) -> str | None:
    """Why a model isn't exactly of a class; None if it is."""
    if type(model) is cls:
        return None
    if isinstance(model, cls):
        return Almost(f"{type(model).__name__} is a subclass of {cls.__name__}, and may be another function")
    return f"it is no nk.models.{cls.__name__}"


def other_activation(model: Any) -> str | None:
    """Why the activation of a model isn't ln cosh; None if it is."""
    if model.activation is nk.nn.activation.log_cosh:
        return None
    activation = getattr(model.activation, "__name__", repr(model.activation))
    return Almost(f"the activation is {activation}, and amplitude ratios are known only for nk.nn.log_cosh")


class Ansatz(ABC):
    """Models of one kind whose amplitude ratios ψ(σ') / ψ(σ) are known.

    For an ansatz of your own, write a subclass, and give an instance of it to :func:`register`.
    """

    name: str
    """The name that :func:`ferroket.explain` prints."""

    @abstractmethod
    def unsupported_reason(self, model: Any) -> str | None:
        """Why a model isn't of this ansatz, as the end of a sentence; None if it is.

        Compare the exact type: a subclass may be another function.
        """

    def why_not_on(self, model: Any, hilbert: Any) -> str | None:
        """Why a model of this ansatz is no function on a Hilbert space, as the end of a sentence; None if it is one."""
        return None

    @abstractmethod
    def amplitudes(self, model: Any, variables: Any, first: jax.Array, step: jax.Array) -> Amplitudes:
        """The amplitudes ψ of the model, up to a factor. It runs under :func:`jax.jit`.

        Args:
            model: The model.
            variables: Its variables.
            first: The value of the first local state of each site, ``(N,)``.
            step: What is added to it for the second one, ``(N,)``. Both are as precise as samples and parameters
                together.

        Returns:
            :class:`RBMAmplitudes`, :class:`ModulusAndPhase`, :class:`JastrowAmplitudes`,
            :class:`DoublonHolonAmplitudes`, :class:`SlaterAmplitudes`, :class:`CorrelatedAmplitudes`,
            :class:`PfaffianAmplitudes` or :class:`ProductAmplitudes`.
        """


REGISTERED: list[Ansatz] = []
"""The ansätze there are. The first one that a model is of evaluates it."""


def register(ansatz: Ansatz) -> Ansatz:
    """Adds an ansatz, which is asked before those that are there already. Returns it."""
    REGISTERED.insert(0, ansatz)
    return ansatz


def find(model: Any, variables: Any, hilbert: Any) -> tuple[Ansatz | None, list[Reason]]:
    """The ansatz of a model with these variables on a Hilbert space, or the reasons why there is none."""
    ansatz, reasons = of_model(model)
    if ansatz is not None:
        why = ansatz.why_not_on(model, hilbert)
        of_space = [Reason.of(why, ReasonKind.HILBERT_SPACE)] if why else []
        reasons = of_space or _of_parameters(model, variables, hilbert.size)
    reasons += _of_variables(variables)
    if ansatz is not None and not reasons and (reason := _mismatch(ansatz, model, variables, hilbert)) is not None:
        reasons = [reason]
    return (None, reasons) if reasons else (ansatz, [])


def _mismatch(ansatz: Ansatz, model: Any, variables: Any, hilbert: Any) -> Reason | None:
    """Why amplitudes aren't those of a model, compared by value once, as the end of a sentence; None if they are."""
    subject = Subject((model, ansatz), model.apply, hilbert, np.dtype(float))

    def answer() -> Reason | None:
        from ferroket.operator.compiled import local_states  # loads what asks for this package

        sites = local_states(hilbert)
        if set(sites.sizes) != {2}:
            return None  # no kernel takes them

        def of_ansatz(variables: Any, x: jax.Array) -> jax.Array:
            first, step = first_and_step(sites, jnp.result_type(float, *jax.tree.leaves(variables)))
            amplitudes = ansatz.amplitudes(model, variables, first, step)
            sums.append(amplitudes.is_sum)  # known once it is traced
            return amplitudes.log_psi((x - first) / step)

        if are_traced(variables):
            return TRACED
        # Large parameters in single precision would leave differences of logarithms no digits.
        precise = jax.tree.map(lambda leaf: leaf.astype(jnp.promote_types(leaf.dtype, jnp.float64)), variables)
        of_model, x = with_primitives(model.apply), subject.configurations()
        sums: list[bool] = []
        jax.eval_shape(of_ansatz, precise, x)
        return mismatch_reason(of_ansatz, of_model, precise, x, up_to_factor=True, may_cancel=sums[0])

    found: Reason | None = cached_answer("amplitudes", subject, variables, answer)
    if found is None or found is TRACED:  # then what tells is the exact class of the model, and its parameters' shapes
        return None
    return found.after(f"its amplitudes aren't those of {ansatz.name}: ")


def of_model(model: Any) -> tuple[Ansatz | None, list[Reason]]:
    """The ansatz of a model, or the reasons why there is none."""
    nearly: list[Reason] = []
    for ansatz in REGISTERED:
        reason = ansatz.unsupported_reason(model)
        if reason is None:
            return ansatz, []
        if isinstance(reason, Almost):
            nearly.append(reason)
    if nearly:
        return None, nearly
    name = f"{type(model).__module__.split('.')[0]}'s {type(model).__name__}"
    known = ", ".join(sorted({ansatz.name for ansatz in REGISTERED}))
    text = f"{name} is none of the models whose amplitude ratios are known ({known})"
    return None, [Reason(text, ReasonKind.MODEL)]


def _of_variables(variables: Any) -> list[Reason]:
    if set(variables) != {"params"}:
        return [Reason("the state has variables other than parameters", ReasonKind.VARIABLES)]
    dtypes = {np.dtype(leaf.dtype) for leaf in jax.tree.leaves(variables)}
    return [Reason(f"there are parameters of {dtype}", ReasonKind.DTYPE) for dtype in dtypes if dtype not in DTYPES]


def _of_parameters(model: Any, variables: Any, n_sites: int) -> list[Reason]:
    """A model ignores parameters that it doesn't have, and casts others. An ansatz wouldn't."""
    found = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype), dict(variables))
    try:
        own = _parameters(model, n_sites)
    except TypeError:  # the model can't be hashed
        own = _parameters.__wrapped__(model, n_sites)
    same = jax.tree.structure(found) == jax.tree.structure(own) and jax.tree.leaves(found) == jax.tree.leaves(own)
    text = "the parameters have other names, shapes or dtypes than those that the model initialises"
    return [] if same else [Reason(text, ReasonKind.VARIABLES)]


@functools.lru_cache(maxsize=256)
def _parameters(model: Any, n_sites: int) -> Any:
    """The shapes and dtypes of a model's variables."""
    return dict(jax.eval_shape(model.init, jax.random.key(0), jax.ShapeDtypeStruct((1, n_sites), float)))
