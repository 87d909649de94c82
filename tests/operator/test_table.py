"""The table in docs/operators.md: each cell is a test, and each example of the tests is a row."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import ferroket as fk
from support.comparisons import COLLECTIVES, elements, on_a_gpu
from support.example_operators import EXAMPLES, NETKET, TITLES, Example
from support.mpi import run_on_devices

PAGE = Path(__file__).parents[2] / "docs" / "operators.md"
SAYS = {"padded": {"Rust", "XLA", "no elements"}, "compact": {"Rust", "XLA"}, "sharded": {"yes"}, "GPU branch": {"yes"}}
COLUMNS = tuple(SAYS)
RESULTS = ("xp", "mels", "n_conn")


@dataclass(frozen=True)
class Row:
    operator: str
    netket: str
    ferroket: str
    cells: dict[str, str]


def table() -> list[Row]:
    """The rows of the table whose first column is `operator`."""
    (text,) = re.findall(r"^\| operator \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE.read_text(), re.MULTILINE)
    (head,) = re.findall(r"^\| operator \|.*$", PAGE.read_text(), re.MULTILINE)
    assert cells_of(head) == ["operator", "NetKet", "Ferroket", *COLUMNS]
    rows = []
    for line in text.splitlines():
        operator, netket, ferroket, *cells = cells_of(line)
        rows.append(Row(operator, netket.strip("`"), ferroket.strip("`"), dict(zip(COLUMNS, cells, strict=True))))
    return rows


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


ROWS = table()
BY_TITLE = {example.title: example for example in EXAMPLES}


def cells(column: str) -> pytest.MarkDecorator:
    """The rows that an example belongs to; that there are no others is a test of its own."""
    assert {row.cells[column] for row in ROWS} <= SAYS[column]
    known = [(BY_TITLE[row.operator], row.cells[column]) for row in ROWS if row.operator in BY_TITLE]
    return pytest.mark.parametrize(("example", "cell"), known, ids=[f"{column}-{e.title}" for e, _ in known])


@pytest.fixture(scope="module")
def four_devices(tmp_path_factory: pytest.TempPathFactory) -> dict[str, np.ndarray]:
    """What a process with four devices has found."""
    file = tmp_path_factory.mktemp("four_devices") / "found.npz"
    # NetKet's operators have to be made for their classes: that takes numba long, which is why it compiles nothing.
    job = run_on_devices(find_on_four_devices, 4, str(file), timeout=200, NUMBA_DISABLE_JIT="1")
    assert job.returncode == 0, job.stderr[-8000:]
    with np.load(file) as found:
        return dict(found)


def some_samples(hilbert: Any) -> np.ndarray:
    """As many samples as four devices can share, from all over the Hilbert space."""
    states = np.asarray(hilbert.all_states())
    return states[np.linspace(0, len(states) - 1, 16).astype(int)]


def is_netkets(example: Example) -> bool:
    """Whether NetKet's operator is of the class that the example names, or a local operator that a function gives."""
    named: Any = NETKET
    for part in example.netket.split("."):
        named = getattr(named, part)
    return isinstance(example.theirs, named if isinstance(named, type) else NETKET.LocalOperator)


def find_on_four_devices(file: str) -> None:
    """Of each example the connected elements of sharded samples, and the classes."""
    assert jax.device_count() == 4
    use_mesh = jax.set_mesh if hasattr(jax, "set_mesh") else jax.sharding.use_mesh
    mesh = Mesh(np.array(jax.devices()), ("S",))
    by_batch = NamedSharding(mesh, P("S"))
    found: dict[str, np.ndarray] = {}
    for example in EXAMPLES:
        operator = example.ours()
        samples = some_samples(operator.hilbert)
        with use_mesh(mesh):
            sharded = jax.device_put(samples, by_batch)
            compiled = elements.lower(operator, sharded).compile()
            results = compiled(operator, sharded)
        hlo = compiled.as_text()
        # XLA doesn't care where arrays without elements are.
        stays = all(result.sharding.is_equivalent_to(by_batch, result.ndim) for result in results if result.size)
        found[f"{example.title}/collectives"] = np.array([name for name in COLLECTIVES if name in hlo], str)
        found[f"{example.title}/in Rust"] = np.array("ferroket_" in hlo)
        found[f"{example.title}/stays sharded"] = np.array(stays)
        found[f"{example.title}/is NetKet's"] = np.array(is_netkets(example))
        found[f"{example.title}/accelerated"] = np.array(type(fk.accelerate(example.theirs)).__name__)
        found |= {f"{example.title}/{name}": np.asarray(y) for name, y in zip(RESULTS, results, strict=True)}
    np.savez(file, **found)  # type: ignore[arg-type]


def test_rows_are_examples() -> None:
    assert [row.operator for row in ROWS] == TITLES


# A cell is what it says. The samples are those of the whole Hilbert space.


def padded(operator: Any, x: Any) -> Any:
    return operator.get_conn_padded(x)


def ours_and_states(example: Example) -> tuple[Any, np.ndarray]:
    # Not the example's basis, for which NetKet's operator would have to be made.
    operator = example.ours()
    return operator, np.asarray(operator.hilbert.all_states())


@cells("padded")
def test_padded(example: Example, cell: str) -> None:
    operator, x = ours_and_states(example)
    lowered = jax.jit(padded).lower(operator, x)
    xp, mels = map(np.asarray, lowered.compile()(operator, x))
    expected = example.reference().matrix(x)
    matrix = np.zeros_like(expected)
    columns = operator.hilbert.states_to_numbers(xp)
    np.add.at(matrix, (np.arange(len(x))[:, None], columns), mels)
    np.testing.assert_allclose(matrix, expected, rtol=1e-12, atol=1e-12)

    assert (mels.shape[-1] == 0) is (cell == "no elements")
    (results,) = re.findall(r"custom_call @ferroket_.* -> (.*)", lowered.as_text())
    configurations = f"tensor<{'x'.join(map(str, xp.shape))}x"
    assert (configurations in results) is (cell == "Rust")
    assert ("stablehlo.gather" in lowered.as_text()) is (cell == "XLA")


@cells("compact")
def test_compact(example: Example, cell: str) -> None:
    operator, x = ours_and_states(example)
    xp, mels = map(np.asarray, operator.get_conn_padded(x))
    sample, element = np.nonzero(mels)
    expected = xp[sample, element], mels[sample, element], sample

    # With a capacity that takes two calls.
    capacity = max(-(-len(sample) // 2), 1)
    compact = jax.jit(lambda form, x, cursor: form.compact(x, cursor, capacity))
    form = operator._form
    lowered = compact.lower(form, x, np.zeros(2, np.int32))
    first = compact(form, x, np.zeros(2, np.int32))
    second = compact(form, x, first[3])
    assert second[3].tolist() == [len(x), 0]
    for mine, right in zip(
        (np.concatenate(parts) for parts in zip(first[:3], second[:3], strict=True)), expected, strict=True
    ):
        np.testing.assert_array_equal(mine[: len(sample)], right)
        assert mine.dtype == right.dtype or right is sample
    assert (np.concatenate([first[2], second[2]])[len(sample) :] == len(x)).all()

    sections = np.empty(len(x), int)
    for mine, right in zip(operator.get_conn_flattened(x, sections), expected[:2], strict=True):
        np.testing.assert_array_equal(mine, right)
    np.testing.assert_array_equal(sections, np.cumsum((mels != 0).sum(axis=1)))

    from_rust = re.search(r"custom_call @ferroket_(terms|matrices)_compact", lowered.as_text()) is not None
    assert from_rust is (cell == "Rust")


@pytest.mark.quick(
    "transverse-field Ising model", "sum of local matrices, spin 1", "Pauli strings", "fermions in second quantisation"
)
@cells("GPU branch")
def test_gpu_branch(example: Example, cell: str) -> None:
    operator, x = ours_and_states(example)
    assert cell == "yes"
    # It fails if what is lowered for CUDA calls anything, of ours or others'.
    compiled = on_a_gpu(padded, operator, x)
    for mine, cpus in zip(compiled(operator, x), padded(operator, x), strict=True):
        assert mine.dtype == cpus.dtype
        np.testing.assert_allclose(mine, cpus, rtol=1e-14, atol=1e-14)


@pytest.mark.thorough
@cells("sharded")
def test_sharded(example: Example, cell: str, four_devices: dict[str, np.ndarray]) -> None:
    operator = example.ours()
    x = some_samples(operator.hilbert)
    for name, right in zip(RESULTS, elements(operator, x), strict=True):
        np.testing.assert_array_equal(four_devices[f"{example.title}/{name}"], right, err_msg=name)
    works = (
        four_devices[f"{example.title}/collectives"].size == 0
        and bool(four_devices[f"{example.title}/in Rust"])
        and bool(four_devices[f"{example.title}/stays sharded"])
    )
    assert works is (cell == "yes"), four_devices[f"{example.title}/collectives"]


known_rows = pytest.mark.parametrize(
    "row", [row for row in ROWS if row.operator in BY_TITLE], ids=lambda row: f"class-{row.operator}"
)


@known_rows
def test_classes(row: Row) -> None:
    assert row.netket == BY_TITLE[row.operator].netket
    assert isinstance(BY_TITLE[row.operator].ours(), getattr(fk.operator, row.ferroket))


@pytest.mark.thorough
@known_rows
def test_classes_of_what_is_accelerated(row: Row, four_devices: dict[str, np.ndarray]) -> None:
    assert four_devices[f"{row.operator}/is NetKet's"]
    assert row.ferroket == four_devices[f"{row.operator}/accelerated"]
