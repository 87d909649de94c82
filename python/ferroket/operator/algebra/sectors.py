"""What Hilbert spaces conserve: operators must not lead out of them, and may need fewer connected elements for it.

Sums of local states are known here. Constraints of a user's own are functions, to which operators are restricted.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from netket.hilbert import DiscreteHilbert, DoubledHilbert, TensorHilbert
from netket.hilbert.constraint import ExtraConstraint, SumConstraint, SumOnPartitionConstraint

from ferroket._compat.netket import range_of_local_states
from ferroket.operator.compiled import Constraint, Constraints, Form, Restricted
from ferroket.operator.compiled.masks import site_bits, words_of


@dataclass(frozen=True)
class Sector:
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


def sectors(hilbert: Any) -> tuple[list[Sector], bool]:
    """The conserved numbers of a Hilbert space, and whether they are all of its constraints."""
    found, own = _constraints(hilbert)
    return found, not own


def masks_of(conserved: Sequence[Sector], n_sites: int) -> np.ndarray:
    """The masks of the sites of each sector, uint32 ``(n_sectors, W)``."""
    bits = site_bits(n_sites)
    return np.stack([words_of(np.array([sector.sites]), bits)[0] for sector in conserved])


def _constraints(hilbert: Any) -> tuple[list[Sector], list[tuple[int, int, Any]]]:
    """The conserved numbers of a Hilbert space, and its other constraints: the first site, how many, and what it is."""
    if isinstance(hilbert, TensorHilbert):
        spaces = list(hilbert.subspaces)
    elif isinstance(hilbert, DoubledHilbert):
        spaces = [hilbert.physical] * 2
    else:
        constraint = getattr(hilbert, "constraint", None)
        if constraint is None:
            # A space may know by itself what it has, and doesn't say.
            return [], [(0, hilbert.size, None)] if getattr(hilbert, "constrained", False) else []
        return _of_constraint(constraint, hilbert)
    found, own, first = [], [], 0
    for space in spaces:
        parts, others = _constraints(space)
        found += [Sector(tuple(first + i for i in part.sites), part.total, part.start, part.step) for part in parts]
        own += [(first + start, size, constraint) for start, size, constraint in others]
        first += space.size
    return found, own


def _of_constraint(constraint: Any, hilbert: Any) -> tuple[list[Sector], list[tuple[int, int, Any]]]:
    def sector(first: int, size: int, value: float) -> Sector:
        states = range_of_local_states(hilbert)
        total = round((value - states.start * size) / states.step)
        return Sector(tuple(range(first, first + size)), total, float(states.start), float(states.step))

    if isinstance(constraint, SumConstraint):
        return [sector(0, hilbert.size, constraint.sum_value)], []
    if isinstance(constraint, SumOnPartitionConstraint):
        ends = np.cumsum(constraint.sizes).tolist()
        parts = zip(ends, constraint.sizes, constraint.sum_values, strict=True)
        return [sector(end - size, size, value) for end, size, value in parts if value is not None], []
    if isinstance(constraint, ExtraConstraint):
        base, others = _of_constraint(constraint.base_constraint, hilbert)
        extra, more = _of_constraint(constraint.extra_constraint, hilbert)
        return base + extra, others + more
    return [], [(0, hilbert.size, constraint)]


@functools.lru_cache(maxsize=256)
def own_constraints(hilbert: Any) -> Constraints:
    """The constraints of a Hilbert space that are a user's own; none, if all are sums of local states.

    Raises:
        TypeError: If one can't be evaluated in JAX.
    """
    if not isinstance(hilbert, DiscreteHilbert):
        return ()
    _, own = _constraints(hilbert)
    for _, size, constraint in own:
        _check_constraint(constraint, size, hilbert)
    return tuple(Constraint(*each) for each in own)


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


def restricted(form: Form, hilbert: Any) -> Form:
    """A form without the elements that constraints of the user's own forbid; as it is, if there are none."""
    constraints = own_constraints(hilbert)
    return Restricted(form, constraints) if constraints else form


def leaving(hilbert: Any, sector: Sector, before: str, after: str, change: int) -> ValueError:
    """The error for an operator that leads out of its Hilbert space.

    Args:
        hilbert: The space.
        sector: Which of its conserved numbers changes.
        before: The local states of some sites, in words.
        after: The local states of the same sites that they go to.
        change: How much the sum of the local indices changes.
    """
    which = "all sites" if len(sector.sites) == hilbert.size else f"the sites {sector.sites[0]} to {sector.sites[-1]}"
    return ValueError(
        f"the operator leads out of {hilbert!r}: it has a term that takes {before} to {after}, which changes the sum "
        f"of the local states of {which} by {change * sector.step:+g}, while the space fixes it to {sector.value:g}. "
        "Add the terms that cancel this one, or take a space without the constraint"
    )
