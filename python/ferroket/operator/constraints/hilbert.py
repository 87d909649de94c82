"""The constraints of a Hilbert space: conserved charges, limits on the occupation of sites, and a user's own.

Sums of local states are known here. So are limits on how many fermions a site holds: non-branching terms look at the
other fermions there. Constraints of a user's own are functions, on which operators are projected.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from netket.hilbert import DiscreteHilbert, DoubledHilbert, SpinOrbitalFermions, TensorHilbert
from netket.hilbert.constraint import ExtraConstraint, SumConstraint, SumOnPartitionConstraint

from ferroket._compat.netket import range_of_local_states
from ferroket.hilbert import SiteOccupations
from ferroket.hilbert.site_occupations import limits_of
from ferroket.operator.compiled.masks import site_bits, words_of
from ferroket.operator.validation import check_fermions


@dataclass(frozen=True)
class ConservedCharge:
    """A conserved number: in all configurations, the local indices of some sites have the same sum.

    Args:
        sites: These sites.
        total: The sum of their local indices. With two local states it is the number of sites in the second one.
        start: The first local state of these sites.
        step: The difference of neighbouring local states.
    """

    sites: tuple[int, ...]
    total: int
    start: float
    step: float

    @property
    def value(self) -> float:
        """The sum of the local states."""
        return self.start * len(self.sites) + self.step * self.total


@dataclass(frozen=True)
class SiteLimit:
    """Limits of a site with several modes: how many of them may be in their second local states.

    Args:
        modes: These modes.
        minimum: How many there are at least.
        maximum: How many there are at most.
    """

    modes: tuple[int, ...]
    minimum: int
    maximum: int

    @property
    def is_spin(self) -> bool:
        """Whether exactly one of two modes is in its second local state."""
        return len(self.modes) == 2 and self.minimum == self.maximum == 1  # noqa: PLR2004 - up and down


@dataclass(frozen=True)
class Constraint:
    """A constraint of a user's own on some neighbouring sites.

    Args:
        first: The first of these sites.
        size: How many there are.
        allows: Which of their configurations ``(n, size)`` are allowed, as booleans ``(n,)``: hashable, and traced.
    """

    first: int
    size: int
    allows: Callable[[Any], Any]


Constraints = tuple[Constraint, ...]


@dataclass(frozen=True)
class _HilbertConstraints:
    """The constraints of a Hilbert space.

    Args:
        conserved: Its conserved numbers.
        limits: The limits of its sites.
        limiting: The constraints that give these: the first site, how many, and what it is.
        user: The constraints of a user's own, likewise.
    """

    conserved: tuple[ConservedCharge, ...] = ()
    limits: tuple[SiteLimit, ...] = ()
    limiting: tuple[tuple[int, int, Any], ...] = ()
    user: tuple[tuple[int, int, Any], ...] = ()

    def __add__(self, other: "_HilbertConstraints") -> "_HilbertConstraints":
        return _HilbertConstraints(
            self.conserved + other.conserved,
            self.limits + other.limits,
            self.limiting + other.limiting,
            self.user + other.user,
        )

    def moved(self, first: int) -> "_HilbertConstraints":
        """The same, where their first site is site ``first``."""
        return _HilbertConstraints(
            tuple(replace(part, sites=tuple(first + i for i in part.sites)) for part in self.conserved),
            tuple(replace(part, modes=tuple(first + i for i in part.modes)) for part in self.limits),
            *(
                tuple((first + start, size, constraint) for start, size, constraint in functions)
                for functions in (self.limiting, self.user)
            ),
        )


def conserved_charges(hilbert: Any) -> tuple[list[ConservedCharge], bool]:
    """The conserved numbers of a Hilbert space, and whether they are all of its constraints."""
    found = _constraints_of(hilbert)
    return list(found.conserved), not (found.limiting or found.user)


def site_limits(hilbert: Any) -> tuple[SiteLimit, ...]:
    """The limits of the sites of a Hilbert space; of those alone that have any."""
    return _constraints_of(hilbert).limits


def occupation_limits(hilbert: Any) -> tuple[tuple[int, int], ...]:
    """The fewest and the most fermions of each site of a space of fermions.

    Raises:
        TypeError: If the space is another one.
    """
    check_fermions(hilbert)
    return limits_of(hilbert) or ((0, hilbert.n_spin_subsectors),) * hilbert.n_orbitals


def masks_of_limits(limits: Sequence[SiteLimit], n_sites: int) -> np.ndarray:
    """The masks of the modes of each site with limits, uint32 ``(n_limits, W)``."""
    bits = site_bits(n_sites)
    words = [words_of(np.array([limit.modes]), bits)[0] for limit in limits]
    return np.array(words, np.uint32).reshape(-1, bits.shape[1])


def masks_of_charges(conserved: Sequence[ConservedCharge], n_sites: int) -> np.ndarray:
    """The masks of the sites of each charge, uint32 ``(n_charges, W)``."""
    bits = site_bits(n_sites)
    return np.stack([words_of(np.array([charge.sites]), bits)[0] for charge in conserved])


def _constraints_of(hilbert: Any) -> _HilbertConstraints:
    if isinstance(hilbert, TensorHilbert):
        spaces = list(hilbert.subspaces)
    elif isinstance(hilbert, DoubledHilbert):
        spaces = [hilbert.physical] * 2
    else:
        constraint = getattr(hilbert, "constraint", None)
        if constraint is None:
            # A space may know by itself what it has, and doesn't say.
            return (
                _HilbertConstraints(user=((0, hilbert.size, None),))
                if getattr(hilbert, "constrained", False)
                else _HilbertConstraints()
            )
        return _of_constraint(constraint, hilbert) + _HilbertConstraints(limits=_limits(hilbert))
    found, first = _HilbertConstraints(), 0
    for space in spaces:
        found += _constraints_of(space).moved(first)
        first += space.size
    return found


def _of_constraint(constraint: Any, hilbert: Any) -> _HilbertConstraints:
    def charge(first: int, size: int, value: float) -> ConservedCharge:
        states = range_of_local_states(hilbert)
        total = round((value - states.start * size) / states.step)
        return ConservedCharge(tuple(range(first, first + size)), total, float(states.start), float(states.step))

    if isinstance(constraint, SumConstraint):
        return _HilbertConstraints((charge(0, hilbert.size, constraint.sum_value),))
    if isinstance(constraint, SumOnPartitionConstraint):
        ends = np.cumsum(constraint.sizes).tolist()
        parts = zip(ends, constraint.sizes, constraint.sum_values, strict=True)
        return _HilbertConstraints(
            tuple(charge(end - size, size, value) for end, size, value in parts if value is not None)
        )
    if isinstance(constraint, ExtraConstraint):
        return _of_constraint(constraint.base_constraint, hilbert) + _of_constraint(
            constraint.extra_constraint, hilbert
        )
    if isinstance(constraint, SiteOccupations) and isinstance(hilbert, SpinOrbitalFermions):
        return _HilbertConstraints(limiting=((0, hilbert.size, constraint),))
    return _HilbertConstraints(user=((0, hilbert.size, constraint),))


def _limits(hilbert: Any) -> tuple[SiteLimit, ...]:
    if not isinstance(hilbert, SpinOrbitalFermions):
        return ()
    n_spins, n_orbitals = hilbert.n_spin_subsectors, hilbert.n_orbitals
    return tuple(
        SiteLimit(tuple(range(site, n_spins * n_orbitals, n_orbitals)), least, most)
        for site, (least, most) in enumerate(limits_of(hilbert) or ())
        if (least, most) != (0, n_spins)
    )


@functools.lru_cache(maxsize=256)
def user_constraints(hilbert: Any) -> Constraints:
    """The constraints of a Hilbert space that are a user's own; none, if all are conserved numbers and site limits.

    Raises:
        TypeError: If one can't be evaluated in JAX.
        ValueError: If no configuration is within the limits of the sites.
    """
    if not isinstance(hilbert, DiscreteHilbert):
        return ()
    user = _constraints_of(hilbert).user
    for _, size, constraint in user:
        _check_constraint(constraint, size, hilbert)
    return tuple(Constraint(*each) for each in user)


@functools.lru_cache(maxsize=256)
def constraint_functions(hilbert: Any) -> Constraints:
    """The constraints of a Hilbert space, site limits among them, that aren't conserved numbers, as functions.

    Raises:
        TypeError, ValueError: As :func:`user_constraints`.
    """
    if not isinstance(hilbert, DiscreteHilbert):
        return ()
    return tuple(Constraint(*each) for each in _constraints_of(hilbert).limiting) + user_constraints(hilbert)


def _check_constraint(constraint: Any, size: int, hilbert: Any) -> None:
    mend = (
        "give the space a subclass of nk.hilbert.constraint.DiscreteHilbertConstraint that says by jax.numpy, or by "
        "numpy in a jax.pure_callback, which of the configurations (n, N) are allowed, as n booleans"
    )
    name = type(constraint).__name__
    if constraint is None:
        raise TypeError(f"{hilbert!r} has a constraint, but no function that tells what it allows: {mend}")
    n = 2
    try:
        dtype = getattr(range_of_local_states(hilbert), "dtype", np.int8)
        states = jax.ShapeDtypeStruct((n, size), dtype)
        found = jax.eval_shape(constraint, states)
    except Exception as error:
        raise TypeError(
            f"the constraint {name} of {hilbert!r} can't be traced by JAX, which evaluates it on connected "
            f"configurations and proposed moves ({type(error).__name__}): {mend}"
        ) from error
    if getattr(found, "shape", None) != (n,):
        raise TypeError(
            f"the constraint {name} of {hilbert!r} gives {found} for {n} configurations of {size} sites: {mend}"
        )


def allowed(constraints: Constraints, x: jax.Array) -> jax.Array:
    """Which configurations ``(..., N)`` all constraints allow: booleans ``(...)``."""
    inside = jnp.ones(x.shape[:-1], bool)
    for constraint in constraints:
        # They take a list of configurations. To map them over all other dimensions leaves these sharded as they are.
        allows = constraint.allows
        for _ in range(x.ndim - 2):
            allows = jax.vmap(allows)
        part = x[..., constraint.first : constraint.first + constraint.size]
        inside &= (allows(part) if x.ndim > 1 else allows(part[None])[0]).astype(bool)
    return inside


def violation_error(hilbert: Any, charge: ConservedCharge, before: str, after: str, change: int) -> ValueError:
    """The error for an operator that leads out of its Hilbert space.

    Args:
        hilbert: The space.
        charge: Which of its conserved numbers changes.
        before: The local states of some sites, in words.
        after: The local states of the same sites that they go to.
        change: How much the sum of the local indices changes.
    """
    which = "all sites" if len(charge.sites) == hilbert.size else f"the sites {charge.sites[0]} to {charge.sites[-1]}"
    return ValueError(
        f"the operator leads out of {hilbert!r}: it has a term that takes {before} to {after}, which changes the sum "
        f"of the local states of {which} by {change * charge.step:+g}, while the space fixes it to {charge.value:g}. "
        "Add the terms that cancel this one, or take a space without the constraint"
    )
