"""The wave function of mVMC's definition files: a pair product and factors of correlations."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import netket as nk
import numpy as np

from ferroket.hilbert import SiteOccupations
from ferroket.models.correlations import DensityJastrow, DoublonHolon, Gutzwiller
from ferroket.models.mvmc.files import Definition, Line, read_definition, read_keywords
from ferroket.models.mvmc.parameters import Block, Layout
from ferroket.models.pair_product import PairProduct
from ferroket.models.product import Product
from ferroket.models.ties import TiedParameters


@dataclass(frozen=True)
class Indices:
    """What a file of indices says: one block of parameters, or the half of it that a kind of pairs has."""

    block: Block
    optimised: np.ndarray
    """Which of its parameters mVMC optimises, ``(n,)``."""
    is_complex: bool
    index: np.ndarray
    """The parameter of each site or pair; of doublon-holon factors the neighbours in each shell, ``(S, L, z)``."""
    signs: np.ndarray | None = None


@dataclass(frozen=True)
class Settings:
    """What ``modpara.def`` and ``locspn.def`` say of the wave function."""

    n_sites: int
    is_local: tuple[bool, ...]
    """Of each site: whether it has a local spin, one fermion that stays there."""
    n_pairs: int
    """Of all fermions, those of local spins included."""
    twice_magnetisation: int | None
    """2 S_z, or None if the file doesn't fix it."""
    n_rotations: int
    total_spin: int
    n_symmetries: int
    antiperiodic: bool


def read_settings(path: Path, local_spins: Path | None = None) -> Settings:
    """The settings in ``modpara.def``, and the sites of local spins.

    Args:
        path: The file of settings.
        local_spins: The file of local spins; without one there are none.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: One that has to be there isn't, or a number is out of its range, or doesn't fit the others.
    """
    lines = read_keywords(path)

    def integer(name: str, default: int | None = None) -> int:
        if name.lower() not in lines:
            if default is None:
                raise ValueError(f"{path}: there is no line {name}")
            return default
        line = lines[name.lower()]
        (number,) = line.reals(1, 1, f"{name} and a number")
        if number != int(number):
            raise line.wrong(f"{name} is an integer")
        return int(number)

    n_sites = integer("Nsite")
    if n_sites < 1:
        raise lines["nsite"].wrong("Nsite is 1 or more")
    is_local = (False,) * n_sites if local_spins is None else _read_local_spins(local_spins, n_sites)
    name = next((name for name in ("Ncond", "Nelectron") if name.lower() in lines), "Ne")
    n_pairs = _pairs(integer(name), lines[name.lower()], is_local, local_spins)
    symmetries = integer("NMPTrans", 0)
    rotations = integer("NSPGaussLeg", 1)
    if symmetries == 0 or rotations < 1:
        raise ValueError(f"{path}: NMPTrans isn't 0, and NSPGaussLeg is 1 or more, but got {symmetries}, {rotations}")
    total_spin = integer("NSPStot", 0)
    if rotations > 1 and total_spin < 0:
        raise lines["nspstot"].wrong("NSPStot is 0 or more where NSPGaussLeg projects onto it")
    magnetisation = integer("2Sz") if "2sz" in lines else None
    if magnetisation is not None and (magnetisation % 2 or abs(magnetisation) > 2 * n_pairs):
        raise lines["2sz"].wrong(f"2Sz of {2 * n_pairs} fermions is even, and at most as large")
    return Settings(
        n_sites,
        is_local,
        n_pairs,
        magnetisation,
        rotations,
        total_spin,
        abs(symmetries),
        antiperiodic=symmetries < 0,
    )


def _read_local_spins(path: Path, n_sites: int) -> tuple[bool, ...]:
    definition = read_definition(path)
    (lines,) = definition.take(n_sites)
    found: dict[int, bool] = {}
    for line in lines:
        what = "a site and whether it has a local spin"
        (site,), number = line.sites((0,), n_sites, what), line.integers(2, what)[1]
        if number not in (0, 1):
            raise line.wrong("a site has a local spin, 1, or it has none, 0")
        if site in found:
            raise line.wrong("each site is there once")
        found[site] = bool(number)
    if sum(found.values()) != definition.count:
        raise ValueError(
            f"{path}, line 2: the header says that there are {definition.count} local spins, but the lines below have "
            f"{sum(found.values())}: change the header, or which sites have a 1"
        )
    return tuple(found[site] for site in range(n_sites))


def _pairs(number: int, line: Line, is_local: tuple[bool, ...], local_spins: Path | None) -> int:
    """How many pairs of fermions there are, those of local spins included.

    Args:
        number: Of electrons that are no local spins, if the line is that of Ncond, and else of pairs.
        line: The line that has it.
        is_local: Of each site: whether it has a local spin.
        local_spins: The file that says so.

    Raises:
        ValueError: The fermions are none or an odd number, or they don't fit on the sites.
    """
    n_local, name = sum(is_local), line.words[0]
    places = 2 * (len(is_local) - n_local)
    if line.words[0].lower() == "ncond":
        if number % 2:
            raise line.wrong("Ncond is even: fermions are paired")
        if n_local % 2:
            raise line.wrong(
                f"fermions are paired, but with the {n_local} local spins in {local_spins} and an even Ncond there is "
                "an odd number: make another site a local spin, or one fewer"
            )
        if not 0 <= number <= places:
            others = " without a local spin" if n_local else ""
            raise line.wrong(f"Ncond is from 0 to {places}, two electrons on each of {places // 2} sites{others}")
        n_pairs = (number + n_local) // 2
    else:
        n_pairs = number
        least, most = (n_local + 1) // 2, (n_local + places) // 2
        if not least <= n_pairs <= most:
            of_local = f", with the {n_local} local spins in {local_spins}" if n_local else ""
            raise line.wrong(f"{name} is the number of pairs of all fermions, from {least} to {most}{of_local}")
    if n_pairs == 0:
        raise line.wrong("there is one pair of fermions or more")
    return n_pairs


def read_wave_function(files: dict[str, Path], settings: Settings) -> tuple[Any, Product, Layout, np.ndarray]:
    """The space, the model, where its parameters are, and which of them mVMC optimises, ``(n,)``.

    Args:
        files: The files by their keywords.
        settings: What ``modpara.def`` says.

    Raises:
        FileNotFoundError: A file isn't there.
        ValueError: The files don't fit each other.
    """
    general = _is_general(files)
    hilbert = _hilbert(settings, general=general)
    correlations = {
        keyword: read(files[keyword], settings) for keyword, read in _CORRELATIONS.items() if keyword in files
    }
    orbitals = _orbitals(files, settings, general=general)
    layout = _layout(correlations, orbitals)
    # With real parameters mVMC takes the real parts of weights alone.
    is_real = not any(read.is_complex for read in (*correlations.values(), *orbitals))
    pairs = PairProduct(
        hilbert,
        general=general,
        translations=_ties(orbitals, settings.n_sites, general=general),
        rotations=None if general else _rotations(settings),
        param_dtype=complex if any(read.is_complex for read in orbitals) else float,
        **_symmetries(files, settings, is_real=is_real),
    )
    models: list[Any] = [pairs]
    if read := correlations.get("gutzwiller"):
        models.append(Gutzwiller(hilbert, translations=TiedParameters(read.index)))
    if read := correlations.get("jastrow"):
        models.append(DensityJastrow(hilbert, translations=TiedParameters(read.index)))
    if shells := [
        shell for keyword in ("dh2", "dh4") if keyword in correlations for shell in correlations[keyword].index
    ]:
        models.append(DoublonHolon(hilbert, tuple(shells)))
    optimised = np.concatenate([read.optimised for read in (*correlations.values(), *orbitals)])
    return hilbert, Product(tuple(models)), layout, optimised


def _is_general(files: dict[str, Path]) -> bool:
    """Whether pairs of equal spins have parameters, too.

    Raises:
        ValueError: There is no file of pairs, or there are several for the same ones.
    """
    unequal = [keyword for keyword in ("orbital", "orbitalantiparallel") if keyword in files]
    general, equal = "orbitalgeneral" in files, "orbitalparallel" in files
    if len(unequal) + general != 1 or (general and equal):
        raise ValueError(
            "the list of files has an entry Orbital or OrbitalAntiParallel, and OrbitalParallel beside it if equal "
            "spins are paired, or OrbitalGeneral alone; but got "
            f"{[name for name in files if name.startswith('orbital')]}"
        )
    return general or equal


def _hilbert(settings: Settings, *, general: bool) -> Any:
    n_sites, magnetisation = settings.n_sites, settings.twice_magnetisation
    if not general and magnetisation:
        raise ValueError(f"pairs of unequal spins alone have no magnetisation, but 2Sz is {magnetisation}")
    constraint = None
    if any(settings.is_local):
        fewest = [int(is_local) for is_local in settings.is_local]
        constraint = SiteOccupations(n_sites, fewest, [2 - number for number in fewest])
    if general and magnetisation is None:
        return nk.hilbert.SpinOrbitalFermions(n_sites, s=1 / 2, n_fermions=2 * settings.n_pairs, constraint=constraint)
    half = (magnetisation or 0) // 2
    counts = settings.n_pairs + half, settings.n_pairs - half
    if max(counts) > n_sites:
        raise ValueError(f"{counts} fermions of each spin don't fit on {n_sites} sites")
    return nk.hilbert.SpinOrbitalFermions(n_sites, s=1 / 2, n_fermions_per_spin=counts, constraint=constraint)


def _rotations(settings: Settings) -> np.ndarray | None:
    """Angles and weights of mVMC's projection onto a total spin: Gauss and Legendre's rule in the angle itself."""
    if settings.n_rotations == 1:
        return None
    points, weights = np.polynomial.legendre.leggauss(settings.n_rotations)
    angles = np.pi / 2 * (points + 1)
    legendre = np.polynomial.Legendre.basis(settings.total_spin)(np.cos(angles))
    return np.stack([angles, np.pi / 4 * weights * np.sin(angles) * legendre], axis=1)


def _symmetries(files: dict[str, Path], settings: Settings, *, is_real: bool) -> dict[str, Any]:
    """What a pair product is projected with: its symmetries, characters and signs."""
    if "transsym" not in files:
        raise ValueError("the list of files has no entry TransSym, whose first weight is that of the identity")
    n_sites, taken = settings.n_sites, settings.n_symmetries
    definition = read_definition(files["transsym"])
    if definition.count < taken:
        raise ValueError(f"{definition.path}: NMPTrans takes {taken} symmetries, but there are {definition.count}")
    of_weights, of_sites = definition.take(definition.count, definition.count * n_sites)
    what = "a symmetry, a site and where it goes"
    weights = np.full(definition.count, np.nan, complex)
    for line in of_weights:
        (number,) = line.integers(1, "a symmetry and its weight")
        _check_number(line, number, definition.count)
        parts = line.reals(1, min(2, max(1, len(line.words) - 1)), "a symmetry and its weight")
        if not np.isnan(weights[number]):
            raise line.wrong("each symmetry has its weight once")
        weights[number] = complex(*parts)
    permutations = np.full((definition.count, n_sites), -1)
    signs = np.ones((definition.count, n_sites), int)
    for line in of_sites:
        number = line.integers(1, what)[0]
        _check_number(line, number, definition.count)
        site, image = line.sites((1, 2), n_sites, what)
        permutations[number, site] = image
        if settings.antiperiodic:
            signs[number, site] = _sign(line, 3, f"{what}, and a sign")
    permutations, signs, weights = permutations[:taken], signs[:taken], weights[:taken]
    if (np.sort(permutations, axis=1) != np.arange(n_sites)).any():
        wrong = int(np.argwhere((np.sort(permutations, axis=1) != np.arange(n_sites)).any(axis=1))[0, 0])
        raise ValueError(f"{definition.path}: symmetry {wrong} doesn't take each site to one of its own")
    if taken == 1 and (permutations == np.arange(n_sites)).all() and (signs == 1).all():
        return {}
    is_real = is_real or not weights.imag.any()
    return {
        "symmetries": permutations,
        "characters": weights.real if is_real else weights,
        "signs": signs if settings.antiperiodic else None,
    }


def _ties(orbitals: list[Indices], n_sites: int, *, general: bool) -> TiedParameters:
    if len(orbitals) == 1:
        (read,) = orbitals
        return TiedParameters(read.index, read.signs)
    unequal, equal = orbitals
    index, signs = np.zeros((2, 2 * n_sites, 2 * n_sites), int)
    for spin in range(2):
        own = slice(spin * n_sites, (spin + 1) * n_sites)
        index[own, own] = unequal.block.size + 2 * equal.index + spin
        signs[own, own] = equal.signs
    up, down = slice(n_sites), slice(n_sites, None)
    of_unequal = np.ones(unequal.index.shape, int) if unequal.signs is None else unequal.signs
    index[up, down], index[down, up] = unequal.index, unequal.index.T
    signs[up, down], signs[down, up] = of_unequal, -of_unequal.T
    return TiedParameters(index, signs)


def _layout(correlations: dict[str, Indices], orbitals: list[Indices]) -> Layout:
    blocks = tuple(read.block for read in (*correlations.values(), *orbitals))
    ends = np.cumsum([block.size for block in blocks])
    start = dict(zip(blocks, ends - [block.size for block in blocks], strict=True))
    first = start[orbitals[0].block]
    places = {("models_0", "pairs"): np.arange(first, ends[-1])}
    is_complex = {("models_0", "pairs"): any(read.is_complex for read in orbitals)}
    module = 1
    for keyword in ("gutzwiller", "jastrow"):
        if keyword in correlations:
            block = correlations[keyword].block
            places[f"models_{module}", keyword] = start[block] + np.arange(block.size)
            module += 1
    shell = 0
    for keyword in ("dh2", "dh4"):
        if keyword in correlations:
            block = correlations[keyword].block
            # Of a shell: a number for each count of neighbours, of empty sites and of doubly occupied ones by turns.
            by_count = np.arange(block.size).reshape(-1, 2, block.count)
            for number in range(block.count):
                places[f"models_{module}", f"shell_{shell}"] = start[block] + by_count[:, ::-1, number].T
                shell += 1
    return Layout(blocks, places, {name: is_complex.get(name, False) for name in places})


def _gutzwiller(path: Path, settings: Settings) -> Indices:
    definition = read_definition(path)
    of_sites, flags = definition.take(settings.n_sites, definition.count)
    index = np.full(settings.n_sites, -1)
    for line in of_sites:
        (site,) = line.sites((0,), settings.n_sites, "a site and a parameter")
        index[site] = _number(line, 1, definition.count)
    _check_taken(definition, index)
    block = Block("InGutzwiller", "NGutzwillerIdx", definition.count, definition.count, "gutzwiller_opt.dat")
    return Indices(block, _flags(flags), definition.is_complex, index)


def _jastrow(path: Path, settings: Settings) -> Indices:
    definition = read_definition(path)
    n_sites = settings.n_sites
    of_pairs, flags = definition.take(n_sites * (n_sites - 1), definition.count)
    index = np.full((n_sites, n_sites), -1)
    for line in of_pairs:
        i, j = line.sites((0, 1), n_sites, "two sites and a parameter")
        index[i, j] = _number(line, 2, definition.count)
        if i == j:
            raise line.wrong("a Jastrow factor is one of different sites")
    np.fill_diagonal(index, 0)
    _check_taken(definition, index, ~np.eye(n_sites, dtype=bool))
    if (index != index.T).any():
        i, j = np.argwhere(index != index.T)[0]
        raise ValueError(f"{path}: ({i}, {j}) and ({j}, {i}) are the same pair of sites, but have other parameters")
    block = Block("InJastrow", "NJastrowIdx", definition.count, definition.count, "jastrow_opt.dat")
    return Indices(block, _flags(flags), definition.is_complex, index)


def _doublon_holon_2(path: Path, settings: Settings) -> Indices:
    return _doublon_holon(path, settings, 2)


def _doublon_holon_4(path: Path, settings: Settings) -> Indices:
    return _doublon_holon(path, settings, 4)


def _doublon_holon(path: Path, settings: Settings, neighbours: int) -> Indices:
    definition = read_definition(path)
    n_sites, count = settings.n_sites, definition.count
    size = 2 * (neighbours + 1) * count
    of_sites, flags = definition.take(n_sites * count, size)
    index = np.full((count, n_sites, neighbours), -1)
    for line in of_sites:
        what = f"a site, {neighbours} neighbours and a shell"
        site, *others = line.sites(tuple(range(neighbours + 1)), n_sites, what)
        index[_number(line, neighbours + 1, count), site] = others
    if (index < 0).any():
        shell, site = np.argwhere(index < 0)[0, :2]
        raise ValueError(f"{path}: there is no line of shell {shell} of site {site}")
    name = f"DoublonHolon{neighbours}site"
    block = Block(f"InDH{neighbours}", f"N{name}Idx", count, size, f"d{name[1:]}_opt.dat")
    return Indices(block, _flags(flags), definition.is_complex, index)


_CORRELATIONS = {"gutzwiller": _gutzwiller, "jastrow": _jastrow, "dh2": _doublon_holon_2, "dh4": _doublon_holon_4}
"""What reads the factors, in the order of their parameters."""


def _orbitals(files: dict[str, Path], settings: Settings, *, general: bool) -> list[Indices]:
    if "orbitalgeneral" in files:
        return [_of_general_pairs(files["orbitalgeneral"], settings)]
    keyword = "orbital" if "orbital" in files else "orbitalantiparallel"
    unequal = _of_unequal_spins(files[keyword], settings, general=general)
    return [unequal, _of_equal_spins(files["orbitalparallel"], settings)] if general else [unequal]


def _of_unequal_spins(path: Path, settings: Settings, *, general: bool) -> Indices:
    definition = read_definition(path)
    n_sites = settings.n_sites
    of_pairs, flags = definition.take(n_sites**2, definition.count)
    index, signs = np.full((n_sites, n_sites), -1), np.ones((n_sites, n_sites), int)
    for line in of_pairs:
        i, j = line.sites((0, 1), n_sites, "two sites and a parameter")
        index[i, j] = _number(line, 2, definition.count)
        if settings.antiperiodic:
            signs[i, j] = _sign(line, 3, "two sites, a parameter and its sign")
    _check_taken(definition, index)
    count = definition.count
    block = Block("InOrbital", "NOrbitalIdx", count, count, "orbital_opt.dat")
    if general:
        block = Block("InOrbitalAntiParallel", "NOrbitalAntiParallelIdx", count, count, "orbitalAntiParallel_opt.dat")
    return Indices(block, _flags(flags), definition.is_complex, index, signs if settings.antiperiodic else None)


def _of_equal_spins(path: Path, settings: Settings) -> Indices:
    """Of pairs of sites: there is a parameter of each for both spins."""
    definition = read_definition(path)
    n_sites = settings.n_sites
    of_pairs, flags = definition.take(n_sites * (n_sites - 1) // 2, definition.count)
    index, signs = _skew(of_pairs, n_sites, definition, settings, _pair_of_sites, 2)
    count = 2 * definition.count
    block = Block("InOrbitalParallel", "NOrbitalParallelIdx", count, count, "orbitalParallel_opt.dat")
    return Indices(block, np.repeat(_flags(flags), 2), definition.is_complex, index, signs)


def _of_general_pairs(path: Path, settings: Settings) -> Indices:
    definition = read_definition(path)
    n_modes = 2 * settings.n_sites
    of_pairs, flags = definition.take(n_modes * (n_modes - 1) // 2, definition.count)
    index, signs = _skew(of_pairs, n_modes, definition, settings, _pair_of_modes, 4)
    count = definition.count
    block = Block("InOrbitalGeneral", "NOrbitalIdx", count, count, "orbital_general_opt.dat")
    return Indices(block, _flags(flags), definition.is_complex, index, signs)


def _pair_of_sites(line: Line, n_sites: int) -> tuple[int, ...]:
    return line.sites((0, 1), n_sites, "two sites and a parameter")


def _pair_of_modes(line: Line, n_sites: int) -> tuple[int, ...]:
    what = "a site and a spin, another site and its spin, and a parameter"
    sites, found = line.sites((0, 2), n_sites, what), line.integers(4, what)
    if any(spin not in (0, 1) for spin in found[1::2]):
        raise line.wrong("spins are 0 or 1")
    return tuple(site + spin * n_sites for site, spin in zip(sites, found[1::2], strict=True))


def _skew(
    lines: tuple[Line, ...], size: int, definition: Definition, settings: Settings, pair: Any, word: int
) -> tuple[np.ndarray, np.ndarray]:
    """Indices and signs of the elements of a skew-symmetric matrix, from those above its diagonal."""
    index, signs = np.full((size, size), -1), np.zeros((size, size), int)
    for line in lines:
        i, j = pair(line, settings.n_sites)
        if i >= j:
            raise line.wrong("of a pair the first site and spin comes before the second one, spin 0 before spin 1")
        index[i, j] = index[j, i] = _number(line, word, definition.count)
        signs[i, j] = _sign(line, word + 1, "a pair, a parameter and its sign") if settings.antiperiodic else 1
        signs[j, i] = -signs[i, j]
    np.fill_diagonal(index, 0)
    _check_taken(definition, index, ~np.eye(size, dtype=bool))
    return index, signs


def _number(line: Line, word: int, count: int) -> int:
    number = line.integers(word + 1, "indices, and a parameter behind them")[word]
    _check_number(line, number, count)
    return number


def _check_number(line: Line, number: int, count: int) -> None:
    if not 0 <= number < count:
        raise line.wrong(f"the header says that numbers are from 0 to {count - 1}")


def _sign(line: Line, word: int, what: str) -> int:
    sign = line.integers(word + 1, what)[word]
    if sign not in (1, -1):
        raise line.wrong("with a negative NMPTrans boundaries are antiperiodic, and signs are 1 or -1")
    return sign


def _flags(lines: tuple[Line, ...]) -> np.ndarray:
    return np.fromiter((line.integers(2, "a parameter and whether it's optimised")[1] for line in lines), bool)


def _check_taken(definition: Definition, index: np.ndarray, read: Any = ...) -> None:
    """Raises an error if a place has no parameter, or a parameter no place."""
    if (index[read] < 0).any():
        raise ValueError(f"{definition.path}: {np.argwhere(index < 0)[0].tolist()} has no parameter, others have two")
    if (unused := np.setdiff1d(np.arange(definition.count), index[read])).size:
        raise ValueError(f"{definition.path}: parameter {unused[0]} is taken nowhere: leave it out of the file")
