"""Random configurations of spaces with :class:`SiteOccupations`: all that are allowed are equally likely."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from netket.hilbert import HomogeneousHilbert, SpinOrbitalFermions
from netket.hilbert.constraint import ExtraConstraint
from netket.hilbert.random import random_state as netkets
from netket.utils.dispatch import dispatch

from ferroket.hilbert.site_occupations import (
    SiteOccupations,
    counted,
    limits_of,
    log_numbers,
    occupations_of_a_site,
    parts,
    totals_of,
)


@dispatch
def random_state(
    hilb: SpinOrbitalFermions,
    constraint: SiteOccupations | ExtraConstraint,
    key: Any,
    batches: int,
    *,
    dtype: Any = None,
) -> Any:
    """Random configurations ``(batches, N)``, independent and uniform over those that the constraints allow."""
    limits = limits_of(hilb)
    if limits is None:
        return netkets.invoke(HomogeneousHilbert, object, object, int)(hilb, constraint, key, batches, dtype=dtype)
    own = tuple(part for part in parts(constraint) if not isinstance(part, SiteOccupations))
    return _drawn(hilb, limits, own, log_numbers(hilb, limits), key, batches).astype(
        np.int8 if dtype is None else dtype
    )


@functools.partial(jax.jit, static_argnums=(0, 1, 2, 5))
def _drawn(hilbert: Any, limits: Any, own: Any, logs: Any, key: Any, n: int) -> jax.Array:
    # Other constraints are met by drawing anew; the sums that the space fixes always are.
    def draw(key: jax.Array) -> jax.Array:
        return _within_limits(hilbert, np.array(limits), logs, key, n)

    def refused(x: jax.Array) -> jax.Array:
        return ~jnp.stack([jnp.ones(n, bool), *(allows(x) for allows in own)]).all(axis=0)

    def again(carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        key, x = carry
        key, now = jax.random.split(key)
        return key, jnp.where(refused(x)[:, None], draw(now), x)

    key, first = jax.random.split(key)
    start = draw(first)
    return jax.lax.while_loop(lambda carry: refused(carry[1]).any(), again, (key, start))[1] if own else start


def _within_limits(hilbert: Any, limits: np.ndarray, logs: jax.Array, key: jax.Array, n: int) -> jax.Array:
    """Configurations ``(n, N)``: site after site is given an occupation, by how many ways there are to go on."""
    occupations, steps = occupations_of_a_site(hilbert.n_spin_subsectors), counted(hilbert)
    fermions = occupations.sum(axis=1)
    allowed = (limits[:, :1] <= fermions) & (fermions <= limits[:, 1:])

    def site(rest: jax.Array, of_site: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        following, possible, key = of_site
        after = rest[:, None] - steps
        ways = following[tuple(jnp.moveaxis(jnp.maximum(after, 0), -1, 0))]
        logits = jnp.where((after >= 0).all(axis=-1) & possible, ways, -jnp.inf)
        chosen = jax.random.categorical(key, logits)
        return rest - jnp.asarray(steps)[chosen], jnp.asarray(occupations, np.int8)[chosen]

    start = jnp.tile(jnp.array(totals_of(hilbert), int), (n, 1))
    keys = jax.random.split(key, len(limits))
    _, of_sites = jax.lax.scan(site, start, (logs[1:], jnp.asarray(allowed), keys))
    return of_sites.transpose(1, 2, 0).reshape(n, -1)
