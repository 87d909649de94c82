"""Parameters that several sites, or pairs of them, have in common by a group of permutations: translations, say."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import netket as nk
import numpy as np


def hashable(array: Any) -> Any:
    """An array that JAX may compare models by; what is none already is left as it is."""
    is_array = isinstance(array, np.ndarray | jax.Array | list | tuple)
    return nk.utils.HashableArray(np.asarray(array)) if is_array else array


@dataclass(frozen=True)
class TiedParameters:
    """Which parameter each site or pair of sites has, where no group of permutations says so.

    Take it as ``translations`` of :class:`Gutzwiller`, :class:`DensityJastrow` or :class:`PairProduct`.
    :func:`ferroket.models.mvmc.load` makes it of the files in which mVMC has such indices.

    Raises:
        ValueError: Indices aren't integers from 0 on that are all taken, or signs have another shape or aren't ±1.
    """

    index: Any
    """Integers from 0 on: of sites ``(L,)``, of pairs of sites ``(L, L)``, or of pairs of modes ``(2 L, 2 L)`` if a
    :class:`PairProduct` is general. A Jastrow factor's index is symmetric, and its diagonal isn't read; alike that of
    general pairs."""

    signs: Any = None
    """What the parameters of pairs are multiplied with, 1 or −1, of the same shape; 1 by default. Those of general
    pairs are skew-symmetric, and by default 1 above the diagonal."""

    def __post_init__(self) -> None:
        """Makes arrays hashable, as JAX wants models to be."""
        for name in ("index", "signs"):
            object.__setattr__(self, name, hashable(getattr(self, name)))
        index = np.asarray(self.index)
        if not np.issubdtype(index.dtype, np.integer) or index.size == 0 or index.min() < 0:
            raise ValueError(f"indices of parameters are integers from 0 on, but got {index.dtype} numbers: {index}")
        if self.signs is not None:
            signs = np.asarray(self.signs)
            is_read = np.ones(index.shape, bool)
            if index.ndim > 1:
                np.fill_diagonal(is_read, val=False)
            if signs.shape != index.shape or not np.isin(signs[is_read], (-1, 1)).all():
                raise ValueError(f"signs are 1 or −1 for each of {index.shape} indices, but got {signs.shape}: {signs}")

    def of_sites(self, n_sites: int) -> np.ndarray:
        """Those of sites, ``(L,)``."""
        return self._checked((n_sites,), "sites", takes_signs=False)

    def of_pairs(self, n_sites: int) -> tuple[np.ndarray, np.ndarray]:
        """Those of ordered pairs of sites, and their signs: both ``(L, L)``."""
        index = self._checked((n_sites, n_sites), "pairs of sites")
        signs = np.ones(index.shape, int) if self.signs is None else np.asarray(self.signs)
        if not np.isin(signs.diagonal(), (-1, 1)).all():
            raise ValueError(
                f"signs of pairs of sites are 1 or −1, but those of a site and itself are {signs.diagonal()}"
            )
        return index, signs

    def of_unordered_pairs(self, n_sites: int) -> np.ndarray:
        """Those of pairs of sites, ``(L (L − 1) / 2,)``, in the order of :func:`numpy.tril_indices`."""
        index = np.asarray(self.index)
        lower = np.tril_indices(n_sites, k=-1)
        self._checked((n_sites, n_sites), "pairs of sites", lower, takes_signs=False)
        self._check(index, index.T, "indices of pairs of densities are symmetric")
        return index[lower]

    def of_skew_pairs(self, n_modes: int) -> tuple[np.ndarray, np.ndarray]:
        """Those of the elements of a skew-symmetric matrix, and their signs, 0 on the diagonal: both ``(N, N)``."""
        index = self._checked((n_modes, n_modes), "pairs of modes", np.tril_indices(n_modes, k=-1))
        places = np.arange(n_modes)
        signs = np.sign(places - places[:, None]) if self.signs is None else np.asarray(self.signs)
        self._check(index, index.T, "indices of general pairs are symmetric")
        self._check(signs, -signs.T, "signs of general pairs are skew-symmetric")
        is_diagonal = np.eye(n_modes, dtype=bool)
        return np.where(is_diagonal, 0, index), np.where(is_diagonal, 0, signs)

    def _checked(self, shape: tuple[int, ...], what: str, read: Any = ..., *, takes_signs: bool = True) -> np.ndarray:
        index = np.asarray(self.index)
        if index.shape != shape:
            raise ValueError(f"indices of parameters of {what} have shape {shape}, but got {index.shape}")
        if self.signs is not None and not takes_signs:
            raise ValueError(f"parameters of {what} are taken as they are, without signs")
        taken = np.unique(index[read])
        if taken.size and taken[-1] >= taken.size:
            unused = np.setdiff1d(np.arange(taken[-1]), taken)[0]
            raise ValueError(f"parameter {unused} is that of no {what}: number those that are taken from 0 on")
        return index

    @staticmethod
    def _check(found: np.ndarray, expected: np.ndarray, rule: str) -> None:
        off_diagonal = ~np.eye(len(found), dtype=bool)
        if (wrong := (found != expected) & off_diagonal).any():
            i, j = np.argwhere(wrong)[0]
            raise ValueError(f"{rule}, but those of ({i}, {j}) and ({j}, {i}) aren't: {found[i, j]} and {found[j, i]}")


def permutations_of(group: Any, n_sites: int) -> np.ndarray:
    """Permutations of sites as an array: where each site goes, ``(G, L)``; the identity alone for None.

    Args:
        group: A :class:`netket.utils.group.PermutationGroup`, as graphs have it, or an array ``(G, L)``.
        n_sites: L.

    Raises:
        ValueError: They aren't permutations of so many sites.
    """
    if group is None:
        return np.arange(n_sites)[None]
    found = np.asarray(group.to_array() if hasattr(group, "to_array") else group)
    if found.ndim != 2 or found.shape[1] != n_sites or (np.sort(found, axis=1) != np.arange(n_sites)).any():  # noqa: PLR2004
        raise ValueError(
            f"permutations of {n_sites} sites are an array (G, {n_sites}) of rows that have each site once, or a "
            f"PermutationGroup of that many, but got an array of shape {found.shape}"
        )
    return found


def sublattice_translations(graph: Any, period: Sequence[int]) -> np.ndarray:
    """The translations of a periodic lattice that leave a sublattice structure as it is.

    States whose parameters they tie may differ from site to site within a unit of so many cells: antiferromagnets and
    charge orders, with fewer parameters than without ties. mVMC calls the period ``Wsub``, ``Lsub``, ``Hsub``.

    Args:
        graph: A :class:`netket.graph.Lattice`, such as :func:`netket.graph.Square` gives.
        period: How many cells a unit has along each axis; it divides the extent of the lattice.

    Returns:
        The permutations of the sites, ``(G, L)``, as ``translations`` of :class:`PairProduct` and other models are.

    Raises:
        TypeError: The graph is no lattice.
        ValueError: There is another number of axes, or a period doesn't divide the extent, or an axis isn't periodic.
    """
    if not isinstance(graph, nk.graph.Lattice):
        raise TypeError(f"only a nk.graph.Lattice has translations, but got {graph!r}")
    units, extent = np.asarray(period), np.asarray(graph.extent)
    if units.shape != extent.shape or (units < 1).any() or (extent % units).any():
        raise ValueError(f"a period of {units.tolist()} doesn't fit a lattice of {extent.tolist()} cells")
    if not all(periodic or unit == size for periodic, unit, size in zip(graph.pbc, units, extent, strict=True)):
        raise ValueError("there are translations along periodic axes alone: along others the period is the extent")
    cells = np.stack(np.meshgrid(*map(np.arange, extent), indexing="ij"), axis=-1).reshape(-1, len(extent))
    n_basis = graph.n_nodes // len(cells)
    number = np.ravel_multi_index(tuple(graph.basis_coords[:, :-1].T), tuple(extent)) * n_basis
    number = number + graph.basis_coords[:, -1]
    place = np.argsort(number)  # of (cell, basis), the site
    found = []
    for shift in cells[(cells % units == 0).all(axis=1)]:
        moved = np.ravel_multi_index(tuple(((graph.basis_coords[:, :-1] + shift) % extent).T), tuple(extent)) * n_basis
        found.append(place[moved + graph.basis_coords[:, -1]])
    return np.array(found)


def free_fermion_characters(graph: Any, period: Sequence[int], count: int) -> np.ndarray:
    """How the lowest orbitals of hopping between neighbours change under the translations of a sublattice structure.

    Args:
        graph: A :class:`netket.graph.Lattice`.
        period: As for :func:`sublattice_translations`.
        count: How many orbitals are filled. With another number than that of closed shells, it is arbitrary which
            orbitals of the last shell are.

    Returns:
        The character of each orbital for each of the translations, ``(count, G)`` of modulus 1, as
        :class:`SlaterJastrow` takes them. Complex, unless all are 1 or −1.

    Raises:
        TypeError, ValueError: As :func:`sublattice_translations`; or there are more orbitals than sites.
    """
    if not 0 <= count <= graph.n_nodes:
        raise ValueError(f"{count} orbitals can't be filled on {graph.n_nodes} sites")
    translations = sublattice_translations(graph, period)
    hopping = np.zeros((graph.n_nodes, graph.n_nodes))
    for a, b in graph.edges():
        hopping[a, b] = hopping[b, a] = -1
    sizes = np.asarray(graph.extent) // np.asarray(period)
    steps = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), axis=-1).reshape(-1, len(sizes))
    cells = np.unique(translations.min(axis=0))
    found: list[tuple[float, np.ndarray]] = []
    for wave in steps:
        characters = np.exp(2j * np.pi * (steps * wave / sizes).sum(axis=1))
        # Bloch functions of this wave vector: of a cell, and all that translations make of it.
        of_cells = sum(
            character * hopping[np.ix_(cells, translation[cells])]
            for character, translation in zip(characters, translations, strict=True)
        )
        found += [(energy, characters) for energy in np.linalg.eigvalsh(of_cells)]
    found.sort(key=lambda pair: round(pair[0], 9))
    chosen = np.array([characters for _, characters in found[:count]]).reshape(count, len(translations))
    return chosen.real if np.allclose(chosen.imag, 0) else chosen


def bloch_orbitals(translations: np.ndarray, characters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Orbitals that translations multiply by characters: what each is of those of a cell, ``(L,)`` and ``(L, n)``.

    Args:
        translations: The permutations ``(G, L)``, of which none but the identity leaves a site where it is.
        characters: Of each orbital, ``(n, G)``.

    Returns:
        Which site of the cell each site is a translation of, and the factors.

    Raises:
        ValueError: There is another number of characters, or a translation leaves sites where they are.
    """
    if characters.ndim != 2 or characters.shape[1] != len(translations):  # noqa: PLR2004
        raise ValueError(
            f"characters of {len(translations)} translations are (n, {len(translations)}), but these are "
            f"{characters.shape}"
        )
    cells = translations.min(axis=0)
    if (np.sort(translations, axis=0)[:-1] == np.sort(translations, axis=0)[1:]).any():
        raise ValueError("orbitals have a character for translations that leave no site where it is, but these do")
    # The translation that takes the site of the cell to each site.
    which = np.argmax(translations[:, cells] == np.arange(translations.shape[1]), axis=0)
    return np.unique(cells, return_inverse=True)[1].reshape(-1), characters.T[which]


def parameters_of_sites(ties: Any, n_sites: int) -> np.ndarray:
    """Which parameter each site has, ``(L,)``: those that permutations take it to have the same.

    Args:
        ties: :class:`TiedParameters`, or what :func:`permutations_of` takes.
        n_sites: L.
    """
    if isinstance(ties, TiedParameters):
        return ties.of_sites(n_sites)
    return numbered(permutations_of(ties, n_sites).min(axis=0))


def parameters_of_densities(ties: Any, n_sites: int) -> np.ndarray:
    """Which parameter each pair of sites has, ``(L (L − 1) / 2,)``, in the order of :func:`numpy.tril_indices`."""
    if isinstance(ties, TiedParameters):
        return ties.of_unordered_pairs(n_sites)
    orbits = orbits_of_pairs(permutations_of(ties, n_sites), ordered=False)
    return numbered(orbits[np.tril_indices(n_sites, k=-1)])


def numbered(labels: np.ndarray) -> np.ndarray:
    """Labels as numbers from 0 on, in the order in which they come first."""
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse].reshape(labels.shape)


def orbits_of_pairs(permutations: np.ndarray, *, ordered: bool) -> np.ndarray:
    """Which parameter each pair of sites has, ``(L, L)``.

    Args:
        permutations: A group of these, ``(G, L)``.
        ordered: Whether (i, j) may have another one than (j, i).
    """
    n = permutations.shape[1]
    pairs = permutations[:, :, None] * n + permutations[:, None, :]
    least = pairs.min(axis=0)
    if not ordered:
        least = np.minimum(least, least.T)
    return numbered(least)


def orbits_of_skew_pairs(permutations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which parameter each element of a skew-symmetric matrix has, and its sign: both ``(L, L)``.

    The sign is 0 on the diagonal, and where permutations take (i, j) to (j, i).
    """
    n = permutations.shape[1]
    least = (permutations[:, :, None] * n + permutations[:, None, :]).min(axis=0)
    sign = np.sign(least.T - least)
    orbits = np.minimum(least, least.T)
    orbits[sign == 0] = orbits[sign != 0].min(initial=n * n)
    return np.unique(orbits, return_inverse=True)[1].reshape(n, n), sign
