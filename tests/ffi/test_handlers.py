"""The Rust handlers, called as the primitive never calls them: XLA reports what is wrong, and nothing crashes."""

from dataclasses import fields
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ferroket.ffi import (
    Chains,
    ExchangeArguments,
    FirstLayerTables,
    IsingArguments,
    MatrixArguments,
    PairArguments,
    SwapArguments,
    TermArguments,
)
from ferroket.ffi.arguments import ChainArguments

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
        pytest.param((X, EDGES, ONE), (XP, MELS), {}, "argument 3 'J' is missing", id="missing argument"),
        pytest.param((X, EDGES, ONE, ONE, ONE), (XP, MELS), {}, "5 arguments.* takes 4", id="argument too many"),
        pytest.param((X, EDGES, ONE, ONE), (XP, MELS, MELS), {}, "3 results.* takes 2", id="result too many"),
        pytest.param((X, EDGES, ONE, ONE), (XP,), {}, "result 1 'mels' is missing", id="missing result"),
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


# The compiled forms: two sites of two states, a σᶻ on the first and a flip of the second where the first is 1.

BITS = np.array([[0, 0], [1, 0], [1, 1]], np.int8)
NO_KIND = np.zeros(0, np.int32)
TERMS: dict[str, Any] = {
    "x": BITS,
    "kind": NO_KIND,
    "flip": np.array([[0], [2]], np.uint32),
    "first": np.array([0, 1, 2], np.int32),
    "mask": np.array([[0], [1]], np.uint32),
    "pattern": np.array([[0], [1]], np.uint32),
    "sign": np.array([[1], [0]], np.uint32),
    "values": np.array([0.5, 2.0], np.float32),
}
MATRICES: dict[str, Any] = {
    "x": BITS,
    "kind": NO_KIND,
    "first_site": np.array([0, 1, 3], np.int32),
    "sites": np.array([0, 0, 1], np.int32),
    "table": np.array([0, 1], np.int32),
    "first_row": np.array([0, 2, 6], np.int32),
    "first_entry": np.array([0, 1, 2, 2, 2, 3, 4], np.int32),
    "columns": np.array([0, 1, 3, 2], np.int32),
    "values": np.array([0.5, -0.5, 2.0, 2.0], np.float32),
}
FORM_ATTRIBUTES = {
    "starts": np.array([0.0]),
    "steps": np.array([1.0]),
    "sizes": np.array([2]),
    "diagonal": True,
    "diagonal_only": False,
}
FORM_XP, FORM_MELS = jax.ShapeDtypeStruct((3, 2, 2), np.int8), jax.ShapeDtypeStruct((3, 2), np.float32)


def call_form(target: str, args: dict[str, Any], results: tuple[Any, ...], **attributes: Any) -> list[np.ndarray]:
    call = jax.ffi.ffi_call(target, list(results))
    return [np.asarray(result) for result in call(*args.values(), **(FORM_ATTRIBUTES | attributes))]


@pytest.mark.parametrize(("target", "args"), [("ferroket_terms", TERMS), ("ferroket_matrices", MATRICES)])
def test_right_calls_of_the_forms(target: str, args: dict[str, Any]) -> None:
    xp, mels = call_form(target, args, (FORM_XP, FORM_MELS), states=True)
    np.testing.assert_array_equal(xp, [[[0, 0], [0, 0]], [[1, 0], [1, 1]], [[1, 1], [1, 0]]])
    np.testing.assert_array_equal(mels, [[0.5, 0], [-0.5, 2], [-0.5, 2]])
    (alone,) = call_form(target, args, (FORM_MELS,), states=False)
    np.testing.assert_array_equal(alone, mels)
    (first,) = call_form(target, args, (FORM_MELS.update(shape=(3, 1)),), states=False, diagonal_only=True)
    np.testing.assert_array_equal(first, mels[:, :1])
    (counts,) = call_form(f"{target}_count", args, (jax.ShapeDtypeStruct((3,), np.int32),), off_diagonal_only=True)
    assert counts.tolist() == [0, 1, 1]
    results = tuple(
        jax.ShapeDtypeStruct(*of) for of in (((3, 2), "int8"), ((3,), "float32"), ((3,), "int32"), ((2,), "int32"))
    )
    xp, mels, sample, cursor = call_form(
        f"{target}_compact", args | {"cursor": np.array([1, 1], np.int32)}, results, off_diagonal_only=False
    )
    np.testing.assert_array_equal(xp, [[1, 1], [1, 1], [1, 0]])
    assert (mels.tolist(), sample.tolist(), cursor.tolist()) == ([2, -0.5, 2], [1, 2, 2], [3, 0])


@pytest.mark.parametrize(
    ("target", "change", "attributes", "message"),
    [
        ("terms", {"flip": np.array([[0], [2]], np.int32)}, {}, "flip.*int32.*uint32"),
        ("terms", {"mask": np.zeros((3, 1), np.uint32)}, {}, "mask.* has 3 words, but 2 terms have 1 words each"),
        ("terms", {"sign": np.zeros((2, 2), np.uint32)}, {}, r"sign.*\[2, 2\].*\[2, 1\]"),
        ("terms", {"first": np.array([0, 2, 1], np.int32)}, {}, "first.* ends with 1, not with 2"),
        ("terms", {"first": np.array([1, 1, 2], np.int32)}, {}, "first.* begins with 1, not with 0"),
        ("terms", {"flip": np.array([[0], [4]], np.uint32)}, {}, "flip.*site"),
        ("terms", {"pattern": np.array([[0], [2]], np.uint32)}, {}, "pattern"),
        ("terms", {}, {"diagonal": False}, "diagonal"),
        ("terms", {}, {"sizes": np.array([3])}, "site 0 has 3 local states, but terms are for sites with two"),
        ("terms", {}, {"starts": np.array([0.0, 1.0])}, "2 starts, 1 steps and 1 sizes"),
        ("terms", {"kind": np.array([0, 1], np.int32)}, {}, "kind"),
        ("terms", {"values": np.ones(2, bool)}, {}, "bool"),
        ("matrices", {"sites": np.array([0, 0, 2], np.int32)}, {}, "site"),
        ("matrices", {"sites": np.array([0, 0, -1], np.int32)}, {}, "site"),
        ("matrices", {"table": np.array([0, 2], np.int32)}, {}, "matri|table"),
        ("matrices", {"columns": np.array([0, 1, 4, 2], np.int32)}, {}, "column"),
        ("matrices", {"columns": np.array([0, 1, -1, 2], np.int32)}, {}, "column"),
        ("matrices", {"first_row": np.array([0, 3, 6], np.int32)}, {}, "row"),
        ("matrices", {"first_entry": np.array([0, 1, 2, 2, 2, 3, 5], np.int32)}, {}, "first_entry.* ends with 5"),
        ("matrices", {}, {"diagonal": False}, "diagonal"),
        ("matrices", {"x": BITS * 2}, {}, "sample 1, site 0 has the value 2, but the local states are 0 and 1"),
    ],
)
def test_wrong_calls_of_the_forms(target: str, change: Any, attributes: Any, message: str) -> None:
    args = (TERMS if target == "terms" else MATRICES) | change
    mels = jax.ShapeDtypeStruct((3, 2), args["values"].dtype)
    with pytest.raises(ERRORS, match=message):
        call_form(f"ferroket_{target}", args, (FORM_XP, mels), states=True, **attributes)
    counts = jax.ShapeDtypeStruct((3,), np.int32)
    with pytest.raises(ERRORS, match=message):
        call_form(f"ferroket_{target}_count", args, (counts,), off_diagonal_only=False, **attributes)


# What Rust reads, by its own names, and in its own order, against the names that Python knows.

UINT16, UINT32, FLOAT = np.uint16, np.uint32, np.float32
START = {
    "start": np.zeros((2, 2), UINT16),
    "chains": np.zeros(2, UINT32),
    "key": np.zeros(8, UINT32),
    "power": FLOAT(2),
}
CLUSTERS: dict[str, Any] = {
    "clusters": np.array([[0, 1]], np.int32),
    "weights": np.zeros(0, FLOAT),
    "first": np.array([0, 1, 2], np.int32),
    "of_site": np.array([[0, 1], [0, 0]], np.int32),
}
SWAPS: dict[str, Any] = {
    "pairs": np.array([[0, 1]], np.int32),
    "first_pair": np.array([0, 1], np.int32),
    "first": np.array([0, 1, 2], np.int32),
    "of_site": np.array([0, 0], np.int32),
    "group": np.array([-1, -1], np.int32),
    "limits": np.zeros((0, 2), np.int32),
}
UPDATED: dict[str, Any] = {
    "indices": np.zeros((2, 2), UINT16),
    "progress": np.zeros((2, 5), UINT32),
    "random": np.zeros((2, 66), UINT32),
    "kept": np.zeros((2, 0), UINT32),
    "log_prob": np.zeros(2, FLOAT),
    "samples": np.zeros((2, 3, 2), UINT16),
    "log_probs": np.zeros((2, 0), FLOAT),
    "own_sums": np.zeros((2, 0), FLOAT),
}
ASKED = {
    "proposed_log_probs": np.zeros((2, 1), FLOAT),
    "chains": START["chains"],
    "key": START["key"],
    "sizes": np.full(2, 2, UINT16),
}
PAIRS: dict[str, Any] = {
    "parameters": np.ones((1, 1)),
    "weights": np.ones((1, 1)),
    "index": np.zeros((2, 2, 1), np.int32),
    "factors": np.ones((1, 2, 2, 1)),
    "permutations": np.array([[0, 1]], np.int32),
    "signs": np.ones((1, 2)),
}
LAYER = {"constant": np.zeros(0, FLOAT), "table": np.zeros((2, 1, 0), FLOAT)}
OF_TERMS = {name: table for name, table in TERMS.items() if name not in ("x", "kind")}
OF_MATRICES = {name: table for name, table in MATRICES.items() if name not in ("x", "kind")}


@pytest.mark.parametrize(
    ("target", "args", "names", "attributes"),
    [
        pytest.param(
            "ferroket_ising",
            {"x": X, "edges": EDGES, "h": ONE, "J": ONE},
            ("x", *IsingArguments._fields),
            {},
            id="Ising",
        ),
        pytest.param("ferroket_terms", TERMS, ("x", *TermArguments._fields), {}, id="terms"),
        pytest.param("ferroket_matrices", MATRICES, ("x", *MatrixArguments._fields), {}, id="matrices"),
        pytest.param(
            "ferroket_pair_sums",
            {"n": np.ones((3, 2), np.uint8)} | PAIRS,
            ("n", *PairArguments._fields),
            {"fermions": np.int64(2), "rows": False},
            id="pairs",
        ),
        pytest.param(
            "ferroket_chains_jastrow",
            START | CLUSTERS,
            (*ChainArguments._fields, *ExchangeArguments._fields),
            {"rule": "exchange"},
            id="exchange",
        ),
        pytest.param(
            "ferroket_chains_jastrow",
            START | {f"{name} of rule": table for name, table in SWAPS.items()},
            (*ChainArguments._fields, *SwapArguments._fields),
            {"rule": "swap", "first_kind": np.int64(1), "probability": np.float64(0)},
            id="swap",
        ),
        pytest.param(
            "ferroket_chains_jastrow",
            START | {f"{name} of rule": table for name, table in OF_TERMS.items()},
            (*ChainArguments._fields, *TermArguments(*TermArguments._fields).of_rule()),
            {"rule": "hamiltonian"},
            id="chains by terms",
        ),
        pytest.param(
            "ferroket_chains_network",
            ASKED | UPDATED | LAYER | {f"{name} of rule": table for name, table in OF_MATRICES.items()},
            (
                *ASKED,
                *(field.name for field in fields(Chains)[:-1]),
                "own_sums",
                *FirstLayerTables._fields,
                *MatrixArguments(*MatrixArguments._fields).of_rule(),
            ),
            {"rule": "hamiltonian", "matrices": True},
            id="chains around a network",
        ),
    ],
)
def test_rust_reads_arguments_in_the_order_of_their_names(
    target: str, args: dict[str, Any], names: tuple[str, ...], attributes: dict[str, Any]
) -> None:
    updated = [jax.ShapeDtypeStruct(array.shape, array.dtype) for array in UPDATED.values()]
    asked = [((2, 1, 2), UINT16), ((2, 1, 0), FLOAT), ((), np.int32)]
    results = [*updated, *(jax.ShapeDtypeStruct(*of) for of in asked)] if "network" in target else [MELS]
    more = FORM_ATTRIBUTES | ATTRIBUTES | {"sweep": np.int64(1), "activations": "", "program": False} | attributes
    assert len(args) == len(names)
    for count, name in enumerate(names):
        with pytest.raises(ERRORS, match=f"argument {count} '{name}' is missing: the call has {count}"):
            jax.block_until_ready(jax.ffi.ffi_call(target, results)(*list(args.values())[:count], **more))
