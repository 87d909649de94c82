"""What models of fermions have in common: spaces with fixed numbers of them, and the rows of occupied modes."""

from typing import Any

import jax
import jax.numpy as jnp
import netket as nk


def check_fermions(hilbert: Any, model: str, *, spins: int | None = None) -> None:
    """Raises an error unless a space has a fixed number of fermions, with so many spins if that is said.

    Raises:
        TypeError: It isn't one of fermions in second quantisation, or has no fixed number of them.
        ValueError: There is another number of spins.
    """
    if not isinstance(hilbert, nk.hilbert.SpinOrbitalFermions):
        raise TypeError(f"{model} takes a nk.hilbert.SpinOrbitalFermions, but got {hilbert!r}")
    if spins is not None and hilbert.n_spin_subsectors != spins:
        raise ValueError(f"{model} takes fermions of {spins} spins, but {hilbert!r} has {hilbert.n_spin_subsectors}")
    if hilbert.n_fermions is None:
        raise TypeError(f"{model} takes a space with a fixed number of fermions, but {hilbert!r} has none")


def occupations(x: jax.Array) -> jax.Array:
    """Whether NetKet's determinants take a mode for occupied, ``(..., N)``."""
    return x != 0 if jnp.issubdtype(x.dtype, jnp.integer) else jnp.isclose(x, 1)


def numbers_on_sites(x: jax.Array, n_sites: int) -> jax.Array:
    """How many fermions there are on each site, ``(..., L)``, for occupations ``(..., N)``."""
    n: jax.Array = occupations(x).reshape(*x.shape[:-1], x.shape[-1] // n_sites, n_sites).sum(axis=-2)
    return n


def sectors_of(hilbert: Any, *, generalized: bool) -> list[tuple[int, int]]:
    """How many modes and fermions each determinant has: one of each spin, or one of all.

    Raises:
        TypeError: If the numbers of fermions of each spin aren't fixed, and there is one of each.
    """
    if generalized:
        return [(hilbert.size, hilbert.n_fermions)]
    fermions = hilbert.n_fermions_per_spin
    if None in fermions:
        raise TypeError(
            f"{hilbert!r} has no fixed number of fermions of each spin: say n_fermions_per_spin, or generalized=True"
        )
    return [(hilbert.n_orbitals, count) for count in fermions]


def occupied_rows(matrix: jax.Array, x: jax.Array, count: int) -> jax.Array:
    """The rows of occupied modes, in order.

    Args:
        matrix: ``(..., L, f)``, or ``(L, f)`` for all configurations.
        x: Occupations ``(..., L)``, with so many that aren't 0.
        count: How many are occupied.

    Returns:
        ``(..., count, f)``.
    """

    def of_one(matrix: jax.Array, x: jax.Array) -> jax.Array:
        (rows,) = jnp.nonzero(occupations(x), size=count)
        return matrix[rows]

    return jnp.vectorize(of_one, signature=f"(l,f),(l)->({count},f)")(matrix, x)
