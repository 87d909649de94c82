"""What permutations and spin flips have in common."""

from typing import Any

import netket as nk
import numpy as np
from netket.utils.numbers import is_scalar

from ferroket.operator.algebra.accelerated import Accelerated
from ferroket.operator.algebra.combining import add, terms_of
from ferroket.operator.algebra.registry import family
from ferroket.operator.constraints.hilbert import conserved_charges


class Rearranging(Accelerated):
    """An operator without coefficients, with one connected element: multiples of it are sums."""

    _definition = ()

    def _metadata(self) -> tuple[Any, ...]:
        raise NotImplementedError

    def __add__(self, other: Any) -> Any:
        if not isinstance(other, nk.operator.AbstractOperator):
            return NotImplemented
        return add(self, self._adopt(other))

    def __mul__(self, other: Any) -> Any:
        terms = terms_of(self)
        if terms is None or not is_scalar(other):
            return super().__mul__(other)
        return family("TermSum")(self.hilbert, terms, self.dtype) * other

    def __iadd__(self, other: Any) -> Any:
        return self + other

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """No leaves: there are no coefficients."""
        return (), self._metadata()

    def _traced_over(self, order: np.ndarray, value: float, *, fermions: bool, reflected: bool = False) -> complex:
        """The trace: over the configurations that stay the same, which are constant along the cycles of the order."""
        conserved, complete = conserved_charges(self.hilbert)
        if not complete:
            x = np.asarray(self.hilbert.all_states())
            xp, mels = self.get_conn_padded(x)
            return complex(np.asarray(mels)[:, 0][(np.asarray(xp)[:, 0] == x).all(axis=1)].sum())
        counts: dict[tuple[int, ...], float] = {(0,) * len(conserved): value}
        for cycle in _cycles(order):
            size = int(self.hilbert.shape[cycle[0]])
            shares = np.array([len(set(cycle) & set(charge.sites)) for charge in conserved], int)
            following: dict[tuple[int, ...], float] = {}
            for totals, weight in counts.items():
                for state in range(size):
                    if reflected and 2 * state != size - 1:
                        continue
                    total = tuple((np.array(totals, int) + state * shares).tolist())
                    if any(n > charge.total for n, charge in zip(total, conserved, strict=True)):
                        continue
                    sign = -1 if fermions and state and len(cycle) % 2 == 0 else 1
                    following[total] = following.get(total, 0) + sign * weight
            counts = following
        return complex(counts.get(tuple(charge.total for charge in conserved), 0))


def _cycles(order: np.ndarray) -> list[list[int]]:
    rest, cycles = dict(enumerate(order.tolist())), []
    while rest:
        site = next(iter(rest))
        cycle = []
        while site in rest:
            cycle.append(site)
            site = rest.pop(site)
        cycles.append(cycle)
    return cycles


def check_conserved_charges(hilbert: Any, order: np.ndarray) -> None:
    """Checks that a permutation doesn't lead out of a Hilbert space.

    Raises:
        ValueError: If it does: if it takes sites with a conserved number to sites without, or with another one.
    """
    conserved, _ = conserved_charges(hilbert)
    known = {(frozenset(charge.sites), charge.total) for charge in conserved}
    for charge in conserved:
        image = frozenset(int(order[site]) for site in charge.sites)
        if (image, charge.total) not in known:
            raise ValueError(
                f"the permutation leads out of {hilbert!r}: it takes the sites {charge.sites[0]} to "
                f"{charge.sites[-1]}, the sum of whose local states is {charge.value:g}, to sites where it isn't "
                "fixed to that"
            )
