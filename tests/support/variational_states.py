"""Variational states with random parameters, and their local values by NetKet's kernel."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
from netket.vqs.mc.kernels import local_value_kernel_jax

import ferroket as fk

CHAIN = nk.graph.Chain(6)
SPINS = nk.hilbert.Spin(0.5, 6)
RBM, RBMModPhase, RBMSymm = nk.models.RBM, nk.models.RBMModPhase, nk.models.RBMSymm
RBMMultiVal, Jastrow = nk.models.RBMMultiVal, nk.models.Jastrow
TRANSLATIONS = CHAIN.translation_group()
NO_BIASES = {"use_hidden_bias": False, "use_visible_bias": False}
MODELS = {
    "RBM": RBM(alpha=1),
    "RBM, α=3": RBM(alpha=3),
    "RBM, no biases": RBM(alpha=2, **NO_BIASES),
    "RBM, complex": RBM(alpha=2, param_dtype=complex),
    "RBM, float32": RBM(alpha=2, param_dtype=np.float32),
    "RBM, complex64": RBM(alpha=2, param_dtype=np.complex64),
    "RBMModPhase": RBMModPhase(alpha=2),
    "RBMModPhase, no bias": RBMModPhase(alpha=1, use_hidden_bias=False),
    "RBMModPhase, float32": RBMModPhase(alpha=1, param_dtype=np.float32),
    "RBMSymm": RBMSymm(symmetries=TRANSLATIONS, alpha=2),
    "RBMSymm, no biases": RBMSymm(symmetries=TRANSLATIONS, alpha=2, **NO_BIASES),
    "RBMSymm, complex": RBMSymm(symmetries=TRANSLATIONS, alpha=2, param_dtype=complex),
    "RBMMultiVal": RBMMultiVal(n_classes=2),
    "RBMMultiVal, no biases": RBMMultiVal(n_classes=3, param_dtype=complex, **NO_BIASES),
    "Jastrow": Jastrow(),
    "Jastrow, real": Jastrow(param_dtype=float),
    "Jastrow, complex64": Jastrow(param_dtype=np.complex64),
}
"""Of each ansatz, for the six sites of :data:`CHAIN`."""

# One that flips single sites, one that flips pairs and conserves their sum, and one with complex elements and strings.
OPERATORS = {
    "Ising": fk.operator.Ising(SPINS, CHAIN, h=0.7, J=1.3),
    "Heisenberg": fk.operator.Heisenberg(nk.hilbert.Spin(0.5, 6, total_sz=0), CHAIN),
    "Pauli strings": fk.operator.PauliStrings(
        nk.hilbert.Qubit(6),
        ["XXIIII", "YIIZII", "IYXYXI", "ZZIIII", "XXXXXX", "IIIZYX"],
        [0.3, 0.5, -1.2, 0.7, 0.2, 1.1],
    ),
}

netkets_values = jax.jit(local_value_kernel_jax, static_argnums=0)
"""``netkets_values(logpsi, variables, samples, operator)``: the local values by NetKet's kernel."""


@functools.partial(jax.jit, static_argnums=(0, 1))
def values_by(kernel: Any, logpsi: Any, variables: Any, x: Any, operator: Any) -> jax.Array:
    """The local values by a kernel; compiled once for equal ones."""
    values: jax.Array = kernel(logpsi, variables, x, operator)
    return values


def random_like(tree: Any, scale: float) -> Any:
    """Normal numbers of this scale, shaped as the leaves of a tree are."""
    rng = np.random.default_rng(0)

    def random(leaf: Any) -> jax.Array:
        numbers = rng.normal(size=leaf.shape, scale=scale)
        if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
            numbers = numbers + 1j * rng.normal(size=leaf.shape, scale=scale)
        return jnp.asarray(numbers.astype(leaf.dtype))

    return jax.tree.map(random, tree)


def make_state(
    model: Any, hilbert: Any, *, n_samples: int = 64, scale: float = 0.1, seed: int = 1, chunk_size: int | None = None
) -> Any:
    """A state with random parameters; its samples are exact in spaces that can be listed.

    So little is compiled: neither the model's initialisation, nor a Markov chain.
    """
    sample = jax.ShapeDtypeStruct((1, hilbert.size), np.int8)
    variables = random_like(jax.eval_shape(model.init, jax.random.key(0), sample), scale)
    sampler = nk.sampler.ExactSampler(hilbert) if hilbert.is_indexable else nk.sampler.MetropolisLocal(hilbert)
    return nk.vqs.MCState(
        sampler, model, n_samples=n_samples, variables=variables, sampler_seed=seed, chunk_size=chunk_size
    )


def is_single(tree: Any) -> bool:
    """Whether numbers of a tree are of single precision."""
    return any(leaf.dtype in (np.float32, np.complex64) for leaf in jax.tree.leaves(tree))
