"""Which way an update of stochastic reconfiguration takes, and why not a faster one."""

import math
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from netket.vqs import FullSumState, VariationalState

from ferroket._compat.netket import is_sr_driver, log_psi_of, solver_of
from ferroket.natural_gradient import patching
from ferroket.natural_gradient.examination import examine
from ferroket.natural_gradient.log_derivatives import MEMORY, bytes_of_a_sample, components, cost_of
from ferroket.natural_gradient.solve import takes_complex
from ferroket.natural_gradient.structure import Network, read


@dataclass(frozen=True)
class Layer:
    """One parameter."""

    name: str
    """Its place among the parameters, with slashes."""
    shape: tuple[int, ...]
    """Of the parameter."""
    form: str
    """``factors``, ``rows of factors``, ``rows``, or ``closed form``."""
    found: str
    """How it is used."""
    flops: float
    """Of its part of the Gram matrix."""
    memory: int
    """Bytes of its factors, or of its rows, for all samples."""

    def __str__(self) -> str:
        size = "×".join(map(str, self.shape)) or "1"
        cost = f"{self.flops / 1e9:.3g} GFLOP, {self.memory / 2**20:.3g} MiB"
        return f"{self.name} ({size}): {self.form}, {cost}; {self.found}"


@dataclass(frozen=True)
class Explanation:
    """What :func:`explain` found."""

    path: str
    """``factors`` or ``NetKet``."""
    layers: list[Layer] = field(default_factory=list)
    """The parameters."""
    matrix: str = ""
    """What is written down, and the matrix of the linear system, in words."""
    chunk_size: int | None = None
    """How many samples are differentiated at once, on each device."""
    reasons: list[str] = field(default_factory=list)
    """Why not a faster one."""

    def __str__(self) -> str:
        if self.path == "NetKet":
            lines = ["NetKet: NetKet's own update"]
        else:
            lines = [f"{self.path}: {self.matrix}"]
            lines += [f"  {layer}" for layer in self.layers]
            lines.append(f"samples differentiated at once: {self.chunk_size}")
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
    if examine(*network_args, samples).mixes_samples:
        reason = (
            "the network mixes samples: its value for one depends on the others, and only NetKet's update takes that"
        )
        return Explanation("NetKet", reasons=[reason])
    reasons = []
    complex_solver = takes_complex(solver_of(driver)) and driver.proj_reg is None
    network = read(*network_args, samples[0], None if complex_solver else False)
    n_samples = state.hilbert.n_states if is_sum else state.n_samples
    n_components, is_holomorphic = components(network, driver.mode)
    side = n_samples * n_components if driver.use_ntk else n_parameters(network, is_holomorphic)
    kind = "complex Hermitian" if is_holomorphic else "real symmetric"
    matrix = f"{kind} system of {side} unknowns"
    matrix = f"no Jacobian; one {matrix}" if driver.use_ntk else f"a Jacobian, written from factors; one {matrix}"
    if driver.mode == "complex" and not complex_solver and read(*network_args, samples[0]).is_holomorphic:
        why = (
            "proj_reg treats real and imaginary parts alike"
            if driver.proj_reg is not None
            else "the solver isn't known"
        )
        reasons.append(f"the network is holomorphic, but {why}: the matrix is real and has twice the rows")
    n_local = -(-n_samples // jax.device_count())
    chunk = min(n_local, driver.chunk_size_bwd or max(1, MEMORY // bytes_of_a_sample(network)))
    layers = layers_of(network, n_samples, n_components, writes_jacobian=not driver.use_ntk)
    reasons += [
        f"{layer.name} has rows of its own, since {layer.found}"
        for layer in layers
        if layer.form == "rows" and len(layer.shape) > 1
    ]
    return Explanation("factors", layers, matrix, chunk, reasons)


def n_parameters(network: Network, is_holomorphic: bool) -> int:
    """How many there are, with real and imaginary parts apart unless ln ψ is holomorphic."""
    sizes = [math.prod(leaf.shape) for leaf in network.leaves]
    are_complex = [jnp.issubdtype(leaf.dtype, jnp.complexfloating) for leaf in network.leaves]
    return sum(size * (1 + (split and not is_holomorphic)) for size, split in zip(sizes, are_complex, strict=True))


def layers_of(network: Network, n_samples: int, n_components: int, *, writes_jacobian: bool = False) -> list[Layer]:
    """What is known of each parameter."""
    names = ["/".join(_key(key) for key in path) for path, _ in jax.tree.leaves_with_path(network.tree)]
    result = []
    for place, (name, leaf) in enumerate(zip(names, network.leaves, strict=True)):
        if network.is_quadratic and n_components == 1:
            memory, flops = n_samples * _sites(leaf) * leaf.dtype.itemsize, 4 * n_samples**2 * _sites(leaf)
            result.append(Layer(name, leaf.shape, "closed form", "products of pairs of sites", flops, memory))
            continue
        products = [product for product in network.products if product.leaf == place]
        uses = sorted(network.direct.get(place, ()))
        kernel = next((p.leaf for p in network.products if p.bias is not None and p.bias.leaf == place), None)
        if kernel is not None and (kernel in network.direct or [p.leaf for p in network.products].count(kernel) > 1):
            kernel, uses = None, ["add"]
        size = math.prod(leaf.shape)
        if kernel is not None and not uses:
            result.append(Layer(name, leaf.shape, "factors", f"one more row of {names[kernel]}", 0, 0))
        elif products and not uses and len({product.layout for product in products}) == 1:
            _, n_in, n_out = products[0].sizes
            parts, positions = products[0].n_parts, sum(product.n_positions for product in products)
            cost = cost_of(n_samples, n_components, parts, positions, n_in, n_out)
            form = "rows of factors" if cost.prefers_rows or writes_jacobian else "factors"
            flops = 2 * n_samples * min(cost.by_factors, cost.by_rows)
            memory = n_samples * parts * positions * (n_in + n_components * n_out) * leaf.dtype.itemsize
            times = f"{positions} positions" if positions > 1 else "one position"
            found = f"a product with {_count(n_in, 'input')} and {_count(n_out, 'output')} at {times}"
            found += f", in {parts} parts" if parts > 1 else ""
        else:
            form = "rows"
            flops = 2 * (n_samples * n_components) ** 2 * size
            memory = n_samples * n_components * size * leaf.dtype.itemsize
            ways = [f"it is used by {', '.join(uses)}"] if uses else []
            ways += [f"it is used in {len(products)} products of different layouts"] if len(products) > 1 else []
            found = " and ".join(ways) or "the log-amplitude doesn't depend on it"
        result.append(Layer(name, leaf.shape, form, found, flops, memory))
    return result


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _sites(pairs: jax.ShapeDtypeStruct) -> int:
    """N of N (N − 1)/2."""
    return (1 + math.isqrt(1 + 8 * math.prod(pairs.shape))) // 2


def _key(key: Any) -> str:
    return str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key))))
