"""What accelerated operators are to Python and JAX: equality, hashes, pickles and pytrees."""

from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from ferroket.operator.algebra.base import Compiled
from ferroket.operator.validation import is_traced


class Identity(Compiled):
    """Operators are equal if their compiled forms are, whose arrays are all that a transformed function sees."""

    def _key(self) -> Any:
        """What makes two operators equal; None if that isn't known, for then an operator equals only itself."""
        if self._key_ is None:
            arrays = contents(self._form)
            if arrays is None:
                return None
            self._key_ = (self.hilbert, jax.tree.structure(self._form), arrays)
        return self._key_

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(other) is not type(self):
            return NotImplemented
        key = self._key()
        return key is not None and bool(key == other._key())

    def __hash__(self) -> int:
        key = self._key()
        return object.__hash__(self) if key is None else hash(key)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if not self._is_compiled_only:
            # It can be compiled again, anywhere.
            for name in ("_form_", "_key_"):
                state.pop(name, None)
        return state

    def __repr__(self) -> str:
        if self._is_compiled_only:
            return f"{type(self).__name__}(hilbert={self.hilbert}, dtype={self.dtype}, compiled)"
        return super().__repr__()

    def _metadata(self) -> tuple[Any, ...]:
        """What is static in a traced function."""
        return (self.hilbert, jnp.dtype(self.dtype), self.is_hermitian)

    def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """The arrays of the form as leaves, so that new coefficients don't recompile anything."""
        return (self._form,), self._metadata()

    @classmethod
    def tree_unflatten(cls, metadata: tuple[Any, ...], data: tuple[Any, ...]) -> Self:
        """The operator with these leaves, whatever they are: JAX also puts placeholders there."""
        operator = object.__new__(cls)
        operator._is_compiled_only = True
        operator._hilbert, operator._dtype, operator._hermitian = metadata
        (operator._form_,) = data
        return operator


def contents(tree: Any) -> tuple[Any, ...] | None:
    """The dtypes, shapes and bytes of all leaves of a pytree, hashable; None if they are traced, or no arrays."""
    leaves = jax.tree.leaves(tree)
    if not all(isinstance(leaf, jax.Array | np.ndarray) for leaf in leaves) or is_traced(*leaves):
        return None
    return tuple((leaf.dtype.name, leaf.shape, np.asarray(leaf).tobytes()) for leaf in leaves)
