"""Definition files of mVMC for small lattices, and what it printed for them.

The numbers are those of mVMC 1.1.1, and 1.3.0 prints the same: parameters after 120 steps of its optimisation in
``tests/models/mvmc_parameters``, and energies of ten runs with 20000 samples each.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

PARAMETERS = Path(__file__).parents[1] / "models" / "mvmc_parameters"


@dataclass
class File:
    """The number in the header, whether parameters are complex (None: it doesn't say), and the lines."""

    count: int
    rows: list[tuple[Any, ...]]
    is_complex: bool | None = None


@dataclass
class System:
    files: dict[str, File]
    settings: dict[str, int]
    energy: float
    """The mean of what mVMC printed."""
    error: float
    """And its standard error."""
    parameters: Path = field(init=False)


def write(folder: Path, system: System) -> Path:
    """Writes all files; gives the list of them."""
    folder.mkdir(parents=True, exist_ok=True)
    rule = "-" * 20
    head = [
        rule,
        "Model_Parameters 0",
        rule,
        "VMC_Cal_Parameters",
        rule,
        "CDataFileHead zvo",
        "CParaFileHead zqp",
        rule,
    ]
    lines = [*head, *(f"{name} {value}" for name, value in system.settings.items())]
    (folder / "modpara.def").write_text("\n".join(lines) + "\n")
    for keyword, file in system.files.items():
        (folder / f"{keyword.lower()}.def").write_text(text_of(keyword, file))
    names = ["ModPara modpara.def", *(f"  {keyword} {keyword.lower()}.def" for keyword in system.files)]
    (folder / "namelist.def").write_text("\n".join(names) + "\n")
    return folder / "namelist.def"


def text_of(keyword: str, file: File) -> str:
    rule = "=" * 20
    third = rule if file.is_complex is None else f"ComplexType {int(file.is_complex)}"
    rows = [" ".join(map(str, row)) for row in file.rows]
    return "\n".join([rule, f"N{keyword} {file.count}", third, rule, rule, *rows]) + "\n"


def optimised(count: int) -> list[tuple[int, int]]:
    return [(number, 1) for number in range(count)]


def indices(index: np.ndarray, *, is_complex: bool = False, signs: np.ndarray | None = None) -> File:
    """Those of sites or pairs that aren't negative."""
    count = int(index.max()) + 1
    places = [place for place in np.ndindex(*index.shape) if index[place] >= 0]
    rows = [(*place, index[place], *(() if signs is None else (signs[place],))) for place in places]
    return File(count, rows + optimised(count), is_complex)


def of_distances(labels: np.ndarray) -> File:
    """A Jastrow factor that depends on a label of each pair."""
    index, others = np.full(labels.shape, -1), ~np.eye(len(labels), dtype=bool)
    index[others] = np.unique(labels[others], return_inverse=True)[1]
    return indices(index)


def numbered(labels: np.ndarray) -> np.ndarray:
    """From 0 on, in the order in which they come first."""
    known: dict[int, int] = {}
    return np.array([known.setdefault(label, len(known)) for label in labels.flat]).reshape(labels.shape)


def shells(neighbours: np.ndarray) -> File:
    """A doublon-holon factor of shells ``(S, L, z)``."""
    count, sites, size = neighbours.shape
    rows = [(site, *neighbours[shell, site], shell) for shell in range(count) for site in range(sites)]
    return File(count, rows + optimised(2 * (size + 1) * count), is_complex=False)


def hops(bonds: Sequence[tuple[int, int]], amplitude: Callable[[int], complex] = lambda _: 1) -> list[tuple[Any, ...]]:
    """Of both spins, in both directions."""
    rows = []
    for number, (i, j) in enumerate(bonds):
        t = complex(amplitude(number))
        for spin in range(2):
            rows += [(i, spin, j, spin, t.real, t.imag), (j, spin, i, spin, t.real, -t.imag)]
    return rows


def terms(rows: list[tuple[Any, ...]]) -> File:
    return File(len(rows), rows)


def everywhere(sites: int, value: float) -> File:
    return terms([(site, value) for site in range(sites)])


def projection(
    permutations: list[np.ndarray], weights: Sequence[complex], signs: list[np.ndarray] | None = None
) -> File:
    rows: list[tuple[Any, ...]] = [(n, complex(w).real, complex(w).imag) for n, w in enumerate(weights)]
    for number, permutation in enumerate(permutations):
        for site, image in enumerate(permutation):
            rows.append((number, site, image, *(() if signs is None else (signs[number][site],))))
    return File(len(permutations), rows)


def settings(sites: int, electrons: int, **others: int) -> dict[str, int]:
    return {"Nsite": sites, "Ncond": electrons, "NSPGaussLeg": 1, "NSPStot": 0, "NMPTrans": 1, **others}


def itinerant(sites: int) -> File:
    return local_spins(np.zeros(sites, int))


def local_spins(is_local: np.ndarray) -> File:
    return File(int(is_local.sum()), list(enumerate(is_local.astype(int))))


def heisenberg(bonds: Sequence[tuple[int, int]], coupling: float) -> dict[str, list[tuple[Any, ...]]]:
    """J S_i · S_j, for sites of which one is a local spin."""
    factors = {"CoulombInter": -0.25, "Hund": -0.5, "Exchange": -0.5}
    return {name: [(*bond, factor * coupling) for bond in bonds] for name, factor in factors.items()}


def _ring() -> System:
    """A Hubbard chain with a sublattice of two sites."""
    sites = np.arange(6)
    distance = (sites - sites[:, None]) % 6
    files = {
        "LocSpin": itinerant(6),
        "Trans": terms(hops(ring(6))),
        "CoulombIntra": everywhere(6, 4.0),
        "Gutzwiller": indices(sites % 2),
        "Jastrow": of_distances(np.minimum(distance, distance.T)),
        "Orbital": indices(numbered(sites[:, None] % 2 * 6 + distance)),
        "TransSym": projection([sites], [1]),
    }
    return System(files, settings(6, 6, **{"2Sz": 0}), -3.546203, 1.3e-3)


def _momentum() -> System:
    """A ladder of eight sites, with complex pairs, projected onto a momentum of π/2."""
    sites = np.arange(8)
    x, y = sites % 4, sites // 4
    right = (x + 1) % 4 + 4 * y
    distance = np.abs((x[:, None] - x + 2) % 4 - 2) + 10 * np.abs(y[:, None] - y)
    steps = [(x + step) % 4 + 4 * y for step in range(4)]
    files = {
        "LocSpin": itinerant(8),
        "Trans": terms(hops([*zip(sites, right, strict=True), *zip(range(4), range(4, 8), strict=True)])),
        "CoulombIntra": everywhere(8, 6.0),
        "Gutzwiller": indices(np.zeros(8, int)),
        "Jastrow": of_distances(distance),
        "Orbital": indices(np.arange(64).reshape(8, 8), is_complex=True),
        "TransSym": projection(steps, [1, 1j, -1, -1j]),
    }
    return System(files, settings(8, 6, **{"2Sz": 0, "NMPTrans": 4}), -6.199340, 1.4e-3)


def _spin() -> System:
    """A singlet of an extended Hubbard chain, with all kinds of terms and factors."""
    sites = np.arange(6)
    distance = (sites - sites[:, None]) % 6
    bonds, second = ring(6), [(site, (site + 2) % 6) for site in range(6)]
    near, far = ([(sites + step) % 6, (sites - step) % 6] for step in (1, 2))
    files = {
        "LocSpin": itinerant(6),
        "Trans": terms(hops(bonds)),
        "CoulombIntra": everywhere(6, 5.0),
        "CoulombInter": terms([(*bond, 0.7) for bond in bonds]),
        "Hund": terms([(*bond, 0.4) for bond in second]),
        "Exchange": terms([(*bond, 0.3) for bond in second]),
        "PairHop": terms([(*bond, 0.2) for bond in bonds]),
        "Gutzwiller": indices(sites % 3),
        "Jastrow": of_distances(np.minimum(distance, distance.T)),
        "DH2": shells(np.array([np.stack(near, axis=1), np.stack(far, axis=1)])),
        "DH4": shells(np.stack([*near, *far], axis=1)[None]),
        "Orbital": indices(np.arange(36).reshape(6, 6)),
        "TransSym": projection([sites], [1]),
    }
    return System(files, settings(6, 6, **{"2Sz": 0, "NSPGaussLeg": 6}), -0.843613, 1.9e-3)


def _antiperiodic() -> System:
    """A chain with an antiperiodic boundary, projected onto a momentum of its sublattice."""
    sites = np.arange(6)
    distance = (sites - sites[:, None]) % 6
    cell = sites - sites % 2
    files = {
        "LocSpin": itinerant(6),
        "Trans": terms(hops(ring(6), lambda bond: -1 if bond == 5 else 1)),
        "CoulombIntra": everywhere(6, 4.0),
        "Gutzwiller": indices(np.zeros(6, int)),
        "Jastrow": of_distances(np.minimum(distance, distance.T)),
        "Orbital": indices(numbered(sites[:, None] % 2 * 6 + distance), signs=np.where(sites < cell[:, None], -1, 1)),
        "TransSym": projection(
            [(sites + step) % 6 for step in (0, 2, 4)],
            [1] * 3,
            [np.where(sites + step > 5, -1, 1) for step in (0, 2, 4)],
        ),
    }
    return System(files, settings(6, 4, **{"2Sz": 0, "NMPTrans": -3}), -5.208619, 4.9e-4)


def _general() -> System:
    """General complex pairs with a magnetisation, in a flux, and with terms of four operators."""
    sites, modes = np.arange(5), [(site, spin) for spin in range(2) for site in range(5)]
    distance = (sites - sites[:, None]) % 5
    both = [(first, second) for number, first in enumerate(modes) for second in modes[number + 1 :]]
    # In the order of spins.
    both.sort(key=lambda pair: (pair[0][1] + pair[1][1], pair))
    pairs = [(*first, *second, number) for number, (first, second) in enumerate(both)]
    flips = []
    for i, j in ring(5):
        flips += [(i, 0, j, 0, j, 1, i, 1, 0.25, 0.1), (i, 1, j, 1, j, 0, i, 0, 0.25, -0.1)]
    files = {
        "LocSpin": itinerant(5),
        "Trans": terms(hops(ring(5), lambda _: complex(np.round(np.exp(0.3j), 12)))),
        "CoulombIntra": terms([(site, 3.0 + 0.2 * site) for site in range(5)]),
        "InterAll": terms(flips),
        "Gutzwiller": indices(sites),
        "Jastrow": of_distances(np.minimum(distance, distance.T)),
        "OrbitalGeneral": File(len(pairs), pairs + optimised(len(pairs)), is_complex=True),
        "TransSym": projection([sites], [1]),
    }
    return System(files, settings(5, 4, **{"2Sz": 2}), -3.221375, 3.3e-4)


def _equal() -> System:
    """Pairs of equal and of unequal spins, with spin-orbit coupling: the magnetisation isn't conserved."""
    sites = np.arange(4)
    distance = (sites - sites[:, None]) % 4
    turned = []
    for i, j in ring(4):
        turned += [(i, s, j, 1 - s, 0.0, 0.4) for s in range(2)] + [(j, 1 - s, i, s, 0.0, -0.4) for s in range(2)]
    pairs = [(i, j, number) for number, (i, j) in enumerate(zip(*np.triu_indices(4, k=1), strict=True))]
    files = {
        "LocSpin": itinerant(4),
        "Trans": terms(hops(ring(4)) + turned),
        "CoulombIntra": everywhere(4, 3.0),
        "Gutzwiller": indices(np.zeros(4, int)),
        "Jastrow": of_distances(np.minimum(distance, distance.T)),
        "OrbitalAntiParallel": indices(np.arange(16).reshape(4, 4), is_complex=True),
        "OrbitalParallel": File(len(pairs), pairs + optimised(len(pairs)), is_complex=True),
        "TransSym": projection([sites], [1]),
    }
    return System(files, settings(4, 4), -3.128022, 1.0e-3)


def _heisenberg() -> System:
    """A triplet of local spins on a ring, with second neighbours, projected onto the momentum π."""
    sites = np.arange(8)
    near = heisenberg(ring(8), 1.0)
    far = heisenberg([(site, (site + 2) % 8) for site in range(8)], 0.3)
    files = {
        "LocSpin": local_spins(np.ones(8, int)),
        **{name: terms(near[name] + far[name]) for name in near},
        "Gutzwiller": indices(np.zeros(8, int)),
        "Orbital": indices(np.arange(64).reshape(8, 8)),
        "TransSym": projection([(sites + step) % 8 for step in range(8)], [(-1) ** step for step in range(8)]),
    }
    return System(files, settings(8, 0, **{"2Sz": 0, "NSPGaussLeg": 4, "NSPStot": 1, "NMPTrans": 8}), -1.356367, 2.7e-4)


def _kondo() -> System:
    """A Kondo chain with two electrons and complex pairs, projected onto a momentum of π/2.

    Its local spins are on even sites.
    """
    sites = np.arange(8)
    distance = (sites - sites[:, None]) % 8
    bonds = [(site, (site + 2) % 8) for site in range(1, 8, 2)]
    files = {
        "LocSpin": local_spins(1 - sites % 2),
        "Trans": terms(hops(bonds)),
        "CoulombIntra": everywhere(8, 1.5),
        **{name: terms(rows) for name, rows in heisenberg([(site, site + 1) for site in range(0, 8, 2)], 1.2).items()},
        "Gutzwiller": indices(sites % 2),
        "Jastrow": of_distances(np.minimum(distance, distance.T) + 10 * (sites % 2) * (sites % 2)[:, None]),
        "Orbital": indices(np.arange(64).reshape(8, 8), is_complex=True),
        "TransSym": projection([(sites + step) % 8 for step in range(0, 8, 2)], [1, 1j, -1, -1j]),
    }
    return System(files, settings(8, 2, **{"2Sz": 0, "NMPTrans": 4}), -4.070917, 5.7e-4)


def _turned_spins() -> System:
    """A Kondo chain with general pairs and spin-orbit coupling: the magnetisation isn't conserved."""
    modes = [(site, spin) for spin in range(2) for site in range(6)]
    both = [(first, second) for number, first in enumerate(modes) for second in modes[number + 1 :]]
    pairs = [(*first, *second, number) for number, (first, second) in enumerate(both)]
    turned = []
    for i, j in ((3, 4), (4, 5), (5, 3)):
        turned += [(i, s, j, 1 - s, 0.0, 0.4) for s in range(2)] + [(j, 1 - s, i, s, 0.0, -0.4) for s in range(2)]
    field = [(site, spin, site, 1 - spin, 0.2, 0.0) for site in range(3) for spin in range(2)]
    files = {
        "LocSpin": local_spins(np.arange(6) < 3),
        "Trans": terms(hops([(3, 4), (4, 5), (5, 3)]) + turned + field),
        **{name: terms(rows) for name, rows in heisenberg([(site, site + 3) for site in range(3)], 1.0).items()},
        "Gutzwiller": indices(np.arange(6) // 3),
        "OrbitalGeneral": File(len(pairs), pairs + optimised(len(pairs)), is_complex=True),
        "TransSym": projection([np.arange(6)], [1]),
    }
    given = settings(6, 0)
    # Pairs of all fermions, of three local spins and three electrons.
    del given["Ncond"]
    return System(files, {**given, "Nelectron": 3}, -4.173520, 6.7e-4)


def ring(sites: int) -> list[tuple[int, int]]:
    return [(site, (site + 1) % sites) for site in range(sites)]


SYSTEMS = {
    "ring": _ring(),
    "momentum": _momentum(),
    "spin": _spin(),
    "antiperiodic": _antiperiodic(),
    "general": _general(),
    "equal": _equal(),
    "heisenberg": _heisenberg(),
    "kondo": _kondo(),
    "turned_spins": _turned_spins(),
}
for _name, _system in SYSTEMS.items():
    _system.parameters = PARAMETERS / f"{_name}.dat"
