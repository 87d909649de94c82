"""Random operators for hypothesis: for each family groups of operators whose arrays have equal shapes, and samples.

The structure (space, sites, terms) is hypothesis's; the numbers come from a generator that it seeds. A group shares its
structure up to a relabelling of the sites, so that whatever is compiled for one of its operators serves all.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product
from typing import Any

import netket as nk
import numpy as np
import scipy.sparse
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

import ferroket as fk
import reference
from ferroket._compat import netket as compat

OPERATORS_IN_A_GROUP = 10
SAMPLES = 6


def checks(max_examples: int) -> settings:
    """So many examples, the same ones each time; there is no deadline, since XLA compiles.

    With ``FERROKET_TEST_CASES=fewer`` it is a tenth, and with ``FERROKET_TEST_CASES=random`` they are others each time.
    """
    if os.environ.get("FERROKET_TEST_CASES") == "fewer":
        max_examples = -(-max_examples // 10)
    return settings(
        max_examples=max_examples,
        deadline=None,
        derandomize=os.environ.get("FERROKET_TEST_CASES") != "random",
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )


DTYPES = [None, "float32", "float64", "complex64", "complex128"]
SIGNED = ["int8", "int16", "int32", "int64", "float32", "float64"]
UNSIGNED = ["uint8", "uint32"]


# Spaces


@dataclass(frozen=True)
class Space:
    """A Hilbert space, and what the generators have to know of it."""

    hilbert: Any
    sectors: tuple[tuple[tuple[int, ...], float], ...] = ()
    """Sets of sites and the sum of their values, where that is fixed."""

    @property
    def size(self) -> int:
        return self.hilbert.size

    @property
    def sites(self) -> reference.Sites:
        return local_states(self.hilbert)

    @property
    def blocks(self) -> tuple[tuple[int, ...], ...]:
        return tuple(sites for sites, _ in self.sectors)

    def samples(self, rng: np.random.Generator, batch: tuple[int, ...]) -> np.ndarray:
        if self.sectors:
            states = sector(self)
            return states[rng.integers(len(states), size=batch)]
        columns = [rng.choice(np.asarray(states), batch) for states in self.sites]
        return np.stack(columns, axis=-1)

    def holds(self, x: np.ndarray) -> bool:
        """Whether all these configurations are of the space."""
        local = all(np.isin(x[..., site], states).all() for site, states in enumerate(self.sites))
        return local and all((x[..., list(sites)].sum(axis=-1) == total).all() for sites, total in self.sectors)

    def relabelling(self, rng: np.random.Generator) -> np.ndarray:
        """A random permutation of the sites that are alike."""
        block = {site: i for i, sites in enumerate(self.blocks) for site in sites}
        image = np.arange(self.size)
        kinds = [(self.sites[site], block.get(site)) for site in range(self.size)]
        for kind in set(kinds):
            alike = [site for site in range(self.size) if kinds[site] == kind]
            image[alike] = rng.permutation(alike)
        return image


@lru_cache(maxsize=1024)
def local_states(hilbert: Any) -> reference.Sites:
    return tuple(tuple(float(v) for v in hilbert.states_at_index(site)) for site in range(hilbert.size))


@lru_cache(maxsize=1024)
def sector(space: Space) -> np.ndarray:
    """All configurations of a small space."""
    states = np.array(list(product(*space.sites)))
    for sites, total in space.sectors:
        states = states[states[:, list(sites)].sum(axis=-1) == total]
    return states


def _one_sector(hilbert: Any, total: float) -> Space:
    return Space(hilbert, ((tuple(range(hilbert.size)), total),))


def _spins(s: float, sizes: Iterable[int], inverted: Sequence[bool] = (False, True)) -> st.SearchStrategy[Space]:
    return st.builds(
        lambda n, inverted_ordering: Space(nk.hilbert.Spin(s, n, inverted_ordering=inverted_ordering)),
        st.sampled_from(list(sizes)),
        st.sampled_from(list(inverted)),
    )


@st.composite
def _magnetised(draw: Any, s: float, n: int) -> Space:
    total = draw(st.integers(0, round(2 * s * n))) - s * n
    return _one_sector(nk.hilbert.Spin(s, n, total_sz=total), 2 * total)


@st.composite
def _bosons(draw: Any, n_max: int, sizes: Sequence[int]) -> Space:
    n = draw(st.sampled_from(sizes))
    particles = draw(st.one_of(st.none(), st.integers(1, n * n_max - 1) if n * n_max > 1 else st.none()))
    hilbert = nk.hilbert.Fock(n_max, n, n_particles=particles)
    return Space(hilbert) if particles is None else _one_sector(hilbert, particles)


@st.composite
def fermion_spaces(draw: Any, *, conserving: bool = False, per_spin: bool = False) -> Space:
    """Spaces of fermions, with and without spin and constraints."""
    if not per_spin and draw(st.booleans()):
        n = draw(st.sampled_from([3, 5]))
        if conserving or draw(st.booleans()):
            n_fermions = draw(st.integers(1, n - 1))
            return _one_sector(nk.hilbert.SpinOrbitalFermions(n, n_fermions=n_fermions), n_fermions)
        return Space(nk.hilbert.SpinOrbitalFermions(n))
    n = draw(st.sampled_from([2, 3]))
    spins = tuple(draw(st.integers(1, n - 1)) if conserving else draw(st.integers(0, n)) for _ in range(2))
    hilbert = nk.hilbert.SpinOrbitalFermions(n, s=0.5, n_fermions_per_spin=spins)
    sectors = Space(hilbert, ((tuple(range(n)), spins[0]), (tuple(range(n, 2 * n)), spins[1])))
    if per_spin:
        return sectors
    whole = _one_sector(nk.hilbert.SpinOrbitalFermions(n, s=0.5, n_fermions=sum(spins)), sum(spins))
    free = Space(nk.hilbert.SpinOrbitalFermions(n, s=0.5))
    return draw(st.sampled_from([sectors, whole] if conserving else [sectors, whole, free]))


def _qubits() -> st.SearchStrategy[Space]:
    return st.builds(lambda n: Space(nk.hilbert.Qubit(n)), st.sampled_from([1, 4, *WIDE]))


WIDE = [33, 64, 65]
"""Sizes beyond one word of 32 bits, and of 64."""


def two_level_spaces() -> st.SearchStrategy[Space]:
    return st.one_of(
        _spins(0.5, [1, 4, 6]),
        _spins(0.5, WIDE),
        _magnetised(0.5, 5),
        _qubits(),
        _bosons(1, [4]),
        fermion_spaces(),
    )


@lru_cache
def _mixed() -> list[Space]:
    """Products of different sites."""
    spin, qubit, one = nk.hilbert.Spin(0.5, 2), nk.hilbert.Qubit(1), nk.hilbert.Spin(1, 1)
    bosons, singlet = nk.hilbert.Fock(2, 2), nk.hilbert.Spin(0.5, 2, total_sz=0)
    return [
        Space(spin * bosons),
        Space(qubit * one * nk.hilbert.Fock(3, 1)),
        Space(spin * qubit),
        Space(singlet * bosons, (((0, 1), 0),)),
        Space(nk.hilbert.Fock(2, 2, n_particles=2) * nk.hilbert.SpinOrbitalFermions(2), (((0, 1), 2),)),
        Space(nk.hilbert.DoubledHilbert(spin)),
        Space(nk.hilbert.DoubledHilbert(nk.hilbert.Fock(2, 2))),
        Space(nk.hilbert.DoubledHilbert(singlet), (((0, 1), 0), ((2, 3), 0))),
    ]


def many_level_spaces() -> st.SearchStrategy[Space]:
    return st.one_of(
        _spins(1, [1, 3, 4]),
        _magnetised(1, 4),
        _spins(1.5, [3]),
        _bosons(3, [3]),
        _bosons(2, [1, 4]),
        st.sampled_from(range(8)).map(lambda i: _mixed()[i]),
    )


# Operators


@dataclass(frozen=True)
class Generated:
    """One operator: how to build it with Ferroket or NetKet, and its slow reference."""

    family: str
    space: Space
    reference: reference.Reference
    arguments: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    def build(self, implementation: str, **options: Any) -> Any:
        """With "ferroket", NetKet's "jax" or NetKet's "numba"."""
        return builder(self.family, implementation)(self.space.hilbert, *self.arguments, **{**self.options, **options})


@dataclass(frozen=True)
class Group:
    """Operators whose arrays have equal shapes, with samples for all of them."""

    operators: list[Generated]
    x: np.ndarray

    def _repr_pretty_(self, printer: Any, _: bool) -> None:
        """What hypothesis prints: the first operator is as good as all."""
        one = self.operators[0]
        printer.text(f"{one.family} on {one.space.hilbert!r}, {one.arguments}, {one.options}, x={self.x!r}")


IMPLEMENTATIONS = {"ferroket": "", "jax": "Jax", "numba": "Numba"}


@lru_cache
def builder(family: str, implementation: str) -> Callable[..., Any]:
    """What builds an operator of a family, with NetKet's constructor."""
    suffix = IMPLEMENTATIONS[implementation]
    module = fk.operator if implementation == "ferroket" else nk.operator
    if family in ("Heisenberg", "GraphOperator"):
        if implementation == "ferroket":
            return getattr(fk.operator, family)
        cls = getattr(nk.operator, f"LocalOperator{suffix}")
        return lambda *arguments, **options: getattr(nk.operator, family)(*arguments, cls=cls, **options)
    if family.startswith("ParticleNumber"):
        cls = getattr(fk.operator if implementation == "ferroket" else nk.experimental.operator, family)
        return lambda *arguments, **options: cls.from_fermionoperator2nd(
            nk.operator.FermionOperator2ndJax(*arguments, **options)
        )
    if family == "FermiHubbard" and implementation == "jax":
        return compat.FermiHubbard
    return getattr(module, family + suffix)


WITHOUT_NUMBA = {
    "FermiHubbard",
    "ParticleNumberConservingFermioperator2nd",
    "ParticleNumberAndSpinConservingFermioperator2nd",
}


def numbers(rng: np.random.Generator, dtype: str | None, shape: Any = ()) -> Any:
    """Multiples of 1/8 that aren't zero: their sums are exact in all dtypes, and cancel often."""
    values = rng.integers(1, 17, shape) * rng.choice([-1, 1], shape) / 8
    if dtype and dtype.startswith("complex"):
        values = values + 1j * rng.integers(-16, 17, shape) / 8
    return values


@st.composite
def groups(draw: Any, family: str) -> Group:
    """A group of one family."""
    make, spaces = FAMILIES[family]
    space = draw(spaces())
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    operators = make(draw, rng, space)
    return Group(operators, draw_samples(draw, rng, space))


def draw_samples(draw: Any, rng: np.random.Generator, space: Space) -> np.ndarray:
    lowest = min(min(states) for states in space.sites)
    dtypes = SIGNED if lowest < 0 else [*SIGNED, *UNSIGNED]
    return space.samples(rng, (SAMPLES,)).astype(draw(st.sampled_from(dtypes)))


def _conserves(space: Space, acting_on: Sequence[int], row: Sequence[int], column: Sequence[int]) -> bool:
    for block in space.blocks:
        change = sum(
            space.sites[site][b] - space.sites[site][a]
            for site, a, b in zip(acting_on, row, column, strict=True)
            if site in block
        )
        if change:
            return False
    return True


def _local_operators(draw: Any, rng: np.random.Generator, space: Space) -> list[Generated]:
    dtype = draw(st.sampled_from(DTYPES))
    supports = []
    for _ in range(draw(st.integers(0, 4))):
        sites = list(rng.permutation(space.size)[: draw(st.integers(1, 3))])
        while np.prod([len(space.sites[site]) for site in sites]) > 16:
            sites.pop()
        supports.append([int(site) for site in sites])
    density = draw(st.sampled_from([0.2, 0.6, 1.0]))
    patterns = []
    for sites in supports:
        labels = list(product(*(range(len(space.sites[site])) for site in sites)))
        allowed = np.array([[_conserves(space, sites, row, column) for column in labels] for row in labels])
        patterns.append(allowed & (rng.random(allowed.shape) < density))
    with_constant = draw(st.booleans())
    hermitian = draw(st.booleans())
    sparse = draw(st.booleans())
    operators = []
    for _ in range(OPERATORS_IN_A_GROUP):
        image = space.relabelling(rng)
        acting_on = [[int(image[site]) for site in sites] for sites in supports]
        matrices = [numbers(rng, dtype, pattern.shape) * pattern for pattern in patterns]
        if hermitian:
            matrices = [matrix + matrix.conj().T for matrix in matrices]
        constant = numbers(rng, dtype).item() if with_constant else 0
        by_definition = reference.Local(space.sites, list(zip(matrices, acting_on, strict=True)), constant)
        given_as = [scipy.sparse.coo_matrix(m) if sparse else m for m in matrices]
        options = {"constant": constant, "dtype": dtype}
        operators.append(Generated("LocalOperator", space, by_definition, (given_as, acting_on), options))
    return operators


def _random_edges(draw: Any, n: int) -> list[tuple[int, int]]:
    pairs = [(i, j) for i in range(n) for j in range(i)]
    return draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=6, unique=True)) if pairs else []


def _graph_operators(draw: Any, rng: np.random.Generator, space: Space) -> list[Generated]:
    dtype = draw(st.sampled_from(DTYPES))
    edges = _random_edges(draw, space.size)
    size = len(space.sites[0])
    labels = list(product(range(size), repeat=2))
    on_bonds = np.array([[_conserves(space, (0, 1), row, column) for column in labels] for row in labels])
    on_sites = np.eye(size, dtype=bool) if space.blocks else np.ones((size, size), bool)
    with_site, with_bond = draw(st.sampled_from([(True, True), (False, True)]))
    operators = []
    for _ in range(OPERATORS_IN_A_GROUP):
        image = space.relabelling(rng)
        relabelled = [tuple(sorted((int(image[i]), int(image[j])))) for i, j in edges]
        graph = nk.graph.Graph(edges=relabelled, n_nodes=space.size)
        site = numbers(rng, dtype, on_sites.shape) * on_sites
        bond = numbers(rng, dtype, on_bonds.shape) * on_bonds
        terms: list[tuple[np.ndarray, Sequence[int]]] = []
        if with_site:
            terms += [(site, [i]) for i in range(space.size)]
        if with_bond:
            terms += [(bond, edge) for edge in graph.edges()]
        options = {"site_ops": [site] * with_site, "bond_ops": [bond] * with_bond, "dtype": dtype}
        by_definition = reference.Local(space.sites, terms)
        operators.append(Generated("GraphOperator", space, by_definition, (graph,), options))
    return operators


def _heisenberg(draw: Any, rng: np.random.Generator, space: Space) -> list[Generated]:
    dtype = draw(st.sampled_from([None, "float32", "float64"]))
    n_nodes = draw(st.integers(2, space.size))
    edges = _random_edges(draw, n_nodes)
    coloured = draw(st.booleans())
    colours = [k % 2 for k in range(len(edges))]
    n_colours = max(colours) + 1
    bipartite = nk.graph.Graph(edges=edges, n_nodes=n_nodes).is_bipartite()
    sign_rule: Any = draw(st.sampled_from([None, False, *([True] if bipartite else [])]))
    if coloured and sign_rule is not None:
        sign_rule = [sign_rule] * n_colours
    start = draw(st.integers(0, space.size - n_nodes))
    operators = []
    for _ in range(OPERATORS_IN_A_GROUP):
        J: Any = [float(j) for j in numbers(rng, None, n_colours)] if coloured else float(numbers(rng, None))
        # A graph has its own order of edges: ask it.
        graph = nk.graph.Graph(edges=[(*edge, c) for edge, c in zip(edges, colours, strict=True)], n_nodes=n_nodes)
        with_colours = graph.edges(return_color=True)
        couplings = [J[c] if coloured else J for *_, c in with_colours]
        default = False if coloured else bipartite
        marshall = [bool(np.any(sign_rule)) if sign_rule is not None else default] * len(couplings)
        mapped = [(i + start, j + start) for i, j, _ in with_colours]
        by_definition = reference.Heisenberg(space.sites, mapped, couplings, marshall)
        options = {"J": J, "sign_rule": sign_rule, "dtype": dtype}
        if n_nodes < space.size:
            options["acting_on_subspace"] = draw(st.sampled_from([start, list(range(start, start + n_nodes))]))
        operators.append(Generated("Heisenberg", space, by_definition, (graph,), options))
    return operators


def _ising(draw: Any, rng: np.random.Generator, space: Space) -> list[Generated]:
    dtype = draw(st.sampled_from(DTYPES))
    edges = _random_edges(draw, space.size)
    operators = []
    for _ in range(OPERATORS_IN_A_GROUP):
        image = space.relabelling(rng)
        relabelled = [(int(image[i]), int(image[j])) for i, j in edges]
        h, J = numbers(rng, dtype), numbers(rng, dtype)
        by_definition = reference.Ising(space.sites, relabelled, h, J)
        operators.append(
            Generated(
                "Ising",
                space,
                by_definition,
                (np.array(relabelled, int).reshape(-1, 2),),
                {"h": h, "J": J, "dtype": dtype},
            )
        )
    return operators


def _pauli_strings(draw: Any, rng: np.random.Generator, space: Space) -> list[Generated]:
    dtype = draw(st.sampled_from(DTYPES))
    real = dtype is not None and dtype.startswith("float")
    n = space.size
    flips = draw(st.integers(0, 4))
    strings = []
    for group in range(flips):
        # A group of strings that flip the same sites: some of them with Y for X.
        flipped = rng.random(n) < (0 if group == 0 and draw(st.booleans()) else 0.5)
        for _ in range(draw(st.integers(1, 3))):
            string = np.where(flipped, rng.choice(["X", "Y"], n), rng.choice(["I", "Z"], n))
            ys = np.flatnonzero(string == "Y")
            if real and len(ys) % 2:
                string[ys[0]] = "X"
            strings.append(string)
    if space.blocks:
        # XX + YY exchanges, what conserves.
        strings = []
        for _ in range(flips):
            block = list(space.blocks[rng.integers(len(space.blocks))])
            rest = rng.choice(["I", "Z"], n)
            if len(block) > 1:
                pair = rng.permutation(block)[:2]
                for letter in "XY":
                    string = rest.copy()
                    string[pair] = letter
                    strings.append(string)
            else:
                strings += [rest, rest]
    operators = []
    for _ in range(OPERATORS_IN_A_GROUP):
        image = space.relabelling(rng)
        relabelled = ["".join(string[image]) for string in strings]
        weights = numbers(rng, dtype, len(strings))
        if space.blocks:
            weights = np.repeat(weights[: len(strings) // 2], 2)
        by_definition = reference.Pauli(space.sites, relabelled, weights)
        operators.append(Generated("PauliStrings", space, by_definition, (relabelled, weights), {"dtype": dtype}))
    return operators


def _bose_hubbard(draw: Any, rng: np.random.Generator, space: Space) -> list[Generated]:
    dtype = draw(st.sampled_from([None, "float32", "float64"]))
    edges = _random_edges(draw, space.size)
    operators = []
    for _ in range(OPERATORS_IN_A_GROUP):
        image = space.relabelling(rng)
        relabelled = [(int(image[i]), int(image[j])) for i, j in edges]
        values = {name: float(numbers(rng, None)) for name in ("U", "V", "J", "mu")}
        by_definition = reference.BoseHubbard(space.sites, relabelled, **values)
        graph = np.array(relabelled, int).reshape(-1, 2)
        operators.append(Generated("BoseHubbard", space, by_definition, (graph,), {**values, "dtype": dtype}))
    return operators


def _fermion_terms(draw: Any, rng: np.random.Generator, space: Space, longest: int = 4) -> list[Any]:
    """Random products; where the space has sectors, those that conserve them, at times in normal order."""
    terms = []
    normal = draw(st.booleans())
    for _ in range(draw(st.integers(0, 6))):
        if not space.blocks:
            length = draw(st.integers(0, longest))
            term = [(int(rng.integers(space.size)), int(rng.integers(2))) for _ in range(length)]
        else:
            pairs = draw(st.integers(0, longest // 2))
            term = []
            for _ in range(pairs):
                block = space.blocks[rng.integers(len(space.blocks))]
                term += [(int(rng.choice(block)), dagger) for dagger in (0, 1)]
            term = [term[i] for i in rng.permutation(len(term))]
            if normal:
                term.sort(key=lambda factor: -factor[1])
        terms.append(tuple(term))
    return terms


def _fermion_family(family: str, longest: int) -> Callable[..., list[Generated]]:
    def make(draw: Any, rng: np.random.Generator, space: Space) -> list[Generated]:
        plain = family == "FermionOperator2nd"
        dtype = draw(st.sampled_from(DTYPES)) if plain else None
        terms = _fermion_terms(draw, rng, space, longest)
        as_text = draw(st.booleans())
        constant = draw(st.sampled_from([0, 0.5]))
        operators = []
        for _ in range(OPERATORS_IN_A_GROUP):
            image = space.relabelling(rng)
            relabelled = [tuple((int(image[orbital]), dagger) for orbital, dagger in term) for term in terms]
            weights = [weight.item() for weight in numbers(rng, dtype, len(terms))]
            total: dict[Any, complex] = {(): constant}
            for term, weight in zip(relabelled, weights, strict=True):
                total[term] = total.get(term, 0) + weight
            given_as = (
                [" ".join(f"{orbital}{'^' * dagger}" for orbital, dagger in term) for term in relabelled]
                if as_text
                else relabelled
            )
            options = {"constant": constant, "dtype": dtype}
            by_definition = reference.Fermions(space.sites, total)
            operators.append(Generated(family, space, by_definition, (given_as, weights), options))
        return operators

    return make


def _fermi_hubbard(draw: Any, rng: np.random.Generator, space: Space) -> list[Generated]:
    n = space.size // 2
    edges = _random_edges(draw, n)
    each = draw(st.booleans())
    operators = []
    for _ in range(OPERATORS_IN_A_GROUP):
        graph = nk.graph.Graph(edges=edges, n_nodes=n)
        t = [float(v) for v in numbers(rng, None, graph.n_edges)]
        U = [float(v) for v in numbers(rng, None, n)]
        if not each:
            t, U = [t[0]] * len(t), [U[0]] * len(U)
        by_definition = reference.fermi_hubbard(space.sites, graph.edges(), t, U)
        options = {"t": t, "U": U} if each else {"t": t[0], "U": U[0]}
        operators.append(Generated("FermiHubbard", space, by_definition, (graph,), options))
    return operators


def _pairs_of_spins() -> st.SearchStrategy[Space]:
    return st.one_of(_spins(0.5, [4, 6]), _magnetised(0.5, 5))


def _alike() -> st.SearchStrategy[Space]:
    return st.one_of(_spins(0.5, [4]), _magnetised(0.5, 5), _spins(1, [3]), _magnetised(1, 4), _bosons(2, [3]))


def _boson_spaces() -> st.SearchStrategy[Space]:
    unbounded = st.builds(lambda n: _one_sector(nk.hilbert.Fock(N=n, n_particles=3), 3), st.sampled_from([2, 3]))
    return st.one_of(_bosons(1, [4]), _bosons(2, [1, 4]), _bosons(4, [3]), unbounded)


FAMILIES: dict[str, tuple[Callable[..., list[Generated]], Callable[[], st.SearchStrategy[Space]]]] = {
    "Ising": (_ising, lambda: st.one_of(_spins(0.5, [1, 4, 6]), _spins(0.5, WIDE), _qubits())),
    "Heisenberg": (_heisenberg, _pairs_of_spins),
    "GraphOperator": (_graph_operators, _alike),
    "LocalOperator": (_local_operators, lambda: st.one_of(two_level_spaces(), many_level_spaces())),
    "PauliStrings": (_pauli_strings, two_level_spaces),
    "BoseHubbard": (_bose_hubbard, _boson_spaces),
    "FermionOperator2nd": (_fermion_family("FermionOperator2nd", 4), fermion_spaces),
    "FermiHubbard": (_fermi_hubbard, lambda: fermion_spaces(per_spin=True)),
    "ParticleNumberConservingFermioperator2nd": (
        _fermion_family("ParticleNumberConservingFermioperator2nd", 4),
        lambda: fermion_spaces(conserving=True),
    ),
    "ParticleNumberAndSpinConservingFermioperator2nd": (
        _fermion_family("ParticleNumberAndSpinConservingFermioperator2nd", 4),
        lambda: fermion_spaces(conserving=True, per_spin=True),
    ),
}
