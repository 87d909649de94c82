"""NetKet's operators, each accelerated once."""

import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from netket.operator import DiscreteOperator

from ferroket._compat.netket import compute_tables
from ferroket.operator.algebra.accelerated import Accelerated
from ferroket.operator.algebra.registry import accelerate


def accelerated(operator: DiscreteOperator) -> Accelerated | None:
    """What :func:`ferroket.accelerate` makes of an operator of NetKet's, made once and again after it was changed.

    Returns:
        The accelerated operator; one of ours itself. None if there is none, or if the operator is traced.
    """
    if isinstance(operator, Accelerated):
        return operator
    if any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(operator)):
        return None
    state = dict(_state(operator))
    known = _CACHE.get(id(operator))
    if known is None or any(known.differs(where, now) for where, now in state.items()):
        if known is None:
            weakref.finalize(operator, _CACHE.pop, id(operator), None)
        known = _CACHE[id(operator)] = _Known(state, _accelerated(operator))
    return known.replacement


@dataclass(frozen=True)
class _Known:
    state: dict[str, Any]
    replacement: Accelerated | None

    def differs(self, where: str, now: Any) -> bool:
        """Whether there was something else. What NetKet computes when it is asked for, and keeps, is no change."""
        before = self.state.get(where)
        if isinstance(before, bytes):
            return bool(before != now)
        return before is not None and before is not now


_CACHE: dict[int, _Known] = {}
"""By the address of an operator that is alive."""


def _accelerated(operator: DiscreteOperator) -> Accelerated | None:
    try:
        # What is kept may not belong to the program that is traced at the moment.
        with jax.ensure_compile_time_eval():
            accelerated = accelerate(operator)
    except TypeError:
        return None
    return accelerated if isinstance(accelerated, Accelerated) else None


def _state(operator: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """What is different, by place, after an operator was changed in place, by ``+=`` and its like.

    NetKet's larger families compute their tables anew then, so that these are other objects; they must have been
    computed before. Of the others an attribute is another object, or a NumPy array with other numbers. An operator
    whose change would leave no such trace is never the same.
    """
    if isinstance(operator, Accelerated):
        operator._setup()
        has_tables = True
    else:
        has_tables = compute_tables(operator)
    in_place = not has_tables and hasattr(operator, "__iadd__")
    for name, value in vars(operator).items():
        place = f"{where}.{name}"
        if in_place and isinstance(value, dict | list | set):
            yield place, object()
        else:
            yield place, value.tobytes() if isinstance(value, np.ndarray) and not has_tables else value
        for number, part in enumerate(value if isinstance(value, list | tuple) else [value]):
            if isinstance(part, DiscreteOperator):
                yield from _state(part, f"{place}.{number}")
