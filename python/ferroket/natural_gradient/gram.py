"""The Gram matrix of the log-derivatives: of factors by the products of x and of δ, of rows as they are."""

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from ferroket import ffi
from ferroket._compat.sharding import device
from ferroket.natural_gradient import panels
from ferroket.natural_gradient.in_chunks import Derivatives, DerivativesInChunks
from ferroket.natural_gradient.log_derivatives import MEMORY, Factors, LogDerivatives
from ferroket.natural_gradient.pairs import PairDerivatives
from ferroket.natural_gradient.tiles import completed, hermitian, length_in_rust
from ferroket.reasons import Reason, ReasonKind

_UNROLLED = 4
"""How many pairs of positions are written one after the other. More are a loop."""

_Term = tuple[Callable[[Any, Any], jax.Array], Any, Any]
"""A part of the Gram matrix: a function of some rows and some columns, and all of both, pytrees of ``(Ns, ...)``."""


def gram(rows: Derivatives, columns: Derivatives) -> jax.Array:
    """Products of the rows of a device's samples with those of all, each without a mean over the latter.

    A vector that is subtracted from all rows changes the Gram matrix, but not what is left of it when its own means
    are subtracted; so where it is cheap, or precision needs it, means of rows are subtracted before.

    Args:
        rows: Of the n samples of a device, one of R. See :func:`~ferroket._compat.sharding.on_each_device`.
        columns: Of all R·n samples, those of the first device first.

    Returns:
        ``(n, C, R·n, C)``: Re(G·G'*), or G·G'* for a holomorphic ln ψ. Of derivatives in chunks it has 64 bits.
    """
    if isinstance(rows, DerivativesInChunks):
        assert isinstance(columns, DerivativesInChunks)
        return _in_chunks(rows, columns)
    assert isinstance(columns, LogDerivatives)
    if not (columns.factors or columns.rows):
        return _by_xla(rows, columns)
    result: jax.Array = jax.lax.platform_dependent(rows, columns, cpu=_in_rust, default=_by_xla)
    return result


def _in_chunks(rows: DerivativesInChunks, columns: DerivativesInChunks) -> jax.Array:
    """Chunk by chunk, of which each is a tile.

    Rows of another chunk have another mean, so none is subtracted; numbers of 64 bits are precise enough without.
    """

    def of_tile(some: jax.Array, others: jax.Array) -> jax.Array:
        a, b = (_of_64_bits(rows.of(samples)) for samples in (some, others))
        by_rows, by_factors = _by_form(b)
        terms = _of_pairs(a, b) + _terms_of_xla(a, b, by_factors, has_means=False)
        for leaf in by_rows:
            some_rows, other_rows = (_flat(side.factors[leaf].rows()) for side in (a, b))
            terms.append(_rows_term(some_rows, other_rows, b.is_holomorphic, has_means=False))
        parts = [function(x, y) for function, x, y in terms]
        return sum(parts[1:], start=parts[0])

    return hermitian(of_tile, rows.samples, columns.samples, rows.chunk_size)


def _of_64_bits(rows: LogDerivatives) -> LogDerivatives:
    def cast(array: jax.Array) -> jax.Array:
        return array.astype(jnp.complex128 if jnp.iscomplexobj(array) else jnp.float64)

    cast_rows: LogDerivatives = jax.tree.map(cast, rows)
    return cast_rows


def _by_xla(rows: LogDerivatives, columns: LogDerivatives) -> jax.Array:
    is_holomorphic = columns.is_holomorphic
    by_rows, by_factors = _by_form(columns)
    terms = _of_pairs(rows, columns)
    terms += _terms_of_xla(rows, columns, by_factors)
    total = _sum(terms) if terms else None
    total = _plus_rows(
        total, rows, columns, by_rows, lambda some, others: _sum([_rows_term(some, others, is_holomorphic)])
    )
    return total.astype(dtype_of(columns))


def _terms_of_xla(
    rows: LogDerivatives, columns: LogDerivatives, leaves: list[int], has_means: bool = True
) -> list[_Term]:
    """The factors of some parameters, and all rows; ``has_means`` is whether their means may be subtracted."""
    is_holomorphic = columns.is_holomorphic
    terms: list[_Term] = []
    for leaf in leaves:
        both = rows.factors[leaf], columns.factors[leaf]
        both = _for_precision(*both) if has_means else both
        if both[0].product.mask is None:
            terms.append((partial(_factors_of_tile, is_holomorphic=is_holomorphic), *both))
        else:
            of_tile = partial(_nested_of_tile, is_holomorphic=is_holomorphic)
            terms += [(of_tile, *pair) for pair in _pairs_of_nested(*both)]
    return terms + [_rows_term(*both, is_holomorphic, has_means=has_means) for both in _joined(rows.rows, columns.rows)]


def _in_rust(rows: LogDerivatives, columns: LogDerivatives) -> jax.Array:
    """As :func:`_by_xla`; sums over pairs are left to XLA."""
    by_rows, by_factors = _by_form(columns)
    some, *_ = jax.tree.leaves((columns.factors, columns.rows))
    n_columns, n_rows = len(some), len(jax.tree.leaves((rows.factors, rows.rows))[0])
    n_devices = n_columns // n_rows
    n_components = columns.n_components
    shape, side = (n_rows, n_components, n_columns, n_components), length_in_rust(n_rows)
    place = device() if n_devices > 1 else 0

    def of(terms: list[tuple[str, Any]]) -> jax.Array:
        return ffi.gram_tiles(terms, place, shape, dtype_of(columns), side)

    terms = _terms(rows, columns, by_factors)
    total = of(terms) if terms else None
    total = _plus_rows(total, rows, columns, by_rows, lambda some, others: of([_rows_in_rust(some, others)]))
    total = completed(total, side) if n_devices > 1 else total
    pairs = _of_pairs(rows, columns)
    return total + _sum(pairs).astype(total.dtype) if pairs else total


def _terms(rows: LogDerivatives, columns: LogDerivatives, leaves: list[int]) -> list[tuple[str, Any]]:
    """What Rust sums up: the factors of some parameters, and all rows."""
    terms: list[tuple[str, Any]] = []
    for leaf in leaves:
        both = _for_precision(rows.factors[leaf], columns.factors[leaf])
        if both[0].product.mask is None:
            some, others = both
            terms.append(("factors", (some.x, others.x, some.delta, others.delta)))
        else:
            terms += [("nested", _interleaved(*pair)) for pair in _pairs_of_nested(*both)]
    return terms + [_rows_in_rust(*both) for both in _joined(rows.rows, columns.rows)]


def _rows_in_rust(some: jax.Array, others: jax.Array) -> tuple[str, Any]:
    return "rows", (some, others, others.mean(axis=0))


def reason_to_form(rows: LogDerivatives, n_samples: int) -> Reason | None:
    """Why the Gram matrix of so many samples is formed on CPUs, as the end of a sentence; None if it isn't.

    Args:
        rows: Of any of the samples, or their shapes.
        n_samples: How many there are in all.
    """
    if rows.pairs:
        return Reason("rows of pairs of sites are a part of it", ReasonKind.NO_FACTORS)
    by_rows = [factors for factors in rows.factors.values() if cost_of(factors, n_samples).prefers_rows]
    n_bytes = sum(n_samples * _bytes_of_rows(factors) // len(factors.x) for factors in by_rows)
    if n_bytes <= MEMORY:
        return None
    text = f"rows of factors would take {n_bytes / 2**20:.3g} MiB beside it, more than {MEMORY / 2**20:.3g}"
    return Reason(text, ReasonKind.MEMORY)


def solve_gram(rows: LogDerivatives, columns: LogDerivatives, right: jax.Array, shift: jax.Array) -> jax.Array:
    """Solves ``(P G P + shift) x = P right`` for the Gram matrix G of all samples on CPUs, which isn't formed.

    For those of which :func:`reason_to_form` knows no reason to form it.

    Args:
        rows: Of the n samples of a device, one of R. See :func:`~ferroket._compat.sharding.on_each_device`.
        columns: Of all R·n samples, those of the first device first.
        right: ``(R·n, C)``.
        shift: Real.

    Returns:
        ``(n, C)``, whose mean over all samples is zero; P subtracts it. NaN where G with the shift isn't positive
        definite.
    """
    by_rows, by_factors = _by_form(columns)
    terms = _terms(rows, columns, by_factors)
    for leaf in by_rows:
        terms.append(_rows_in_rust(*(_flat(side.factors[leaf].rows()) for side in (rows, columns))))
    right = right.astype(jnp.result_type(dtype_of(columns), right))
    n_devices = len(right) // rows.n_samples
    return ffi.solve_gram(terms, right, shift) if n_devices == 1 else panels.solve_gram(terms, right, shift, n_devices)


def dtype_of(columns: Derivatives) -> Any:
    """That of the matrix: complex for a holomorphic ln ψ."""
    found = columns.shapes if isinstance(columns, DerivativesInChunks) else columns
    dtype = jnp.result_type(*jax.tree.leaves((found.factors, found.rows, found.pairs)))
    real = jnp.finfo(dtype).dtype
    return jnp.result_type(real, jnp.complex64) if columns.is_holomorphic else real


def _by_form(columns: LogDerivatives) -> tuple[list[int], list[int]]:
    """The parameters with factors whose rows take fewer operations, and the others."""
    by_rows = {leaf: cost_of(factors, len(factors.x)).prefers_rows for leaf, factors in columns.factors.items()}
    return [leaf for leaf in by_rows if by_rows[leaf]], [leaf for leaf in by_rows if not by_rows[leaf]]


def _of_pairs(rows: LogDerivatives, columns: LogDerivatives) -> list[_Term]:
    of_tile = partial(PairDerivatives.gram, is_holomorphic=columns.is_holomorphic)
    return [(of_tile, rows.pairs[leaf], pairs) for leaf, pairs in columns.pairs.items()]


def _plus_rows(
    total: jax.Array | None,
    rows: LogDerivatives,
    columns: LogDerivatives,
    leaves: list[int],
    of_rows: Callable[[jax.Array, jax.Array], jax.Array],
) -> jax.Array:
    """A sum with the products of the rows that the factors of some parameters stand for."""
    for leaf in leaves:
        # One after the other, so that no two need their memory at once.
        total, rows, columns = jax.lax.optimization_barrier((total, rows, columns))
        for both in _blocks(rows.factors[leaf], columns.factors[leaf]):
            term = of_rows(*both)
            total = term if total is None else total + term
    assert total is not None
    return total


def _sum(terms: list[_Term]) -> jax.Array:
    functions, rows, columns = zip(*terms, strict=True)

    def of_tile(rows: Any, columns: Any) -> jax.Array:
        parts = [function(a, b) for function, a, b in zip(functions, rows, columns, strict=True)]
        return sum(parts[1:], start=parts[0])

    return hermitian(of_tile, rows, columns)


@dataclass(frozen=True)
class Cost:
    """What one parameter costs in half of the Gram matrix, for each sample: multiplications and additions."""

    by_factors: int
    """B·P²·(I + C²·(O + 2)) for each sample."""
    by_rows: int
    """C²·B·I·O for each sample, and 2·P·C·B·I·O to form the row."""

    @property
    def prefers_rows(self) -> bool:
        """Whether rows that are formed take clearly fewer operations than their factors."""
        return 1.25 * self.by_rows < self.by_factors


def cost_of(factors: Factors, n_samples: int) -> Cost:
    """What the factors of one parameter cost, those of some samples or their shapes, with so many samples in all."""
    _, n_components, parts, positions, n_out = factors.delta.shape
    return cost(n_samples, n_components, (parts, positions, factors.x.shape[-1], n_out))


def cost(n_samples: int, n_components: int, sizes: tuple[int, int, int, int]) -> Cost:
    """What a parameter costs by B, P, I and O."""
    parts, positions, n_in, n_out = sizes
    by_factors = n_samples * parts * positions**2 * (n_in + n_components**2 * (n_out + 2))
    by_rows = (n_samples * n_components + 2 * positions) * n_components * parts * n_in * n_out
    return Cost(by_factors, by_rows)


# Rows


_LONG = 256
"""Rows of more numbers aren't copied to be put together with others."""


def _joined(rows: dict[int, jax.Array], columns: dict[int, jax.Array]) -> Iterator[tuple[jax.Array, jax.Array]]:
    """Rows of all parameters that have no factors, short ones put together by their types."""
    joined: dict[Any, list[int]] = {}
    for leaf, array in rows.items():
        is_long = math.prod(array.shape[2:]) > _LONG
        joined.setdefault(leaf if is_long else array.dtype, []).append(leaf)
    for leaves in joined.values():
        some, others = (jnp.concatenate([_flat(side[leaf]) for leaf in leaves], axis=-1) for side in (rows, columns))
        yield some, others


def _flat(rows: jax.Array) -> jax.Array:
    return rows.reshape(*rows.shape[:2], -1)


def _rows_term(rows: jax.Array, columns: jax.Array, is_holomorphic: bool, has_means: bool = True) -> _Term:
    """Of ``(Ns, C, n)`` and ``(Ns', C, n)``, less the mean of the latter."""
    mean = columns.mean(axis=0) if has_means else jnp.zeros(columns.shape[1:], columns.dtype)

    def of_tile(rows: jax.Array, columns: jax.Array) -> jax.Array:
        a, b = (jax.lax.collapse(array - mean, 0, 2) for array in (rows, columns))
        real, imag = _products(a, b) if is_holomorphic else (_real_products(a, b), None)
        product = real if imag is None else jax.lax.complex(real, imag)
        return product.reshape(*rows.shape[:2], *columns.shape[:2])

    return of_tile, rows, columns


def _real_products(a: jax.Array, b: jax.Array) -> jax.Array:
    """The real part of ``a b†``."""
    if not jnp.iscomplexobj(a):
        return a @ b.T
    return jnp.concatenate([a.real, a.imag], axis=1) @ jnp.concatenate([b.real, b.imag], axis=1).T


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


# Factors


def _blocks(rows: Factors, columns: Factors) -> Iterator[tuple[jax.Array, jax.Array]]:
    """Rows that are formed, a part of their elements after the other."""
    n_outputs = columns.delta.shape[4]
    n_blocks = min(-(-_bytes_of_rows(columns) // MEMORY), n_outputs)
    ends = [n_outputs * block // n_blocks for block in range(n_blocks + 1)]
    for outputs in map(slice, ends, ends[1:]):
        yield _flat(rows.rows(outputs)), _flat(columns.rows(outputs))


def _bytes_of_rows(factors: Factors) -> int:
    return len(factors.x) * factors.delta.shape[1] * factors.n_elements * factors.delta.dtype.itemsize


def _for_precision(rows: Factors, columns: Factors) -> tuple[Factors, Factors]:
    """Factors of numbers of 32 bits without the means of the columns' rows."""
    if jnp.finfo(columns.delta.dtype).bits == 64:  # noqa: PLR2004
        return rows, columns
    mean = columns.x.mean(axis=0), columns.delta.mean(axis=0)
    return _without_mean(rows, *mean), _without_mean(columns, *mean)


def _without_mean(factors: Factors, x_mean: jax.Array, delta_mean: jax.Array) -> Factors:
    """Outer products less that of the means, x ⊗ (δ − δ̄) + (x − x̄) ⊗ δ̄."""
    delta = factors.delta - delta_mean
    x = jnp.concatenate([factors.x, factors.x - x_mean], axis=2)
    delta = jnp.concatenate([delta, jnp.broadcast_to(delta_mean, delta.shape)], axis=3)
    return Factors(x, delta, factors.product, factors.bias)


def _factors_of_tile(rows: Factors, columns: Factors, is_holomorphic: bool) -> jax.Array:
    """Sums over pairs of positions of (x·x')·(δ·δ'): ``(Ns, C, Ns', C)``."""
    n_parts, n_positions = columns.x.shape[1:3]

    def of_pair(part: Any, first: Any, second: Any) -> jax.Array:
        of_x = _products(rows.x[:, part, first], columns.x[:, part, second])
        of_delta = _of_components(rows.delta[:, :, part, first], columns.delta[:, :, part, second])
        return _multiplied(of_x, of_delta, is_holomorphic)

    pairs = [(b, p, q) for b in range(n_parts) for p in range(n_positions) for q in range(n_positions)]
    if len(pairs) <= _UNROLLED:
        return sum((of_pair(*pair) for pair in pairs[1:]), start=of_pair(*pairs[0]))

    def add(total: jax.Array, pair: jax.Array) -> tuple[jax.Array, None]:
        return total + of_pair(*pair), None

    start = _zeros_of_tile(rows.delta, columns.delta, is_holomorphic)
    return jax.lax.scan(add, start, jnp.asarray(pairs))[0]


def _zeros_of_tile(rows: jax.Array, columns: jax.Array, is_holomorphic: bool) -> jax.Array:
    """For the δ of both."""
    dtype = jnp.result_type(columns, jnp.complex64) if is_holomorphic else columns.real.dtype
    return jnp.zeros((*rows.shape[:2], *columns.shape[:2]), dtype)


_OfTile = tuple[jax.Array, jax.Array | None]
"""The real and the imaginary part of products of some rows with some columns."""


def _of_components(rows: jax.Array, columns: jax.Array) -> _OfTile:
    """Products of ``(n, C, O)`` and ``(n', C, O)``, as ``(n, C, n', C)``."""
    shape = (*rows.shape[:2], *columns.shape[:2])
    real, imag = _products(*(jax.lax.collapse(delta, 0, 2) for delta in (rows, columns)))
    return real.reshape(shape), None if imag is None else imag.reshape(shape)


def _multiplied(of_x: _OfTile, of_delta: _OfTile, is_holomorphic: bool) -> jax.Array:
    """Products of x ``(n, n')`` times those of δ ``(n, C, n', C)``."""
    real_delta, imag_delta = of_delta
    real_x, imag_x = (None if a is None else a[:, None, :, None] for a in of_x)
    assert real_x is not None
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


# Factors of masked kernels

_Side = tuple[jax.Array, jax.Array]
"""The x ``(n, D, I/D)`` and δ ``(n, C, D, O/D)`` of the parts of a nested mask."""


def _pairs_of_nested(rows: Factors, columns: Factors) -> Iterator[tuple[_Side, _Side]]:
    """Those of each pair of positions."""
    sides = [_sides_of_positions(factors) for factors in (rows, columns)]
    yield from itertools.product(*sides)


def _sides_of_positions(factors: Factors) -> list[_Side]:
    mask = factors.product.mask
    assert mask is not None
    x, delta = mask.parts_of_x(factors.x[:, 0]), mask.parts_of_delta(factors.delta[:, :, 0])
    return [(x[:, place], delta[:, :, place]) for place in range(x.shape[1])]


def _interleaved(rows: _Side, columns: _Side) -> tuple[jax.Array, ...]:
    return rows[0], columns[0], rows[1], columns[1]


def _nested_of_tile(rows: _Side, columns: _Side, is_holomorphic: bool) -> jax.Array:
    """The products of the parts' δ, times the sum of those of x up to this part: ``(n, C, n', C)``."""
    (x, delta), (other_x, other_delta) = rows, columns

    def add(sums: tuple[Any, jax.Array], part: Any) -> tuple[tuple[Any, jax.Array], None]:
        of_x, total = sums
        of_x = jax.tree.map(jnp.add, of_x, _products(x[:, part], other_x[:, part]))
        of_delta = _of_components(delta[:, :, part], other_delta[:, :, part])
        return (of_x, total + _multiplied(of_x, of_delta, is_holomorphic)), None

    zero = jax.tree.map(
        lambda part: jnp.zeros(part.shape, part.dtype),
        jax.eval_shape(lambda: _products(x[:, 0], other_x[:, 0])),
    )
    start = zero, _zeros_of_tile(delta, other_delta, is_holomorphic)
    return jax.lax.scan(add, start, jnp.arange(x.shape[1]))[0][1]
