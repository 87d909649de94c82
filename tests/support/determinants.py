"""Determinants to test, on a space of fermions with unequal spin sectors, and a slow Pfaffian."""

from typing import Any

import jax
import netket as nk
import numpy as np

import ferroket as fk

FERMIONS = nk.hilbert.SpinOrbitalFermions(4, s=1 / 2, n_fermions_per_spin=(3, 2))
BALANCED = nk.hilbert.SpinOrbitalFermions(4, s=1 / 2, n_fermions_per_spin=(2, 2))
SPINLESS = nk.hilbert.SpinOrbitalFermions(7, n_fermions=3)
PAIRED = nk.hilbert.SpinOrbitalFermions(7, n_fermions=4)
THREE_SPINS = nk.hilbert.SpinOrbitalFermions(3, s=1, n_fermions_per_spin=(2, 0, 1))

RING = np.array([np.roll(np.arange(4), shift) for shift in range(4)])
"""The translations of four sites."""

_ON_BOTH_SPINS = nk.utils.HashableArray(np.concatenate([RING, RING + 4], axis=1)[::2])

_UNRESTRICTED: dict[str, Any] = {"restricted": False}
_GENERALIZED: dict[str, Any] = {"restricted": False, "generalized": True}


def _multi(hilbert: Any, **options: Any) -> Any:
    return nk.models.MultiSlater2nd(hilbert, n_determinants=3, **options)


def _product(hilbert: Any, *others: Any, **options: Any) -> Any:
    return fk.models.Product((nk.models.Slater2nd(hilbert, **options), *others))


MODELS = {
    "restricted": nk.models.Slater2nd(BALANCED),
    "unrestricted": nk.models.Slater2nd(FERMIONS, **_UNRESTRICTED),
    "unrestricted, complex": nk.models.Slater2nd(FERMIONS, **_UNRESTRICTED, param_dtype=complex),
    "unrestricted, float32": nk.models.Slater2nd(FERMIONS, **_UNRESTRICTED, param_dtype=np.float32),
    "generalized": nk.models.Slater2nd(FERMIONS, **_GENERALIZED),
    "generalized, complex": nk.models.Slater2nd(FERMIONS, **_GENERALIZED, param_dtype=complex),
    "spinless": nk.models.Slater2nd(SPINLESS),
    # NetKet's initializer divides by the number of fermions.
    "spin 1, an empty sector": nk.models.Slater2nd(
        THREE_SPINS, **_UNRESTRICTED, kernel_init=jax.nn.initializers.normal()
    ),
    "sum": _multi(FERMIONS, **_UNRESTRICTED),
    "sum, restricted, complex": _multi(BALANCED, param_dtype=complex),
    "sum, generalized": _multi(FERMIONS, **_GENERALIZED),
    "Jastrow": fk.models.SlaterJastrow(FERMIONS, **_UNRESTRICTED),
    "Jastrow, spinless": fk.models.SlaterJastrow(SPINLESS, param_dtype=complex),
    "Jastrow, complex": fk.models.SlaterJastrow(FERMIONS, **_GENERALIZED, param_dtype=complex, jastrow_dtype=complex),
    "times RBM": _product(FERMIONS, nk.models.RBM(alpha=2), **_UNRESTRICTED),
    "times RBMModPhase and Jastrow": fk.models.Product(
        (_multi(FERMIONS, **_UNRESTRICTED), nk.models.RBMModPhase(alpha=1), nk.models.Jastrow())
    ),
    "times complex RBM": _product(
        FERMIONS, nk.models.RBM(alpha=1, param_dtype=complex), **_UNRESTRICTED, param_dtype=np.float32
    ),
    "product of products": fk.models.Product(
        (_product(FERMIONS, nk.models.RBM(alpha=1), **_UNRESTRICTED), nk.models.Jastrow(param_dtype=complex))
    ),
    "pairs": fk.models.PairProduct(BALANCED),
    "pairs, complex": fk.models.PairProduct(BALANCED, param_dtype=complex),
    "pairs, projected": fk.models.PairProduct(BALANCED, symmetries=RING, characters=[1, -1, 1, -1]),
    "pairs with an RBM, projected": fk.models.PairProduct(
        BALANCED,
        symmetries=RING,
        characters=[1, -1, 1, -1],
        correlations=nk.models.RBMSymm(symmetries=_ON_BOTH_SPINS, param_dtype=float),
    ),
    # Without the machine nothing of the pairs is in this representation.
    "pairs that vanish, with an RBM": fk.models.PairProduct(
        BALANCED,
        translations=RING,
        symmetries=RING,
        characters=[1, -1, 1, -1],
        correlations=nk.models.RBM(param_dtype=float, kernel_init=jax.nn.initializers.normal(0.3)),
    ),
    "pairs with an RBM, projected, complex": fk.models.Product(
        (
            fk.models.PairProduct(
                BALANCED,
                symmetries=RING[:3],
                parity=1,
                correlations=nk.models.RBM(param_dtype=float),
                param_dtype=complex,
            ),
            fk.models.Gutzwiller(BALANCED),
        )
    ),
    "pairs, general": fk.models.PairProduct(BALANCED, general=True),
    "pairs, spinless, complex": fk.models.PairProduct(PAIRED, general=True, param_dtype=complex),
    # No symmetry makes any ψ vanish.
    "pairs, general, summed up": fk.models.PairProduct(
        BALANCED, general=True, symmetries=RING[::2], characters=[1, 0.5j], param_dtype=complex
    ),
    "pairs, singlet": fk.models.PairProduct(BALANCED, rotations=fk.models.spin_rotations(0, 2)),
    "pairs, turned, correlated": fk.models.Product(
        (
            fk.models.PairProduct(
                BALANCED, symmetries=RING[:2], rotations=[[0.4, 1.0], [1.9, -0.7]], param_dtype=np.float32
            ),
            fk.models.Gutzwiller(BALANCED),
        )
    ),
    "pairs, doublons and holons": fk.models.Product(
        (
            fk.models.PairProduct(BALANCED, param_dtype=complex),
            fk.models.DensityJastrow(BALANCED),
            fk.models.Gutzwiller(BALANCED, translations=RING),
            # The neighbours of a ring, and some that no lattice has.
            fk.models.DoublonHolon(BALANCED, (RING[[1, 3]].T, [[0], [0], [1], [3]]), param_dtype=complex),
        )
    ),
    "pairs, correlated": fk.models.Product(
        (
            fk.models.PairProduct(BALANCED, translations=RING[::2]),
            fk.models.Gutzwiller(BALANCED),
            fk.models.DensityJastrow(BALANCED, translations=RING),
        )
    ),
}
"""By name, each with its space."""


def hilbert_of(model: Any) -> Any:
    """The space of a determinant's model."""
    return model.hilbert if hasattr(model, "hilbert") else hilbert_of(model.models[0])


def random_operator(hilbert: Any, seed: int, n_terms: int = 12) -> Any:
    """Of up to two bodies, each of which stays in its spin sector; not Hermitian, with complex coefficients."""
    rng = np.random.default_rng(seed)
    orbitals, sectors = hilbert.n_orbitals, hilbert.size // hilbert.n_orbitals
    terms, weights = [], []
    for _ in range(n_terms):
        term = []
        for _ in range(rng.integers(1, 3)):
            first = orbitals * rng.integers(sectors)
            here, there = (int(first + rng.integers(orbitals)) for _ in range(2))
            term += [(there, 1), (here, 0)]
        terms.append(term)
        weights.append(complex(rng.normal(), rng.normal()))
    return nk.operator.FermionOperator2ndJax(hilbert, terms, weights, dtype=complex)


def pfaffian(a: np.ndarray) -> Any:
    """The Pfaffian of a matrix with few rows, by expansion along the first one."""
    if not len(a):
        return 1.0
    others = [np.delete(np.arange(1, len(a)), place) for place in range(len(a) - 1)]
    return sum((-1) ** place * a[0, 1 + place] * pfaffian(a[np.ix_(rest, rest)]) for place, rest in enumerate(others))
