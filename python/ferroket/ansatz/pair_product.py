"""``fk.models.PairProduct``, and the factors of correlations beside it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ferroket.ansatz.amplitudes import (
    Amplitudes,
    CorrelatedAmplitudes,
    DoublonHolonAmplitudes,
    JastrowAmplitudes,
    PfaffianAmplitudes,
    RBMAmplitudes,
    SlaterAmplitudes,
)
from ferroket.ansatz.registry import Almost, Ansatz, of_model, other_type, register
from ferroket.ansatz.slater import other_space
from ferroket.models import DensityJastrow, DoublonHolon, Gutzwiller, PairProduct
from ferroket.models.pair_product import (
    as_precise,
    mode_permutations,
    pair_matrices,
    pairs_equal_spins,
    weights_of,
)
from ferroket.models.ties import parameters_of_densities, parameters_of_sites


class _PairProduct(Ansatz):
    """Pairs: Pfaffians, or where they are of unequal spins, Slater determinants.

    These are of the fermions of one spin, and of the holes of the other one. The matrix of orbitals is f for the modes
    of the first spin, and diagonal for those of the second one. The rows of L − n holes leave det f of the columns that
    are occupied, up to a sign that those of the diagonal make up for.
    """

    name = "PairProduct"

    def unsupported_reason(self, model: Any) -> str | None:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        return other_type(model, PairProduct) or _of_correlations(model.correlations)

    def why_not_on(self, model: Any, hilbert: Any) -> str | None:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        return other_space(model, hilbert)

    def amplitudes(self, model: Any, variables: Any, first: jax.Array, step: jax.Array) -> Amplitudes:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        f, weights = pair_matrices(model, variables["params"]["pairs"]), weights_of(model)
        if pairs_equal_spins(model):
            precise = as_precise(weights, f.dtype)
            return PfaffianAmplitudes(f.astype(precise.dtype), precise, model.hilbert.n_fermions)
        signs = jnp.diag((-1.0) ** np.arange(f.shape[-1]))
        orbitals = jnp.concatenate([f, jnp.broadcast_to(signs, f.shape)], axis=1)
        if (weights != 1).any():
            precise = as_precise(weights, f.dtype)
            orbitals = orbitals.astype(precise.dtype).at[:, :, 0].multiply(precise[:, None])
        determinants = SlaterAmplitudes((orbitals,), holes=f.shape[-1])
        if model.correlations is None:
            return determinants
        ansatz, params = of_model(model.correlations)[0], variables["params"]["correlations"]
        assert ansatz is not None, "the model is known"
        rbm = ansatz.amplitudes(model.correlations, {"params": params}, first, step)
        assert isinstance(rbm, RBMAmplitudes), "those of an RBM"
        return CorrelatedAmplitudes(determinants, rbm, mode_permutations(model))


def _of_correlations(model: Any) -> str | None:
    """Why the correlations of pairs aren't known; None if they are, or if there are none."""
    if model is None:
        return None
    ansatz, reasons = of_model(model)
    if ansatz is None:
        return Almost(f"of the pairs' correlations, {reasons[0]}", reasons[0].kind)
    if ansatz.name not in {"RBM", "RBMSymm"} or jnp.issubdtype(model.param_dtype, jnp.complexfloating):
        return Almost(f"the correlations of pairs are known for RBM and RBMSymm of real parameters, not {ansatz.name}")
    return None


class _DensityJastrow(Ansatz):
    """Pairs of densities."""

    name = "DensityJastrow"

    def unsupported_reason(self, model: Any) -> str | None:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        return other_type(model, DensityJastrow)

    def why_not_on(self, model: Any, hilbert: Any) -> str | None:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        return other_space(model, hilbert)

    def amplitudes(self, model: Any, variables: Any, first: jax.Array, step: jax.Array) -> Amplitudes:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        sites = model.hilbert.n_orbitals
        v = variables["params"]["jastrow"][parameters_of_densities(model.translations, sites)]
        lower = jnp.zeros((sites, sites), v.dtype).at[np.tril_indices(sites, k=-1)].set(v)
        both = lower + lower.T
        sectors = first.size // sites
        pairs = jnp.kron(jnp.ones((sectors, sectors)), both)
        return JastrowAmplitudes(-jnp.tile(both.sum(axis=1), sectors), pairs)


class _Gutzwiller(Ansatz):
    """Pairs of fermions on a site."""

    name = "Gutzwiller"

    def unsupported_reason(self, model: Any) -> str | None:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        return other_type(model, Gutzwiller)

    def why_not_on(self, model: Any, hilbert: Any) -> str | None:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        return other_space(model, hilbert)

    def amplitudes(self, model: Any, variables: Any, first: jax.Array, step: jax.Array) -> Amplitudes:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        g = variables["params"]["gutzwiller"][parameters_of_sites(model.translations, model.hilbert.n_orbitals)]
        pairs = jnp.kron(1 - jnp.eye(2), jnp.diag(g))
        return JastrowAmplitudes(jnp.zeros_like(pairs[0]), pairs)


class _DoublonHolon(Ansatz):
    """Empty sites around doubly occupied ones, and the other way round."""

    name = "DoublonHolon"

    def unsupported_reason(self, model: Any) -> str | None:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        if reason := other_type(model, DoublonHolon):
            return reason
        return None if model.neighbours else Almost("the DoublonHolon has no shells of neighbours")

    def why_not_on(self, model: Any, hilbert: Any) -> str | None:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        return other_space(model, hilbert)

    def amplitudes(self, model: Any, variables: Any, first: jax.Array, step: jax.Array) -> Amplitudes:
        """See :class:`~ferroket.ansatz.Ansatz`."""
        shells = tuple(map(np.asarray, model.neighbours))
        alpha = tuple(variables["params"][f"shell_{number}"] for number in range(len(shells)))
        return DoublonHolonAmplitudes(alpha, shells)


register(_PairProduct())
register(_DensityJastrow())
register(_Gutzwiller())
register(_DoublonHolon())
