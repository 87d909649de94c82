"""What an installed Ferroket consists of, in place or from a wheel, and what importing it costs."""

import importlib.metadata
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

import ferroket

PACKAGE = files("ferroket")
WORKSPACE = Path(__file__).parents[2] / "Cargo.toml"

# What `import ferroket` must leave to the first use: each of these costs more than the 50 ms that an import
# may take, or starts XLA or MPI before `initialize` can prepare them.
DEFERRED = ["jax", "jaxlib", "numpy", "netket", "mpi4py", "rich", "typer", "ferroket._lib"]

IMPORT_AND_REPORT = """
import sys, time
start = time.perf_counter()
import ferroket
print(1e3 * (time.perf_counter() - start), *sorted(sys.modules))
"""


def run_python(code: str) -> str:
    """The output of the code in a fresh interpreter."""
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("name", ["py.typed", "_lib.pyi"])
def test_package_is_typed(name):
    assert PACKAGE.joinpath(name).is_file()


def test_package_holds_one_compiled_file_of_the_stable_abi():
    compiled = [f.name for f in PACKAGE.iterdir() if f.name.endswith((".so", ".dylib", ".pyd"))]
    assert compiled == ["_lib.abi3.so"]


def test_import_loads_nothing_heavy(capsys):
    milliseconds, *modules = run_python(IMPORT_AND_REPORT).split()
    with capsys.disabled():  # told, not asserted: the time of a shared machine is no test
        print(f"\nimport ferroket: {float(milliseconds):.1f} ms")
    assert not set(DEFERRED).intersection(modules)


def test_versions_agree():
    workspace = tomllib.loads(WORKSPACE.read_text(encoding="utf-8"))["workspace"]["package"]["version"]
    assert ferroket.__version__ == importlib.metadata.version("ferroket") == workspace


def test_command_is_installed():
    commands = importlib.metadata.entry_points(group="console_scripts", name="ferroket")
    assert [c.value for c in commands] == ["ferroket.cli:app"]
