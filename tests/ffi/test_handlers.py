"""The Rust handlers, called as the primitive never calls them: XLA reports what is wrong, and nothing crashes."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ferroket.ffi  # noqa: F401 - registers the handlers

NS, SITES = 3, 4
X = np.ones((NS, SITES), np.int8)
EDGES = np.array([[0, 1], [1, 2]], np.int32)
XP = jax.ShapeDtypeStruct((NS, SITES + 1, SITES), np.int8)
MELS = jax.ShapeDtypeStruct((NS, SITES + 1), np.float32)
ATTRIBUTES = {"states": True, "first": np.float64(1), "second": np.float64(-1)}
ONE = np.float32(1)
# JAX raises a ValueError for an invalid argument if the program has ended when its result is asked for.
ERRORS = (jax.errors.JaxRuntimeError, ValueError)


def call(
    args: tuple[Any, ...] = (X, EDGES, ONE, ONE), results: tuple[Any, ...] = (XP, MELS), **attributes: Any
) -> list[np.ndarray]:
    target = jax.ffi.ffi_call("ferroket_ising", list(results))
    return [np.asarray(result) for result in target(*args, **(ATTRIBUTES | attributes))]


def test_a_right_call() -> None:
    xp, mels = call()
    assert (xp[0, 1] == [-1, 1, 1, 1]).all()
    np.testing.assert_array_equal(mels, [[2, -1, -1, -1, -1]] * NS)


@pytest.mark.parametrize(
    ("args", "results", "attributes", "message"),
    [
        pytest.param((X, EDGES.astype(np.int16), ONE, ONE), (XP, MELS), {}, "edges.*int16.*int32", id="dtype"),
        pytest.param((X, EDGES, ONE, jnp.float16(1)), (XP, MELS), {}, "J.*float16.*float32", id="coefficient dtype"),
        pytest.param((X, EDGES, np.ones(2, np.float32), ONE), (XP, MELS), {}, r"h.*\[2\]", id="rank"),
        pytest.param((X, EDGES[:, :1], ONE, ONE), (XP, MELS), {}, r"edges.*\[2, 1\]", id="size"),
        pytest.param((np.int8(1), EDGES, ONE, ONE), (XP, MELS), {}, "x has no dimension", id="no dimension"),
        pytest.param((X, EDGES, ONE), (XP, MELS), {}, "3.*4|4.*3", id="missing argument"),
        pytest.param((X, EDGES, ONE, ONE), (XP,), {}, "1.*2|2.*1", id="missing result"),
        pytest.param(
            (X, EDGES, ONE, ONE),
            (jax.ShapeDtypeStruct((NS, SITES + 1, SITES + 1), np.int8), MELS),
            {},
            r"xp.*\[3, 5, 5\].*\[3, 5, 4\]",
            id="size of a result",
        ),
        pytest.param(
            (X, EDGES, ONE, ONE),
            (jax.ShapeDtypeStruct(XP.shape, np.int16), MELS),
            {},
            "xp.*int16.*int8",
            id="dtype of a result",
        ),
        pytest.param((X, EDGES, ONE, ONE), (XP, MELS), {"first": "one"}, "first", id="dtype of an attribute"),
        pytest.param((X, EDGES + 3, ONE, ONE), (XP, MELS), {}, "4.*site|site.*4", id="edge beyond the sites"),
        pytest.param((X * 3, EDGES, ONE, ONE), (XP, MELS), {}, "sample 0, site 0 has the value 3", id="no local state"),
    ],
)
def test_a_wrong_call_is_an_error_that_names_it(
    args: tuple[Any, ...], results: tuple[Any, ...], attributes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ERRORS, match=message):
        call(args, results, **attributes)


def test_a_missing_attribute_is_an_error() -> None:
    target = jax.ffi.ffi_call("ferroket_ising", [XP, MELS])
    with pytest.raises(ERRORS, match="second"):
        jax.block_until_ready(target(X, EDGES, ONE, ONE, states=True, first=np.float64(1)))
