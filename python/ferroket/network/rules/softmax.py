"""Softmax in front of a product: Σ_k (e_k / Σ_l e_l) v_k = (Σ_k e_k v_k) / Σ_l e_l, with fewer quotients."""

from collections.abc import Sequence

from ferroket.network.numbers import Expression
from ferroket.network.program import Places, Reduce
from ferroket.network.reader import Reader, Value


def without_normalization(reader: Reader, value: Value, summed: Sequence[int]) -> tuple[Value, Places] | None:
    """A value without the factor of softmax, which is the same along the axes of a sum; None of other values.

    The weights exp(x - max x) are at most 1, so that their sums with others don't overflow before these do.

    Returns:
        The weights, and the places of the factor, in which the axes of the sum have one element.
    """
    (expression, *others) = value.parts
    if others or expression.name != "mul" or not value.size:
        return None
    for weights, factor in (expression.args, expression.args[::-1]):
        if factor.name != "elements" or not _is_at_most_one(reader, weights):
            continue
        places = factor.data.reshape(value.shape)
        first = places[tuple(slice(1) if axis in summed else slice(None) for axis in range(places.ndim))]
        if (places == first).all():
            return Value(value.shape, (weights,)), first
    return None


def _is_at_most_one(reader: Reader, expression: Expression) -> bool:
    """Whether it is the exponential of numbers less the greatest of some of which they are."""
    if expression.name != "exp" or expression.args[0].name != "sub":
        return False
    numbers, greatest = expression.args[0].args
    if (numbers.name, greatest.name) != ("elements", "elements"):
        return False
    for operation in reader.operations:
        if isinstance(operation, Reduce) and operation.kind == "max" and greatest.data[0] in operation.out:
            row = greatest.data - operation.out[0]
            is_row = (row >= 0) & (row < operation.out.size)
            return bool(is_row.all() and (operation.places[row] == numbers.data[:, None]).any(axis=1).all())
    return False


def normalized(reader: Reader, value: Value, factor: Places) -> Value:
    """A value times a factor, of its shape."""
    e = reader.expressions
    (factors,) = reader.parts_of(reader.value([factor]), value.shape)
    return Value(value.shape, tuple(e.of("mul", part, factors) for part in value.parts))
