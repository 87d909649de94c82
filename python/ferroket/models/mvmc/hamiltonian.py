"""The Hamiltonian of mVMC's definition files."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ferroket.models.mvmc.files import Line, read_definition

Term = tuple[tuple[int, int], ...]
"""A product of creators (mode, 1) and annihilators (mode, 0)."""


def read_hamiltonian(files: dict[str, Path], hilbert: Any, is_local: tuple[bool, ...]) -> Any:
    """The sum of the terms in all files.

    Args:
        files: The files by their keywords.
        hilbert: The space. Spin σ on site i is mode i + σ L.
        is_local: Of each site: whether it has a local spin.

    Returns:
        A :class:`~ferroket.operator.FermionOperator2nd`, or None if there is no file of terms.

    Raises:
        FileNotFoundError: A file isn't there.
        ValueError: A file's lines aren't those of its terms, a term moves the fermion of a local spin, or the sum isn't
            Hermitian.
    """
    weights: dict[Term, complex] = defaultdict(complex)
    named = [keyword for keyword in _READERS if keyword in files]
    for keyword in named:
        definition = read_definition(files[keyword])
        (lines,) = definition.take(definition.count)
        for line in lines:
            for term, weight in _READERS[keyword](line, hilbert.n_orbitals):
                # Pairs hop to where there are none, and from where there are two fermions: never on local spins.
                if weight and keyword != "pairhop":
                    _check_local_spins(line, term, is_local)
                weights[term] += weight
    if not named:
        return None
    # Operators need the models, once they are imported: they tell NetKet of both.
    from ferroket.operator import FermionOperator2nd

    is_real = all(weight.imag == 0 for weight in weights.values())
    values = [weight.real if is_real else weight for weight in weights.values()]
    operator = FermionOperator2nd(hilbert, list(weights), values, dtype=float if is_real else complex)
    if not operator.is_hermitian:
        names = ", ".join(str(files[keyword]) for keyword in named)
        raise ValueError(f"the sum of the terms in {names} isn't Hermitian: name each term and its adjoint")
    return operator


def _check_local_spins(line: Line, term: Term, is_local: tuple[bool, ...]) -> None:
    """Raises an error if a term takes a fermion from the site of a local spin, or adds one."""
    change = [0] * len(is_local)
    for mode, creates in term:
        change[mode % len(is_local)] += 2 * creates - 1
    for site, added in enumerate(change):
        if added and is_local[site]:
            raise line.wrong(
                f"site {site} has a local spin, one fermion that stays there: leave out this term, or give the site a "
                "0 in the file of LocSpin"
            )


def _bilinear(i: int, j: int) -> Term:
    """c†_i c_j."""
    return ((i, 1), (j, 0))


def _number(i: int) -> Term:
    return _bilinear(i, i)


def _spins(line: Line, places: tuple[int, ...]) -> tuple[int, ...]:
    found = line.integers(max(places) + 1, "sites and spins")
    if any(found[place] not in (0, 1) for place in places):
        raise line.wrong("spins are 0 or 1")
    return tuple(found[place] for place in places)


def _trans(line: Line, n_sites: int) -> Iterator[tuple[Term, complex]]:
    """−t c†_iσ c_jτ."""
    (i, j), (s, t) = line.sites((0, 2), n_sites, "i σ j τ and t"), _spins(line, (1, 3))
    yield _bilinear(i + s * n_sites, j + t * n_sites), -complex(*line.reals(4, 2, "i σ j τ, Re t and Im t"))


def _coulomb_intra(line: Line, n_sites: int) -> Iterator[tuple[Term, complex]]:
    """U n_i↑ n_i↓."""
    (i,) = line.sites((0,), n_sites, "i and U")
    yield _number(i) + _number(i + n_sites), complex(*line.reals(1, 1, "i and U"))


def _pair(line: Line, n_sites: int) -> tuple[int, int, complex]:
    i, j = line.sites((0, 1), n_sites, "i, j and a number")
    return i, j, complex(*line.reals(2, 1, "i, j and a number"))


def _coulomb_inter(line: Line, n_sites: int) -> Iterator[tuple[Term, complex]]:
    """V n_i n_j."""
    i, j, v = _pair(line, n_sites)
    for first in (i, i + n_sites):
        for second in (j, j + n_sites):
            yield _number(first) + _number(second), v


def _hund(line: Line, n_sites: int) -> Iterator[tuple[Term, complex]]:
    """−J (n_i↑ n_j↑ + n_i↓ n_j↓)."""
    i, j, coupling = _pair(line, n_sites)
    for spin in (0, n_sites):
        yield _number(i + spin) + _number(j + spin), -coupling


def _pair_hop(line: Line, n_sites: int) -> Iterator[tuple[Term, complex]]:
    """J c†_i↑ c_j↑ c†_i↓ c_j↓ and its adjoint: mVMC adds it."""
    i, j, coupling = _pair(line, n_sites)
    for to, start in ((i, j), (j, i)):
        yield _bilinear(to, start) + _bilinear(to + n_sites, start + n_sites), coupling


def _exchange(line: Line, n_sites: int) -> Iterator[tuple[Term, complex]]:
    """J (c†_i↑ c_j↑ c†_j↓ c_i↓ + c†_i↓ c_j↓ c†_j↑ c_i↑)."""
    i, j, coupling = _pair(line, n_sites)
    yield _bilinear(i, j) + _bilinear(j + n_sites, i + n_sites), coupling
    yield _bilinear(i + n_sites, j + n_sites) + _bilinear(j, i), coupling


def _inter_all(line: Line, n_sites: int) -> Iterator[tuple[Term, complex]]:
    """I c†_iσ c_jτ c†_kμ c_lν."""
    what = "four sites, each with its spin, Re I and Im I"
    sites, spins = line.sites((0, 2, 4, 6), n_sites, what), _spins(line, (1, 3, 5, 7))
    i, j, k, m = (site + spin * n_sites for site, spin in zip(sites, spins, strict=True))
    yield _bilinear(i, j) + _bilinear(k, m), complex(*line.reals(8, 2, what))


_READERS: dict[str, Callable[[Line, int], Iterator[tuple[Term, complex]]]] = {
    "trans": _trans,
    "coulombintra": _coulomb_intra,
    "coulombinter": _coulomb_inter,
    "hund": _hund,
    "pairhop": _pair_hop,
    "exchange": _exchange,
    "interall": _inter_all,
}
