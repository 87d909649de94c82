"""Data-parallel training of an Equinox model: each device has the whole model, and its part of each batch.

python examples/equinox_training.py
mpirun -n 4 python examples/equinox_training.py
"""

import ferroket as fk

fk.initialize()  # before jax is imported

from collections.abc import Iterator
from itertools import islice

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

jax.config.update("jax_enable_x64", True)
STEPS, BATCH = 200, 16  # a multiple of the number of devices

mesh = Mesh(jax.devices(), ("batch",))
by_sample, everywhere = NamedSharding(mesh, P("batch")), NamedSharding(mesh, P())

# The same seed on all ranks: the same data, and the same batches.
random = np.random.default_rng(0)
xs = random.normal(size=(64, 4))
ys = np.sin(xs)
model = eqx.nn.MLP(in_size=4, out_size=4, width_size=32, depth=1, key=jax.random.key(1))
optimizer = optax.adam(1e-2)


def batches() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    while True:
        order = random.permutation(len(xs))
        for start in range(0, len(xs), BATCH):
            chosen = order[start : start + BATCH]
            yield xs[chosen], ys[chosen]


def loss(model: eqx.Module, x: jax.Array, y: jax.Array) -> jax.Array:
    return jnp.mean((jax.vmap(model)(x) - y) ** 2)


@eqx.filter_jit(donate="all")
def step(model: eqx.Module, moments: optax.OptState, x: jax.Array, y: jax.Array) -> tuple[eqx.Module, optax.OptState]:
    x, y = eqx.filter_shard((x, y), by_sample)
    updates, moments = optimizer.update(eqx.filter_grad(loss)(model, x, y), moments)
    return eqx.filter_shard((eqx.apply_updates(model, updates), moments), everywhere)


moments = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
model, moments = eqx.filter_shard((model, moments), everywhere)
for x, y in islice(batches(), STEPS):
    model, moments = step(model, moments, *eqx.filter_shard((x, y), by_sample))

final = eqx.filter_jit(loss)(model, *eqx.filter_shard((xs, ys), by_sample))
weights = sum(float(jnp.sum(jnp.abs(leaf))) for leaf in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)))
fk.distributed.print_once(f"loss {float(final):.12f}, weights {weights:.12f}")
