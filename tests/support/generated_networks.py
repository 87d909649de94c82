"""Random networks for hypothesis: chains of operations that move, combine and transform the numbers of a configuration.

A network is a list of steps. Each step makes a new value ``(B, n)`` of one or two earlier ones, for a batch of B
configurations; what no later step takes is reduced to a number for each configuration, and ln ψ is the sum of these.
Comparisons, roundings and indices are made of *exact* values alone, small multiples of powers of two, so that no
difference in rounding changes what they give.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
from hypothesis import strategies as st
from jax import lax

WIDEST = 20
"""Of a value; what would be longer isn't made."""
TABLE = np.random.default_rng(7).normal(size=(8, 3)).round(3)
"""What networks close over."""


@dataclass(frozen=True)
class Value:
    """Numbers ``(B, n)``, and whether they are exact."""

    array: jax.Array
    is_exact: bool


@dataclass(frozen=True)
class Step:
    """An operation, its operands, counted back from the newest value, and three integers that say how."""

    name: str
    of: tuple[int, int] = (0, 0)
    how: tuple[int, int, int] = (0, 0, 0)


Operation = Callable[["Context", jax.Array, jax.Array, tuple[int, int, int]], jax.Array]


@dataclass
class Context:
    """What operations need of the network beside their operands."""

    module: nn.Module
    configurations: jax.Array
    """``(B, N)``, as they come."""
    dtype: Any
    place: str = ""
    made: list[jax.Array] = field(default_factory=list)
    """The parameters so far."""

    def weights(self, shape: tuple[int, ...], tied: bool = False, name: str = "w") -> jax.Array:
        """A new parameter; or, if tied, an earlier one of this shape, or of the transposed one, where there is one."""
        for earlier in self.made if tied else ():
            if earlier.shape in (shape, shape[::-1]):
                return earlier if earlier.shape == shape else earlier.T
        made: jax.Array = self.module.param(f"{name}{self.place}", nn.initializers.normal(0.3), shape, self.dtype)
        self.made.append(made)
        return made

    def indices(self, x: jax.Array, n: int) -> jax.Array:
        """Exact numbers as indices below n."""
        return jnp.mod(jnp.floor(x), n).astype(int)


def _crop(x: jax.Array, n: int) -> jax.Array:
    """The first n numbers, from the beginning again if there are fewer."""
    return x if x.shape[-1] == n else x[:, np.arange(n) % x.shape[-1]]


def _like(x: jax.Array, y: jax.Array) -> jax.Array:
    return _crop(y, x.shape[-1])


# Operations on exact values that give exact ones


def _pad(_: Context, x: jax.Array, __: jax.Array, how: Any) -> jax.Array:
    low, high, interior = how[0] % 4 - 1, how[1] % 4 - 1, how[2] % 2
    if not 1 <= x.shape[-1] * (1 + interior) - interior + low + high <= WIDEST:
        return x
    return lax.pad(x, jnp.asarray(how[2] // 2 % 2, x.dtype), [(0, 0, 0), (low, high, interior)])


def _between_constants(_: Context, x: jax.Array, __: jax.Array, how: Any) -> jax.Array:
    before, behind = (jnp.full((len(x), n % 4), how[2] % 2, x.dtype) for n in how[:2])
    return jnp.concatenate([before, x, behind], axis=-1)[:, :WIDEST]


def _concatenate(_: Context, x: jax.Array, y: jax.Array, __: Any) -> jax.Array:
    return jnp.concatenate([x, y], axis=-1)[:, :WIDEST]


def _slice(_: Context, x: jax.Array, __: jax.Array, how: Any) -> jax.Array:
    first = how[0] % x.shape[-1]
    return x[:, first :: (1, 2, -1, -2)[how[1] % 4]]


def _gather(_: Context, x: jax.Array, __: jax.Array, how: Any) -> jax.Array:
    order = np.random.default_rng(how[0]).integers(x.shape[-1], size=x.shape[-1])
    if how[1] % 2:
        order = np.argsort(order, kind="stable")
    return x[:, jnp.asarray(order) if how[2] % 2 else order]  # closed over, or written into the program


def _take(_: Context, x: jax.Array, __: jax.Array, how: Any) -> jax.Array:
    outside = np.arange(-2, x.shape[-1] + how[1] % 2)
    return jnp.take(x, outside[how[0] % 3 :], axis=-1, mode=("clip", "wrap")[how[2] % 2])[:, :WIDEST]


def _take_along(context: Context, x: jax.Array, y: jax.Array, how: Any) -> jax.Array:
    places = context.indices(_like(x, y) + how[0], x.shape[-1])
    return jnp.take_along_axis(x, places, axis=-1) if how[1] % 2 else x[jnp.arange(len(x))[:, None], places]


def _dynamic_slice(context: Context, x: jax.Array, y: jax.Array, how: Any) -> jax.Array:
    length = 1 + how[0] % x.shape[-1]
    first = context.indices(y[:, how[1] % y.shape[-1]], x.shape[-1])
    return jax.vmap(lambda row, start: lax.dynamic_slice(row, (start,), (length,)))(x, first)


def _scatter(context: Context, x: jax.Array, y: jax.Array, how: Any) -> jax.Array:
    place = how[0] % x.shape[-1]
    if how[1] % 2:
        return x.at[:, place].set(jnp.asarray(how[2], x.dtype))
    return x.at[jnp.arange(len(x)), context.indices(y[:, how[2] % y.shape[-1]], x.shape[-1])].add(1)


def _grid(_: Context, x: jax.Array, __: jax.Array, how: Any) -> jax.Array:
    sides = [side for side in (2, 3) if x.shape[-1] % side == 0]
    if not sides:
        return x[:, ::-1]
    grid = x.reshape(len(x), sides[how[0] % len(sides)], -1)
    return (jnp.rot90(grid, 1, (1, 2)) if how[1] % 2 else jnp.moveaxis(grid, 1, 2)).reshape(len(x), -1)


def _where(_: Context, x: jax.Array, y: jax.Array, how: Any) -> jax.Array:
    y = _like(x, y)
    return jnp.where(x > y, y, jnp.asarray(how[0] % 3, y.dtype)) if how[1] % 2 else jnp.where(x == how[2] % 3 - 1, y, x)


def _compare(_: Context, x: jax.Array, y: jax.Array, how: Any) -> jax.Array:
    return (jnp.greater, jnp.equal, jnp.less_equal, jnp.not_equal)[how[0] % 4](x, _like(x, y))


def _one_hot(_: Context, x: jax.Array, __: jax.Array, how: Any) -> jax.Array:
    hot = x[..., None] == np.arange(-1, 3, 1 + how[0] % 2)
    hot = hot if how[1] % 2 else jnp.moveaxis(hot, 1, 2)
    return hot.reshape(len(x), -1)[:, :WIDEST].astype(x.dtype if jnp.issubdtype(x.dtype, jnp.floating) else float)


def _as_float(x: jax.Array) -> jax.Array:
    return x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(float)


def _of_pairs(function: Callable[[jax.Array, jax.Array], jax.Array]) -> Operation:
    return lambda _, x, y, __: function(_as_float(x), _as_float(_like(x, y)))


def _of_each(function: Callable[[jax.Array], jax.Array]) -> Operation:
    return lambda _, x, __, ___: function(_as_float(x))


def _cast(dtype: Any) -> Operation:
    return lambda _, x, __, ___: x.astype(dtype)


MOVING: dict[str, Operation] = {
    "pad": _pad,
    "roll": lambda _, x, __, how: jnp.roll(x, how[0] - 3, axis=-1),
    "between constants": _between_constants,
    "concatenate": _concatenate,
    "slice": _slice,
    "gather": _gather,
    "take": _take,
    "grid": _grid,
    "scatter": _scatter,
    "repeat": lambda _, x, __, how: (jnp.repeat(x, 2, -1) if how[0] % 2 else jnp.tile(x, 2))[:, :WIDEST],
}
EXACT: dict[str, Operation] = {
    "take along": _take_along,
    "dynamic slice": _dynamic_slice,
    "where": _where,
    "compare": _compare,
    "one-hot": _one_hot,
    "sort": lambda _, x, __, ___: jnp.sort(x, axis=-1),
    "cumulative sum": lambda _, x, __, ___: jnp.cumsum(_as_float(x), axis=-1),
    "cumulative product": lambda _, x, __, ___: jnp.cumprod(_as_float(x), axis=-1)[:, :6],
    "product": _of_pairs(jnp.multiply),
    "sum": _of_pairs(jnp.add),
    "difference": _of_pairs(jnp.subtract),
    "maximum": _of_pairs(jnp.maximum),
    "square": _of_each(jnp.square),
    "half": lambda _, x, __, ___: _as_float(x) * 0.5,
    "shift": lambda _, x, __, how: _as_float(x) + how[0] / 2,
    "negative": lambda _, x, __, ___: -_as_float(x),
    "modulus": lambda _, x, __, ___: x - 2 * jnp.floor(_as_float(x) / 2),
    "sign": _of_each(jnp.sign),
    "int32": _cast(np.int32),
    "float64": _cast(np.float64),
    "float32": _cast(np.float32),
}
HALVES: dict[str, Operation] = {"bfloat16": _cast(jnp.bfloat16), "float16": _cast(np.float16)}

# Operations that give other numbers


def _dense(context: Context, x: jax.Array, _: jax.Array, how: Any) -> jax.Array:
    width, tied = 2 + how[0] % 4, how[1] % 3 == 0
    y = x @ context.weights((x.shape[-1], width), tied)
    return y if how[2] % 3 == 0 else y + context.weights((width,), how[2] % 3 == 1, "b")


def _tied(context: Context, x: jax.Array, _: jax.Array, how: Any) -> jax.Array:
    """There and back by one kernel, as autoencoders do."""
    kernel = context.weights((x.shape[-1], 2 + how[0] % 3))
    bias = context.weights((kernel.shape[1],), False, "b")
    y = jnp.tanh(x @ kernel + bias) @ kernel.T
    return y + bias.sum() if how[1] % 2 else y


def _features(x: jax.Array, how: int) -> jax.Array:
    """As positions with some features each, ``(B, n, F)``."""
    features = next((count for count in (1, 2, 3)[how % 3 :] if x.shape[-1] % count == 0), 1)
    return x.reshape(len(x), -1, features)


def _convolution(context: Context, x: jax.Array, _: jax.Array, how: Any) -> jax.Array:
    """With any boundary, stride, dilation and groups; also one that is transposed."""
    rng = np.random.default_rng(how)
    x = _features(x, how[0])
    n, features = x.shape[1:]
    groups = features if how[1] % 2 else 1
    window, stride, dilation = (int(number) for number in rng.integers(1, 4, size=3))
    kernel = context.weights((window, features // groups, groups * (1 + how[0] % 2)), how[1] % 3 == 0)
    x = x + jnp.zeros((), kernel.dtype)
    padding: Any = ("SAME", [(2, 0)], [(0, 3)], [(window * dilation, 1)])[how[2] % 4]
    if how[2] >= 4:
        padding = "VALID"
        x = jnp.concatenate([x, *[x] * (window * dilation // n), x[:, : window * dilation % n]], axis=1)
    settings = {
        "window_strides": (stride,),
        "padding": padding,
        "lhs_dilation": (int(rng.integers(1, 3)),) if padding != "SAME" else None,
        "rhs_dilation": (dilation,),
        "feature_group_count": groups,
    }
    # As channels last, and as channels first.
    if rng.integers(2):
        y = lax.conv_general_dilated(x, kernel.astype(x.dtype), dimension_numbers=("NHC", "HIO", "NHC"), **settings)
    else:
        numbers = ("NCH", "HIO", "NCH")
        y = lax.conv_general_dilated(x.swapaxes(1, 2), kernel.astype(x.dtype), dimension_numbers=numbers, **settings)
    return y.reshape(len(y), -1)[:, :WIDEST] if y.size else x.reshape(len(x), -1)[:, :WIDEST]


def _in_a_plane(context: Context, x: jax.Array, _: jax.Array, how: Any) -> jax.Array:
    """A convolution in two dimensions, one of which is circular."""
    sides = [side for side in (2, 3, 1) if x.shape[-1] % side == 0]
    plane = x.reshape(len(x), sides[how[0] % len(sides)], -1, 1)
    kernel = context.weights((2, 3, 1, 1 + how[1] % 2))
    plane = jnp.concatenate([plane, plane[:, :1]], axis=1)
    numbers, padding = ("NHWC", "HWIO", "NHWC"), [(0, 0), (1, 1 + how[2] % 2)]
    y = lax.conv_general_dilated(
        plane + jnp.zeros((), kernel.dtype),
        kernel.astype((plane + kernel[0, 0, 0, 0]).dtype),
        (1, 1 + how[2] // 2 % 2),
        padding,
        dimension_numbers=numbers,
    )
    return y.reshape(len(y), -1)[:, :WIDEST]


def _of_a_group(context: Context, x: jax.Array, _: jax.Array, how: Any) -> jax.Array:
    """A symmetrised layer over a ring's translations, with reflections or not, and a convolution over the group."""
    x = _crop(x, min(x.shape[-1], 6))
    n = x.shape[-1]
    turned = (np.arange(n) - np.arange(n)[:, None]) % n  # [g, i]: where g^-1 takes i
    elements = np.concatenate([turned, (-turned) % n]) if how[0] % 2 else turned
    kernel = context.weights((n, 1 + how[1] % 2))
    y = jnp.tanh(jnp.einsum("bi,gif->bgf", x, kernel[elements])) if how[2] % 2 else _by_rolls(x, kernel)
    elements = elements[: y.shape[1]]
    number = {tuple(element): place for place, element in enumerate(elements)}
    table = np.array([[number[tuple(h[np.argsort(g)])] for h in elements] for g in elements])
    over_group = context.weights((len(elements), y.shape[2]), False, "g")
    return jnp.einsum("bhf,ghf->bg", y, over_group[table])[:, :WIDEST]


def _by_rolls(x: jax.Array, kernel: jax.Array) -> jax.Array:
    """The same for translations, by rolls of the weights."""
    rolled = jnp.stack([jnp.roll(kernel, shift, axis=0) for shift in range(len(kernel))])
    return jnp.tanh(jnp.tensordot(x, rolled, axes=(1, 1)))


def _by_fourier_transforms(context: Context, x: jax.Array, _: jax.Array, how: Any) -> jax.Array:
    """A circular convolution."""
    kernel = context.weights((x.shape[-1],), how[0] % 2 == 0)
    if jnp.iscomplexobj(x) or jnp.iscomplexobj(kernel) or how[1] % 2:
        y = jnp.fft.ifft(jnp.fft.fft(x) * jnp.fft.fft(kernel))
        return y if jnp.iscomplexobj(x) or jnp.iscomplexobj(kernel) else y.real
    return jnp.fft.irfft(jnp.fft.rfft(x) * jnp.fft.rfft(kernel), x.shape[-1])


def _embedding(context: Context, x: jax.Array, _: jax.Array, how: Any) -> jax.Array:
    n = 2 + how[0] % 3
    table = context.weights((n, 2), how[1] % 3 == 0) if how[2] % 2 else jnp.asarray(TABLE)[:n, :2]
    return table[context.indices(x, n)].reshape(len(x), -1)[:, :WIDEST]


def _look_up(context: Context, x: jax.Array, _: jax.Array, how: Any) -> jax.Array:
    """A number of the whole value, in a table that the network closes over."""
    number = context.indices((x * 2.0 ** (np.arange(x.shape[-1]) % 3)).sum(axis=-1), 8)
    return jnp.asarray(TABLE, float)[number] if how[0] % 2 else context.weights((8, 2))[number]


def _normalised(_: Context, x: jax.Array, __: jax.Array, ___: Any) -> jax.Array:
    x = x - x.mean(axis=-1, keepdims=True)
    return x / jnp.sqrt((jnp.abs(x) ** 2).mean(axis=-1, keepdims=True) + 0.1)


def _rms(context: Context, x: jax.Array, _: jax.Array, how: Any) -> jax.Array:
    """Root mean square normalisation, with a scale for each number or without."""
    scale = context.weights((x.shape[-1],), how[0] % 2 == 0) if how[1] % 2 else 1.0
    return x * scale * lax.rsqrt((jnp.abs(x) ** 2).mean(axis=-1, keepdims=True) + 0.1)


def _layer_norm(context: Context, x: jax.Array, _: jax.Array, how: Any) -> jax.Array:
    """With a scale and a bias, over the features of each position."""
    x = _features(x, how[0])
    x = x - x.mean(axis=-1, keepdims=True)
    x = x / jnp.sqrt((jnp.abs(x) ** 2).mean(axis=-1, keepdims=True) + 0.1)
    y = x * context.weights((x.shape[-1],)) + context.weights((x.shape[-1],), False, "b")
    return y.reshape(len(y), -1)


def _attention(context: Context, x: jax.Array, y: jax.Array, how: Any) -> jax.Array:
    """Softmax over scores of single numbers; or of heads, and of keys of another value."""
    if how[1] % 2:
        scale = context.weights((), how[0] % 2 == 0).real
        scores = jax.nn.softmax(scale * (x[:, :, None] * _like(x, y)[:, None, :]).real, axis=-1)
        return jnp.einsum("bij,bj->bi", scores, x)
    x, y = _features(x, how[0]), _features(y, how[2])
    heads = 1 + how[0] // 4
    q, k, v = (
        jnp.einsum("bnf,fhd->bnhd", z, context.weights((z.shape[2], heads, 2), False, name))
        for z, name in ((x, "q"), (y, "k"), (y, "v"))
    )
    scores = jnp.einsum("bihd,bjhd->bhij", q, k.conj()).real
    if how[2] % 4 == 0:  # each position sees those before it
        is_seen = np.arange(k.shape[1]) <= np.arange(q.shape[1])[:, None]
        scores = jnp.where(is_seen, scores, -jnp.inf if how[0] % 2 else -1e9)
    z = jnp.einsum("bhij,bjhd->bihd", jax.nn.softmax(scores, axis=-1), v)
    return z.reshape(len(z), -1)[:, :WIDEST]


def _quadratic(context: Context, x: jax.Array, y: jax.Array, how: Any) -> jax.Array:
    kernel = context.weights((x.shape[-1], y.shape[-1]), how[0] % 2 == 0)
    return jnp.einsum("bi,ij,bj->b", x, kernel, y)[:, None] / x.shape[-1]


def _recurrent(context: Context, x: jax.Array, _: jax.Array, how: Any) -> jax.Array:
    kernel = context.weights((2, 2), how[0] % 2 == 0)
    y = x + jnp.zeros((), kernel.dtype)
    start = 1 + 0 * y[:, :1] + 0 * kernel[0]  # varies among devices as what becomes of it does

    def step(h: jax.Array, site: jax.Array) -> Any:
        h = jnp.tanh(h @ kernel + site[:, None])
        return h, h[:, 0]

    last, firsts = lax.scan(step, start, y.T)
    return last if how[1] % 2 else firsts.T


def _known(context: Context, x: jax.Array, _: jax.Array, how: Any) -> jax.Array:
    """A model of NetKet's of the configurations, or of another value, beside the rest."""
    x = context.configurations if how[0] % 2 else x.real
    model = nk.models.Jastrow if how[1] % 2 and x.shape[-1] > 1 else functools.partial(nk.models.RBM, alpha=1)
    return model(param_dtype=context.dtype, name=f"model{context.place}")(x)[:, None]


def _gate(context: Context, x: jax.Array, _: jax.Array, __: Any) -> jax.Array:
    return context.weights((), False, "gate") * x


def _nothing(context: Context, x: jax.Array, _: jax.Array, __: Any) -> jax.Array:
    return x + 0 * context.weights((x.shape[-1],))


def _bias(context: Context, x: jax.Array, _: jax.Array, how: Any) -> jax.Array:
    return x + context.weights((x.shape[-1],), how[0] % 2 == 0, "b")


def _log_cosh(_: Context, x: jax.Array, __: jax.Array, ___: Any) -> jax.Array:
    return nk.nn.log_cosh(x)


_ACTIVATIONS = (
    *(jax.nn.gelu, jax.nn.relu, jax.nn.silu, jax.nn.elu, jax.nn.selu, jax.nn.softplus, jax.nn.sigmoid),
    *(lambda x: jnp.clip(x, -0.4, 0.7), lambda x: jnp.log1p(x**2), lambda x: jnp.arctan2(x, 1 + x**2)),
    *(lambda x: jnp.sqrt(1 + x**2), lambda x: 1 / (2 + jnp.sin(x)), lambda x: jnp.exp(-(x**2)), jnp.abs),
)


def _gelu(_: Context, x: jax.Array, __: jax.Array, how: Any) -> jax.Array:
    which = how[0] + 8 * (how[1] % 2)
    return jnp.tanh(x) * x if jnp.iscomplexobj(x) else _ACTIVATIONS[which % len(_ACTIVATIONS)](x)


def _softmax(_: Context, x: jax.Array, __: jax.Array, how: Any) -> jax.Array:
    if jnp.iscomplexobj(x):
        return x / (1 + (jnp.abs(x) ** 2).sum(axis=-1, keepdims=True))
    return jax.nn.softmax(x, axis=-1) if how[0] % 2 else jax.nn.log_softmax(x, axis=-1)


def _truth(_: Context, x: jax.Array, y: jax.Array, how: Any) -> jax.Array:
    """Cases of numbers that aren't near each other where they aren't equal."""
    large, other = jnp.abs(x) > 1e-3, jnp.abs(_like(x, y)) <= 1e3
    return jnp.where((large & ~other) | (large & (x.real < 1e9)), x, how[0] / 2)


LAYERS: dict[str, Operation] = {
    "dense": _dense,
    "tied": _tied,
    "convolution": _convolution,
    "in a plane": _in_a_plane,
    "of a group": _of_a_group,
    "by Fourier transforms": _by_fourier_transforms,
    "layer norm": _layer_norm,
    "RMS": _rms,
    "quadratic": _quadratic,
    "recurrent": _recurrent,
    "attention": _attention,
    "gate": _gate,
    "nothing": _nothing,
    "bias": _bias,
    "known": _known,
}
FUNCTIONS: dict[str, Operation] = {
    "tanh": _of_each(jnp.tanh),
    "sin": _of_each(jnp.sin),
    "log cosh": _log_cosh,
    "gelu": _gelu,
    "fraction": lambda _, x, __, ___: x / (1 + jnp.abs(x) ** 2),
    "normalised": _normalised,
    "softmax": _softmax,
    "truth": _truth,
    "scaled": lambda _, x, __, how: x * (0.1 + how[0] / 4),
}
OF_EXACT: dict[str, Operation] = {"embedding": _embedding, "look up": _look_up}
"""Operations whose operands are exact, and the results not."""
MIXING: dict[str, Operation] = {"batch": lambda _, x, __, how: x - x.mean(axis=0) * (1 + how[0] % 2) / 2}
"""What takes all configurations of a batch together."""

_EXACT = {**MOVING, **EXACT}
_OPERATIONS = {**_EXACT, **HALVES, **LAYERS, **FUNCTIONS, **OF_EXACT, **MIXING}


def _apply(context: Context, step: Step, values: list[Value]) -> Value:
    operands = [values[-1 - place % len(values)] for place in step.of]
    if step.name in (*EXACT, *OF_EXACT) and step.name not in ("product", "sum", "difference", "square", "half"):
        operands = [operand if operand.is_exact else values[0] for operand in operands]
    x, y = (operand.array for operand in operands)
    if step.name in (*LAYERS, *FUNCTIONS, *MIXING):
        x, y = _as_float(x), _as_float(y)
    is_exact = step.name in _EXACT and all(operand.is_exact for operand in operands)
    return Value(_OPERATIONS[step.name](context, x, y, step.how), is_exact)


# Ends


def _reduced(context: Context, x: jax.Array, how: int) -> jax.Array:
    """A number for each configuration."""
    x = _as_float(x)
    kind = how % 6
    if kind == 1:
        return x.mean(axis=-1)
    if kind == 2:
        return x.real.max(axis=-1)
    if kind == 3:
        return (x * context.weights((x.shape[-1],), name="end")).sum(axis=-1)
    if kind == 4 and not jnp.iscomplexobj(x):
        return jax.nn.logsumexp(x, axis=-1)
    if kind == 5:
        return x[:, :4].prod(axis=-1)
    return x.sum(axis=-1)


@dataclass(frozen=True)
class Forbidden:
    """A local state that a site mustn't have, or not together with another one: this much is added to ln ψ."""

    kind: str
    site: int
    state: int
    minus: float

    def __call__(self, x: jax.Array, local_states: tuple[float, ...]) -> jax.Array:
        state, site = local_states[self.state % len(local_states)], self.site % x.shape[-1]
        if self.kind == "a site":
            return jnp.where((x == state) & (np.arange(x.shape[-1]) == site), self.minus, 0.0).sum(axis=-1)
        if self.kind == "two sites":
            is_so = (x[:, site] == state) & (x[:, (site + 1) % x.shape[-1]] == state)
            return jnp.where(is_so, self.minus, 0.0)
        if self.kind == "a table":
            table = jnp.where(np.asarray(local_states) == state, self.minus, 0.1)
            return table[jnp.argmax(x[:, site, None] == np.asarray(local_states), axis=-1)]
        count = (x == state).sum(axis=-1)  # all sites
        return jnp.where(count == x.shape[-1] - 1, self.minus, 0.3 * count)


FORBIDDEN = ("a site", "two sites", "a table", "all sites")


class Generated(nn.Module):
    """ln ψ of a list of steps."""

    steps: tuple[Step, ...]
    ends: tuple[int, ...]
    hilbert: Any
    param_dtype: Any = float
    phase: bool = False
    """Whether the last of the reduced values is that of a phase."""
    forbidden: Forbidden | None = None
    determinant: int | None = None
    """How a Slater determinant enters: as a factor, twice, or otherwise."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        batch, configurations = x.shape[:-1], jnp.reshape(x, (-1, x.shape[-1]))
        context = Context(self, configurations, self.param_dtype)
        values, used = [Value(configurations, True)], set()
        for place, step in enumerate(self.steps):
            context.place = str(place)
            used |= {len(values) - 1 - of % len(values) for of in step.of}
            values.append(_apply(context, step, values))
        parts = []
        for place, value in enumerate(values):
            if place not in used:
                context.place = f"{place}"
                parts.append(_reduced(context, value.array, self.ends[place % len(self.ends)]))
        if self.phase:
            parts = [*parts[:-1], 1j * parts[-1]]
        total = 0.5 * sum(parts[1:], parts[0])
        total = total + 0.2 * self.param("slope", nn.initializers.normal(), (), self.param_dtype) * _as_float(
            configurations
        ).sum(axis=-1)
        if self.forbidden is not None:
            total = total + self.forbidden(configurations, local_states_of(self.hilbert))
        if self.determinant is not None:
            slater = nk.models.Slater2nd(self.hilbert, restricted=False, param_dtype=self.param_dtype)
            y = slater(configurations)
            total = total + (y, y + y, jnp.tanh(y.real))[self.determinant]
        return total.reshape(batch)

    @property
    def mixes_samples(self) -> bool:
        return any(step.name in MIXING for step in self.steps)

    @property
    def bits(self) -> int:
        """Of its shortest numbers."""
        names = {step.name for step in self.steps}
        return 16 if names & HALVES.keys() else 32 if "float32" in names else 64


class _OfAKnownModel:
    """A subclass of a known model that computes something else: of moved sites, or a function of its ln ψ."""

    def __call__(self, x: jax.Array) -> jax.Array:
        y = super().__call__((x, jnp.roll(x, 1, axis=-1), x * jnp.roll(x, 1, axis=-1))[self.of % 3])
        return (y, 3 * jnp.tanh(y), 0.5 * y + 0.1 * x[..., 0] * x[..., 1], y**2)[self.function % 4]


class OfRBM(_OfAKnownModel, nk.models.RBM):
    of: int = 0
    function: int = 0


class OfJastrow(_OfAKnownModel, nk.models.Jastrow):
    of: int = 0
    function: int = 0


def local_states_of(hilbert: Any) -> tuple[float, ...]:
    """All that a site may have."""
    states = (hilbert.states_at_index(site) for site in range(hilbert.size))
    return tuple(sorted({float(state) for of_site in states for state in of_site}))


UNREAD = {
    *("take along", "dynamic slice", "scatter", "sort", "cumulative product", "modulus", "int32", "float32"),
    *OF_EXACT,
}
"""Operations that the kernels don't have, or only in part."""


@st.composite
def networks(draw: Any, hilbert: Any, *, in_lanes: bool = False) -> nn.Module:
    """A network for configurations of a space; a smaller one has fewer of the steps.

    Args:
        in_lanes: only what the kernels are documented to evaluate, in one precision.
    """
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def one_of(*choices: Any) -> Any:
        return choices[rng.integers(len(choices))]

    dtype = one_of(float, float, float, complex, complex, np.float32)
    dtype = one_of(dtype, dtype, np.complex64) if in_lanes else dtype
    is_single = np.dtype(dtype).itemsize // (1 + np.issubdtype(dtype, complex)) == 4
    if one_of(*range(12)) == 0:
        return one_of(OfRBM, OfJastrow)(param_dtype=dtype, of=one_of(0, 1, 2), function=one_of(0, 1, 2, 3))
    shares = one_of((4, 4, 2, 1, 1), (2, 2, 4, 4, 1), (3, 3, 3, 2, 1))
    names = [name for kind, share in zip(_KINDS, shares, strict=True) for name in share * _spread(kind)]
    rare = one_of(*[None] * 7, MIXING, HALVES, HALVES)
    if in_lanes:
        # Truth values are numbers in double precision.
        left_out = UNREAD | ({"compare", "float64"} if is_single else set())
        rare, names = None, [name for name in names if name not in left_out]
    steps = []
    for place in range(_LONGEST):
        name = one_of(*(names if rare is None or place != _LONGEST // 2 else rare))
        steps.append(Step(name, (one_of(0, 0, 1, 2), one_of(0, 1, 2, 3)), tuple(map(int, rng.integers(8, size=3)))))
    # A number in one piece, of which hypothesis makes no variants before it has found something.
    kept = int.from_bytes(draw(st.binary(min_size=2, max_size=2)))
    steps = [step for place, step in enumerate(steps) if kept >> place & 1]
    forbidden = None
    if one_of(*range(3)) == 0:
        site, state = map(int, rng.integers(8, size=2))
        forbidden = Forbidden(one_of(*FORBIDDEN), site, state, one_of(-np.inf, -1e30, -1e9))
        if in_lanes and (is_single or forbidden.kind == "a table"):
            forbidden = None
    ends = tuple(map(int, rng.integers(8, size=3)))
    phase = dtype is float and one_of(*range(4)) == 0
    determinant = one_of(0, 1, 2) if isinstance(hilbert, nk.hilbert.SpinOrbitalFermions) and one_of(0, 1) else None
    determinant = None if in_lanes else determinant
    forbidden = forbidden if draw(st.booleans()) else None
    return Generated(tuple(steps), ends, hilbert, dtype, phase, forbidden, determinant)


_LONGEST = 11
"""Of the steps, half of which are kept."""
_KINDS = [MOVING, EXACT, LAYERS, FUNCTIONS, OF_EXACT]


def _spread(kind: dict[str, Operation]) -> list[str]:
    """Each kind as often as another, whatever their number of operations."""
    return [*(name for name in kind for _ in range(-(-24 // len(kind)))), *(["product"] * 4 if kind is EXACT else [])]
