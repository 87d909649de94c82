"""What functions of complex numbers make of real and imaginary parts."""

import math
from collections.abc import Callable

from ferroket.network.numbers import Expression, Expressions

Complex = tuple[Expression, ...]


def padded(e: Expressions, parts: tuple[Expression, ...], count: int) -> tuple[Expression, ...]:
    """A real or a complex number in so many parts."""
    return parts if len(parts) == count else (*parts, e.number(0))


def power(e: Expressions, x: Complex, y: int) -> Complex:
    """A whole power of a real or a complex number."""
    one = tuple(e.number(number) for number in (1, 0)[: len(x)])

    def times(a: Complex, b: Complex) -> Complex:
        return (e.of("mul", a[0], b[0]),) if len(x) == 1 else _times(e, a, b)

    result, power, count = one, x, abs(y)
    while count:
        if count & 1:
            result = power if result is one else times(result, power)
        power, count = times(power, power), count >> 1
    if y >= 0:
        return result
    return _over(e, one, result) if len(x) > 1 else (e.of("reciprocal", result[0]),)


def _times(e: Expressions, a: Complex, b: Complex) -> Complex:
    if b[1].name == "number" and b[1].data == 0:
        return e.of("mul", a[0], b[0]), e.of("mul", a[1], b[0])
    if a[1].name == "number" and a[1].data == 0:
        return _times(e, b, a)
    real = e.of("sub", e.of("mul", a[0], b[0]), e.of("mul", a[1], b[1]))
    return real, e.of("add", e.of("mul", a[0], b[1]), e.of("mul", a[1], b[0]))


def _over(e: Expressions, a: Complex, b: Complex) -> Complex:
    if b[1].name == "number" and b[1].data == 0:
        return e.of("div", a[0], b[0]), e.of("div", a[1], b[0])
    factor, _, (real, imaginary) = _scaled(e, b)
    norm = e.of("reciprocal", _norm(e, (real, imaginary)))
    inverse = e.of("mul", real, norm), e.of("mul", e.of("neg", imaginary), norm)
    result = _times(e, a, inverse)
    return e.of("mul", result[0], factor), e.of("mul", result[1], factor)


def _norm(e: Expressions, x: Complex) -> Expression:
    return e.of("add", e.of("square", x[0]), e.of("square", x[1]))


def _exp(e: Expressions, x: Complex) -> Complex:
    size = e.of("exp", x[0])
    return e.of("mul", size, e.of("cos", x[1])), e.of("mul", size, e.of("sin", x[1]))


def _scaled(e: Expressions, x: Complex) -> tuple[Expression, Expression, Complex]:
    """A factor, minus its logarithm, and a number times it, whose square is neither infinite nor lost."""
    size = e.of("max", e.of("abs", x[0]), e.of("abs", x[1]))
    (least, up), (most, down) = ((-50, 90), (62, -66)) if e.is_single else ((-480, 580), (500, -520))
    is_small, is_large = e.of("lt", size, e.number(2.0**least)), e.of("gt", size, e.number(2.0**most))

    def chosen(neither: float, small: float, large: float) -> Expression:
        unless_large = e.of("select", is_small, e.number(neither), e.number(small))
        return e.of("select", is_large, unless_large, e.number(large))

    factor = chosen(1, 2.0**up, 2.0**down)
    shift = chosen(0, -up * math.log(2), -down * math.log(2))
    return factor, shift, (e.of("mul", x[0], factor), e.of("mul", x[1], factor))


def _log(e: Expressions, x: Complex) -> Complex:
    _, shift, scaled = _scaled(e, x)
    size = e.of("mul", e.number(0.5), e.of("log", _norm(e, scaled)))
    return e.of("add", size, shift), e.of("atan2", x[1], x[0])


def _log1p(e: Expressions, x: Complex) -> Complex:
    # |1 + x|² = 1 + (2 Re x + |x|²), whose terms cancel where x is near -1, and are infinite where it is large.
    # There 1 + x is multiplied by a factor, beside whose square the 1 of log1p is nothing, or the logarithm is large.
    near = e.of("add", e.number(1), x[0])
    most, up, down = (63, 60, -65) if e.is_single else (511, 500, -513)
    more = e.of("add", e.of("mul", e.number(2), x[0]), _norm(e, x))
    size = e.of("max", e.of("abs", x[0]), e.of("abs", x[1]))
    is_large, is_near = e.of("gt", size, e.number(2.0**most)), e.of("lt", more, e.number(-0.75))
    is_scaled = e.of("or", is_near, is_large)
    factor = e.of("select", is_large, e.number(2.0**up), e.number(2.0**down))
    scaled = _norm(e, (e.of("mul", near, factor), e.of("mul", x[1], factor)))
    argument = e.of("select", is_scaled, more, e.of("sub", scaled, e.number(1)))
    shift = e.of("select", is_large, e.number(-up * math.log(2)), e.number(-down * math.log(2)))
    half = e.of("mul", e.number(0.5), e.of("log1p", argument))
    return e.of("add", half, e.of("select", is_scaled, e.number(0), shift)), e.of("atan2", x[1], near)


def _crossed(real: tuple[str, str], imaginary: tuple[str, str]) -> Callable[[Expressions, Complex], Complex]:
    """Products of a function of the real part and one of the imaginary part."""

    def of(e: Expressions, x: Complex) -> Complex:
        first, second = (e.of("mul", e.of(f, x[0]), e.of(g, x[1])) for f, g in (real, imaginary))
        return first, second

    return of


def _cos(e: Expressions, x: Complex) -> Complex:
    real, imaginary = _crossed(("cos", "cosh"), ("sin", "sinh"))(e, x)
    return real, e.of("neg", imaginary)


def _tanh(e: Expressions, x: Complex) -> Complex:
    # (t + i (1 - t²) sin y cos y) / (cos² y + t² sin² y) with t = tanh x
    t, sin, cos = e.of("tanh", x[0]), e.of("sin", x[1]), e.of("cos", x[1])
    square = e.of("square", t)
    norm = e.of("add", e.of("square", cos), e.of("mul", square, e.of("square", sin)))
    imaginary = e.of("mul", e.of("sub", e.number(1), square), e.of("mul", sin, cos))
    return e.of("div", t, norm), e.of("div", imaginary, norm)


def _abs(e: Expressions, x: Complex) -> Complex:
    factor, _, scaled = _scaled(e, x)
    return (e.of("div", e.of("sqrt", _norm(e, scaled)), factor),)


def _sign(e: Expressions, x: Complex) -> Complex:
    (modulus,) = _abs(e, x)
    # 0 of 0
    safe = e.of("select", e.of("eq", modulus, e.number(0)), modulus, e.number(1))
    return tuple(e.of("div", part, safe) for part in x)


def _sum_of(name: str) -> Callable[[Expressions, Complex, Complex], Complex]:
    return lambda e, a, b: tuple(e.of(name, x, y) for x, y in zip(a, b, strict=True))


FUNCTIONS: dict[str, Callable[..., Complex]] = {
    "add": _sum_of("add"),
    "sub": _sum_of("sub"),
    "eq": lambda e, a, b: (e.of("and", *(e.of("eq", x, y) for x, y in zip(a, b, strict=True))),),
    "ne": lambda e, a, b: (e.of("or", *(e.of("ne", x, y) for x, y in zip(a, b, strict=True))),),
    "neg": lambda e, x: tuple(e.of("neg", part) for part in x),
    "mul": _times,
    "div": _over,
    "square": lambda e, x: _times(e, x, x),
    "exp": _exp,
    "log": _log,
    "log1p": _log1p,
    "sin": _crossed(("sin", "cosh"), ("cos", "sinh")),
    "cos": _cos,
    "tanh": _tanh,
    "cosh": _crossed(("cosh", "cos"), ("sinh", "sin")),
    "sinh": _crossed(("sinh", "cos"), ("cosh", "sin")),
    "abs": _abs,
    "sign": _sign,
}
"""What functions of complex numbers make of real and imaginary parts."""
