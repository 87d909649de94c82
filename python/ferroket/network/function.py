"""Functions of a configuration that give arrays of any shapes, as one program: log-derivatives, say."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ferroket import ffi
from ferroket.network.program import Program
from ferroket.network.reader import Value
from ferroket.network.trace import Followed, follow


@dataclass(frozen=True, eq=False)
class LaneFunction:
    """A function of variables and the numbers of a configuration, for many of these side by side.

    Attributes:
        program: what depends on the configuration, one behind the other.
        followed: what else there is.
        shapes: a pytree of the results' shapes.
    """

    program: Program
    followed: Followed
    shapes: Any

    def __call__(self, variables: Any, numbers: jax.Array) -> Any:
        """The results for numbers ``(n, H)``: a pytree of ``(n, *shape)``."""
        words, tables = self.program.operands(variables)
        results = self.followed.results
        widths = [result.size for result in results if isinstance(result, Value) for _ in result.parts]
        values = iter(ffi.network_results(numbers.astype(tables.dtype), words, tables, widths) if widths else ())
        alike = iter(self.followed.of_variables(variables, [v for v in results if not isinstance(v, Value)]))
        leaves, treedef = jax.tree.flatten(self.shapes)
        made = []
        for result, leaf in zip(results, leaves, strict=True):
            shape = (len(numbers), *leaf.shape)
            if not isinstance(result, Value):
                made.append(jnp.broadcast_to(jnp.asarray(next(alike), leaf.dtype), shape))
                continue
            parts = [next(values).reshape(shape) for _ in result.parts]
            made.append(jax.lax.complex(*parts) if len(parts) > 1 else parts[0].astype(leaf.dtype))
        return jax.tree.unflatten(treedef, made)


def read_function(function: Callable[..., Any], variables: Any, numbers: Any, dtype: Any) -> LaneFunction:
    """The program of a function that gives several arrays.

    Args:
        function: ``function(variables, numbers)`` for numbers ``(H,)`` gives a pytree of arrays.
        variables: its variables, or their shapes.
        numbers: the numbers, or their shape: of the dtype of the program, or integers.
        dtype: that of its real numbers, float32 or float64.

    Raises:
        UnreadableError: the kernels can't evaluate it.
    """
    followed = follow(function, variables, numbers, dtype=dtype)
    shapes = jax.eval_shape(function, *followed.shapes)
    values = [value for value in followed.results if isinstance(value, Value)]
    places = [part.ravel() for value in values for part in followed.reader.places(value)]
    assert sum(map(len, places)) == sum(math.prod(value.shape) * len(value.parts) for value in values)
    results = np.concatenate(places) if places else np.zeros(0, np.int64)
    return LaneFunction(followed.program(results), followed, shapes)
