"""Projections of any model onto a representation of its symmetries."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
from jax.scipy.special import logsumexp

from ferroket.models.ties import hashable

_ROUNDING = 1e-8
"""Sums of characters below this are 0."""

_DRAWN, _COMPARED = 64, 16
"""So many samples are drawn to tell which symmetries a model has, and at most so many of them are compared."""
_FEW = 8
"""How many products of each element are looked up in the group."""


class SymmetricSum(nn.Module):
    r"""A model projected onto a representation of a group.

    .. math::

        \psi(\sigma) = \sum_g \chi_g\, \psi_0(s_g T_g \sigma)

    with :math:`(T_g \sigma)_i = \sigma_{g(i)}`, and s of −1 where all spins are flipped. It is the sum of
    :class:`netket.nn.blocks.SymmExpSum`, without its factor 1 / \|G\|. :func:`symmetrise` makes it of a group.
    """

    module: Any
    """The linen module that gives ln ψ₀ of configurations ``(n, N)``."""

    symmetries: Any
    """Permutations of the sites, ``(G, N)``."""

    characters: Any
    """χ of each, real or complex."""

    flips: Any
    """1, or −1 where all spins are flipped, of each."""

    def __post_init__(self) -> None:
        """Makes arrays hashable, as JAX wants models to be."""
        for name in ("symmetries", "characters", "flips"):
            setattr(self, name, hashable(getattr(self, name)))
        super().__post_init__()

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """``ln ψ`` of configurations ``(..., N)``, of shape ``(...)``."""
        symmetries, characters, flips = (np.asarray(part) for part in (self.symmetries, self.characters, self.flips))
        moved = x[..., symmetries]
        if (flips != 1).any():
            moved = moved * flips[:, None].astype(x.dtype)
        log_psi = self.module(moved.reshape(-1, x.shape[-1])).reshape(moved.shape[:-1])
        if (characters.real > 0).all() and not np.iscomplexobj(characters):
            return logsumexp(log_psi, b=characters.astype(log_psi.real.dtype), axis=-1)
        largest = jax.lax.stop_gradient(log_psi.real.max(axis=-1, keepdims=True))
        largest = jnp.where(jnp.isfinite(largest), largest, 0)  # where all summands are 0
        total = jnp.sum(characters * jnp.exp(log_psi - largest), axis=-1)
        return jnp.log(total.astype(jnp.result_type(total, jnp.complex64))) + largest[..., 0]


def symmetrise(
    module: Any,
    hilbert: Any,
    symmetries: Any,
    *,
    characters: Any = None,
    parity: int | None = None,
    invariant_under: Any = None,
) -> SymmetricSum:
    """Projects a model onto a representation of a group, at no cost for symmetries that it has already.

    A model that is invariant under some of the symmetries, as a convolutional network under translations, is evaluated
    once for each coset of these. Which they are is found by value: ln ψ of some configurations, at random parameters.

    The sum has no signs of exchanged fermions: of models of fermions it is no projection. ``PairProduct(symmetries=…)``
    has them.

    Args:
        module: A linen module that gives ln ψ of configurations ``(n, N)``.
        hilbert: The Hilbert space of the configurations.
        symmetries: The group: one of NetKet's permutation groups, or an array ``(G, N)``, as
            ``lattice.space_group()``.
        characters: χ of each element; 1 by default.
        parity: With 1 or −1 the state is also projected onto states that the flip of all spins leaves as they are, or
            of which it changes the sign.
        invariant_under: Those symmetries of the model, ``(H, N)``, that alone are left out; by default all that are
            found.

    Returns:
        The projected model.

    Raises:
        ValueError: Symmetries aren't permutations of the sites, or no group; there is another number of characters; the
            parity isn't ±1, or the space isn't one of spins; the model isn't invariant under what it
            is said to be; or nothing is left, as the characters add up to 0 over the symmetries that the model has.
    """
    group = np.asarray(symmetries)
    if group.ndim != 2 or group.shape[1] != hilbert.size or (np.sort(group, axis=1) != np.arange(group.shape[1])).any():  # noqa: PLR2004 - a table
        raise ValueError(f"symmetries must be permutations of {hilbert.size} sites, but have shape {group.shape}")
    weights = np.ones(len(group)) if characters is None else np.asarray(characters)
    if weights.shape != (len(group),):
        raise ValueError(f"there are {len(group)} symmetries, but characters have shape {weights.shape}")
    if parity not in {None, 1, -1}:
        raise ValueError(f"parity={parity} must be 1 or -1, or None for no such projection")
    if parity is not None and not isinstance(hilbert, nk.hilbert.Spin):
        raise ValueError(f"parity={parity} is one of flips of spins, but the Hilbert space is {hilbert}")
    flips = np.ones(len(group), int)
    if parity is not None:
        group, flips = np.concatenate([group, group]), np.repeat([1, -1], len(flips))
        weights = np.concatenate([weights, parity * weights])
    agrees, own = _invariances(module, hilbert, group, flips)
    if invariant_under is not None:
        told = {tuple(row) for row in np.asarray(invariant_under).tolist()}
        named = np.array([tuple(row) in told for row in group.tolist()]) & (flips == 1)
        if (named & ~agrees).any():
            wrong = group[np.flatnonzero(named & ~agrees)[0]].tolist()
            raise ValueError(f"invariant_under has {wrong}, but the model's amplitudes change under it")
        own = named
    return SymmetricSum(module, *_cosets(group, flips, weights, own))


def _invariances(module: Any, hilbert: Any, group: np.ndarray, flips: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Under which elements ln ψ of some samples doesn't change, and a subgroup of these that the model surely has.

    A sample that an element takes to itself tells nothing of the model. An element counts where at least two samples
    change under it, and ln ψ of none does. If those that count are no group, only the identity is left: then nothing
    of the sum is left out, which costs time and is right.
    """
    keys = jax.random.split(jax.random.key(0), 3)
    drawn = hilbert.random_state(keys[0], _DRAWN)
    is_identity = (group == np.arange(group.shape[1])).all(axis=1) & (flips == 1)
    # Of the same dtype, on which the model's precision may depend.
    moved = drawn[:, group] * flips[:, None].astype(drawn.dtype)
    changes = np.cumsum((np.asarray(moved) != np.asarray(drawn)[:, None]).any(axis=-1), axis=0)
    enough = np.flatnonzero((changes[:, ~is_identity] > 1).all(axis=1))
    count = max(min([*enough, _COMPARED - 1]) + 1, 2)
    samples, moved = drawn[:count], moved[:count]
    variables = module.init(keys[1], samples)
    leaves, structure = jax.tree.flatten(variables)
    noise = [
        leaf + 0.1 * jax.random.normal(key, leaf.shape, leaf.dtype) if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf
        for leaf, key in zip(leaves, jax.random.split(keys[2], len(leaves)), strict=True)
    ]
    log_psi = module.apply(jax.tree.unflatten(structure, noise), moved.reshape(-1, group.shape[1]))
    differences = np.asarray(log_psi).reshape(len(samples), -1)
    differences = differences - np.asarray(module.apply(jax.tree.unflatten(structure, noise), samples))[:, None]
    agrees = np.abs(np.exp(differences) - 1).max(axis=0) < np.sqrt(np.finfo(differences.dtype).eps)
    own = agrees & (changes[count - 1] > 1) | is_identity
    return agrees, own if (own == agrees).all() or _is_group(group[own], flips[own]) else is_identity


def _is_group(permutations: np.ndarray, flips: np.ndarray) -> bool:
    """Whether the products of two of some elements are among them."""
    elements = {(*row, flip) for row, flip in zip(permutations.tolist(), flips.tolist(), strict=True)}
    products = (
        (*row, flip)
        for permutation, sign in zip(permutations, flips, strict=True)
        for row, flip in zip(permutation[permutations].tolist(), (sign * flips).tolist(), strict=True)
    )
    return all(element in elements for element in products)


def _cosets(
    group: np.ndarray, flips: np.ndarray, weights: np.ndarray, own: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One element of each coset of a subgroup, the sum of the weights of the coset, and the element's flip."""
    number = {(*row, flip): n for n, (row, flip) in enumerate(zip(group.tolist(), flips.tolist(), strict=True))}
    subgroup = list(zip(group[own], flips[own].tolist(), strict=True))
    left = np.ones(len(group), bool)
    chosen, sums = [], []
    for n, (row, flip) in enumerate(zip(group, flips.tolist(), strict=True)):
        # Of later elements of a coset a few products show whether they are in the group, too.
        moved = [(*row[h].tolist(), flip * s) for h, s in (subgroup if left[n] else subgroup[:_FEW])]
        if not number.keys() >= set(moved):
            raise ValueError("symmetries must be a group, but a product of two of them isn't among them")
        if left[n]:
            coset = [number[element] for element in moved]
            chosen.append(n)
            sums.append(weights[coset].sum())
            left[coset] = False
    total = np.asarray(sums)
    if np.abs(total).max() < _ROUNDING * np.abs(weights).max():
        raise ValueError(
            "the characters add up to 0 over the symmetries that the model has, so nothing of it is in this "
            "representation: take a model without them, or other characters"
        )
    kept = np.abs(total) > _ROUNDING * np.abs(weights).max()
    return group[chosen][kept], total[kept], flips[chosen][kept]
