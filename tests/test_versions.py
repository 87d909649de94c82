"""The versions that pyproject.toml says were tested are those with which the tests run."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TESTED = PROJECT["tool"]["ferroket"]["tested"]


def pinned(file: Path, package: str) -> str:
    """The version of a package in a list of versions."""
    found = re.search(rf"^{package}==(.*)$", file.read_text(), re.MULTILINE | re.IGNORECASE)
    assert found, f"{file.name} has no {package}"
    return found[1]


@pytest.mark.parametrize("package", ["jax", "netket"])
def test_tested_versions_are_those_of_the_lists(package: str) -> None:
    files = [ROOT / "ci" / "lowest.txt", *(ROOT / "ci").glob("newest-*.txt")]
    assert {pinned(file, package) for file in files} == set(TESTED[package])


def test_each_python_has_a_list() -> None:
    assert {file.stem.removeprefix("newest-") for file in (ROOT / "ci").glob("newest-*.txt")} == set(TESTED["python"])


@pytest.mark.parametrize("package", ["jax", "netket"])
def test_the_lowest_versions_are_the_bounds(package: str) -> None:
    lowest = pinned(ROOT / "ci" / "lowest.txt", package)
    bound = next(line for line in PROJECT["project"]["dependencies"] if line.startswith(f"{package}>="))
    assert lowest in (bound.removeprefix(f"{package}>="), f"{bound.removeprefix(f'{package}>=')}.0")
