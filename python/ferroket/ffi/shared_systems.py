"""The primitives of linear systems that several devices share, panel by panel, on CPUs.

Between their calls the devices send each other rows: see :mod:`ferroket.natural_gradient.panels`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ferroket.ffi.linear_algebra import operands, precision_of
from ferroket.ffi.primitives import make_primitive, on_one_device

_UNIT = 192
"""Bytes of whole panels of lanes on all processors."""


@dataclass(frozen=True)
class SharedSystem:
    """The shapes of a Hermitian, positive definite system."""

    n_devices: int
    """R."""
    n_steps: int
    """K panels."""
    length: int
    """b rows of each device in a panel, of which all devices have a multiple of eight."""
    dtype: Any
    """That of the numbers: real or complex floats."""

    @property
    def real(self) -> Any:
        """The dtype of real parts, which all arrays between the calls have."""
        return precision_of(self.dtype)

    @property
    def n_planes(self) -> int:
        """Real numbers of each: P."""
        return 2 if np.issubdtype(self.dtype, np.complexfloating) else 1

    @property
    def n_vectors(self) -> int:
        """Real numbers of a row of all vectors: Q."""
        return 4 if self.n_planes > 1 else 3

    @property
    def width(self) -> int:
        """Of a panel."""
        return self.n_devices * self.length

    @property
    def side(self) -> int:
        """All rows, with padding."""
        return self.n_steps * self.width

    @property
    def of_rows(self) -> int:
        """The numbers of a device's rows."""
        return _whole(self.n_steps * self.length, self.real) * self.n_planes * self.side

    @property
    def of_diagonal(self) -> int:
        """The numbers of the diagonal part of a panel."""
        return _whole(self.width, self.real) * self.n_planes * self.width

    @property
    def attributes(self) -> dict[str, Any]:
        """What the calls are told."""
        return {
            "devices": self.n_devices,
            "steps": self.n_steps,
            "length": self.length,
            "is_complex": int(self.n_planes > 1),
        }


def rows_of_gram(n_samples: int, n_components: int, dtype: Any) -> int:
    """How many rows a device needs for those of a Gram matrix: whole panels of lanes."""
    return n_components * _whole(n_samples, precision_of(dtype))


def _whole(n_rows: int, real: Any) -> int:
    unit = _UNIT // np.dtype(real).itemsize
    return -(-n_rows // unit) * unit


def start_shared(
    system: SharedSystem, device: Any, rows: jax.Array, right: jax.Array, count: int
) -> Sequence[jax.Array]:
    """Puts the rows of a device into the order of a system.

    Args:
        system: its shapes.
        device: the place of the device, an int32 scalar, here and below.
        rows: ``(n, R·n)``, of which those elements are read that aren't behind the diagonal in the order of panels.
        right: ``(R·n,)``, of the same dtype.
        count: how many of all rows are no padding, the first ones.

    Returns:
        ``(panels, vectors)``: the device's rows, and ``(side, Q)``, the right-hand side, here and below.
    """
    return start_shared_p(jnp.asarray(device, np.int32), rows, right, count=count, system=system, **system.attributes)


def start_shared_gram(
    system: SharedSystem,
    device: Any,
    terms: Sequence[tuple[str, Sequence[jax.Array]]],
    right: jax.Array,
    shift: Any,
    side: int,
) -> Sequence[jax.Array]:
    """The same of a Gram matrix with a number on its diagonal, which isn't formed.

    Args:
        system: its shapes.
        device: see :func:`start_shared`.
        terms: see :func:`~ferroket.ffi.gram_tiles`.
        right: ``(R·n, C)``.
        shift: that number.
        side: how many samples a tile has, a multiple of 48.
    """
    kinds, arrays = operands(terms, system.dtype)
    return start_shared_gram_p(
        jnp.asarray(device, np.int32),
        right.astype(system.dtype),
        jnp.asarray(shift, system.real),
        *arrays,
        terms=kinds,
        side=side,
        system=system,
        **system.attributes,
    )


def _types_of_start(device: Any, *_: Any, system: SharedSystem, **__: Any) -> list[Any]:
    shapes = [(system.of_rows,), (system.side, system.n_vectors)]
    return [on_one_device(device, shape, system.real) for shape in shapes]


start_shared_p = make_primitive("start_shared", _types_of_start, target="ferroket_shared_start")
start_shared_gram_p = make_primitive("start_shared_gram", _types_of_start, target="ferroket_shared_start_of_gram")


def shared_rows(system: SharedSystem, step: Any, panels: jax.Array, n_columns: int) -> jax.Array:
    """What a device has of L in a panel's rows: ``(P·n_columns, b)``, of the first columns."""
    (rows,) = shared_rows_p(
        jnp.asarray(step, np.int32), panels, shape=(system.n_planes * n_columns, system.length), **system.attributes
    )
    return rows


def _types_of_rows(step: Any, panels: Any, *, shape: tuple[int, int], **_: Any) -> list[Any]:
    del step
    return [on_one_device(panels, shape, panels.dtype)]


shared_rows_p = make_primitive("shared_rows", _types_of_rows, target="ferroket_shared_rows")


def update_shared(
    system: SharedSystem, device: Any, step: Any, gathered: jax.Array, panels: jax.Array, vectors: jax.Array
) -> Sequence[jax.Array]:
    """Subtracts what the panels before one contribute to its columns.

    Args:
        system: its shapes.
        device: see :func:`start_shared`.
        step: the panel, an int32 scalar, here and below.
        gathered: ``(R, P·n, b)``, the :func:`shared_rows` of all devices.
        panels: see :func:`start_shared`.
        vectors: see :func:`start_shared`.

    Returns:
        The panels, and ``(P·w + Q, b)``: what the device sends of this one.
    """
    arguments = [jnp.asarray(number, np.int32) for number in (device, step)]
    return update_shared_p(*arguments, gathered, vectors, panels, system=system, **system.attributes)


def _types_of_update(*arguments: Any, system: SharedSystem, **_: Any) -> list[Any]:
    panels = arguments[-1]
    shape = (system.n_planes * system.width + system.n_vectors, system.length)
    return [panels, on_one_device(panels, shape, panels.dtype)]


update_shared_p = make_primitive("update_shared", _types_of_update, target="ferroket_shared_update", aliases={4: 0})


def factor_shared(
    system: SharedSystem,
    device: Any,
    step: Any,
    gathered: jax.Array,
    panels: jax.Array,
    vectors: jax.Array,
    diagonals: jax.Array,
) -> Sequence[jax.Array]:
    """Puts L in the place of a panel's columns, and L⁻¹ b in that of its rows of vectors.

    Args:
        system: its shapes.
        device: see :func:`start_shared`.
        step: see :func:`update_shared`.
        gathered: ``(R, P·w + Q, b)``, what all devices sent.
        panels: see :func:`start_shared`.
        vectors: see :func:`start_shared`.
        diagonals: ``(K, of_diagonal)``, L on the diagonal of the panels before.

    Returns:
        The panels, the vectors and the diagonals. All vectors are NaN where the matrix isn't positive definite.
    """
    arguments = [jnp.asarray(number, np.int32) for number in (device, step)]
    return factor_shared_p(*arguments, gathered, panels, vectors, diagonals, **system.attributes)


def _types_of_factor(*arguments: Any, **_: Any) -> list[Any]:
    return list(arguments[3:])


factor_shared_p = make_primitive(
    "factor_shared", _types_of_factor, target="ferroket_shared_factor", aliases={3: 0, 4: 1, 5: 2}
)


def solve_shared(
    system: SharedSystem,
    device: Any,
    step: Any,
    of_panel: jax.Array,
    panels: jax.Array,
    diagonals: jax.Array,
    vectors: jax.Array,
    sums: jax.Array,
) -> Sequence[jax.Array]:
    """Goes a panel back: its rows of the vectors become those of the solution.

    Args:
        system: its shapes.
        device: see :func:`start_shared`.
        step: see :func:`update_shared`.
        of_panel: ``(w, Q)``, the sums of all devices for its rows.
        panels: see :func:`start_shared`.
        diagonals: see :func:`factor_shared`.
        vectors: see :func:`start_shared`.
        sums: ``(side, Q)``, what the device's rows of the panels behind contribute to all rows.

    Returns:
        The vectors, and the sums.
    """
    arguments = [jnp.asarray(number, np.int32) for number in (device, step)]
    return solve_shared_p(*arguments, of_panel, panels, diagonals, vectors, sums, **system.attributes)


def _types_of_solve(*arguments: Any, **_: Any) -> list[Any]:
    return list(arguments[-2:])


solve_shared_p = make_primitive("solve_shared", _types_of_solve, target="ferroket_shared_solve", aliases={5: 0, 6: 1})


def shared_solution(
    system: SharedSystem, device: Any, vectors: jax.Array, shape: tuple[int, ...], side: int = 0
) -> jax.Array:
    """The solution for the rows of a device.

    Args:
        system: its shapes.
        device: see :func:`start_shared`.
        vectors: see :func:`start_shared`.
        shape: ``(n,)``; or ``(n, C)`` of a Gram matrix, without the mean over the samples, and with ``side`` as there.
        side: see :func:`start_shared_gram`.
    """
    (solution,) = shared_solution_p(
        jnp.asarray(device, np.int32),
        vectors,
        shape=shape,
        dtype=np.dtype(system.dtype),
        side=side,
        **system.attributes,
    )
    return solution


def _types_of_solution(device: Any, vectors: Any, *, shape: tuple[int, ...], dtype: Any, **_: Any) -> list[Any]:
    del device
    return [on_one_device(vectors, shape, dtype)]


shared_solution_p = make_primitive("shared_solution", _types_of_solution, target="ferroket_shared_solution")
