"""The log-derivatives O of a network for many samples, as factors: their products with vectors, and rows.

For a parameter θ and a component f of ln ψ (its real part, and in complex mode its imaginary part as well), a *row* is
what :func:`jax.vjp` gives for one sample: G with df = Re(G·dθ). So for a real parameter G is ∂f/∂θ, and for a complex
one ∂f/∂Re θ − i ∂f/∂Im θ. A holomorphic ln ψ has one complex row, G = ∂ ln ψ/∂θ, which stands for both components.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ferroket.natural_gradient.pairs import PairDerivatives
from ferroket.natural_gradient.structure import Network, Product
from ferroket.network import LaneFunction, UnreadableError, read_function
from ferroket.reasons import Reason, ReasonKind

MEMORY = 1 << 28
"""How many bytes the activations of the samples that are differentiated at once may take, and the rows of one
parameter, where nobody asks for something else."""


@partial(jax.tree_util.register_dataclass, data_fields=["x", "delta"], meta_fields=["product", "bias"])
@dataclass(frozen=True)
class Factors:
    """Rows that are sums of outer products: ``G = Σ_p x_p ⊗ δ_p``."""

    x: jax.Array
    """``(Ns, B, P, I)``."""
    delta: jax.Array
    """``(Ns, C, B, P, O)``."""
    product: Product
    """How ``(B, I, O)`` and the parameter belong together."""
    bias: Product | None = None
    """The parameter that the last row of I belongs to, whose x is 1."""

    def split(self, total: jax.Array) -> list[tuple[Product, jax.Array]]:
        """What of ``(B, I, O)`` belongs to which parameter."""
        if self.bias is None:
            return [(self.product, total)]
        return [(self.product, total[..., :-1, :]), (self.bias, total[..., -1:, :])]

    def join(self, vector: Sequence[jax.Array]) -> jax.Array:
        """Parameters as ``(B, I, O)``."""
        parts = [product.view(vector[product.leaf]) for product in (self.product, self.bias) if product is not None]
        joined = jnp.concatenate(parts, axis=1)
        is_real = not (jnp.iscomplexobj(self.x) or jnp.iscomplexobj(self.delta))
        return joined.real if is_real else joined  # a real parameter may be cast to complex numbers

    @property
    def n_elements(self) -> int:
        """Of a row."""
        return self.x.shape[1] * self.x.shape[3] * self.delta.shape[4]

    @property
    def prefer_rows(self) -> bool:
        """Whether rows take less memory, as with many positions: then a Gram matrix of them takes less time, too."""
        n_components, _, n_positions, n_out = self.delta.shape[1:]
        n_in = self.x.shape[3]
        return n_positions > 1 and n_components * n_in * n_out < n_positions * (n_in + n_components * n_out)

    def rows(self, outputs: slice = slice(None)) -> jax.Array:
        """``(Ns, C, B, I, O)``, of all outputs or of some."""
        rows = _contract("sbpi,scbpo->scbio", self.x, self.delta[..., outputs])
        mask = self.product.mask
        return rows if mask is None else rows * mask.array[:, outputs].astype(rows.real.dtype)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["factors", "pairs", "rows"],
    meta_fields=["network", "is_holomorphic"],
)
@dataclass(frozen=True)
class LogDerivatives:
    """The rows of all parameters. Each is in one of the dictionaries, by its place among the leaves."""

    factors: dict[int, Factors]
    pairs: dict[int, PairDerivatives]
    rows: dict[int, jax.Array]
    """``(Ns, C, *parameter)``."""
    network: Network = field(repr=False)
    is_holomorphic: bool

    @property
    def n_samples(self) -> int:
        """How many samples there are."""
        return len(jax.tree.leaves((self.factors, self.pairs, self.rows))[0])

    @property
    def n_components(self) -> int:
        """How many rows each sample has."""
        for factors in self.factors.values():
            return factors.delta.shape[1]
        some, *_ = jax.tree.leaves((self.rows, [pairs.delta for pairs in self.pairs.values()]))
        return int(some.shape[1])

    def dot(self, vector: Sequence[jax.Array]) -> jax.Array:
        """O·v: the change of each component along a vector of parameters, ``(Ns, C)``."""
        terms = []
        for leaf, rows in self.rows.items():
            terms.append(self._component(jnp.tensordot(rows, vector[leaf], vector[leaf].ndim)))
        for leaf, pairs in self.pairs.items():
            terms.append(self._component(pairs.dot(vector[leaf])))
        for factors in self.factors.values():
            y = _contract("sbpi,bio->sbpo", factors.x, factors.join(vector))
            terms.append(self._component(jnp.einsum("sbpo,scbpo->sc", y, factors.delta)))
        return sum(terms[1:], start=terms[0])

    def adjoint_dot(self, weights: jax.Array) -> list[jax.Array]:
        """Oᵀ·w for real weights ``(Ns, C)`` of the components, or O†·w for complex ones of a holomorphic ln ψ."""
        results = {}
        w = weights.conj()
        for leaf, rows in self.rows.items():
            results[leaf] = jnp.tensordot(w, rows, ((0, 1), (0, 1)))
        for leaf, pairs in self.pairs.items():
            results[leaf] = pairs.weighted_sum(w)
        for factors in self.factors.values():
            weighted = (factors.delta * w[:, :, None, None, None]).sum(axis=1)
            x, weighted = (jnp.moveaxis(side, 1, 0) for side in (factors.x, weighted))
            total = _contract("bni,bno->bio", *(side.reshape(len(side), -1, side.shape[-1]) for side in (x, weighted)))
            for product, part in factors.split(total):
                results[product.leaf] = _to_parameter(product, self.network.leaves[product.leaf], part)
        return [_like(results[place].conj(), leaf) for place, leaf in enumerate(self.network.leaves)]

    def dense(self) -> list[jax.Array]:
        """The rows of each parameter, ``(Ns, C, *parameter)``."""
        rows = {**self.rows, **{leaf: pairs.rows() for leaf, pairs in self.pairs.items()}}
        for factors in self.factors.values():
            rows.update(_rows_of_parameters(factors, self.network))
        return [rows[place].astype(leaf.dtype) for place, leaf in enumerate(self.network.leaves)]

    def part(self, first: Any, count: int) -> "LogDerivatives":
        """Those of so many samples from one on."""
        cut: LogDerivatives = jax.tree.map(lambda array: jax.lax.dynamic_slice_in_dim(array, first, count), self)
        return cut

    def _component(self, values: jax.Array) -> jax.Array:
        return values if self.is_holomorphic else values.real


def _contract(subscripts: str, a: jax.Array, b: jax.Array) -> jax.Array:
    """A sum of products as :func:`jax.numpy.einsum` names it, in the form that XLA has the fastest product for.

    A real ``a`` isn't multiplied as a complex array, and one part is no axis ``b``.
    """
    first, second, result = re.split(",|->", subscripts)
    if a.shape[first.index("b")] == 1:
        alone = _contract_of_part(
            subscripts.replace("b", ""), a.squeeze(first.index("b")), b.squeeze(second.index("b"))
        )
        return jnp.expand_dims(alone, result.index("b"))
    return _contract_of_part(subscripts, a, b)


def _contract_of_part(subscripts: str, a: jax.Array, b: jax.Array) -> jax.Array:
    contract = partial(jnp.einsum, subscripts, a)
    if jnp.iscomplexobj(b) and not jnp.iscomplexobj(a):
        return jax.lax.complex(contract(b.real), contract(b.imag))
    return contract(b)


def _like(array: jax.Array, leaf: jax.ShapeDtypeStruct) -> jax.Array:
    return (array if is_complex(leaf) else array.real).astype(leaf.dtype)


def _to_parameter(product: Product, leaf: jax.ShapeDtypeStruct, total: jax.Array) -> jax.Array:
    """From ``(B, I, O)`` to the shape of the parameter."""
    shape = jax.eval_shape(product.view, leaf)
    (result,) = jax.linear_transpose(product.view, leaf)(total.astype(shape.dtype))
    return result


# How they are made


def components(network: Network, mode: str) -> tuple[int, bool]:
    """How many rows a sample has, and whether one complex row stands for both components."""
    if mode == "real" or network.is_real:
        return 1, False
    return (1, True) if network.is_holomorphic else (2, False)


def log_derivatives(
    network: Network, mode: str, chunk_size: int | None, leaves: Sequence[jax.Array], state: Any, samples: jax.Array
) -> LogDerivatives:
    """Differentiates a network for each sample.

    Args:
        network: Of :func:`ferroket.natural_gradient.structure.read`.
        mode: ``real`` for the real part of ln ψ, ``complex`` for both.
        chunk_size: How many samples are differentiated at once.
        leaves: The parameters.
        state: Other collections of variables.
        samples: ``(Ns, N)``.
    """
    found = in_lanes(network, mode)
    if isinstance(found, Reason):
        return by_xla(network, mode, chunk_size, leaves, state, samples)

    def on_cpu(leaves: Sequence[jax.Array], state: Any, samples: jax.Array) -> Any:
        return jax.tree.map(lambda array: array.squeeze(1), found((leaves, jax.tree.leaves(state)), samples))

    elsewhere = partial(by_xla, network, mode, chunk_size)
    rows: LogDerivatives = jax.lax.platform_dependent(leaves, state, samples, cpu=on_cpu, default=elsewhere)
    return rows


def in_lanes(network: Network, mode: str) -> LaneFunction | Reason:
    """The program by which the kernels differentiate a network; or else why XLA does."""
    if (platform := jax.default_backend()) != "cpu":
        return Reason(f"JAX runs on {platform}", ReasonKind.PLATFORM)

    def of_one(variables: tuple[Sequence[jax.Array], Sequence[jax.Array]], x: jax.Array) -> LogDerivatives:
        return by_xla(network, mode, None, *variables, x[None])

    if mode not in network.lanes:
        *state, x = (jax.ShapeDtypeStruct(v.shape, v.dtype) for v in network.jaxpr.in_avals[len(network.leaves) :])
        try:
            read = read_function(of_one, (network.leaves, state), x, jnp.finfo(network.dtype).dtype)
            network.lanes[mode] = read
        except UnreadableError as error:
            network.lanes[mode] = error.reason
    return network.lanes[mode]


def by_xla(
    network: Network, mode: str, chunk_size: int | None, leaves: Sequence[jax.Array], state: Any, samples: jax.Array
) -> LogDerivatives:
    """What :func:`log_derivatives` gives, by JAX's own derivatives."""
    n_components, is_holomorphic = components(network, mode)
    products = network.products
    direct = sorted(network.direct)
    taps = [jnp.zeros((*product.lengths, *product.y.shape), product.y.dtype) for product in products]

    def one(x: jax.Array) -> Any:
        def function(taps: Sequence[jax.Array], direct_leaves: Sequence[jax.Array]) -> Any:
            args = list(leaves)
            for place, leaf in zip(direct, direct_leaves, strict=True):
                args[place] = leaf
            log_psi, operands = network(taps, args, state, x)
            return (log_psi.real if mode == "real" or network.is_real else log_psi), operands

        log_psi, pullback, operands = jax.vjp(function, taps, [leaves[place] for place in direct], has_aux=True)
        cotangents = [jax.lax.full_like(log_psi, 1)]
        if n_components > 1:
            cotangents.append(jax.lax.full_like(log_psi, -1j if jnp.iscomplexobj(log_psi) else 0))
        # One after the other: of convolutions in groups JAX has no derivative in vmap of vmap.
        deltas, rows = jax.tree.map(lambda *each: jnp.stack(each), *(pullback(one) for one in cotangents))
        return operands, deltas, rows

    batch = samples_at_once(network, len(samples), chunk_size)
    if len(samples) == 1:
        operands, deltas, rows = jax.tree.map(lambda array: array[None], one(samples[0]))
    elif batch == len(samples):
        operands, deltas, rows = jax.vmap(one)(samples)
    else:
        operands, deltas, rows = jax.lax.map(one, samples, batch_size=batch)
    found: list[Factors] = []
    pairs: dict[int, list[PairDerivatives]] = {}
    for product, x, delta in zip(products, operands, deltas, strict=True):
        if product.is_of_pairs:
            of_sum = delta.reshape(len(samples), n_components)
            if not is_complex(network.leaves[product.leaf]) or (network.is_sum_over_pairs and n_components == 1):
                of_sum = of_sum.real  # with which the matrix is real, too
            numbers = x.reshape(len(samples), -1).astype(of_sum.real.dtype)
            pairs.setdefault(product.leaf, []).append(PairDerivatives(numbers, of_sum))
            continue
        grouped = product.group(x, 1)
        if not grouped.size or not delta.size:  # of no positions: ln ψ doesn't depend on it
            continue
        if not jnp.issubdtype(grouped.dtype, jnp.inexact):  # samples as they are, whose products would overflow
            grouped = grouped.astype(delta.real.dtype)
        if product.bias is not None:
            grouped = jnp.concatenate([grouped, jnp.ones_like(grouped[..., :1])], axis=-1)
        found.append(Factors(grouped, product.taps_of(delta, 2), product, product.bias))
    shape = len(samples), n_components
    return _collect(network, is_holomorphic, found, pairs, dict(zip(direct, rows, strict=True)), shape)


def samples_at_once(network: Network, n_samples: int, chunk_size: int | None) -> int:
    """How many samples a device differentiates at once.

    Where nobody says it, as many as have the values inside of the network, and as much again for their derivatives, in
    :data:`MEMORY`.
    """
    outputs = (v.aval for eqn in network.jaxpr.jaxpr.eqns for v in eqn.outvars)
    sizes = (math.prod(aval.shape) * aval.dtype.itemsize for aval in outputs if hasattr(aval, "shape"))
    direct = (math.prod(network.leaves[place].shape) * network.leaves[place].dtype.itemsize for place in network.direct)
    return min(n_samples, chunk_size or max(1, MEMORY // max(1, 2 * (sum(sizes) + sum(direct)))))


def _collect(
    network: Network,
    is_holomorphic: bool,
    found: Sequence[Factors],
    pairs: dict[int, list[PairDerivatives]],
    rows: dict[int, jax.Array],
    shape: tuple[int, int],
) -> LogDerivatives:
    """One entry for each parameter: products of one layout have their positions together, others are added as rows."""
    uses = uses_of(network)
    of_leaf: dict[int, list[Factors]] = {}
    for factors in found:
        for part in [factors] if joins_its_bias(network, uses, factors.product) else _apart(factors):
            leaf = part.product.leaf
            of_leaf.setdefault(leaf, []).append(part if is_complex(network.leaves[leaf]) else _of_real(part))
    kept: dict[int, Factors] = {}
    kept_pairs = {}
    for leaf, sums in pairs.items():
        if uses[leaf] == 1:
            kept_pairs[leaf] = sums[0]
            continue
        for one in sums:
            rows[leaf] = rows[leaf] + one.rows() if leaf in rows else one.rows()
    for leaf, parts in of_leaf.items():
        with_rows = parts
        if leaf not in rows and len({part.product.layout for part in parts}) == 1:
            x = jnp.concatenate([part.x for part in parts], axis=2)
            delta = jnp.concatenate([part.delta for part in parts], axis=3)
            joined = Factors(x, delta, parts[0].product, parts[0].bias)
            if not joined.prefer_rows:
                kept[leaf] = joined
                continue
            with_rows = [joined]
        for part in with_rows:
            for place, more in _rows_of_parameters(part, network):
                rows[place] = rows[place] + more if place in rows else more
    known = {*rows, *kept_pairs, *(leaf for factors in kept.values() for leaf in leaves_of(factors.product))}
    for place, leaf in enumerate(network.leaves):
        if place not in known:  # ln ψ doesn't depend on it
            rows[place] = jnp.zeros((*shape, *leaf.shape), leaf.dtype)
    return LogDerivatives(kept, kept_pairs, rows, network, is_holomorphic)


def _rows_of_parameters(factors: Factors, network: Network) -> Iterator[tuple[int, jax.Array]]:
    """The rows of each parameter that some factors belong to, ``(Ns, C, *parameter)``."""
    for product, part in factors.split(factors.rows()):
        yield product.leaf, jax.vmap(jax.vmap(partial(_to_parameter, product, network.leaves[product.leaf])))(part)


def uses_of(network: Network) -> Counter[int]:
    """In how many places each parameter is used; all that is done to one beside its products is one place."""
    return Counter([leaf for product in network.products for leaf in leaves_of(product)] + list(network.direct))


def joins_its_bias(network: Network, uses: Counter[int], product: Product) -> bool:
    """Whether the bias of a product, if it has one, is one more row of its kernel.

    Not if one of them is used elsewhere, too, nor if one is real and the other complex: their rows are of two kinds.
    """
    leaves = leaves_of(product)
    kinds = {is_complex(network.leaves[leaf]) for leaf in leaves}
    return all(uses[leaf] == 1 for leaf in leaves) and len(kinds) == 1


def is_complex(leaf: jax.ShapeDtypeStruct) -> bool:
    """Whether a parameter is."""
    return bool(jnp.issubdtype(leaf.dtype, jnp.complexfloating))


def leaves_of(product: Product) -> list[int]:
    """The parameter of a product, and its bias."""
    return [product.leaf] if product.bias is None else [product.leaf, product.bias.leaf]


def _apart(factors: Factors) -> list[Factors]:
    """A product and its bias, each with factors of its own."""
    if factors.bias is None:
        return [factors]
    return [
        Factors(factors.x[..., :-1], factors.delta, replace(factors.product, bias=None)),
        Factors(factors.x[..., -1:], factors.delta, factors.bias),
    ]


def _of_real(factors: Factors) -> Factors:
    """Factors of a real parameter in a complex product, as real ones: Re(x δ) = Re x Re δ − Im x Im δ."""
    x, delta = factors.x, factors.delta
    if jnp.iscomplexobj(x) and jnp.iscomplexobj(delta):
        x = jnp.concatenate([x.real, -x.imag], axis=2)
        delta = jnp.concatenate([delta.real, delta.imag], axis=3)
    return Factors(x.real, delta.real, factors.product, factors.bias)
