"""``ferroket bench network``: networks alone, evaluated in Rust, beside XLA and the processor's peak, on one core."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np

from ferroket import _lib
from ferroket.bench import models
from ferroket.bench.cases import run as run_cases
from ferroket.bench.report import Report, Row
from ferroket.bench.timing import on_cores, paired, seconds
from ferroket.network import Program, structure
from ferroket.network.program import Contract, Pair

OURS, XLA, _PEAK = "Ferroket", "XLA", "FMA peak"
_SHAPE = (10, 10)
_enable_x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64  # before JAX 0.8
_CHUNK_SIZES = (16, 64, 256, 1024)


def _gcnn(point_group: bool, mode: str) -> Any:
    square = nk.graph.Square(_SHAPE[0])
    symmetries = square if point_group else square.translation_group()
    return nk.models.GCNN(symmetries, layers=2, features=4, mode=mode, shape=_SHAPE, param_dtype=float)


# By name: the network, and how many times faster than XLA it has to be.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], float | None]] = {
    "MLP (100, 200, 200)": (models.MLP, None),
    "ResCNN, 4 features": (partial(models.ResCNN, _SHAPE), None),
    "ResCNN, 16 features, 9 convolutions": (partial(models.ResCNN, _SHAPE, features=16, blocks=4), None),
    "GCNN of 100 translations": (partial(_gcnn, False, "irreps"), None),
    "GCNN of 100 translations, by Fourier transforms": (partial(_gcnn, False, "fft"), 15),
    "GCNN with the point group, by Fourier transforms": (partial(_gcnn, True, "fft"), None),
    "ViT, 16 features": (partial(models.ViT, _SHAPE), None),
    "ViT, 32 features, 4 layers": (partial(models.ViT, _SHAPE, features=32, layers=4), None),
    "complex MLP": (models.complex_mlp, None),
    "complex ResCNN": (partial(models.ResCNN, _SHAPE, dtype=complex), None),
}


def run(*, cases: str = "", batch: int = 1024, rounds: int = 5) -> Report:
    """Networks on configurations of a 10×10 lattice, on one core.

    Ours begins with the sums of the first layer, XLA with the configurations, at its best of several chunk sizes. The
    peak is the time that the products alone would take at the rate of :func:`ferroket._lib.fma_rate`.

    Args:
        cases: a part of the name of those to run; all by default.
        batch: the number of configurations.
        rounds: how many times each contender is measured.

    Raises:
        ValueError: no case has such a name; the batch has no sample.
        AssertionError: XLA's numbers are others.
    """
    found: dict[str, Callable[[str], Iterator[Row]]] = {}
    for name, (build, bar) in NETWORKS.items():
        found[name] = partial(_case, build, bar, batch, rounds, False)
        found[f"{name}, float32"] = partial(_case, build, None, batch, rounds, True)
    title = f"{batch} configurations of 10×10 sites"
    rows = run_cases(found, cases=cases, batch=batch)
    return Report(title, OURS, rows, {"cases": cases, "batch": batch, "rounds": rounds})


def _case(
    build: Callable[[], nn.Module], bar: float | None, batch: int, rounds: int, is_single: bool, name: str
) -> Iterator[Row]:
    with _enable_x64(not is_single):
        yield _measured(build(), bar, batch, rounds, name)


def _measured(model: nn.Module, bar: float | None, batch: int, rounds: int, name: str) -> Row:
    x = nk.hilbert.Spin(0.5, _SHAPE[0] * _SHAPE[1]).random_state(jax.random.key(0), batch, dtype=float)
    variables = model.init(jax.random.key(1), x[:1])
    found = structure(model.apply, variables, x[0], key=(name, batch))
    layer, rest = found.first_layer, found.rest
    assert layer is not None, found.reason
    assert rest is not None, found.reason
    sums = jax.jit(jax.vmap(layer.sums, (None, 0)))(variables, x)
    operands, ours, network = jax.jit(rest.operands)(variables), jax.jit(rest.evaluate), jax.jit(model.apply)
    tolerance = 10 * float(jnp.finfo(sums.dtype).eps) ** 0.5
    expected = np.asarray(network(variables, x))
    np.testing.assert_allclose(ours(sums, operands), expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())

    def in_chunks(size: int) -> None:
        for first in range(0, batch, size):
            jax.block_until_ready(network(variables, x[first : first + size]))

    def best_of(size: int) -> float:
        return min(seconds(partial(on_cores, partial(in_chunks, size), 1)) for _ in range(3))

    size = min((size for size in _CHUNK_SIZES if batch % size == 0), key=best_of, default=batch)
    contenders = {
        OURS: lambda: on_cores(lambda: jax.block_until_ready(ours(sums, operands)), 1),
        XLA: lambda: on_cores(lambda: in_chunks(size), 1),
    }
    times = paired(contenders, rounds=rounds)
    rates: list[float] = []
    on_cores(lambda: rates.extend(_lib.fma_rate() for _ in range(rounds)), 1)
    rate = float(np.median(rates)) * (8 / sums.dtype.itemsize)
    limits = {_PEAK: batch * _products(rest) / rate}
    notes = {"configurations at once in XLA": str(size), "time by operation": _shares(rest, sums, operands)}
    return Row(name, times, limits, {} if bar is None else {XLA: bar}, notes)


def _shares(rest: Program, sums: jax.Array, operands: Any) -> str:
    """How much of the time each kind of operation takes."""
    words, tables = (np.asarray(operand) for operand in operands)
    inputs = np.asarray(sums, float).ravel().tolist()
    is_single = sums.dtype == np.float32
    seconds = _lib.profile_network(words.tolist(), tables.astype(float).tolist(), inputs, is_single)
    shares: Counter[str] = Counter()
    for one, time in zip(rest.operations, seconds, strict=True):
        shares[type(one).__name__.lower()] += round(100 * time / sum(seconds))
    return ", ".join(f"{kind} {share} %" for kind, share in shares.most_common())


def _products(rest: Program) -> int:
    """How many products and sums the products of a network take, for a configuration."""
    total = 0
    for one in rest.operations:
        if isinstance(one, Contract):
            total += 2 * one.places.size * one.out.shape[-1]
        elif isinstance(one, Pair):
            total += 2 * one.left.size * one.right.shape[1]
    return total
