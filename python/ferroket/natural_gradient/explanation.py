"""Which way an update of stochastic reconfiguration takes, and why not a faster one."""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import jax.numpy as jnp
from netket.vqs import FullSumState, VariationalState

from ferroket._compat.netket import is_sr_driver, log_psi_of, solver_of
from ferroket.natural_gradient import memory, patching
from ferroket.natural_gradient.gram import cost_of
from ferroket.natural_gradient.log_derivatives import (
    MEMORY,
    bytes_of_a_sample,
    components,
    joins_its_bias,
    uses_of,
)
from ferroket.natural_gradient.memory import bytes_of_log_derivatives, excess_of
from ferroket.natural_gradient.solve import in_words, takes_complex
from ferroket.natural_gradient.structure import Network, Product, read
from ferroket.natural_gradient.verification import unsupported_reason


@dataclass(frozen=True)
class Layer:
    """One parameter."""

    name: str
    shape: tuple[int, ...]
    form: str
    """``factors``, ``rows of factors``, ``rows``, or ``closed form``."""
    found: str
    """How it is used."""
    flops: float
    """Operations on real numbers, for its part of the matrix. A bias that is a row of its kernel is counted there."""
    memory: int
    """Bytes of its factors, or of its rows, for all samples."""

    def __str__(self) -> str:
        size = "×".join(map(str, self.shape)) or "1"
        cost = f", {self.flops / 1e9:.3g} GFLOP, {self.memory / 2**20:.3g} MiB" if self.flops else ""
        return f"{self.name} ({size}): {self.form}{cost}; {self.found}"


@dataclass(frozen=True)
class Explanation:
    """What :func:`explain` found."""

    path: str
    """``factors`` or ``NetKet``."""
    layers: list[Layer] = field(default_factory=list)
    matrix: str = ""
    """The matrix of the linear system, in words."""
    solver: str = ""
    """What solves it, and how the devices share that."""
    writes_jacobian: bool = False
    """Whether the Jacobian is written down: all rows, which the matrix of parameters is made of."""
    chunk_size: int | None = None
    """How many samples are differentiated at once, on each device."""
    reasons: list[str] = field(default_factory=list)
    """Why not a faster one."""
    memory: int | None = None
    """How many bytes the factors and rows of each device's samples take."""

    def __str__(self) -> str:
        if self.path == "NetKet":
            lines = ["NetKet: NetKet's own update"]
        else:
            jacobian = "the Jacobian is made of them" if self.writes_jacobian else "no Jacobian"
            lines = [f"{self.path}: {jacobian}; {self.matrix}"]
            lines += [f"  {layer}" for layer in self.layers]
            lines.append(f"solver: {self.solver}")
            lines.append(f"samples differentiated at once: {self.chunk_size}")
            if self.memory is not None:
                lines.append(f"memory of factors and rows on each device: {self.memory / 2**20:.3g} MiB")
        return "\n".join(lines + [f"not faster, because {reason}" for reason in self.reasons])


def explain(driver: Any) -> Explanation:
    """Tells which way the update of a driver takes, parameter by parameter, and why not a faster one.

    Args:
        driver: ``VMC_SR`` or ``Infidelity_SR``, of NetKet or of :mod:`ferroket.driver`.

    Returns:
        What makes the update; ``print`` it for a summary.

    Raises:
        TypeError: The driver makes no such update.
    """
    if not is_sr_driver(driver):
        raise TypeError(
            f"{type(driver).__name__} is no driver of stochastic reconfiguration: give VMC_SR or Infidelity_SR"
        )
    if not (patching.is_enabled() or patching.is_ours(driver)):
        return Explanation("NetKet", reasons=["the driver is NetKet's: call fk.enable(), or take the one of fk.driver"])
    state: VariationalState = driver.state
    is_sum = isinstance(state, FullSumState)
    samples = state.hilbert.random_state(jax.random.key(0), 3)
    network_args = (log_psi_of(state), state.parameters, state.model_state)
    if (unsupported := unsupported_reason(*network_args, samples)) is not None:
        return Explanation("NetKet", reasons=[unsupported])
    n_samples = state.hilbert.n_states if is_sum else state.n_samples
    all_samples = jax.ShapeDtypeStruct((n_samples, samples.shape[1]), samples.dtype)
    n_bytes = bytes_of_log_derivatives(*network_args, all_samples, driver.mode)
    is_on_the_fly = driver.use_ntk and driver.on_the_fly
    limit = memory.UPDATE if driver.chunk_size_bwd is None else memory.UPDATE_IN_CHUNKS
    if is_on_the_fly and (excess := excess_of(n_bytes, limit)) is not None:
        return Explanation("NetKet", reasons=[excess])
    reasons = []
    solver = solver_of(driver)
    complex_solver = takes_complex(solver) and driver.proj_reg is None
    network = read(*network_args, samples[0], None if complex_solver else False)
    n_components, is_holomorphic = components(network, driver.mode)
    side = n_samples * n_components if driver.use_ntk else n_unknowns(network, is_holomorphic)
    kind = "complex Hermitian" if is_holomorphic else "real symmetric"
    matrix = f"one {kind} system of {side} unknowns"
    if driver.mode == "complex" and not complex_solver and read(*network_args, samples[0]).is_holomorphic:
        why = (
            "proj_reg treats real and imaginary parts alike"
            if driver.proj_reg is not None
            else "the solver isn't known"
        )
        reasons.append(f"the network is holomorphic, but {why}: the matrix is real and has twice the rows")
    n_local = -(-n_samples // jax.device_count())
    chunk = min(n_local, driver.chunk_size_bwd or max(1, MEMORY // bytes_of_a_sample(network)))
    layers = layers_of(network, n_samples, n_components)
    reasons += [
        f"{layer.name} has rows of its own, since {layer.found}"
        for layer in layers
        if layer.form == "rows" and len(layer.shape) > 1
    ]
    if not driver.use_ntk:
        n_rows = n_samples * n_components
        layers = [
            with_rows(layer, leaf, n_rows, side, is_holomorphic)
            for layer, leaf in zip(layers, network.leaves, strict=True)
        ]
    words = in_words(solver, side)
    return Explanation("factors", layers, matrix, words, not driver.use_ntk, chunk, reasons, n_bytes)


def layers_of(network: Network, n_samples: int, n_components: int) -> list[Layer]:
    """What is known of each parameter, and what it costs in the neural tangent kernel."""
    names = ["/".join(_key(key) for key in path) for path, _ in jax.tree.leaves_with_path(network.tree)]
    uses = uses_of(network)
    parts = [part for product in network.products for part in _parts(network, uses, product)]
    result = []
    for place, (name, leaf) in enumerate(zip(names, network.leaves, strict=True)):
        products = [product for product in parts if product.leaf == place]
        is_of_pairs = uses[place] == 1 and any(product.is_of_pairs for product in products)
        if is_of_pairs or (network.is_quadratic and n_components == 1):
            n_sites = (1 + math.isqrt(1 + 8 * math.prod(leaf.shape))) // 2
            memory, flops = n_samples * n_sites * leaf.dtype.itemsize, 2 * n_samples**2 * n_sites
            result.append(Layer(name, leaf.shape, "closed form", "products of pairs of sites", flops, memory))
            continue
        kernel = next((product.leaf for product in parts if product.bias and product.bias.leaf == place), None)
        users = sorted(network.direct.get(place, ()))
        size = math.prod(leaf.shape)
        weight = 4 if _is_complex(leaf) else 1
        if kernel is not None:
            result.append(Layer(name, leaf.shape, "factors", f"it is one more row of {names[kernel]}", 0, 0))
            continue
        if products and not users and len({product.layout for product in products}) == 1:
            _, n_in, n_out = products[0].sizes
            n_rows = n_in + (products[0].bias is not None)
            n_parts, positions = products[0].n_parts, sum(product.n_positions for product in products)
            cost = cost_of(n_samples, n_components, n_parts, positions, n_rows, n_out)
            form = "rows of factors" if cost.prefers_rows else "factors"
            flops = weight * n_samples * (cost.by_rows if cost.prefers_rows else cost.by_factors)
            memory = n_samples * n_parts * positions * (n_rows + n_components * n_out) * leaf.dtype.itemsize
            if products[0].is_determinant:
                found = f"orbitals of {_count(n_parts * positions, 'determinant')}"
            else:
                found = f"a product with {_count(n_in, 'input')} and {_count(n_out, 'output')}"
                found += f" at {_count(positions, 'position')}" + (f", in {n_parts} parts" if n_parts > 1 else "")
        else:
            form = "rows"
            flops = weight * (n_samples * n_components) ** 2 * size
            memory = n_samples * n_components * size * leaf.dtype.itemsize
            ways = [f"it is used by {', '.join(users)}"] if users else []
            ways += [f"it is used in {len(products)} products of different layouts"] if len(products) > 1 else []
            found = " and ".join(ways) or "the log-amplitude doesn't depend on it"
        result.append(Layer(name, leaf.shape, form, found, flops, memory))
    return result


def with_rows(layer: Layer, leaf: jax.ShapeDtypeStruct, n_rows: int, side: int, is_holomorphic: bool) -> Layer:
    """What a parameter costs where its rows are written down, for its part of a matrix of all parameters."""
    form = "rows of factors" if layer.form == "factors" else layer.form
    size = math.prod(leaf.shape)
    memory = n_rows * size * leaf.dtype.itemsize  # of real and imaginary parts, together or apart
    # A complex product is four real ones.
    flops = 2 * n_rows * side * size * (4 if is_holomorphic else 1 + _is_complex(leaf))
    return replace(layer, form=form, flops=flops, memory=memory)


def n_unknowns(network: Network, is_holomorphic: bool) -> int:
    """The number of parameters, with real and imaginary parts apart unless ln ψ is holomorphic."""
    return sum(math.prod(leaf.shape) * (1 if is_holomorphic else 1 + _is_complex(leaf)) for leaf in network.leaves)


def _parts(network: Network, uses: Counter[int], product: Product) -> Iterator[Product]:
    """A product with its bias, or each on its own."""
    if product.bias is None or joins_its_bias(network, uses, product):
        yield product
    else:
        yield from (replace(product, bias=None), product.bias)


def _is_complex(leaf: jax.ShapeDtypeStruct) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jnp.complexfloating))


def _count(number: int, what: str) -> str:
    return f"{'one' if number == 1 else number} {what}{'s' if number > 1 else ''}"


def _key(key: Any) -> str:
    return str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key))))
