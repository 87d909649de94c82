"""The versions that are named, in pyproject.toml and beside it, are those with which the tests run."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
TESTED = PROJECT["tool"]["ferroket"]["tested"]
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
"""What checks a commit."""


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


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_commits_are_checked_by_the_versions_of_the_list(hook: dict[str, Any]) -> None:
    for requirement in hook.get("additional_dependencies", ()):
        package, version = requirement.split("==")
        assert version == pinned(ROOT / "ci" / "newest-3.11.txt", package)


def test_commits_are_checked_by_what_make_lint_runs() -> None:
    """The same commands, with the same options."""
    makefile = (ROOT / "Makefile").read_text()
    recipes = re.findall(r"^lint-(?:rust|python):.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)
    commands = re.findall(r"^\t\$\((?:BIN\)/|CARGO\) )(.*)", "".join(recipes), re.MULTILINE)
    assert len(commands) == len(HOOKS) == 7
    entries = [re.sub(r"^(?:env \S+ )?(?:\.venv/bin/|cargo )?", "", hook["entry"]) for hook in HOOKS]
    assert sorted(entries) == sorted(commands)


def test_the_package_says_which_pythons_are_tested() -> None:
    prefix = "Programming Language :: Python :: 3."
    named = [name.removeprefix(prefix) for name in PROJECT["project"]["classifiers"] if name.startswith(prefix)]
    assert [f"3.{minor}" for minor in named] == TESTED["python"]


def test_the_citation_is_of_this_package() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]
    assert (citation["version"], citation["license"]) == (workspace["version"], workspace["license"])
    assert citation["authors"] == PROJECT["project"]["authors"]
    assert citation["keywords"] == PROJECT["project"]["keywords"]
