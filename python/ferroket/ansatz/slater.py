"""``nk.models.Slater2nd`` and ``nk.models.MultiSlater2nd``."""

from typing import Any

import jax
import netket as nk

from ferroket.ansatz.amplitudes import Amplitudes, SlaterAmplitudes
from ferroket.ansatz.registry import Ansatz, other_type, register
from ferroket.reasons import Reason, ReasonKind


def orbitals_of(model: Any, params: Any) -> tuple[jax.Array, ...]:
    """The orbitals of each spin sector, or of all modes together if they are generalised: ``(..., L, n)``."""
    if model.generalized:
        return (params["M"],)
    sectors = range(len(model.hilbert.n_fermions_per_spin))
    return tuple(params["M"] if model.restricted else params[f"M_{sector}"] for sector in sectors)


class Slater(Ansatz):
    """A determinant of the orbitals that fermions occupy, one for each spin sector or one for all."""

    name = "Slater2nd"

    def unsupported_reason(self, model: Any) -> str | None:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        return other_type(model, nk.models.Slater2nd)

    def why_not_on(self, model: Any, hilbert: Any) -> str | None:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        return other_space(model, hilbert)

    def amplitudes(self, model: Any, variables: Any, first: jax.Array, step: jax.Array) -> Amplitudes:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        return SlaterAmplitudes(tuple(sector[None] for sector in orbitals_of(model, variables["params"])))


class MultiSlater(Ansatz):
    """A sum of determinants, each with orbitals of its own."""

    name = "MultiSlater2nd"

    def unsupported_reason(self, model: Any) -> str | None:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        return other_type(model, nk.models.MultiSlater2nd)

    def why_not_on(self, model: Any, hilbert: Any) -> str | None:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        return other_space(model, hilbert)

    def amplitudes(self, model: Any, variables: Any, first: jax.Array, step: jax.Array) -> Amplitudes:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        (params,) = variables["params"].values()
        return SlaterAmplitudes(orbitals_of(model, params))


def other_space(model: Any, hilbert: Any) -> Reason | None:
    """Why the determinants of a model aren't those of a state's Hilbert space; None if they are."""
    if model.hilbert == hilbert:
        return None
    text = f"its determinants are those of {model.hilbert}, and the state's Hilbert space is {hilbert}"
    return Reason(text, ReasonKind.HILBERT_SPACE)


register(MultiSlater())
register(Slater())
