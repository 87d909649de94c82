"""Comparisons: connected elements as sets, programs as a GPU would run them, and samples with a distribution."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.stats
from jax import export

import reference

COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")
"""How XLA names what devices send to each other."""


@jax.jit
def elements(operator: Any, x: Any) -> tuple[jax.Array, ...]:
    """The padded connected elements, and how many there are of each sample."""
    return (*operator.get_conn_padded(x), operator.n_conn(x))


def tolerance(dtype: Any) -> float:
    """How far a sum of a few numbers of this dtype may be off, relative to the largest."""
    return 1e-5 if jnp.finfo(dtype).bits == 32 else 1e-12


def rows(xp: Any, mels: Any) -> list[reference.Row]:
    """The summed elements by configuration, a set for each sample; whatever the batch's shape."""
    mels = np.asarray(mels)
    *batch, n_conn = mels.shape
    xp = np.asarray(xp).reshape(math.prod(batch), n_conn, np.shape(xp)[-1])
    result = []
    for configurations, elements in zip(xp.tolist(), mels.reshape(math.prod(batch), n_conn).tolist(), strict=True):
        row: reference.Row = defaultdict(complex)
        for configuration, mel in zip(configurations, elements, strict=True):
            if mel:
                row[tuple(map(_number, configuration))] += mel
        result.append(row)
    return result


def _number(value: complex) -> float:
    return float(value.real) + 0.0


def flattened_rows(xp: Any, mels: Any, sections: Any) -> list[reference.Row]:
    """As :func:`rows`, from elements one after another; ``sections`` are the ends of the samples."""
    result = []
    for first, last in zip([0, *sections[:-1]], sections, strict=True):
        result += rows(np.asarray(xp)[None, first:last], np.asarray(mels)[None, first:last])
    return result


def assert_rows(found: Sequence[reference.Row], expected: Sequence[reference.Row], tol: float, what: str = "") -> None:
    for sample, (mine, right) in enumerate(zip(found, expected, strict=True)):
        scale = max([1.0, *map(abs, right.values())])
        for configuration in {*mine, *right}:
            difference = mine.get(configuration, 0) - right.get(configuration, 0)
            assert abs(difference) <= tol * scale, (
                f"{what}: sample {sample} to {configuration}: {mine.get(configuration, 0)}, "
                f"but {right.get(configuration, 0)} is right"
            )


def on_a_gpu(function: Callable[..., Any], *args: Any) -> Callable[..., Any]:
    """What a GPU would run for arguments like these, compiled for this CPU.

    The program that is lowered for CUDA calls no library. It is run as it is lowered for TPUs, which is the same but
    for cumulative sums: JAX 0.12 makes an operation for GPUs of them, at which XLA's compiler for CPUs dies.
    """

    def lowered(platform: str) -> export.Exported:
        unchecked = [export.DisabledSafetyCheck.platform()]
        return export.export(jax.jit(function), platforms=(platform,), disabled_checks=unchecked)(*args)

    assert "custom_call" not in lowered("cuda").mlir_module()
    return jax.jit(lowered("tpu").call)


LEAST = 1e-3
"""The least p-value of samples that are distributed as they should be."""


def p_value(counts: np.ndarray, expected: np.ndarray) -> float:
    """That of Pearson's test; configurations that are expected less than five times count as one."""
    rare = expected < 5
    counts, expected = (np.append(x[~rare], x[rare].sum()) for x in (counts, expected))
    keep = expected > 0
    assert counts[~keep].sum() == 0
    return float(scipy.stats.chisquare(counts[keep], expected[keep] * counts.sum() / expected.sum()).pvalue)
