"""The reference has every public name. What it says of them comes from their docstrings when it is built."""

import importlib
import pkgutil
import re
from pathlib import Path

import pytest

PAGES = Path(__file__).parents[1] / "docs" / "api"
NAMESPACES = (
    "",
    ".operator",
    ".hilbert",
    ".ansatz",
    ".models.mvmc",
    ".local_energy",
    ".sampler",
    ".sampler.rules",
    ".driver",
    ".optimizer",
    ".optimizer.qgt",
    ".optimizer.solver",
    ".natural_gradient",
    ".distributed",
)
# The names that the directives document: whole ones, or with the module that follows.
DOCUMENTED = [
    f"{module}.{name}" if module else name
    for page in sorted(PAGES.glob("*.md"))
    for name, module in re.findall(
        r"^ *\.\. (?:auto\w+|py:\w+):: ([\w.]+).*(?:\n +:module: (.+))?", page.read_text(), re.MULTILINE
    )
]


@pytest.mark.parametrize("namespace", [f"ferroket{name}" for name in NAMESPACES])
def test_every_public_name_is_in_the_reference(namespace: str) -> None:
    public = {f"{namespace}.{name}" for name in importlib.import_module(namespace).__all__}
    assert public <= set(DOCUMENTED)


def test_no_name_is_there_twice() -> None:
    assert len(DOCUMENTED) == len(set(DOCUMENTED))


@pytest.mark.parametrize("name", DOCUMENTED)
def test_what_is_in_the_reference_exists(name: str) -> None:
    found = pkgutil.resolve_name(name)
    assert found.__doc__
    assert not found.__doc__.startswith(f"{name.rsplit('.', maxsplit=1)[-1]}("), "a dataclass writes this itself"
