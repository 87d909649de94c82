"""The local states of the sites of a Hilbert space, as the compiled forms hold them."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from netket.hilbert import DiscreteHilbert, DoubledHilbert, HomogeneousHilbert, TensorHilbert

from ferroket._compat.netket import range_of_local_states

_Range = tuple[float, float, int]
_MAX_SIZE = np.iinfo(np.int32).max


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=("kind",), meta_fields=("n_sites", "starts", "steps", "sizes")
)
@dataclass(frozen=True, eq=False)
class LocalStates:
    """The local states of N sites: local state i of kind k has the value ``starts[k] + i * steps[k]``.

    Args:
        kind: The kind of each site, an int32 array of shape ``(N,)``; of shape ``(0,)`` if there is one kind only.
        n_sites: N.
        starts: The value of the local state with index 0, by kind.
        steps: The difference of neighbouring local states, by kind.
        sizes: The number of local states, by kind.
    """

    kind: Any
    n_sites: int
    starts: tuple[float, ...]
    steps: tuple[float, ...]
    sizes: tuple[int, ...]

    @property
    def extremes(self) -> tuple[float, ...]:
        """The first, second and last local state of each kind: a number type that holds these holds them all."""
        states = (
            start + i * step
            for start, step, size in zip(self.starts, self.steps, self.sizes, strict=True)
            for i in sorted({0, min(1, size - 1), size - 1})
        )
        return tuple(dict.fromkeys(states))

    @property
    def sizes_of_sites(self) -> np.ndarray:
        """The number of local states of each site, of shape ``(N,)``."""
        sizes = np.asarray(self.sizes, np.int64)
        kind = np.asarray(self.kind)
        return sizes[kind] if kind.size else np.full(self.n_sites, sizes[0])


def local_states(hilbert: Any) -> LocalStates:
    """The local states of the sites of a discrete Hilbert space, homogeneous or not.

    Raises:
        TypeError: If the space isn't discrete, or if the local states of a site aren't bounded or not evenly spaced.
    """
    if not isinstance(hilbert, DiscreteHilbert):
        raise TypeError(
            f"{hilbert!r} is no discrete Hilbert space: take one of nk.hilbert, such as nk.hilbert.Spin(s=1/2, N=...), "
            "or a product of them"
        )
    kinds: dict[_Range, int] = {}
    kind = np.array([kinds.setdefault(of_site, len(kinds)) for of_site in _ranges(hilbert, hilbert)], np.int32)
    starts, steps, sizes = zip(*kinds, strict=True) if kinds else ((0.0,), (1.0,), (1,))
    return LocalStates(kind if len(kinds) > 1 else kind[:0], kind.size, starts, steps, sizes)


def _ranges(hilbert: Any, whole: Any) -> Iterator[_Range]:
    """First local state, step and number of local states of each site; ``whole`` is the space that errors name."""
    if isinstance(hilbert, TensorHilbert):
        for subspace in hilbert.subspaces:
            yield from _ranges(subspace, whole)
    elif isinstance(hilbert, DoubledHilbert):
        yield from 2 * list(_ranges(hilbert.physical, whole))
    elif isinstance(hilbert, HomogeneousHilbert):
        if not hilbert.is_finite or hilbert.local_size > _MAX_SIZE:
            raise TypeError(_unbounded(whole))
        states = range_of_local_states(hilbert)
        yield from [_range(states[0], states[min(1, len(states) - 1)], len(states))] * hilbert.size
    else:
        for site in range(hilbert.size):
            states = hilbert.states_at_index(site)
            if states is None:
                raise TypeError(_unbounded(whole))
            steps = np.diff(np.asarray(states, float))
            if (steps != steps[:1]).any():
                raise TypeError(
                    f"the local states of site {site} of {whole!r} are {states}, but must be evenly spaced: number "
                    "them 0, 1, 2, ..., as nk.hilbert.Fock does"
                )
            yield _range(states[0], states[min(1, len(states) - 1)], len(states))


def _range(first: float, second: float, size: int) -> _Range:
    return float(first), float(second) - float(first) if size > 1 else 1.0, size


def _unbounded(whole: Any) -> str:
    return (
        f"{whole!r} has sites without a bound on their local states, but tables hold a finite number of them: give a "
        "bound, as in nk.hilbert.Fock(n_max=..., N=...)"
    )
