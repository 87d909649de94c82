"""Pair product states: determinants and Pfaffians of the amplitudes of pairs of fermions."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from ferroket.ffi import PairArguments
from ferroket.linalg import logdet
from ferroket.models.fermions import check_fermions, occupations, occupied_rows
from ferroket.models.pair_sums import log_pair_sum, log_sum, pair_matrices_of
from ferroket.models.ties import (
    TiedParameters,
    hashable,
    orbits_of_pairs,
    orbits_of_skew_pairs,
    permutations_of,
)


class PairProduct(nn.Module):
    r"""A condensate of pairs of fermions, with a fixed number of them.

    .. math::

        |\psi\rangle = \Big( \sum_{ij} f_{ij}\, c^\dagger_{i\uparrow} c^\dagger_{j\downarrow} \Big)^{n/2} |0\rangle,
        \qquad \psi(n) = \det f_{R_\uparrow R_\downarrow}

    with the occupied sites :math:`R_s` of each spin. With ``general`` pairs of equal spins are paired too, and
    :math:`\psi(n) = \mathrm{Pf}\, F_{R R}` with a skew-symmetric F of all modes. J. P. Bouchaud, A. Georges and
    C. Lhuillier, J. Phys. (Paris) 49, 553 (1988); it is the state of mVMC: T. Misawa et al., Comput. Phys. Commun. 235,
    447 (2019).

    With ``symmetries`` g and ``characters`` χ it is projected onto a momentum, or a representation of the point group:
    :math:`\psi(n) = \sum_g \chi_g \det f^g_{R_\uparrow R_\downarrow}` with
    :math:`f^g_{ij} = s_g(i)\, s_g(j)\, f_{g(i) g(j)}`.

    With ``parity`` p of 1 or −1 it is projected onto an even or odd total spin S, p = (−1)^S, by ψ(n̄) = p ψ(n), where
    the spins of all fermions of n are flipped in n̄: the summands become twice as many. Symmetric f has the parity 1 by
    itself, but not beside correlations.

    With ``rotations`` of all spins around the y axis it is projected onto a total spin, too, see
    :func:`spin_rotations`: then each summand pairs equal spins, and is a Pfaffian.

    With ``correlations``, a model φ, their product is projected, :math:`\psi(n) = \sum_g \chi_g\, \phi(T_g n) \det
    f^g_{R_\uparrow R_\downarrow}`, where :math:`T_g` takes what is on site i to site g(i): Y. Nomura and M. Imada,
    Phys. Rev. X 11, 031034 (2021), whose φ is a restricted Boltzmann machine. Other correlations are factors beside it:
    ``Product((PairProduct(hilbert), Gutzwiller(hilbert), DensityJastrow(hilbert)))``.

    The parameter is ``pairs``: f, ``(L L,)``, row by row; or one number for each orbit of pairs of sites under the
    translations. If it is general, one number for each orbit of unordered pairs of modes that isn't 0. Those of
    φ are named ``correlations``.

    Raises:
        TypeError: When its parameters are made, if the Hilbert space isn't one of fermions, or has no fixed number of
            them; if correlations are no linen module.
        ValueError: Alike, if there are no two spins with as many fermions, or, if it is general, an odd number of
            fermions; if translations or symmetries aren't permutations of the sites, or there are other numbers of
            characters or of signs; if rotations aren't pairs of an angle and a weight, or pairs are general beside
            them; if there are correlations or a parity beside general pairs or rotations; if the parity isn't ±1.
    """

    hilbert: Any
    """The :class:`netket.hilbert.SpinOrbitalFermions`, with fixed numbers of fermions."""

    general: bool = False
    """Whether fermions of the same spin are paired, too."""

    translations: Any = None
    """Permutations of sites under which f doesn't change: a permutation group or an array ``(G, L)``, see
    :func:`sublattice_translations`; or :class:`TiedParameters`."""

    symmetries: Any = None
    """Permutations of sites that the state is projected with, alike."""

    characters: Any = None
    """χ of each of the symmetries; 1 by default. Where spins are fermions, one on each site, a symmetry exchanges them:
    χ is that of the spins times the sign of the permutation."""

    signs: Any = None
    """What each of the symmetries multiplies the creators on the sites with, s of 1 or −1, ``(G, L)``: translations
    have such where boundaries are antiperiodic. 1 by default."""

    parity: int | None = None
    """p = (−1)^S of the total spin S that is projected onto; by default none is."""

    rotations: Any = None
    """Angles around the y axis that all spins are turned by, and their weights, ``(Q, 2)``, see
    :func:`spin_rotations`; none by default."""

    correlations: nn.Module | None = None
    """φ: a linen module that gives ln φ of occupations ``(..., 2 L)``, such as :class:`netket.models.RBM` with real
    parameters. None by default."""

    kernel_init: Any = nn.initializers.normal(1.0)
    """Initialises f."""

    param_dtype: Any = float
    """The dtype of f, real or complex."""

    def __post_init__(self) -> None:
        """Makes arrays hashable, as JAX wants models to be."""
        for name in ("translations", "symmetries", "characters", "signs", "rotations"):
            setattr(self, name, hashable(getattr(self, name)))
        super().__post_init__()

    def setup(self) -> None:
        """Makes the parameters."""
        check_fermions(self.hilbert, type(self).__name__, spins=None if self.general else 2)
        fermions = self.hilbert.n_fermions_per_spin
        if self.general and self.hilbert.n_fermions % 2:
            raise ValueError(f"pairs of {self.hilbert.n_fermions} fermions leave one alone: an even number makes pairs")
        if not self.general and fermions[0] != fermions[1]:
            raise ValueError(
                f"pairs of unequal spins are made of as many fermions of each, not {fermions}: with general=True there "
                "are others, too"
            )
        check_rotations(self)
        check_correlations(self)
        check_parity(self)
        if self.hilbert.n_fermions and not n_parameters(self):
            raise ValueError("no pair is left: translations take each pair of modes to minus itself")
        self.pairs = self.param("pairs", self.kernel_init, (n_parameters(self),), self.param_dtype)

    def __call__(self, x: jax.Array) -> jax.Array:
        """``ln ψ`` of occupations ``(..., N)``, complex ``(...)``."""
        if pairs_equal_spins(self):
            return log_pair_sum(occupations(x), pair_arguments(self, self.pairs), self.hilbert.n_fermions)
        f, weights = pair_matrices(self, self.pairs), weights_of(self)
        first, second = jnp.split(x[..., None, :], 2, axis=-1)
        rows = occupied_rows(f, first, self.hilbert.n_fermions_per_spin[0])
        log_psi = logdet(occupied_rows(rows.swapaxes(-1, -2), second, self.hilbert.n_fermions_per_spin[1]))
        if self.correlations is not None:
            moved = x[..., np.argsort(mode_permutations(self), axis=-1)]
            log_psi += self.correlations(moved.reshape(-1, x.shape[-1])).reshape(log_psi.shape)
        return log_sum(log_psi, as_precise(weights, f.dtype))


def spin_rotations(total_spin: int, points: int) -> np.ndarray:
    r"""Rotations of which the weighted sum projects states without magnetisation onto a total spin S.

    .. math::

        P^S = \frac{2S+1}{2} \int_0^\pi d\beta\, \sin\beta\, P_S(\cos\beta)\, e^{-i\beta S^y}

    with Legendre's polynomial :math:`P_S`, by the Gauss–Legendre rule in cos β: P. Ring and P. Schuck, The Nuclear
    Many-Body Problem (1980), section 11.4.

    Args:
        total_spin: S, 0 for a singlet.
        points: How many angles there are. The projection is exact if twice as many exceed S + n, with n pairs; fewer
            leave parts of large spins. A step takes as many times as long. If S > n nothing is left but rounding.

    Returns:
        Each β and its weight, ``(points, 2)``.

    Raises:
        ValueError: S is negative or no integer, or there is no point.
    """
    if total_spin < 0 or total_spin != int(total_spin):
        raise ValueError(f"states without magnetisation have a total spin of 0, 1, 2, ..., not {total_spin}")
    if points < 1:
        raise ValueError(f"an integral takes 1 point or more, not {points}")
    cosine, weight = np.polynomial.legendre.leggauss(points)
    legendre = np.polynomial.Legendre.basis(int(total_spin))(cosine)
    return np.stack([np.arccos(cosine), (total_spin + 0.5) * weight * legendre], axis=1)


def check_rotations(model: PairProduct) -> None:
    """Raises an error unless a pair product's rotations are such."""
    if model.rotations is None:
        return
    rotations = np.asarray(model.rotations)
    if np.iscomplexobj(rotations) or not np.isfinite(rotations).all():
        raise ValueError(f"angles and weights of rotations are finite real numbers, but got {rotations}")
    if rotations.ndim != 2 or rotations.shape[1] != 2 or not len(rotations):  # noqa: PLR2004
        raise ValueError(f"rotations are an angle and a weight each, (Q, 2), not an array of shape {rotations.shape}")
    if model.general:
        raise ValueError(
            "rotations around one axis project pairs of unequal spins alone, which have no magnetisation: take "
            "general=False, or no rotations"
        )


def check_correlations(model: PairProduct) -> None:
    """Raises an error unless a pair product's correlations are such, or there are none."""
    if model.correlations is None:
        return
    if not isinstance(model.correlations, nn.Module):
        raise TypeError(f"correlations are a linen module, such as nk.models.RBM(), but got {model.correlations!r}")
    if pairs_equal_spins(model):
        raise ValueError(
            "correlations are projected with pairs of unequal spins alone: take general=False and no rotations, or a "
            "Product of both, in which they are a factor of the projected pairs"
        )


def check_parity(model: PairProduct) -> None:
    """Raises an error unless a pair product's parity is one, or there is none."""
    if model.parity is None:
        return
    if model.parity not in {1, -1}:
        raise ValueError(f"parity={model.parity} must be 1 or -1, or None for no such projection")
    if pairs_equal_spins(model):
        raise ValueError(
            "states are projected onto a parity with pairs of unequal spins alone: take general=False, no rotations, "
            "which project onto a total spin, and so onto its parity"
        )


def pairs_equal_spins(model: PairProduct) -> bool:
    """Whether ψ is made of Pfaffians: pairs are general, or are turned."""
    return model.general or model.rotations is not None


def pair_elements(model: PairProduct) -> tuple[np.ndarray, np.ndarray]:
    """Which parameter each element of f, or of F, has, and what it is multiplied with: both ``(L, L)``."""
    spins, sites = model.hilbert.n_spin_subsectors, model.hilbert.n_orbitals
    if isinstance(ties := model.translations, TiedParameters):
        return ties.of_skew_pairs(spins * sites) if model.general else ties.of_pairs(sites)
    permutations = permutations_of(model.translations, sites)
    if not model.general:
        orbits = orbits_of_pairs(permutations, ordered=True)
        return orbits, np.ones(orbits.shape, int)
    of_modes = np.concatenate([permutations + spin * sites for spin in range(spins)], axis=1)
    return orbits_of_skew_pairs(of_modes)


def n_parameters(model: PairProduct) -> int:
    """How many numbers f is made of."""
    orbits, sign = pair_elements(model)
    return int(orbits[sign != 0].max(initial=-1)) + 1


def projection(model: PairProduct) -> tuple[np.ndarray, np.ndarray]:
    """The permutations of modes that a state is projected with, ``(G, ·)``, and their characters, ``(G,)``."""
    sites = model.hilbert.n_orbitals
    permutations = permutations_of(model.symmetries, sites)
    if model.general:
        spins = model.hilbert.n_spin_subsectors
        permutations = np.concatenate([permutations + spin * sites for spin in range(spins)], axis=1)
    characters = np.ones(len(permutations)) if model.characters is None else np.asarray(model.characters)
    if characters.shape != (len(permutations),):
        raise ValueError(f"there are {len(permutations)} symmetries, but characters of shape {characters.shape}")
    if not np.isfinite(characters).all():
        raise ValueError(f"characters are finite numbers, but got {characters}")
    return permutations, characters


def mode_permutations(model: PairProduct) -> np.ndarray:
    """Where each mode of both spins goes, for each of the summands but for rotations: ``(G, 2 L)``."""
    first = permutations_of(model.symmetries, model.hilbert.n_orbitals)
    second = first + model.hilbert.n_orbitals
    permutations = np.concatenate([first, second], axis=1)
    if model.parity is None:
        return permutations
    return np.concatenate([permutations, np.concatenate([second, first], axis=1)])


def weights_of(model: PairProduct) -> np.ndarray:
    """What the summands of ψ are multiplied with, ``(D,)``.

    They are the characters, and those times the parity if there is one, or times the weight of each rotation.
    """
    _, characters = projection(model)
    if model.parity is not None:
        return np.concatenate([characters, model.parity * characters])
    if model.rotations is None:
        return characters
    return (characters[:, None] * np.asarray(model.rotations)[:, 1]).reshape(-1)


def pair_matrices(model: PairProduct, pairs: jax.Array) -> jax.Array:
    """The matrices f of all summands, ``(D, L, L)``, or F of all summands and modes if they pair equal spins.

    Where spins are flipped f is transposed.
    """
    if pairs_equal_spins(model):
        return pair_matrices_of(pair_arguments(model, pairs))
    orbits, sign = pair_elements(model)
    permutations, _ = projection(model)
    where = permutations[:, :, None], permutations[:, None, :]
    of_modes = _signs(model, permutations)
    sign = sign[where] * of_modes[:, :, None] * of_modes[:, None, :]
    f: jax.Array = pairs[orbits[where]]
    f = f * sign if (sign != 1).any() else f
    return f if model.parity is None else jnp.concatenate([f, f.swapaxes(-1, -2)])


def pair_arguments(model: PairProduct, pairs: jax.Array) -> PairArguments:
    """What pairs of equal spins are made of: general ones, or turned ones."""
    orbits, sign = pair_elements(model)
    index, factors = orbits[..., None], sign[None, ..., None]
    permutations, _ = projection(model)
    signs = _signs(model, permutations)
    if not model.general:
        index, factors = _turned(orbits, sign, np.asarray(model.rotations)[:, 0])
        permutations = mode_permutations(model)
        signs = np.tile(signs, 2)
    weights = weights_of(model)
    precise = as_precise(weights, pairs.dtype)
    return PairArguments(pairs.astype(precise.dtype), precise, index, factors, permutations, signs)


def as_precise(weights: np.ndarray, dtype: Any) -> jax.Array:
    """Weights of the precision of parameters, and complex if either are."""
    return jnp.asarray(weights, jnp.promote_types(dtype, np.complex64) if np.iscomplexobj(weights) else dtype)


def _signs(model: PairProduct, permutations: np.ndarray) -> np.ndarray:
    """Those of modes for each of the symmetries, integers ``(G, ·)``."""
    if model.signs is None:
        return np.ones(permutations.shape, int)
    sites = model.hilbert.n_orbitals
    signs = np.asarray(model.signs)
    if signs.shape != (len(permutations), sites):
        raise ValueError(
            f"signs are 1 or −1 for each of {len(permutations)} symmetries and {sites} sites, but got an array of "
            f"shape {signs.shape}"
        )
    if not (is_sign := np.isin(signs, (-1, 1))).all():
        raise ValueError(f"signs are 1 or −1, but got {signs[~is_sign][0]}")
    return np.tile(signs.astype(int), permutations.shape[1] // sites)


def _turned(orbits: np.ndarray, sign: np.ndarray, angles: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """U F Uᵀ above the diagonal, of F = [[0, f], [−fᵀ, 0]] and the rotations U of both spins by angles ``(Q,)``.

    Each element is a sum of f_ij and f_ji: which parameters these are, ``(2 L, 2 L, 2)``, and their factors,
    ``(Q, 2 L, 2 L, 2)``.
    """
    half = angles[:, None, None] / 2
    cosine, sine = np.cos(half), np.sin(half)
    both = np.stack([sign, sign.T], axis=-1)
    equal, ahead, behind = (by[..., None] * both for by in (cosine * sine, cosine**2, sine**2))
    unequal = np.stack([ahead[..., 0], behind[..., 1]], axis=-1)
    equal = equal * [-1, 1]
    rows = [np.concatenate([equal, unequal], axis=2), np.concatenate([np.zeros_like(unequal), -equal], axis=2)]
    return np.tile(np.stack([orbits, orbits.T], axis=-1), (2, 2, 1)), np.concatenate(rows, axis=1)
