"""Which way an update of stochastic reconfiguration takes, and why not a faster one."""

import math
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
from netket.vqs import FullSumState

from ferroket import limits
from ferroket._compat.netket import is_netkets_tensor, is_sr_driver, log_psi_of, solver_of, tensor_of
from ferroket.ansatz.equations import inlined
from ferroket.natural_gradient import memory, patching
from ferroket.natural_gradient.gram import cost
from ferroket.natural_gradient.log_derivatives import (
    LogDerivatives,
    components,
    in_lanes,
    is_complex,
    leaves_of,
    samples_at_once,
)
from ferroket.natural_gradient.qgt import quantum_geometric_tensor
from ferroket.natural_gradient.solve import reason_not_to_share, reason_to_form_kernel, splits_reason, text_of_solver
from ferroket.natural_gradient.structure import Network, read
from ferroket.network import Plan
from ferroket.reasons import Reason, ReasonKind

BY_XLA = "XLA differentiates it: "
"""Before the reason why XLA does."""

_CALLS_OF_RUST = {"log_determinants": "determinants", "pair_sums": "sums of pairs"}
"""Primitives whose derivatives come from Rust by a call of their own, in words."""

_NOT_ENABLED = Reason("the driver is NetKet's: call fk.enable(), or take the one of fk.driver", ReasonKind.NOT_ENABLED)


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


def explain(driver: Any) -> Plan:
    """Tells which way the update of a driver takes, parameter by parameter, and why not a faster one.

    Args:
        driver: ``VMC_SR`` or ``Infidelity_SR``, of NetKet or of :mod:`ferroket.driver`; or one with a quantum geometric
            tensor: ``VMC`` with the preconditioner ``SR``, ``TDVP`` or ``TDVPSchmitt``.

    Returns:
        What makes the update; ``print`` it for a summary.

    Raises:
        TypeError: The driver makes no such update.
    """
    if not is_sr_driver(driver):
        return _of_tensor(driver)
    if not (patching.is_enabled() or patching.is_ours(driver)):
        return Plan.netkets("update", _NOT_ENABLED)
    state, mode, solver = driver.state, driver.mode, solver_of(driver)
    n_samples = n_samples_of(state)
    subject = subject_of(state, n_samples)
    few = subject[3][:3]
    found = patching.plan(*subject)
    if found.is_netkets:
        return found
    splits = splits_reason(solver, driver.proj_reg)
    of_sample = memory.log_derivatives_of_sample(*subject[:3], few[:1], mode, None if splits is None else False)
    n_components, is_holomorphic = components(of_sample.network, mode)
    leaves = of_sample.network.leaves
    n_unknowns = sum(math.prod(leaf.shape) * (1 + (is_complex(leaf) and not is_holomorphic)) for leaf in leaves)
    side = n_samples * n_components if driver.use_ntk else n_unknowns
    kind = "complex Hermitian" if is_holomorphic else "real symmetric"
    matrix = f"one {kind} system of {side} unknowns"
    layers = layers_of(of_sample, n_samples, n_components, None if driver.use_ntk else side)
    slow = (layer for layer in layers if layer.form == "rows" and len(layer.shape) > 1)
    reasons = [
        Reason(f"{layer.name} has rows of its own, since {layer.found}", ReasonKind.NO_FACTORS) for layer in slow
    ]
    if mode == "complex" and splits and read(*subject[:3], few[0]).is_holomorphic:
        text = f"the network is holomorphic, but {splits}: the matrix is real and has twice the rows"
        reasons.insert(0, Reason(text, splits.kind))
    made = f"no Jacobian; {matrix}" if driver.use_ntk else f"no Jacobian, but rows of some samples at once; {matrix}"
    formed = reason_to_form_kernel(of_sample, n_samples, solver)
    bytes_of_matrix = (
        memory.bytes_of_kernel(of_sample, n_samples, formed is not None)
        if driver.use_ntk
        else memory.bytes_of_tensor(of_sample)
    )
    of_rows, at_once = (
        memory.bytes_of_device(of_sample, n_samples),
        memory.chunk_of(of_sample, n_samples, bytes_of_matrix),
    )
    whose = limits.MEMORY if jax.default_backend() == "cpu" else "memory that an update may have"
    limit = f"the {_gibibytes(memory.limit())} of {whose} for each device"
    if at_once is not None:
        at_once = min(at_once, driver.chunk_size_bwd or at_once)
        text = (
            f"log-derivatives are made anew for {_count(at_once, 'sample')} at once: those of a device's samples take "
            f"{_gibibytes(of_rows)}, too much beside {_gibibytes(bytes_of_matrix)} of the matrix for {limit}"
        )
        reasons.append(Reason(text, ReasonKind.MEMORY))
        of_rows = memory.COPIES * at_once * memory.bytes_of(of_sample)
    if bytes_of_matrix > memory.limit():
        text = f"the matrix alone takes more than {limit}: fewer samples or more ranks make it smaller"
        reasons.append(Reason(text, ReasonKind.MEMORY))
    if driver.use_ntk and jax.default_backend() == "cpu":
        made += ", which isn't formed" if formed is None and at_once is None else ", which is formed"
        if formed is not None and at_once is None:  # else memory is why
            reasons.append(formed.after("the matrix is formed: "))
    not_shared = reason_not_to_share(solver)
    reasons += [not_shared] if not_shared else []
    of_device = -(-n_samples // jax.device_count())
    derivatives, by_xla = _derivatives(of_sample.network, mode)
    return replace(
        found,
        kernel=made,
        reasons=reasons + by_xla,
        derivatives=derivatives,
        chunk_size=samples_at_once(of_sample.network, of_device, driver.chunk_size_bwd) if by_xla else None,
        layers=layers,
        matrix=matrix,
        solver=text_of_solver(solver, side),
        memory=of_rows,
        memory_of_matrix=bytes_of_matrix,
    )


def n_samples_of(state: Any) -> int:
    """How many samples an update has."""
    number: int = state.hilbert.n_states if isinstance(state, FullSumState) else state.n_samples
    return number


def subject_of(state: Any, n_samples: int) -> tuple[Any, Any, Any, jax.Array]:
    """A state's network, parameters and other variables, and configurations in the place of its samples."""
    few = state.hilbert.random_state(jax.random.key(0), 3)
    return log_psi_of(state), state.parameters, state.model_state, jnp.resize(few, (n_samples, few.shape[1]))


def _of_tensor(driver: Any) -> Plan:
    """That of a driver whose preconditioner or dynamics has a quantum geometric tensor."""
    tensor, name = tensor_of(driver), type(driver).__name__
    if tensor is None:
        raise TypeError(f"{name} is no driver of stochastic reconfiguration: give VMC_SR or Infidelity_SR")
    if getattr(tensor, "func", tensor) is not quantum_geometric_tensor:
        if not is_netkets_tensor(tensor):
            return Plan.netkets("update", Reason("the quantum geometric tensor isn't known", ReasonKind.DRIVER))
        if not patching.is_enabled():
            text = "the quantum geometric tensor is NetKet's: call fk.enable(), or take fk.optimizer.SR"
            return Plan.netkets("update", Reason(text, ReasonKind.NOT_ENABLED))
    n_samples = n_samples_of(driver.state)
    subject = subject_of(driver.state, n_samples)
    found = patching.plan(*subject)
    if found.is_netkets:
        return found
    value = jax.eval_shape(subject[0], {"params": subject[1], **subject[2]}, subject[3][:1])
    mode = "complex" if jnp.issubdtype(value.dtype, jnp.complexfloating) else "real"
    of_sample = memory.log_derivatives_of_sample(*subject[:3], subject[3][:1], mode, None)
    # How many products with the tensor a solver takes isn't known.
    layers = [replace(layer, flops=0.0) for layer in layers_of(of_sample, n_samples, 1, None)]
    kernel = "the quantum geometric tensor from the factors of the log-derivatives"
    derivatives, reasons = _derivatives(of_sample.network, mode)
    return replace(found, kernel=kernel, derivatives=derivatives, reasons=reasons, layers=layers)


def _derivatives(network: Network, mode: str) -> tuple[str, list[Reason]]:
    """What differentiates a network, and if it is XLA, why."""
    lanes = in_lanes(network, mode)
    if not isinstance(lanes, Reason):
        return f"differentiated {lanes.program}", []
    names = {eqn.primitive.name for eqn in inlined(network.jaxpr, with_loops=True).eqns}
    by_rust = [words for name, words in _CALLS_OF_RUST.items() if name in names and jax.default_backend() == "cpu"]
    and_rust = f", and by Rust for {' and '.join(by_rust)}" if by_rust else ""
    return f"differentiated by XLA{and_rust}", [lanes.after(BY_XLA)]


def _gibibytes(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:.3g} GiB"


def layers_of(of_sample: LogDerivatives, n_samples: int, n_components: int, n_unknowns: int | None) -> list[Layer]:
    """What is known of each parameter, by the shapes of a sample's log-derivatives, and what it costs.

    `n_unknowns` are those of a matrix of all parameters, for which rows are formed, and None for one of samples.
    """
    network, n_rows = of_sample.network, n_samples * n_components
    names = [
        jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in jax.tree.leaves_with_path(network.tree)
    ]
    kernels = {factors.bias.leaf: names[leaf] for leaf, factors in of_sample.factors.items() if factors.bias}
    result = []
    for place, (name, leaf) in enumerate(zip(names, network.leaves, strict=True)):
        size, weight = math.prod(leaf.shape), 4 if is_complex(leaf) else 1  # a complex product is four real ones
        products = [product for product in network.products if place in leaves_of(product)]
        own = [product if product.leaf == place or product.bias is None else product.bias for product in products]
        made: Any = of_sample.rows.get(place)
        form, flops, users = "rows", weight * n_rows**2 * size, sorted(network.direct.get(place, ()))
        ways = [f"it is used by {', '.join(users)}"] if users else []
        ways += [f"it is used in {len(products)} products of different layouts"] if len(products) > 1 else []
        found = " and ".join(ways) or "the log-amplitude doesn't depend on it"
        if place in kernels:
            form, found, flops = "factors", f"it is one more row of {kernels[place]}", 0
        elif place in of_sample.pairs:
            made = of_sample.pairs[place]
            form, found, flops = "closed form", "products of pairs of sites", 2 * n_samples**2 * made.x.shape[1]
        elif own and not users and len({product.layout for product in own}) == 1:
            factors, n_positions = of_sample.factors.get(place), sum(product.n_positions for product in own)
            n_parts, (_, n_in, n_out) = own[0].n_parts, own[0].sizes
            more = 1 if factors is not None and factors.bias is not None else 0
            of_matrix = cost(n_samples, n_components, (n_parts, n_positions, n_in + more, n_out))
            made = made if factors is None else factors
            form = "rows of factors" if factors is None or of_matrix.prefers_rows else "factors"
            flops = weight * n_samples * (of_matrix.by_factors if form == "factors" else of_matrix.by_rows)
            found = f"a product with {_count(n_in, 'input')} and {_count(n_out, 'output')}"
            found += f" at {_count(n_positions, 'position')}" + (f", in {n_parts} parts" if n_parts > 1 else "")
            if own[0].is_determinant:
                found = f"orbitals of {_count(n_parts * n_positions, 'determinant')}"
        n_bytes = n_samples * memory.bytes_of(made)
        if n_unknowns is not None:
            form = "rows of factors" if form == "factors" else form
            flops = 2 * n_rows * n_unknowns * size * (4 if of_sample.is_holomorphic else 1 + is_complex(leaf))
        result.append(Layer(name, leaf.shape, form, found, flops, n_bytes))
    return result


def _count(number: int, what: str) -> str:
    return f"{'one' if number == 1 else number} {what}{'' if number == 1 else 's'}"
