"""``ferroket bench network``: networks alone, in Rust, beside XLA and the processor's peak, on one core."""

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
from jax.scipy.special import logsumexp

from ferroket import _lib
from ferroket.bench import models
from ferroket.bench.cases import Chosen
from ferroket.bench.cases import run as run_cases
from ferroket.bench.report import Report, Row
from ferroket.bench.timing import on_cores, paired, peak_rate, seconds
from ferroket.models import symmetrise
from ferroket.natural_gradient.log_derivatives import by_xla, in_lanes, log_derivatives
from ferroket.natural_gradient.structure import read as parameters_of
from ferroket.network import Program, structure
from ferroket.network.program import Contract, Pair

OURS, XLA, _PEAK = "Ferroket", "XLA", "FMA peak"
SUMMANDS = "its summands alone"
_AT_ONCE, _SHARES = "configurations at once in XLA", "time by operation"
_SHAPE = (10, 10)
_enable_x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64  # before JAX 0.8
_CHUNK_SIZES = (16, 64, 256, 1024)
_DIFFERENTIATED = 256
"""So many configurations are differentiated at most: their log-derivatives take memory."""


def _gcnn(mode: str) -> Any:
    translations = nk.graph.Square(_SHAPE[0]).translation_group()
    return nk.models.GCNN(translations, layers=2, features=4, mode=mode, shape=_SHAPE, param_dtype=float)


# By name: the network, and how many times faster than XLA it has to be.
NETWORKS: dict[str, tuple[Callable[[], nn.Module], float | None]] = {
    "MLP (100, 200, 200)": (models.MLP, None),
    "ResCNN, 4 features": (partial(models.ResCNN, _SHAPE), None),
    "ResCNN, 16 features, 9 convolutions": (partial(models.ResCNN, _SHAPE, features=16, blocks=4), None),
    "GCNN of 100 translations": (partial(_gcnn, "irreps"), None),
    "GCNN of 100 translations, by Fourier transforms": (partial(_gcnn, "fft"), 15),
    "GCNN with the point group, by Fourier transforms": (partial(models.gcnn_of_space_group, _SHAPE[0]), None),
    "ViT, 16 features": (partial(models.ViT, _SHAPE), None),
    "ViT, 32 features, 4 layers": (partial(models.ViT, _SHAPE, features=32, layers=4), None),
    "complex MLP": (models.complex_mlp, None),
    "complex ResCNN": (partial(models.ResCNN, _SHAPE, dtype=complex), None),
}


def run(*, cases: Chosen = None, batch: int = 1024, rounds: int = 5) -> Report:
    """Networks on configurations of a 10×10 lattice, on one core.

    Ours begins with the sums of the first layer, XLA with the configurations, at its best of several chunk sizes. The
    peak is the time that the products alone would take at the rate of :func:`ferroket._lib.fma_rate`. Log-derivatives
    are those of each configuration for all parameters, in the form that an update takes them in. A network that is
    projected onto a space group is beside itself on the configurations that are summed over: for one that has the
    translations already these are eight.

    Args:
        cases: a part of the name of those to run, or several; all by default.
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
        found[f"{name}, log-derivatives"] = partial(_derivatives, build, min(batch, _DIFFERENTIATED), rounds)
    found["ResCNN, 4 features, projected onto the space group"] = partial(_projected, batch, rounds)
    title = f"{batch} configurations of 10×10 sites"
    rows = run_cases(found, cases=cases, batch=batch)
    return Report(title, OURS, rows, {"cases": cases, "batch": batch, "rounds": rounds})


def _case(
    build: Callable[[], nn.Module], bar: float | None, batch: int, rounds: int, is_single: bool, name: str
) -> Iterator[Row]:
    with _enable_x64(not is_single):
        yield _measured(build(), bar, batch, rounds, name)


def _example(model: nn.Module, batch: int) -> tuple[jax.Array, Any]:
    """Configurations, and variables."""
    x = nk.hilbert.Spin(0.5, _SHAPE[0] * _SHAPE[1]).random_state(jax.random.key(0), batch, dtype=float)
    return x, model.init(jax.random.key(1), x[:1])


def _measured(model: nn.Module, bar: float | None, batch: int, rounds: int, name: str) -> Row:
    x, variables = _example(model, batch)
    found = structure(model.apply, variables, x[0], key=(name, batch))
    layer, rest = found.first_layer, found.rest
    assert layer is not None, found.reason
    assert rest is not None, found.reason
    sums = jax.jit(jax.vmap(layer.sums, (None, 0)))(variables, x)
    operands, ours, network = jax.jit(rest.operands)(variables), jax.jit(rest.evaluate), jax.jit(model.apply)
    _assert_alike(np.asarray(ours(sums, operands)), np.asarray(network(variables, x)), sums.dtype)

    def in_chunks(size: int) -> None:
        for first in range(0, batch, size):
            jax.block_until_ready(network(variables, x[first : first + size]))

    size = _fastest(in_chunks, batch)
    times = _paired(lambda: ours(sums, operands), partial(in_chunks, size), rounds)
    words, tables = (np.asarray(operand) for operand in operands)
    notes = {_AT_ONCE: str(size), _SHARES: _shares(rest, words, tables, sums)}
    limits = {_PEAK: batch * _products(rest) / _rate(sums.dtype, rounds)}
    return Row(name, times, limits, {} if bar is None else {XLA: bar}, notes)


def _derivatives(build: Callable[[], nn.Module], batch: int, rounds: int, name: str) -> Iterator[Row]:
    with _enable_x64(True):
        model = build()
        x, variables = _example(model, batch)
        network = parameters_of(model.apply, variables["params"], {}, x[0])
        mode = "real" if network.is_real else "complex"
        found = in_lanes(network, mode)
        assert not isinstance(found, str), found
        leaves = jax.tree.leaves(variables["params"])

        def of(made_by: Callable[..., Any], chunk_size: int | None = None) -> Callable[[], Any]:
            return partial(jax.jit(partial(made_by, network, mode, chunk_size)), leaves, {}, x)

        ours, theirs = of(log_derivatives), {size: of(by_xla, size) for size in _chunk_sizes(batch)}
        size = _fastest(lambda size: jax.block_until_ready(theirs[size]()), batch)
        _assert_alike(_flat(ours()), _flat(theirs[size]()), network.dtype)
        times = _paired(ours, theirs[size], rounds)
        words, tables = (np.asarray(operand) for operand in found.program.operands((leaves, [])))
        notes = {_AT_ONCE: str(size), _SHARES: _shares(found.program, words, tables, x)}
        yield Row(name, times, {_PEAK: batch * _products(found.program) / _rate(tables.dtype, rounds)}, notes=notes)


def _projected(batch: int, rounds: int, name: str) -> Iterator[Row]:
    with _enable_x64(True):
        lattice = nk.graph.Square(_SHAPE[0])
        model = models.ResCNN(_SHAPE)
        projected = symmetrise(model, nk.hilbert.Spin(0.5, lattice.n_nodes), lattice.space_group())
        x, variables = _example(projected, batch)
        moved = x[:, np.asarray(projected.symmetries)].reshape(-1, x.shape[-1])
        ours = _evaluation(projected, variables, x, name)
        summands = _evaluation(model, {"params": variables["params"]["module"]}, moved, f"{name}: a summand")
        expected = logsumexp(summands().reshape(batch, -1), b=np.asarray(projected.characters), axis=1)
        _assert_alike(np.asarray(ours()), np.asarray(expected), x.dtype)
        calls = {OURS: ours, SUMMANDS: summands}
        times = paired(
            {name: partial(on_cores, partial(_wait_for, call), 1) for name, call in calls.items()}, rounds=rounds
        )
        yield Row(name, times, bars={SUMMANDS: 1.0})


def _evaluation(model: nn.Module, variables: Any, x: jax.Array, key: str) -> Callable[[], Any]:
    """All of a network on some configurations, as the plan has it."""
    found = structure(model.apply, variables, x[0], key=(key, len(x)))
    layer, rest = found.first_layer, found.rest
    assert layer is not None, found.reason
    assert rest is not None, found.reason

    @jax.jit
    def evaluate(variables: Any, x: jax.Array) -> Any:
        return rest.evaluate(jax.vmap(layer.sums, (None, 0))(variables, x), rest.operands(variables))

    return partial(evaluate, variables, x)


def _flat(arrays: Any) -> np.ndarray:
    """The numbers of a pytree, one behind the other."""
    return np.concatenate([np.ravel(array) for array in jax.tree.leaves(arrays)])


def _assert_alike(found: np.ndarray, expected: np.ndarray, dtype: Any) -> None:
    tolerance = 10 * float(jnp.finfo(dtype).eps) ** 0.5
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * np.abs(expected).max())


def _chunk_sizes(batch: int) -> list[int]:
    return [size for size in _CHUNK_SIZES if batch % size == 0] or [batch]


def _fastest(run: Callable[[int], Any], batch: int) -> int:
    """The chunk size with which it takes the least time."""
    return min(
        _chunk_sizes(batch), key=lambda size: min(seconds(lambda: on_cores(lambda: run(size), 1)) for _ in range(3))
    )


def _paired(ours: Callable[[], Any], theirs: Callable[[], Any], rounds: int) -> dict[str, float]:
    calls = {OURS: ours, XLA: theirs}
    on_one = {name: partial(on_cores, partial(_wait_for, call), 1) for name, call in calls.items()}
    return paired(on_one, rounds=rounds)


def _wait_for(call: Callable[[], Any]) -> None:
    jax.block_until_ready(call())


def _rate(dtype: Any, rounds: int) -> float:
    """How many products and sums of such numbers a core computes in a second at most."""
    return peak_rate(rounds) * (8 / np.dtype(dtype).itemsize)


def _shares(program: Program, words: np.ndarray, tables: np.ndarray, inputs: jax.Array) -> str:
    """How much of the time each kind of operation takes."""
    numbers = np.asarray(inputs, float).ravel().tolist()
    is_single = tables.dtype == np.float32
    seconds = _lib.profile_network(words.tolist(), tables.astype(float).tolist(), numbers, is_single)
    shares: Counter[str] = Counter()
    for one, time in zip(program.operations, seconds, strict=True):
        shares[type(one).__name__.lower()] += round(100 * time / sum(seconds))
    return ", ".join(f"{kind} {share} %" for kind, share in shares.most_common())


def _products(program: Program) -> int:
    """How many products and sums the products of a network take, for a configuration."""
    total = 0
    for one in program.operations:
        if isinstance(one, Contract):
            total += 2 * one.places.size * one.out.shape[-1]
        elif isinstance(one, Pair):
            total += 2 * one.left.size * one.right.shape[1]
    return total
