"""Fermion operators of one orbital, see :mod:`netket.operator.fermion`, and the terms of Hamiltonians on lattices.

Operators of one orbital take the Hilbert space, the number of the orbital, its spin if there are spins, and the dtype
of the matrix elements.

Terms of Hamiltonians are sums over sites, which are orbitals with all their spins, or over edges: pairs of sites
(i, j), each of which counts once, of a graph or as an array ``(E, 2)``. Their signs are those of mVMC (T. Misawa et
al., Comput. Phys. Commun. 235, 447 (2019)). They are :class:`ferroket.operator.FermionOperator2nd`, to be added up.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from netket.operator import fermion as _netkets

from ferroket.operator.fermion_operator import FermionOperator2nd, Term
from ferroket.operator.validation import check_fermions, lattice_edges, one_for_each


def destroy(hilbert: Any, site: int, sz: int | None = None, cutoff: float = 1e-10, dtype: Any = None) -> Any:
    """The annihilation operator of an orbital, of the spin ``sz`` if there are spins."""
    return FermionOperator2nd.from_netket(_netkets.destroy(hilbert, site, sz, cutoff, dtype))


def create(hilbert: Any, site: int, sz: int | None = None, cutoff: float = 1e-10, dtype: Any = None) -> Any:
    """The creation operator of an orbital, of the spin ``sz`` if there are spins."""
    return FermionOperator2nd.from_netket(_netkets.create(hilbert, site, sz, cutoff, dtype))


def number(hilbert: Any, site: int, sz: int | None = None, cutoff: float = 1e-10, dtype: Any = None) -> Any:
    """The number of fermions in an orbital, of the spin ``sz`` if there are spins."""
    return FermionOperator2nd.from_netket(_netkets.number(hilbert, site, sz, cutoff, dtype))


def identity(hilbert: Any, cutoff: float = 1e-10, dtype: Any = None) -> Any:
    """The identity."""
    return FermionOperator2nd(hilbert, constant=1, dtype=dtype, cutoff=cutoff)


def zero(hilbert: Any, cutoff: float = 1e-10, dtype: Any = None) -> Any:
    """The operator that is zero."""
    return FermionOperator2nd(hilbert, constant=0, dtype=dtype, cutoff=cutoff)


def hopping(hilbert: Any, edges: Any, t: Any = 1.0, dtype: Any = None) -> Any:
    r"""Hops along edges: :math:`-\sum_{(i,j)σ} (t_{ij} c^†_{iσ} c_{jσ} + t^*_{ij} c^†_{jσ} c_{iσ})`.

    Args:
        hilbert: A :class:`netket.hilbert.SpinOrbitalFermions`, of any spin.
        edges: The graph whose nodes are the sites, or the edges as pairs of sites ``(E, 2)``.
        t: The amplitude, or one for each edge, real or complex.
        dtype: The dtype of the matrix elements; by default one that holds the amplitudes.

    Raises:
        TypeError: If the Hilbert space is another one.
        ValueError: If a site doesn't exist, if an edge joins a site with itself, or if there are more or fewer
            amplitudes than edges.
    """
    parts: list[Part] = []
    for i, j, amplitude in _each_edge(hilbert, edges, "t", t, dtype):
        for first in _first_orbitals(hilbert):
            parts.append((((first + i, 1), (first + j, 0)), -amplitude))
    return _hermitian_sum(hilbert, parts, dtype)


def coulomb_intra(hilbert: Any, U: Any = 1.0, dtype: Any = None) -> Any:
    r"""The repulsion of two fermions on a site, :math:`\sum_i U_i n_{i↑} n_{i↓}`.

    Args:
        hilbert: A :class:`netket.hilbert.SpinOrbitalFermions` of spin ½.
        U: The energy, or one for each site.
        dtype: The dtype of the matrix elements; by default one that holds the energies.

    Raises:
        TypeError: If the Hilbert space is another one.
        ValueError: If the spin isn't ½, or if there are more or fewer energies than sites.
    """
    down, up = _two_spins(hilbert)
    values = one_for_each("U", U, hilbert.n_orbitals, "sites", dtype)
    _check_real("U", values)
    energies = values.tolist()
    return _sum(hilbert, [(_numbers(up + i, down + i), energy) for i, energy in enumerate(energies)], dtype)


def coulomb_inter(hilbert: Any, edges: Any, V: Any = 1.0, dtype: Any = None) -> Any:
    r"""The repulsion of fermions on two sites, :math:`\sum_{(i,j)} V_{ij} n_i n_j` with :math:`n_i = \sum_σ n_{iσ}`.

    Args:
        hilbert: A :class:`netket.hilbert.SpinOrbitalFermions`, of any spin.
        edges: As for :func:`hopping`.
        V: The energy, or one for each edge.
        dtype: The dtype of the matrix elements; by default one that holds the energies.

    Raises:
        TypeError, ValueError: As :func:`hopping`.
    """
    parts: list[Part] = []
    for i, j, energy in _each_edge(hilbert, edges, "V", V, dtype, is_real=True):
        firsts = _first_orbitals(hilbert)
        parts += [(_numbers(a + i, b + j), energy) for a in firsts for b in firsts]
    return _sum(hilbert, parts, dtype)


def hund(hilbert: Any, edges: Any, J: Any = 1.0, dtype: Any = None) -> Any:
    r"""Hund's coupling of equal spins, :math:`-\sum_{(i,j)} J_{ij} (n_{i↑} n_{j↑} + n_{i↓} n_{j↓})`.

    Args:
        hilbert: A :class:`netket.hilbert.SpinOrbitalFermions` of spin ½.
        edges: As for :func:`hopping`.
        J: The energy, or one for each edge.
        dtype: The dtype of the matrix elements; by default one that holds the energies.

    Raises:
        TypeError, ValueError: As :func:`hopping`, and if the spin isn't ½.
    """
    spins = _two_spins(hilbert)
    parts: list[Part] = []
    for i, j, energy in _each_edge(hilbert, edges, "J", J, dtype, is_real=True):
        parts += [(_numbers(first + i, first + j), -energy) for first in spins]
    return _sum(hilbert, parts, dtype)


def exchange(hilbert: Any, edges: Any, J: Any = 1.0, dtype: Any = None) -> Any:
    r"""Spin exchange, :math:`\sum_{(i,j)} J_{ij} c^†_{i↑} c_{j↑} c^†_{j↓} c_{i↓} + h.c.`.

    It is :math:`-\sum_{(i,j)} J_{ij} S^+_i S^-_j + h.c.`: an antiferromagnet has negative J.

    Args:
        hilbert: A :class:`netket.hilbert.SpinOrbitalFermions` of spin ½.
        edges: As for :func:`hopping`.
        J: The energy, or one for each edge, real or complex.
        dtype: The dtype of the matrix elements; by default one that holds the energies.

    Raises:
        TypeError, ValueError: As :func:`hopping`, and if the spin isn't ½.
    """
    down, up = _two_spins(hilbert)
    parts: list[Part] = []
    for i, j, energy in _each_edge(hilbert, edges, "J", J, dtype):
        parts.append((((up + i, 1), (up + j, 0), (down + j, 1), (down + i, 0)), energy))
    return _hermitian_sum(hilbert, parts, dtype)


def pair_hopping(hilbert: Any, edges: Any, J: Any = 1.0, dtype: Any = None) -> Any:
    r"""Hops of pairs of fermions, :math:`\sum_{(i,j)} J_{ij} c^†_{i↑} c_{j↑} c^†_{i↓} c_{j↓} + h.c.`.

    Args:
        hilbert: A :class:`netket.hilbert.SpinOrbitalFermions` of spin ½.
        edges: As for :func:`hopping`.
        J: The amplitude, or one for each edge, real or complex.
        dtype: The dtype of the matrix elements; by default one that holds the amplitudes.

    Raises:
        TypeError, ValueError: As :func:`hopping`, and if the spin isn't ½.
    """
    down, up = _two_spins(hilbert)
    parts: list[Part] = []
    for i, j, amplitude in _each_edge(hilbert, edges, "J", J, dtype):
        parts.append((((up + i, 1), (up + j, 0), (down + i, 1), (down + j, 0)), amplitude))
    return _hermitian_sum(hilbert, parts, dtype)


def spin_coupling(hilbert: Any, edges: Any, J: Any = 1.0, dtype: Any = None) -> Any:
    r"""Heisenberg's coupling of the spins of fermions, :math:`\sum_{(i,j)} J_{ij} \mathbf{S}_i · \mathbf{S}_j`.

    Args:
        hilbert: A :class:`netket.hilbert.SpinOrbitalFermions` of spin ½.
        edges: As for :func:`hopping`.
        J: The energy, or one for each edge; an antiferromagnet has positive J.
        dtype: The dtype of the matrix elements; by default one that holds the energies.

    Raises:
        TypeError, ValueError: As :func:`hopping`, and if the spin isn't ½.
    """
    spins = _two_spins(hilbert)
    parts: list[Part] = []
    for i, j, energy in _each_edge(hilbert, edges, "J", J, dtype, is_real=True):
        parts += [(_numbers(a + i, b + j), energy / 4 if a == b else -energy / 4) for a in spins for b in spins]
    return _sum(hilbert, parts, dtype) + exchange(hilbert, edges, -np.asarray(J) / 2, dtype)


Part = tuple[Term, Any]
"""A product of operators, and its weight."""


def _first_orbitals(hilbert: Any) -> list[int]:
    """The first orbital of each spin."""
    return [spin * hilbert.n_orbitals for spin in range(hilbert.n_spin_subsectors)]


def _two_spins(hilbert: Any) -> list[int]:
    """The first orbital of each of two spins."""
    check_fermions(hilbert)
    if hilbert.n_spin_subsectors != 2:  # noqa: PLR2004
        raise ValueError(
            f"this is a term of fermions of spin 1/2, and not of those of {hilbert!r}: give the space s=1/2"
        )
    return _first_orbitals(hilbert)


def _check_real(name: str, values: np.ndarray) -> None:
    """Raises an error if energies are complex: their term would be no Hermitian operator."""
    if np.iscomplexobj(values) and values.imag.any():
        raise ValueError(f"{name} is {values[values.imag != 0][0]}, but this term is Hermitian with real numbers alone")


def _each_edge(
    hilbert: Any, edges: Any, name: str, value: Any, dtype: Any, *, is_real: bool = False
) -> Iterator[tuple[int, int, Any]]:
    """Two sites and the coefficient of each edge."""
    check_fermions(hilbert)
    pairs = lattice_edges(edges, hilbert.n_orbitals)
    (loops,) = np.nonzero(pairs[:, 0] == pairs[:, 1])
    if loops.size:
        raise ValueError(
            f"edge {loops[0]} joins site {pairs[loops[0], 0]} with itself, but must join two sites: leave it out"
        )
    values = one_for_each(name, value, len(pairs), "edges", dtype)
    if is_real:
        _check_real(name, values)
    for (i, j), coefficient in zip(pairs.tolist(), values.tolist(), strict=True):
        yield i, j, coefficient


def _numbers(*orbitals: int) -> Term:
    """The product of the numbers of fermions in orbitals."""
    return tuple((orbital, dagger) for orbital in orbitals for dagger in (1, 0))


def _sum(hilbert: Any, parts: list[Part], dtype: Any) -> FermionOperator2nd:
    terms, weights = [term for term, _ in parts], [weight for _, weight in parts]
    return FermionOperator2nd(hilbert, terms, np.array(weights, np.result_type(float, *weights)), dtype=dtype)


def _hermitian_sum(hilbert: Any, parts: list[Part], dtype: Any) -> FermionOperator2nd:
    """The sum of products and of their adjoints."""
    adjoints = [(_adjoint(term), np.conjugate(weight).item()) for term, weight in parts]
    return _sum(hilbert, parts + adjoints, dtype)


def _adjoint(term: Term) -> Term:
    return tuple((orbital, 1 - dagger) for orbital, dagger in reversed(term))
