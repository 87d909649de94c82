"""A constraint on how many fermions each site may hold, summed over all spins."""

import functools
import operator
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from netket.hilbert import SpinOrbitalFermions
from netket.hilbert.constraint import DiscreteHilbertConstraint, ExtraConstraint
from netket.utils import struct


class SiteOccupations(DiscreteHilbertConstraint):
    """Each site holds at least ``minimum`` and at most ``maximum`` fermions, summed over all spins.

    It is a constraint for :class:`netket.hilbert.SpinOrbitalFermions`, in which a site is an orbital with all its
    spins. ``maximum=1`` forbids double occupancy, as in t-J models. ``minimum=1`` and ``maximum=1`` on some sites makes
    these localised spins, as in Kondo lattices. Operators on such a space are P O P, where P projects on it.

    Args:
        n_orbitals: The number of sites.
        minimum: The fewest fermions on a site: one number for all sites, or one for each.
        maximum: The most fermions on a site, likewise; by default as many as there are spins.

    Raises:
        TypeError: If a number isn't an integer.
        ValueError: If there is no site, if there are more or fewer numbers than sites, if one is negative, or if a
            minimum is larger than the maximum of its site.
    """

    n_orbitals: int = struct.field(pytree_node=False)
    minimum: tuple[int, ...] = struct.field(pytree_node=False)
    maximum: tuple[int, ...] | None = struct.field(pytree_node=False)

    def __init__(
        self, n_orbitals: int, minimum: int | Sequence[int] = 0, maximum: int | Sequence[int] | None = None
    ) -> None:
        self.n_orbitals = operator.index(n_orbitals)
        if self.n_orbitals < 1:
            raise ValueError(f"n_orbitals is {n_orbitals}, but there is at least one site")
        self.minimum = _of_each_site("minimum", minimum, self.n_orbitals)
        self.maximum = None if maximum is None else _of_each_site("maximum", maximum, self.n_orbitals)
        for site, (least, most) in enumerate(zip(self.minimum, self.maximum or (), strict=False)):
            if least > most:
                raise ValueError(
                    f"site {site} has minimum {least} and maximum {most}: the minimum must not be larger than the "
                    "maximum"
                )

    def __call__(self, x: jax.Array) -> jax.Array:
        """Which of the configurations are allowed.

        Args:
            x: Occupations, 0 or 1, of shape ``(..., n_spins * n_orbitals)``, all orbitals of one spin after the other.

        Returns:
            Booleans of shape ``(...)``.
        """
        of_sites = x.reshape(*x.shape[:-1], x.shape[-1] // self.n_orbitals, self.n_orbitals)
        total = of_sites.sum(axis=-2, dtype=np.int32)
        inside = total >= np.array(self.minimum, np.int32)
        if self.maximum is not None:
            inside &= total <= np.array(self.maximum, np.int32)
        return jnp.asarray(inside.all(axis=-1))

    def __hash__(self) -> int:
        return hash(("SiteOccupations", self.n_orbitals, self.minimum, self.maximum))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SiteOccupations) and (
            (self.n_orbitals, self.minimum, self.maximum) == (other.n_orbitals, other.minimum, other.maximum)
        )

    def __repr__(self) -> str:
        return f"SiteOccupations(n_orbitals={self.n_orbitals}, minimum={self.minimum}, maximum={self.maximum})"


def _of_each_site(name: str, value: Any, n: int) -> tuple[int, ...]:
    numbers = np.asarray(value)
    if not np.issubdtype(numbers.dtype, np.integer):
        raise TypeError(f"{name} is {value!r}, but must be an integer, or one for each site")
    if numbers.shape not in ((), (n,)):
        raise ValueError(
            f"{name} has shape {numbers.shape}, but there are {n} sites: give a single number, or one for each of them"
        )
    if (numbers < 0).any():
        raise ValueError(f"{name} is {value!r}, but a site can't hold fewer than 0 fermions")
    return tuple(np.broadcast_to(numbers, (n,)).tolist())


def parts(constraint: Any) -> list[Any]:
    """The constraints that a constraint of NetKet's is made of."""
    if isinstance(constraint, ExtraConstraint):
        return [*parts(constraint.base_constraint), *parts(constraint.extra_constraint)]
    return [] if constraint is None else [constraint]


@functools.lru_cache(maxsize=256)
def limits_of(hilbert: SpinOrbitalFermions) -> tuple[tuple[int, int], ...] | None:
    """The fewest and the most fermions of each site, by all :class:`SiteOccupations` of a space; None without any.

    Raises:
        ValueError: If a constraint is one of another number of sites, or if no configuration meets all constraints.
    """
    found = [part for part in parts(hilbert.constraint) if isinstance(part, SiteOccupations)]
    if not found:
        return None
    least, most = np.zeros(hilbert.n_orbitals, int), np.full(hilbert.n_orbitals, hilbert.n_spin_subsectors)
    for constraint in found:
        if constraint.n_orbitals != hilbert.n_orbitals:
            raise ValueError(
                f"{hilbert!r} has a constraint SiteOccupations of {constraint.n_orbitals} sites, but "
                f"{hilbert.n_orbitals} sites: give both the same n_orbitals"
            )
        least = np.maximum(least, constraint.minimum)
        if constraint.maximum is not None:
            most = np.minimum(most, constraint.maximum)
    limits = tuple(zip(least.tolist(), most.tolist(), strict=True))
    if np.isneginf(log_numbers(hilbert, limits)[(0, *totals_of(hilbert))]):
        raise ValueError(
            f"no configuration of {hilbert!r} meets its constraint SiteOccupations: the sites hold between "
            f"{least.sum()} and {most.sum()} fermions together, {least.min()} to {most.max()} each. Change the "
            "numbers of fermions, or the minimum and maximum of the sites"
        )
    return limits


def totals_of(hilbert: SpinOrbitalFermions) -> tuple[int, ...]:
    """The numbers of fermions that a space fixes: of each spin, of all spins together, or none."""
    of_spins: tuple[int | None, ...] = hilbert.n_fermions_per_spin
    if None not in of_spins:
        return tuple(int(n) for n in of_spins if n is not None)
    return () if hilbert.n_fermions is None else (int(hilbert.n_fermions),)


def occupations_of_a_site(n_spins: int) -> np.ndarray:
    """All occupations of the spins of one site, ``(2**n_spins, n_spins)``."""
    return (np.arange(1 << n_spins)[:, None] >> np.arange(n_spins)) & 1


def counted(hilbert: SpinOrbitalFermions) -> np.ndarray:
    """What each of the occupations of a site adds to each of the fixed numbers, ``(2**n_spins, n_numbers)``."""
    occupations = occupations_of_a_site(hilbert.n_spin_subsectors)
    n_numbers = len(totals_of(hilbert))
    of_all = occupations.sum(axis=1, keepdims=True)[:, :n_numbers]
    return occupations if n_numbers == hilbert.n_spin_subsectors else of_all


@functools.lru_cache(maxsize=8)
def log_numbers(hilbert: SpinOrbitalFermions, limits: tuple[tuple[int, int], ...]) -> np.ndarray:
    """In how many ways the last sites can hold so many fermions, as logarithms.

    Args:
        hilbert: The space, of n sites.
        limits: The fewest and the most fermions of each site.

    Returns:
        ``(n + 1, *totals + 1)``: entry ``[i, a, b]`` counts the configurations of the sites from i on with a fermions
        of the first spin and b of the second, where these numbers are fixed.
    """
    steps = counted(hilbert)
    fermions = occupations_of_a_site(hilbert.n_spin_subsectors).sum(axis=1)
    result = np.full((len(limits) + 1, *(total + 1 for total in totals_of(hilbert))), -np.inf)
    result[(-1, *(0,) * steps.shape[1])] = 0
    for site in reversed(range(len(limits))):
        least, most = limits[site]
        for step in steps[(least <= fermions) & (fermions <= most)]:
            to: Any = (site, *(slice(n, None) for n in step))
            sizes = zip(step, result.shape[1:], strict=True)
            before: Any = (site + 1, *(slice(None, size - n) for n, size in sizes))
            result[to] = np.logaddexp(result[to], result[before])
    return result
