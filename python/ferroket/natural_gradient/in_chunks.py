"""Log-derivatives that would take too much memory: made anew for each use, those of a chunk of samples at a time."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ferroket.natural_gradient.log_derivatives import LogDerivatives, log_derivatives
from ferroket.natural_gradient.structure import Network, read


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["parameters", "state", "samples"],
    meta_fields=["log_psi", "mode", "chunk_size", "splits", "network", "is_holomorphic"],
)
@dataclass(frozen=True)
class DerivativesInChunks:
    """What stands for :class:`~ferroket.natural_gradient.log_derivatives.LogDerivatives` where these are too many."""

    parameters: Any
    state: Any
    """Other collections of variables."""
    samples: jax.Array
    """``(Ns, N)``, sharded along the first axis; inside of a function on each device those of the device."""
    log_psi: Callable[..., Any] = field(repr=False)
    mode: str
    chunk_size: int
    splits: bool
    """Whether a sample has two rows where one complex row would do."""
    network: Network = field(repr=False)
    is_holomorphic: bool

    @property
    def sharded(self) -> Any:
        """Which of its arrays are, as :func:`~ferroket._compat.sharding.on_each_device` asks for it."""
        arrays: dict[str, Any] = {"parameters": False, "state": False, "samples": True}
        return replace(self, **arrays)

    @property
    def n_samples(self) -> int:
        """How many samples there are."""
        return len(self.samples)

    def of(self, samples: jax.Array) -> LogDerivatives:
        """Those of some samples, on one device."""
        network = read(self.log_psi, self.parameters, self.state, samples[0], False if self.splits else None)
        leaves = jax.tree.leaves(self.parameters)
        return log_derivatives(network, self.mode, self.chunk_size, leaves, self.state, samples)

    @property
    def shapes(self) -> LogDerivatives:
        """Those of one sample."""
        found: LogDerivatives = jax.eval_shape(self.of, self.samples[:1])
        return found

    def part(self, first: Any, count: int) -> LogDerivatives:
        """Those of so many samples of the device from one on."""
        return self.of(jax.lax.dynamic_slice_in_dim(self.samples, first, count))

    def dot(self, vector: Sequence[jax.Array]) -> jax.Array:
        """As :meth:`LogDerivatives.dot`."""
        return self._joined(lambda samples: self.of(samples).dot(vector))

    def adjoint_dot(self, weights: jax.Array) -> list[jax.Array]:
        """As :meth:`LogDerivatives.adjoint_dot`."""

        def add(total: list[jax.Array], chunk: tuple[jax.Array, jax.Array]) -> tuple[list[jax.Array], None]:
            samples, weights = chunk
            return jax.tree.map(jnp.add, total, self.of(samples).adjoint_dot(weights)), None

        total = [jnp.zeros(leaf.shape, leaf.dtype) for leaf in self.network.leaves]
        for samples, some in zip(self._chunks(self.samples), self._chunks(weights), strict=True):
            total, _ = jax.lax.scan(add, total, (samples, some))
        return total

    def _joined(self, function: Callable[[jax.Array], jax.Array]) -> jax.Array:
        """What a function gives for the samples of each chunk, one after the other."""
        parts = [jax.lax.map(function, chunks) for chunks in self._chunks(self.samples)]
        return jnp.concatenate([jax.lax.collapse(part, 0, 2) for part in parts])

    def _chunks(self, array: jax.Array) -> Iterator[jax.Array]:
        """An array of the samples as ``(chunks, chunk_size, ...)``, and the rest of it as one more chunk."""
        whole = len(array) // self.chunk_size * self.chunk_size
        if whole:
            yield array[:whole].reshape(-1, self.chunk_size, *array.shape[1:])
        if whole < len(array):
            yield array[whole:][None]


Derivatives = LogDerivatives | DerivativesInChunks
"""Those of all samples: as factors and rows, or made anew in chunks."""
