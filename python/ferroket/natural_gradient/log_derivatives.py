"""The log-derivatives O of a network for many samples, as factors: their products with vectors, rows, Gram matrix.

For a parameter θ and a component f of ln ψ (its real part, and in complex mode its imaginary part as well), a *row* is
what :func:`jax.vjp` gives for one sample: G with df = Re(G·dθ). So for a real parameter G is ∂f/∂θ, and for a complex
one ∂f/∂Re θ − i ∂f/∂Im θ. A holomorphic ln ψ has one complex row, G = ∂ ln ψ/∂θ, which stands for both components.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ferroket._compat.sharding import shape_of, varying_as
from ferroket.natural_gradient.pairs import Pairs
from ferroket.natural_gradient.structure import Network, Product

MEMORY = 1 << 28
"""How many bytes the activations of the samples that are differentiated at once may take, and the rows of one
parameter, where nobody asks for something else."""

_UNROLLED = 4
"""How many pairs of positions are written one after the other. More are a loop."""

_TILE = 1 << 19
"""How many elements of the Gram matrix are computed at once: some megabytes, which stay in a processor's cache."""


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

    def rows(self) -> jax.Array:
        """``(Ns, C, B, I, O)``."""
        return jnp.einsum("sbpi,scbpo->scbio", self.x, self.delta)


@partial(
    jax.tree_util.register_dataclass,
    data_fields=["factors", "pairs", "rows"],
    meta_fields=["network", "is_holomorphic"],
)
@dataclass(frozen=True)
class LogDerivatives:
    """The rows of all parameters. Each is in one of the dictionaries, by its place among the leaves."""

    factors: dict[int, Factors]
    pairs: dict[int, Pairs]
    rows: dict[int, jax.Array]
    """``(Ns, C, *parameter)``."""
    network: Network = field(repr=False)
    is_holomorphic: bool

    def dot(self, vector: Sequence[jax.Array]) -> jax.Array:
        """O·v: the change of each component along a vector of parameters, ``(Ns, C)``."""
        terms = []
        for leaf, rows in self.rows.items():
            terms.append(self._part(jnp.tensordot(rows, vector[leaf], vector[leaf].ndim)))
        for leaf, pairs in self.pairs.items():
            terms.append(self._part(pairs.dot(vector[leaf])))
        for factors in self.factors.values():
            y = jnp.einsum("sbpi,bio->sbpo", factors.x, factors.join(vector))
            terms.append(self._part(jnp.einsum("sbpo,scbpo->sc", y, factors.delta)))
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
            total = jnp.einsum("sbpi,scbpo->bio", factors.x, factors.delta * w[:, :, None, None, None])
            for product, part in factors.split(total):
                results[product.leaf] = _to_parameter(product, self.network.leaves[product.leaf], part)
        return [_like(results[place].conj(), leaf) for place, leaf in enumerate(self.network.leaves)]

    def dense(self) -> list[jax.Array]:
        """The rows of each parameter, ``(Ns, C, *parameter)``."""
        rows = {**self.rows, **{leaf: pairs.rows() for leaf, pairs in self.pairs.items()}}
        for factors in self.factors.values():
            for product, part in factors.split(factors.rows()):
                back = partial(_to_parameter, product, self.network.leaves[product.leaf])
                rows[product.leaf] = jax.vmap(jax.vmap(back))(part)
        return [rows[place].astype(leaf.dtype) for place, leaf in enumerate(self.network.leaves)]

    def _part(self, values: jax.Array) -> jax.Array:
        return values if self.is_holomorphic else values.real


def _like(array: jax.Array, leaf: jax.ShapeDtypeStruct) -> jax.Array:
    return (array if _is_complex(leaf) else array.real).astype(leaf.dtype)


def _to_parameter(product: Product, leaf: jax.ShapeDtypeStruct, total: jax.Array) -> jax.Array:
    """From ``(B, I, O)`` to the shape of the parameter."""
    leaf = shape_of(leaf, total)
    shape = jax.eval_shape(product.view, leaf)
    (result,) = jax.linear_transpose(product.view, leaf)(total.astype(shape.dtype))
    return result


# How they are made


def components(network: Network, mode: str) -> tuple[int, bool]:
    """How many rows a sample has, and whether one complex row stands for both components."""
    if mode == "real":
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
    n_components, is_holomorphic = components(network, mode)
    if network.is_quadratic and n_components == 1:
        x = samples.astype(jnp.finfo(network.leaves[0].dtype).dtype)
        return LogDerivatives({}, {0: Pairs(x)}, {}, network, is_holomorphic)
    products = network.products
    direct = sorted(network.direct)
    zeros = [jnp.zeros((*product.lengths, *product.y.shape), product.y.dtype) for product in products]
    taps = varying_as(zeros, samples)

    def one(x: jax.Array) -> Any:
        def function(taps: Sequence[jax.Array], direct_leaves: Sequence[jax.Array]) -> Any:
            args = list(leaves)
            for place, leaf in zip(direct, direct_leaves, strict=True):
                args[place] = leaf
            log_psi, operands = network(taps, args, state, x)
            return (log_psi.real if mode == "real" else log_psi), operands

        log_psi, pullback, operands = jax.vjp(function, taps, [leaves[place] for place in direct], has_aux=True)
        cotangents = [jax.lax.full_like(log_psi, 1)]
        if n_components > 1:
            cotangents.append(jax.lax.full_like(log_psi, -1j if jnp.iscomplexobj(log_psi) else 0))
        # One after the other: of convolutions in groups JAX has no derivative in vmap of vmap.
        deltas, rows = jax.tree.map(lambda *each: jnp.stack(each), *(pullback(one) for one in cotangents))
        return operands, deltas, rows

    batch = min(len(samples), chunk_size or max(1, MEMORY // bytes_of_a_sample(network)))
    if batch == len(samples):
        operands, deltas, rows = jax.vmap(one)(samples)
    else:
        operands, deltas, rows = jax.lax.map(one, samples, batch_size=batch)
    found = []
    for product, x, delta in zip(products, operands, deltas, strict=True):
        grouped = product.group(x, 1)
        if not jnp.issubdtype(grouped.dtype, jnp.inexact):  # samples as they are, whose products would overflow
            grouped = grouped.astype(delta.real.dtype)
        if product.bias is not None:
            grouped = jnp.concatenate([grouped, jnp.ones_like(grouped[..., :1])], axis=-1)
        found.append(Factors(grouped, product.taps_of(delta, 2), product, product.bias))
    shape = len(samples), n_components
    return _collect(network, is_holomorphic, found, dict(zip(direct, rows, strict=True)), shape)


def bytes_of_a_sample(network: Network) -> int:
    """What the values inside of the network take for one sample, and as much again for their derivatives."""
    outputs = (v.aval for eqn in network.jaxpr.jaxpr.eqns for v in eqn.outvars)
    sizes = (math.prod(aval.shape) * aval.dtype.itemsize for aval in outputs if hasattr(aval, "shape"))
    direct = (math.prod(network.leaves[place].shape) * network.leaves[place].dtype.itemsize for place in network.direct)
    return max(1, 2 * (sum(sizes) + sum(direct)))


def _collect(
    network: Network,
    is_holomorphic: bool,
    found: Sequence[Factors],
    rows: dict[int, jax.Array],
    shape: tuple[int, int],
) -> LogDerivatives:
    """One entry for each parameter: products of one layout have their positions together, others are added as rows."""
    uses = uses_of(network)
    of_leaf: dict[int, list[Factors]] = {}
    for factors in found:
        for part in [factors] if joins_its_bias(network, uses, factors.product) else _apart(factors):
            leaf = part.product.leaf
            of_leaf.setdefault(leaf, []).append(part if _is_complex(network.leaves[leaf]) else _of_real(part))
    kept = {}
    for leaf, parts in of_leaf.items():
        if leaf not in rows and len({part.product.layout for part in parts}) == 1:
            x = jnp.concatenate([part.x for part in parts], axis=2)
            delta = jnp.concatenate([part.delta for part in parts], axis=3)
            kept[leaf] = Factors(x, delta, parts[0].product, parts[0].bias)
            continue
        for part in parts:
            back = jax.vmap(jax.vmap(partial(_to_parameter, part.product, network.leaves[leaf])))
            more = back(part.rows())
            rows[leaf] = rows[leaf] + more if leaf in rows else more
    known = {*rows, *(leaf for factors in kept.values() for leaf in _leaves_of(factors.product))}
    for place, leaf in enumerate(network.leaves):
        if place not in known:  # ln ψ doesn't depend on it
            rows[place] = jnp.zeros((*shape, *leaf.shape), leaf.dtype)
    return LogDerivatives(kept, {}, rows, network, is_holomorphic)


def uses_of(network: Network) -> Counter[int]:
    """In how many places each parameter is used; all that is done to one beside its products is one place."""
    return Counter([leaf for product in network.products for leaf in _leaves_of(product)] + list(network.direct))


def joins_its_bias(network: Network, uses: Counter[int], product: Product) -> bool:
    """Whether the bias of a product, if it has one, is one more row of its kernel.

    Not if one of them is used elsewhere, too, nor if one is real and the other complex: their rows are of two kinds.
    """
    leaves = _leaves_of(product)
    kinds = {_is_complex(network.leaves[leaf]) for leaf in leaves}
    return all(uses[leaf] == 1 for leaf in leaves) and len(kinds) == 1


def _is_complex(leaf: jax.ShapeDtypeStruct) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jnp.complexfloating))


def _leaves_of(product: Product) -> list[int]:
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


# The Gram matrix


def gram(rows: LogDerivatives, columns: LogDerivatives) -> jax.Array:
    """Products of the rows of some samples with those of others, each without a mean over the latter.

    A vector that is subtracted from all rows changes the Gram matrix, but not what is left of it when its own means
    are subtracted; so where it is cheap, or precision needs it, means of rows are subtracted before.

    Returns:
        ``(Ns, C, Ns', C)``: Re(G·G'*), or G·G'* for a holomorphic ln ψ.
    """
    total = None
    for leaf in columns.pairs:
        term = rows.pairs[leaf].gram(columns.pairs[leaf])
        total = term if total is None else total + term
    for leaf in columns.factors:
        term = _gram_of_factors(rows.factors[leaf], columns.factors[leaf], columns.is_holomorphic)
        total = term if total is None else total + term
        # One parameter after the other, so that no two need their memory at once.
        total, rows, columns = jax.lax.optimization_barrier((total, rows, columns))
    if columns.rows:
        flat = [
            _gram_of_rows(a, b, columns.is_holomorphic) for a, b in _small_rows(list(rows.rows.items()), columns.rows)
        ]
        for term in flat:
            total = term if total is None else total + term
    assert total is not None
    return total


def _small_rows(rows: list[tuple[int, jax.Array]], columns: dict[int, jax.Array]) -> Any:
    """Rows of all parameters that have no factors, put together by their types."""
    by_type: dict[Any, list[int]] = {}
    for leaf, array in rows:
        by_type.setdefault(array.dtype, []).append(leaf)
    of = dict(rows)
    for leaves in by_type.values():
        yield tuple(
            jnp.concatenate([side[leaf].reshape(*side[leaf].shape[:2], -1) for leaf in leaves], axis=-1)
            for side in (of, columns)
        )


def _gram_of_rows(rows: jax.Array, columns: jax.Array, is_holomorphic: bool) -> jax.Array:
    """Of ``(Ns, C, n)`` and ``(Ns', C, n)``."""
    mean = columns.mean(axis=0)
    flat = [jax.lax.collapse(array - mean, 0, 2) for array in (rows, columns)]
    shape = (*rows.shape[:2], *columns.shape[:2])
    real, imag = _products(*flat) if is_holomorphic else (_real_products(*flat), None)
    return (real if imag is None else jax.lax.complex(real, imag)).reshape(shape)


def _real_products(a: jax.Array, b: jax.Array) -> jax.Array:
    """The real part of ``a b†``."""
    if not jnp.iscomplexobj(a):
        return a @ b.T
    return jnp.concatenate([a.real, a.imag], axis=1) @ jnp.concatenate([b.real, b.imag], axis=1).T


@dataclass(frozen=True)
class Cost:
    """What the Gram matrix of one parameter costs for a sample: multiplications with additions."""

    by_factors: int
    """B·P²·(I + C²·(O + 2)) for each other sample."""
    by_rows: int
    """C²·B·I·O for each other sample, and P·C·B·I·O to write the row down."""

    @property
    def prefers_rows(self) -> bool:
        """Whether rows that are written down take clearly fewer operations than their factors."""
        return 1.25 * self.by_rows < self.by_factors


def cost_of(n_samples: int, n_components: int, parts: int, positions: int, n_in: int, n_out: int) -> Cost:
    """What the factors of one parameter cost, for ``x (B, P, I)`` and ``δ (C, B, P, O)``."""
    by_factors = n_samples * parts * positions**2 * (n_in + n_components**2 * (n_out + 2))
    by_rows = (n_samples * n_components + positions) * n_components * parts * n_in * n_out
    return Cost(by_factors, by_rows)


def _gram_of_factors(rows: Factors, columns: Factors, is_holomorphic: bool) -> jax.Array:
    n_samples = len(columns.x)
    n_components, n_parts, n_positions, n_out = columns.delta.shape[1:]
    if cost_of(n_samples, n_components, n_parts, n_positions, columns.x.shape[-1], n_out).prefers_rows:
        n_bytes = n_samples * columns.delta.shape[1] * columns.n_elements * columns.delta.dtype.itemsize
        n_blocks = min(-(-n_bytes // MEMORY), columns.delta.shape[4])
        blocks = zip(_blocks(rows, n_blocks), _blocks(columns, n_blocks), strict=True)
        terms = (_gram_of_rows(_flat(a.rows()), _flat(b.rows()), is_holomorphic) for a, b in blocks)
        return sum(terms, start=jnp.zeros((), columns.delta.real.dtype))
    if jnp.finfo(columns.delta.dtype).bits < 64:  # noqa: PLR2004
        mean = columns.x.mean(axis=0), columns.delta.mean(axis=0)
        rows, columns = _without_mean(rows, *mean), _without_mean(columns, *mean)
    n_rows = len(rows.x)
    batch = max(1, _TILE // n_samples)
    of_block = partial(_gram_of_block, columns=columns, is_holomorphic=is_holomorphic)
    if batch >= n_rows:
        return of_block(rows.x, rows.delta)
    n_blocks, rest = divmod(n_rows, batch)
    head = n_rows - rest
    tiles = [array[:head].reshape(n_blocks, batch, *array.shape[1:]) for array in (rows.x, rows.delta)]
    done = jax.lax.map(lambda tile: of_block(*tile), tiles)
    done = done.reshape(head, *done.shape[2:])
    return done if rest == 0 else jnp.concatenate([done, of_block(rows.x[head:], rows.delta[head:])])


def _gram_of_block(x: jax.Array, delta: jax.Array, columns: Factors, is_holomorphic: bool) -> jax.Array:
    """The products of some samples' rows with those of others: ``(Ns, C, Ns', C)``."""
    n_parts, n_positions = x.shape[1:3]
    shape = (*delta.shape[:2], *columns.delta.shape[:2])

    def of_pair(part: Any, first: Any, second: Any) -> jax.Array:
        of_x = _products(x[:, part, first], columns.x[:, part, second])
        of_delta = _products(
            delta[:, :, part, first].reshape(-1, delta.shape[-1]),
            columns.delta[:, :, part, second].reshape(-1, delta.shape[-1]),
        )
        real_x, imag_x = (None if a is None else a[:, None, :, None] for a in of_x)
        real_delta, imag_delta = (None if a is None else a.reshape(shape) for a in of_delta)
        assert real_x is not None
        assert real_delta is not None
        real = real_x * real_delta
        if imag_x is not None and imag_delta is not None:
            real -= imag_x * imag_delta
        if not is_holomorphic:
            return real
        imag = jnp.zeros_like(real)
        if imag_delta is not None:
            imag += real_x * imag_delta
        if imag_x is not None:
            imag += imag_x * real_delta
        return jax.lax.complex(real, imag)

    pairs = [(b, p, q) for b in range(n_parts) for p in range(n_positions) for q in range(n_positions)]
    if len(pairs) <= _UNROLLED:
        return sum((of_pair(*pair) for pair in pairs[1:]), start=of_pair(*pairs[0]))

    def add(total: jax.Array, pair: jax.Array) -> tuple[jax.Array, None]:
        return total + of_pair(*pair), None

    dtype = jnp.result_type(delta, columns.delta) if is_holomorphic else delta.real.dtype
    return jax.lax.scan(add, jnp.zeros(shape, dtype), jnp.asarray(pairs))[0]


def _products(a: jax.Array, b: jax.Array) -> tuple[jax.Array, jax.Array | None]:
    """The real and the imaginary part of ``a b†``, by products of real matrices, which CPUs have the fastest."""
    if not jnp.iscomplexobj(a) and not jnp.iscomplexobj(b):
        return a @ b.T, None
    if not jnp.iscomplexobj(b):
        return a.real @ b.T, a.imag @ b.T
    other = jnp.concatenate([b.real, b.imag], axis=1).T
    if not jnp.iscomplexobj(a):
        return a @ b.real.T, -(a @ b.imag.T)
    real = jnp.concatenate([a.real, a.imag], axis=1)
    imag = jnp.concatenate([a.imag, -a.real], axis=1)
    return real @ other, imag @ other


def _blocks(factors: Factors, n_blocks: int) -> list[Factors]:
    return [
        Factors(factors.x, delta, factors.product, factors.bias)
        for delta in jnp.array_split(factors.delta, n_blocks, axis=4)
    ]


def _flat(rows: jax.Array) -> jax.Array:
    return rows.reshape(*rows.shape[:2], -1)


def _without_mean(factors: Factors, x_mean: jax.Array, delta_mean: jax.Array) -> Factors:
    """Outer products less that of the means, x ⊗ (δ − δ̄) + (x − x̄) ⊗ δ̄: what small numbers of 32 bits need."""
    delta = factors.delta - delta_mean
    x = jnp.concatenate([factors.x, factors.x - x_mean], axis=2)
    delta = jnp.concatenate([delta, jnp.broadcast_to(delta_mean, delta.shape)], axis=3)
    return Factors(x, delta, factors.product, factors.bias)
