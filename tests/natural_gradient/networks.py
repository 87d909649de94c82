"""Small networks for one sample of six sites, and how their parameters enter."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from ferroket.models.pairs import sum_over_pairs

N_SITES = 6
MASK = np.tril(np.ones((6, 6)))
ALIKE = MASK[:, [4, 1, 1, 4, 2]]
NOT_NESTED = np.where(np.arange(36).reshape(6, 6) % 4, 1.0, 0.0)


@dataclass(frozen=True)
class Case:
    """ln ψ for one sample, and what is to be found in it."""

    function: Callable[[Any, jax.Array], jax.Array]
    """``function(parameters, s)``; s are numbers of 64 bits, or those of the samples."""
    shapes: dict[str, Any]
    """Of the parameters: a shape, or a shape and a type."""
    parts: tuple[tuple[int, int], ...] = ()
    """Of each product: its parts and positions."""
    direct: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    """Those whose rows are formed in the end, beside the direct ones."""
    integers: bool = False
    """Whether the function wants the samples as they are, int8."""

    def log_psi(self, variables: Any, x: jax.Array) -> jax.Array:
        samples = x if self.integers else x.astype(float)
        return jax.vmap(lambda s: self.function(variables["params"], s))(samples)

    def parameters(self) -> dict[str, jax.Array]:
        rng = np.random.default_rng(3)
        return {name: _random(rng, shape) for name, shape in self.shapes.items()}


def _random(rng: np.random.Generator, shape: Any) -> jax.Array:
    dtype = np.dtype(float)
    if shape and isinstance(shape[0], tuple):
        shape, dtype = shape[0], np.dtype(shape[1])
    numbers = rng.normal(size=shape, scale=0.4)
    if dtype.kind == "c":
        numbers = numbers + 1j * rng.normal(size=shape, scale=0.4)
    return jnp.asarray(numbers.astype(dtype))


def some_samples(n_samples: int = 5) -> jax.Array:
    rng = np.random.default_rng(5)
    return jnp.asarray(rng.choice(np.array([-1, 1], np.int8), size=(n_samples, N_SITES)))


def out(y: jax.Array) -> jax.Array:
    """A number that depends on each element in another way."""
    return (jnp.tanh(y) * (1 + jnp.arange(y.size).reshape(y.shape))).sum()


@jax.custom_jvp
def _cubed(x: jax.Array) -> jax.Array:
    return x**3


@_cubed.defjvp
def _cubed_jvp(primals: Any, tangents: Any) -> Any:
    return _cubed(primals[0]), 0.7 * primals[0] ** 2 * tangents[0]  # not the true one


@jax.custom_vjp
def _layer(w: jax.Array, x: jax.Array) -> jax.Array:
    return x @ w


_layer.defvjp(lambda w, x: (x @ w, (w, x)), lambda kept, ct: (2.5 * jnp.outer(kept[1], ct), ct @ kept[0].T))


@jax.custom_vjp
def _scaled_back(x: jax.Array) -> jax.Array:
    return jnp.tanh(x)


_scaled_back.defvjp(lambda x: (jnp.tanh(x), x), lambda x, ct: (1.5 * ct * x,))


def _recurrent(p: Any, s: jax.Array) -> jax.Array:
    def step(h: jax.Array, site: jax.Array) -> Any:
        return jnp.tanh(h @ p["w"] + site * p["u"]), h[0]

    h, first = lax.scan(step, jnp.ones(4, p["w"].dtype), s)
    return out(h) + out(first)


def _by_index(p: Any, s: jax.Array) -> jax.Array:
    return out(lax.fori_loop(0, 6, lambda i, h: jnp.tanh(h @ p["w"] + s[i]), jnp.ones(4)))


def _layers(p: Any, s: jax.Array) -> jax.Array:
    return out(lax.scan(lambda h, w: (jnp.tanh(h @ w), None), s, p["w"])[0])


def _scaled_layers(p: Any, s: jax.Array) -> jax.Array:
    return out(lax.scan(lambda h, w: (jnp.tanh(h @ (0.5 * w)), None), s, p["w"])[0])


def _transposed_layers(p: Any, s: jax.Array) -> jax.Array:
    """w (6, 3, 36): turned before the loop, and reshaped and turned in it."""
    layers = jnp.moveaxis(p["w"], 1, 0)
    return out(
        lax.scan(lambda h, w: (jnp.tanh(h @ w.reshape(6, 6).T), None), s, layers.reshape(3, 36), reverse=True)[0]
    )


def _layers_of_sites(p: Any, s: jax.Array) -> jax.Array:
    """Each layer goes over all sites with one kernel."""

    def layer(h: jax.Array, w: jax.Array) -> Any:
        return lax.scan(lambda h, site: (jnp.tanh(h @ w + site), None), h, s)[0], None

    return out(lax.scan(layer, jnp.ones(4), p["w"])[0])


def _sites_of_layers(p: Any, s: jax.Array) -> jax.Array:
    """At each site all layers."""

    def site(h: jax.Array, s_i: jax.Array) -> Any:
        return lax.scan(lambda h, w: (jnp.tanh(h @ w.T + s_i), None), h, p["w"])[0], None

    return out(lax.scan(site, jnp.ones(4), s)[0])


def _layers_of_layers(p: Any, s: jax.Array) -> jax.Array:
    def outer(h: jax.Array, w: jax.Array) -> Any:
        return lax.scan(lambda h, v: (jnp.tanh(h @ v), None), h, w)[0], None

    return out(lax.scan(outer, s[:4], p["w"])[0])


def _layers_with_biases(p: Any, s: jax.Array) -> jax.Array:
    """One kernel of each layer, one that they share, and biases."""

    def layer(h: jax.Array, own: Any) -> Any:
        w, b = own
        return jnp.tanh(h @ w + jnp.sin(h) @ p["v"] + b), None

    return out(lax.scan(layer, s, (p["w"], p["b"]))[0])


def _used_on_both_sides_of_a_loop(p: Any, s: jax.Array) -> jax.Array:
    h = jnp.tanh(s @ p["w"])
    h = lax.scan(lambda h, _: (jnp.tanh(h @ p["w"]), None), h, None, length=3)[0]
    return out(h)


def _as_carry(p: Any, s: jax.Array) -> jax.Array:
    def step(carry: Any, _: None) -> Any:
        h, w = carry
        return (jnp.tanh(h @ w), 0.9 * w), None

    return out(lax.scan(step, (s, p["w"]), None, length=3)[0][0])


def _sorted(p: Any, s: jax.Array) -> jax.Array:
    """Of two results of an equation one isn't used."""
    y = s @ p["w"]
    _, kept = lax.sort((lax.stop_gradient(y), y), num_keys=1)
    largest, _ = lax.top_k(y, 2)
    return out(kept) + out(largest)


def _normalised(p: Any, s: jax.Array) -> jax.Array:
    y = s @ p["w"]
    y = (y - y.mean()) / jnp.sqrt(y.var() + 0.1)
    return out(y * p["scale"] + p["shift"])


def _attention(p: Any, s: jax.Array) -> jax.Array:
    x = s.reshape(3, 2) @ p["embed"]
    q, k, v = (jnp.einsum("td,dhe->hte", x, p[name]) for name in ("q", "k", "v"))
    weights = jax.nn.softmax(jnp.einsum("hte,hue->htu", q, k))
    return out(jnp.einsum("htu,hue,hed->td", weights, v, p["o"]))


def _determinant(p: Any, s: jax.Array) -> jax.Array:
    sign, log = jnp.linalg.slogdet(p["w"] * s + 2 * jnp.eye(6))
    return log + jnp.log(sign.astype(complex))


def _integer_product(p: Any, s: jax.Array) -> jax.Array:
    """Integers meet the kernel as they are, 204 of them: their sum of squares is no int8."""
    return out(lax.dot_general(jnp.tile(s, 34), p["w"], (((0,), (0,)), ((), ())), preferred_element_type=float))


def _another_function_of_the_name(p: Any, s: jax.Array) -> jax.Array:
    @jax.jit
    def sum_over_pairs(x: jax.Array, w: jax.Array) -> jax.Array:
        return (jnp.sin(w) * x[0]).sum()

    return out(sum_over_pairs(s, p["w"]))


def _convolved(p: Any, s: jax.Array, channels: int = 1, **settings: Any) -> jax.Array:
    numbers = ("NHC", "HIO", "NHC")
    return out(lax.conv_general_dilated(s.reshape(1, -1, channels), p["w"], dimension_numbers=numbers, **settings))


F32, C128 = np.float32, complex
SQUARE = {"w": (6, 6)}
SAME = {"window_strides": (1,), "padding": "SAME"}
CASES = {
    "dense": Case(lambda p, s: out(s @ p["w"]), {"w": (6, 3)}, ((1, 1),)),
    "two layers": Case(
        lambda p, s: out(jnp.tanh(s @ p["v"] + p["b"]) @ p["w"]),
        {"v": (6, 4), "b": (4,), "w": (4, 3)},
        ((1, 1),) * 2,
        ("b",),
    ),
    "kernel first": Case(lambda p, s: out(p["w"] @ s), {"w": (3, 6)}, ((1, 1),)),
    "vector": Case(lambda p, s: out((p["w"] @ s)[None]), {"w": (6,)}, ((1, 1),)),
    "transposed": Case(lambda p, s: out(s @ p["w"].T), {"w": (3, 6)}, ((1, 1),)),
    "reshaped": Case(lambda p, s: out(s @ p["w"].reshape(3, 6).T), {"w": (18,)}, ((1, 1),)),
    "reversed": Case(lambda p, s: out(s @ p["w"][::-1]), {"w": (6, 3)}, ((1, 1),)),
    "more axes": Case(lambda p, s: out(s @ p["w"][:, 0, :, None].squeeze(-1)), {"w": (6, 1, 3)}, ((1, 1),)),
    "cast": Case(lambda p, s: out(s @ p["w"].astype(float)), {"w": ((6, 3), F32)}, ((1, 1),)),
    "cast to fewer bits": Case(lambda p, s: out(s.astype(F32) @ p["w"].astype(F32)), {"w": (6, 3)}, ((1, 1),)),
    "positions": Case(lambda p, s: out(s.reshape(3, 2) @ p["w"]), {"w": (2, 4)}, ((1, 3),)),
    "two axes": Case(lambda p, s: out(jnp.einsum("ab,bac->c", s.reshape(2, 3), p["w"])), {"w": (3, 2, 4)}, ((1, 1),)),
    "parts": Case(lambda p, s: out(jnp.einsum("ab,cba->ac", s.reshape(2, 3), p["w"])), {"w": (4, 3, 2)}, ((2, 1),)),
    "bilinear": Case(lambda p, s: s @ p["w"] @ s, SQUARE, ((1, 1),)),
    "attention": Case(
        _attention,
        {"embed": (2, 4), "q": (4, 2, 3), "k": (4, 2, 3), "v": (4, 2, 3), "o": (2, 3, 4)},
        ((1, 3),) * 5,
    ),
    "normalised": Case(_normalised, {"w": (6, 4), "scale": (4,), "shift": (4,)}, ((1, 1),), ("scale", "shift")),
    "used twice": Case(lambda p, s: out(jnp.tanh(s @ p["w"]) @ p["w"]), SQUARE, ((1, 1),) * 2),
    "used twice, transposed": Case(
        lambda p, s: out(jnp.tanh(s @ p["w"]) @ p["w"].T), SQUARE, ((1, 1),) * 2, (), ("w",)
    ),
    "used twice, with other positions": Case(
        lambda p, s: out(s.reshape(3, 2) @ p["w"]) + out(s[1:3] @ p["w"]), {"w": (2, 4)}, ((1, 3), (1, 1))
    ),
    "linear and not": Case(
        lambda p, s: out(s @ p["w"]) + (jnp.sin(p["w"]) * s).sum(), SQUARE, ((1, 1),), ("w",), ("w",)
    ),
    "masked": Case(lambda p, s: out(s @ (p["w"] * MASK)), SQUARE, ((1, 1),)),
    "masked by where": Case(lambda p, s: out(s @ jnp.where(MASK > 0, p["w"], 0)), SQUARE, ((1, 1),)),
    "masked by where not": Case(lambda p, s: out(s @ jnp.where(MASK > 0, 0.0, p["w"])), SQUARE, ((1, 1),)),
    "masked by ones": Case(lambda p, s: out(s @ jnp.where(MASK > 0, p["w"], 1.0)), SQUARE, (), ("w",)),
    "masked by where, of a sample": Case(lambda p, s: out(s @ jnp.where(s > 0, p["w"], 0)), SQUARE, (), ("w",)),
    "masked, transposed": Case(lambda p, s: out(jnp.tanh(s @ (0.3 * (MASK * p["w"])).T)), SQUARE, ((1, 1),)),
    "masked, with columns alike": Case(lambda p, s: out(s @ (p["w"] * ALIKE)), {"w": (6, 5)}, ((1, 1),)),
    "masked, used twice": Case(
        lambda p, s: out(jnp.tanh(s @ (p["w"] * MASK)) @ (p["w"] * MASK)), SQUARE, ((1, 1),) * 2
    ),
    "masked, used with another mask": Case(
        lambda p, s: out(jnp.tanh(s @ (p["w"] * MASK)) @ (p["w"] * MASK.T)), SQUARE, ((1, 1),) * 2, (), ("w",)
    ),
    "masked, complex": Case(lambda p, s: out((s + 0.2j) @ (p["w"] * MASK)), SQUARE, ((1, 1),)),
    "masked complex kernel": Case(
        lambda p, s: out(s @ (p["w"] * MASK.astype(complex))), {"w": ((6, 6), C128)}, ((1, 1),)
    ),
    "masked with a bias": Case(
        lambda p, s: out(s @ (p["w"] * MASK) + p["b"]), {"w": (6, 6), "b": (6,)}, ((1, 1),), ("b",)
    ),
    "masked without order": Case(lambda p, s: out(s @ (p["w"] * NOT_NESTED)), SQUARE, (), ("w",)),
    "masked by a sample": Case(lambda p, s: out(s @ (p["w"] * (s > 0))), SQUARE, (), ("w",)),
    "masked to nothing": Case(lambda p, s: out(s @ (p["w"] * np.zeros((6, 6)))), SQUARE, ((1, 1),)),
    "masked window": Case(
        lambda p, s: _convolved({"w": p["w"] * np.array([[1.0, 0], [1, 1], [0, 1]])[:, None]}, s, **SAME),
        {"w": (3, 1, 2)},
        (),
        ("w",),
    ),
    "masked convolution": Case(
        lambda p, s: _convolved({"w": p["w"] * np.array([1.0, 0, 1])[:, None, None]}, s, **SAME),
        {"w": (3, 1, 2)},
        ((1, 6),),
    ),
    "scaled": Case(lambda p, s: out(s @ (p["w"] / np.sqrt(6.0))), {"w": (6, 3)}, ((1, 1),)),
    "scaled inputs": Case(lambda p, s: out(s @ (p["w"] * np.arange(6.0)[:, None])), {"w": (6, 3)}, ((1, 1),)),
    "scaled outputs": Case(lambda p, s: out(s @ (p["w"] * np.arange(3.0))), {"w": (6, 3)}, (), ("w",)),
    "divided by it": Case(lambda p, s: out(s @ (2.0 / (3 + jnp.abs(p["w"])))), {"w": (6, 3)}, (), ("w",)),
    "scaled bias": Case(lambda p, s: out(s @ p["w"] + 2.0 * p["b"]), {"w": (6, 3), "b": (3,)}, ((1, 1),), ("b",)),
    "scaled pairs": Case(lambda p, s: out(sum_over_pairs(s, 2.0 * p["w"])), {"w": (15,)}, ((1, 1),)),
    "elementwise": Case(lambda p, s: out(s * p["w"]), {"w": (6,)}, (), ("w",)),
    "product of kernels": Case(lambda p, s: out(s @ (p["v"] @ p["w"])), {"v": (6, 2), "w": (2, 6)}, (), ("v", "w")),
    "embedding": Case(lambda p, s: out(p["w"][(s + 1) // 2]), {"w": (2, 3)}, (), ("w",), integers=True),
    "one-hot": Case(lambda p, s: out(jax.nn.one_hot(s, 2) @ p["w"]), {"w": (2, 3)}, ((1, 6),), integers=True),
    "integers": Case(_integer_product, {"w": (204, 2)}, ((1, 1),), integers=True),
    "constant operand": Case(lambda p, s: out(s * (np.linspace(0, 1, 4) @ p["w"])), {"w": (4, 6)}, ((1, 1),)),
    "not used": Case(lambda p, s: out(s @ p["w"]), {"w": (6, 3), "v": (2,)}, ((1, 1),), (), ("v",)),
    "no gradient": Case(
        lambda p, s: out(jnp.tanh(s @ p["w"]) @ lax.stop_gradient(p["w"])), SQUARE, ((1, 1),), ("w",), ("w",)
    ),
    "rounded": Case(
        lambda p, s: out(s @ p["w"]) + out(s @ (3 * p["v"]).astype(int).astype(float)),
        {"w": (6, 3), "v": (6, 3)},
        ((1, 1),),
        ("v",),
    ),
    "rounded itself": Case(
        lambda p, s: out(s @ p["w"]) + out(s @ p["v"].astype(int).astype(float)),
        {"w": (6, 3), "v": (6, 3)},
        ((1, 1),),
        ("v",),
    ),
    "dropped results": Case(_sorted, {"w": (6, 4)}, ((1, 1),)),
    "determinant": Case(_determinant, SQUARE, (), ("w",)),
    "pairs": Case(lambda p, s: out(sum_over_pairs(s, p["w"])), {"w": (15,)}, ((1, 1),)),
    "pairs of a reversed parameter": Case(lambda p, s: out(sum_over_pairs(s, p["w"][::-1])), {"w": (15,)}, ((1, 1),)),
    "pairs of two halves": Case(lambda p, s: out(sum_over_pairs(s.reshape(2, 3), p["w"])), {"w": (3,)}, ((1, 2),)),
    "pairs of activations": Case(
        lambda p, s: sum_over_pairs(jnp.tanh(s @ p["v"]), p["w"]), {"v": (6, 4), "w": ((6,), C128)}, ((1, 1),) * 2
    ),
    "another function of the name": Case(_another_function_of_the_name, {"w": (15,)}, (), ("w",)),
    # Complex numbers
    "complex": Case(lambda p, s: out(s @ p["w"]), {"w": ((6, 3), C128)}, ((1, 1),)),
    "complex, used twice": Case(lambda p, s: out(jnp.tanh(s @ p["w"]) @ p["w"]), {"w": ((6, 6), C128)}, ((1, 1),) * 2),
    "complex, and conjugate": Case(
        lambda p, s: out(s @ p["w"]) + out(s @ p["w"].conj()), {"w": ((6, 3), C128)}, ((1, 1),), ("w",), ("w",)
    ),
    "complex, conjugate amplitude": Case(
        lambda p, s: out(jnp.tanh(s @ p["v"]).conj() @ p["w"]),
        {"v": ((6, 4), C128), "w": ((4, 3), C128)},
        ((1, 1),) * 2,
    ),
    "complex, real amplitude": Case(lambda p, s: out(jnp.abs(s @ p["w"]) ** 2), {"w": ((6, 3), C128)}, ((1, 1),)),
    "promoted": Case(lambda p, s: out((s + 0.3j * s**2) @ p["w"]), {"w": (6, 3)}, ((1, 1),)),
    "promoted, then real": Case(
        lambda p, s: out(jnp.tanh((s + 0.3j) @ p["w"]).imag @ p["v"]), {"w": (6, 3), "v": (3, 2)}, ((1, 1),) * 2
    ),
    "real and complex uses": Case(
        lambda p, s: out(jnp.tanh(s @ p["w"] + 0.2j) @ p["w"]) + out(s @ p["w"]), SQUARE, ((1, 1),) * 3
    ),
    "real and cast to complex": Case(
        lambda p, s: out(jnp.tanh(s @ p["w"].astype(complex)) @ p["w"]), SQUARE, ((1, 1),) * 2, (), ("w",)
    ),
    "kernels of two": Case(lambda p, s: out(s @ (p["a"] + 1j * p["b"])), {"a": (6, 3), "b": (6, 3)}, (), ("a", "b")),
    "outputs of two": Case(
        lambda p, s: out(s @ p["a"]) + 1j * out(s @ p["b"]), {"a": (6, 3), "b": (6, 2)}, ((1, 1),) * 2
    ),
    "real and complex": Case(
        lambda p, s: out(jnp.tanh(s @ p["a"] + p["c"]) @ p["b"] + p["d"]),
        {"a": (6, 3), "b": ((3, 2), C128), "c": (3,), "d": ((2,), C128)},
        ((1, 1),) * 2,
        ("c", "d"),
    ),
    # Loops
    "scan": Case(_recurrent, {"w": (4, 4), "u": (4,)}, ((1, 6),), ("u",)),
    "complex scan": Case(
        lambda p, s: _recurrent(p, s + 0.3j), {"w": ((4, 4), C128), "u": ((4,), C128)}, ((1, 6),), ("u",)
    ),
    "fori_loop": Case(_by_index, {"w": (4, 4)}, ((1, 6),)),
    "layers": Case(_layers, {"w": (3, 6, 6)}, ((3, 1),)),
    "transposed layers": Case(_transposed_layers, {"w": (6, 3, 6)}, ((3, 1),)),
    "masked layers": Case(lambda p, s: _layers({"w": p["w"] * MASK}, s), {"w": (3, 6, 6)}, (), ("w",)),
    "scaled in a loop": Case(_scaled_layers, {"w": (3, 6, 6)}, ((3, 1),)),
    "scaled before a loop": Case(lambda p, s: _by_index({"w": 0.5 * p["w"]}, s), {"w": (4, 4)}, ((1, 6),)),
    "layers of sites": Case(_layers_of_sites, {"w": (3, 4, 4)}, ((3, 6),)),
    "sites of layers": Case(_sites_of_layers, {"w": (3, 4, 4)}, ((3, 6),)),
    "layers of layers": Case(_layers_of_layers, {"w": (2, 3, 4, 4)}, ((6, 1),)),
    "layers with biases": Case(
        _layers_with_biases, {"w": (3, 6, 6), "v": (6, 6), "b": (3, 6)}, ((3, 1), (1, 3)), ("b",)
    ),
    "in a loop and before": Case(_used_on_both_sides_of_a_loop, SQUARE, ((1, 1), (1, 3))),
    "as carry": Case(_as_carry, SQUARE, (), ("w",)),
    "cond": Case(
        lambda p, s: out(lax.cond(s[0] > 0, lambda s: s @ p["w"], lambda s: jnp.sin(s @ p["w"]), s)), SQUARE, (), ("w",)
    ),
    # Functions
    "jit": Case(lambda p, s: out(jax.jit(lambda w, s: s @ w.T)(p["w"], s)), SQUARE, ((1, 1),)),
    "jit of a view": Case(lambda p, s: out(s @ jax.jit(jnp.transpose)(p["w"])), SQUARE, ((1, 1),)),
    "checkpoint": Case(
        lambda p, s: out(jax.checkpoint(lambda w, s: jnp.tanh(jnp.tanh(s @ w) @ w))(p["w"], s)), SQUARE, ((1, 1),) * 2
    ),
    "checkpoint in scan": Case(
        lambda p, s: out(lax.scan(jax.checkpoint(lambda h, w: (jnp.tanh(h @ w), None)), s, p["w"])[0]),
        {"w": (3, 6, 6)},
        ((3, 1),),
    ),
    "custom_jvp": Case(lambda p, s: out(_cubed(s @ p["w"])), SQUARE, ((1, 1),)),
    "custom_jvp of a parameter": Case(lambda p, s: out(s @ _cubed(p["w"])), SQUARE, (), ("w",)),
    "custom_vjp": Case(lambda p, s: out(_scaled_back(s @ p["w"])), SQUARE, ((1, 1),)),
    "custom_vjp of a parameter": Case(lambda p, s: out(_layer(p["w"], s)), SQUARE, (), ("w",)),
    # Convolutions
    "convolution": Case(
        lambda p, s: _convolved(p, s, window_strides=(1,), padding="SAME"), {"w": (3, 1, 4)}, ((1, 6),)
    ),
    "convolution without positions": Case(
        lambda p, s: out(s @ p["v"]) + _convolved(p, s[:2], window_strides=(1,), padding="VALID"),
        {"v": (6, 3), "w": (3, 1, 4)},
        ((1, 1), (1, 0)),
    ),
    "convolution in groups": Case(
        lambda p, s: _convolved(p, s, 2, window_strides=(1,), padding="VALID", feature_group_count=2),
        {"w": (2, 1, 4)},
        (),
        ("w",),
    ),
    "convolution and product": Case(
        lambda p, s: out(s.reshape(2, 3) @ p["w"].squeeze(1)) + _convolved(p, s, window_strides=(1,), padding="VALID"),
        {"w": (3, 1, 4)},
        ((1, 2), (1, 4)),
        (),
        ("w",),
    ),
}


# Modules of Flax


class Sites(nn.Module):
    """A module for samples as numbers of a shape, with a channel for each site."""

    module: nn.Module
    shape: tuple[int, ...] = (6, 1)

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = self.module(x.reshape(len(x), *self.shape).astype(float))
        return jax.vmap(out)(y)


class Layer(nn.Module):
    """What can stand in a loop over layers."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.tanh(nn.Dense(6, param_dtype=float)(x))


class Deep(nn.Module):
    """A loop over layers."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        def layer(layer: Layer, h: jax.Array, _: None) -> Any:
            return layer(h), None

        loop = nn.scan(layer, variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        h, _ = loop(Layer(), x, None)
        return h


class Tokens(nn.Module):
    """Samples as indices, one for each pair of sites."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        bits = (x.reshape(len(x), 3, 2) + 1) // 2
        y = nn.Embed(4, 4, param_dtype=float)(2 * bits[..., 0] + bits[..., 1])
        y = nn.MultiHeadDotProductAttention(2, param_dtype=float)(y, y)
        return jax.vmap(out)(nn.LayerNorm(param_dtype=float)(y))


@dataclass(frozen=True)
class FlaxCase:
    """A module with what is to be found in it."""

    module: nn.Module
    parts: tuple[tuple[int, int], ...]
    """Of each product: its parts and positions."""
    direct: tuple[str, ...]
    """What the names of parameters end with that have rows."""

    @property
    def log_psi(self) -> Callable[[Any, jax.Array], jax.Array]:
        return self.module.apply

    def variables(self) -> Any:
        shapes = jax.eval_shape(self.module.init, jax.random.key(0), some_samples(1))
        rng = np.random.default_rng(3)
        return jax.tree.map(lambda leaf: jnp.asarray(rng.uniform(0.2, 1, leaf.shape)), shapes)


BIAS = ("bias",)
FLAX = {
    "Dense": FlaxCase(Sites(nn.Sequential([Layer(), Layer()]), (6,)), ((1, 1),) * 2, BIAS),
    "DenseGeneral": FlaxCase(Sites(nn.DenseGeneral((2, 3), axis=(-2, -1), param_dtype=float), (2, 3)), ((1, 1),), BIAS),
    "Conv, circular": FlaxCase(Sites(nn.Conv(2, (3,), padding="CIRCULAR", param_dtype=float)), ((1, 6),), BIAS),
    "Conv, 2D": FlaxCase(
        Sites(nn.Conv(2, (2, 2), strides=(1, 2), padding="CIRCULAR", param_dtype=float), (2, 3, 1)), ((1, 4),), BIAS
    ),
    "Conv, groups": FlaxCase(
        Sites(nn.Conv(4, (2,), feature_group_count=2, param_dtype=float), (3, 2)), (), (*BIAS, "kernel")
    ),
    "ConvTranspose": FlaxCase(
        Sites(nn.ConvTranspose(2, (3,), strides=(2,), param_dtype=float, transpose_kernel=True), (3, 2)),
        ((1, 6),),
        BIAS,
    ),
    "remat": FlaxCase(Sites(nn.remat(Layer)(), (6,)), ((1, 1),), BIAS),
    "scan": FlaxCase(Sites(Deep(), (6,)), ((3, 1),), BIAS),
    "GRU": FlaxCase(Sites(nn.RNN(nn.GRUCell(3, param_dtype=float))), ((1, 6),) * 6, BIAS),
    "attention": FlaxCase(Tokens(), ((1, 3),) * 4, (*BIAS, "embedding", "scale")),
    "BatchNorm": FlaxCase(
        Sites(nn.Sequential([Layer(), nn.BatchNorm(use_running_average=True, param_dtype=float)]), (6,)),
        ((1, 1),),
        (*BIAS, "scale"),
    ),
}
