"""The primitive ``chain_proposals``: Markov chains around a network, from one evaluation of it to the next, on CPUs."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ferroket.ffi.chains import key_words
from ferroket.ffi.family import Attribute
from ferroket.ffi.first_layer import FirstLayerTables
from ferroket.ffi.primitives import make_primitive, on_one_device

_PROGRESS_WORDS = 5
_RANDOM_WORDS = 66
_ACCEPTED = 2
"""The word of the progress that counts the moves that were accepted."""
_N_BEFORE = 4
"""How many arguments of the handler come before those that it updates."""


@partial(jax.tree_util.register_dataclass)
@dataclass(frozen=True)
class Chains:
    """Chains, and what is kept of them between two calls. All of it is the kernel's business but what is named here.

    Args:
        indices: Their configurations, local indices, uint16 ``(C, N)``.
        progress: What they have done, uint32 ``(C, 5)``.
        random: Their latest random numbers, uint32 ``(C, 66)``.
        kept: What their rule keeps, uint32 ``(C, R)``.
        log_prob: The logarithm of |ψ|^p at the configurations, float32 or float64 ``(C,)``.
        samples: The samples, local indices, uint16 ``(C, L, N)``.
        log_probs: The logarithms of |ψ|^p of the last M samples of each, ``(C, M)``.
        sums: What a first layer makes of the configurations, ``(C, H)``.
    """

    indices: Any
    progress: Any
    random: Any
    kept: Any
    log_prob: Any
    samples: Any
    log_probs: Any
    sums: Any

    @classmethod
    def starting(
        cls, indices: jax.Array, log_prob: jax.Array, length: int, n_log_probs: int, kept: int, width: int
    ) -> "Chains":
        """Chains that have done nothing yet.

        Args:
            indices: Where they start.
            log_prob: The logarithm of |ψ|^p there.
            length: L, how many samples each will give.
            n_log_probs: M, for how many of the last ones the logarithm of |ψ|^p is wanted.
            kept: R, how many words the rule keeps.
            width: H, how many sums a first layer has; 0 without one.
        """
        n_chains, n_sites = indices.shape
        return cls(
            indices.astype(np.uint16),
            jnp.zeros((n_chains, _PROGRESS_WORDS), np.uint32),
            jnp.zeros((n_chains, _RANDOM_WORDS), np.uint32),
            jnp.zeros((n_chains, kept), np.uint32),
            log_prob,
            jnp.zeros((n_chains, length, n_sites), np.uint16),
            jnp.zeros((n_chains, n_log_probs), log_prob.dtype),
            jnp.zeros((n_chains, width), log_prob.dtype),
        )

    @property
    def accepted(self) -> jax.Array:
        """How many moves of each chain were accepted, ``(C,)``."""
        return self.progress[:, _ACCEPTED]


_N_UPDATED = len(fields(Chains))


def chain_proposals(
    chains: Chains,
    proposed_log_probs: jax.Array,
    numbers: jax.Array,
    key: jax.Array,
    sizes: jax.Array,
    layer: FirstLayerTables,
    of_rule: Sequence[jax.Array],
    program: Sequence[jax.Array] = (),
    **attributes: Attribute,
) -> tuple[Chains, jax.Array, jax.Array, jax.Array]:
    """Has chains go on, by the rule of Metropolis and Hastings, until they need |ψ|^p where they don't know it.

    A chain is the same for any number of proposals, and beside whichever others. Where the program behind the first
    layer is given, the chains make all moves.

    Args:
        chains: The chains. They may not be sharded, except by :func:`jax.shard_map`.
        proposed_log_probs: The logarithms of |ψ|^p of what they have proposed last, ``(C, K)``; anything at first.
        numbers: The numbers of the chains, uint32 ``(C,)``.
        key: A key of :mod:`jax.random`, typed or not, on which the random numbers depend.
        sizes: How many local states each site has, uint16 ``(N,)``.
        layer: The first layer of the network, of the dtype of the logarithms; with H = 0 where there is none.
        of_rule: The numbers of the rule that proposes moves.
        program: The words and the tables of what comes behind the first layer, as :func:`~ferroket.ffi.network` has
            them, and the power p, of the same dtype.
        attributes: ``rule``, its name; ``sweep``, how many moves are proposed between samples; the rule's own.

    Returns:
        ``(chains, proposals, sums, waiting)``: the chains; for each the next configuration that it asks about, and
        those that it will ask about if the ones before are rejected, local indices, uint16 ``(C, K, N)``; what the
        first layer makes of them, ``(C, K, H)``; and how many chains wait for amplitudes, an int32 scalar. Where it is
        0, all have made all moves.
    """
    before = (proposed_log_probs, numbers.astype(np.uint32), key_words(key), sizes.astype(np.uint16))
    updated = [getattr(chains, field.name) for field in fields(Chains)]
    attributes["program"] = bool(program)
    results = chain_proposals_p(*before, *updated, *layer, *program, *of_rule, attributes=attributes)
    return Chains(*results[:_N_UPDATED]), *results[_N_UPDATED:]


def _types(proposed_log_probs: Any, *args: Any, **_: Any) -> list[Any]:
    updated = args[_N_BEFORE - 1 :][:_N_UPDATED]
    indices = updated[0]
    proposals = on_one_device(indices, (*proposed_log_probs.shape, indices.shape[1]), indices.dtype)
    own_sums = updated[-1]
    sums = on_one_device(indices, (*proposed_log_probs.shape, own_sums.shape[1]), own_sums.dtype)
    return [*updated, proposals, sums, on_one_device(indices, (), np.dtype(np.int32))]


chain_proposals_p = make_primitive(
    "chain_proposals",
    _types,
    target="ferroket_chains_network",
    aliases={_N_BEFORE + place: place for place in range(_N_UPDATED)},
)
