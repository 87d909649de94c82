"""The tables of what is accelerated: the page is what the command makes, and its cells say what is true."""

import inspect
from importlib.metadata import version
from pathlib import Path

import flax.linen as nn
import netket as nk
import pytest
from packaging.version import Version

import ferroket as fk
from ferroket import pages
from ferroket.supports import command
from ferroket.supports.command import MADE, TABLES
from ferroket.supports.drivers import DRIVERS
from ferroket.supports.models import MODELS
from ferroket.supports.operators import OPERATORS
from ferroket.supports.rules import RULES
from ferroket.supports.spaces import SPACES
from ferroket.supports.tables import Row, Table

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "what-is-accelerated.md"
RATIOS = "amplitude ratios in Rust"
NETWORK = "network in Rust, first layer updated"
FACTORS = "factors, derivatives in Rust"
OF_DETERMINANTS = "derivatives by XLA, and by Rust for determinants: 'log_determinants' is a call of its own"

newest = pytest.mark.skipif(Version(version("netket")) < Version("3.23"), reason="the page is of NetKet 3.23")
of_the_page = pytest.mark.skipif(
    Version(version("jax")).release[:2] != (0, 10),
    reason="the page is of JAX 0.10",
)


def row(table: Table, name: str) -> Row:
    return next(found for found in table.rows if found.name == name)


@pytest.mark.parametrize(
    ("table", "name", "cells"),
    [
        (MODELS, "RBM", ["spins ½", RATIOS, RATIOS, FACTORS]),
        (MODELS, "RBMSymm", ["spins ½", RATIOS, RATIOS, "rows, derivatives in Rust"]),
        (MODELS, "MLP", ["spins ½", NETWORK, NETWORK, FACTORS]),
        (MODELS, "Slater2nd", ["fermions", RATIOS, RATIOS, f"factors, {OF_DETERMINANTS}"]),
        (RULES, "ExchangeRule", [RATIOS, NETWORK]),
        (
            RULES,
            "ParallelTemperingSampler",
            [
                "NetKet: ParallelTemperingSampler isn't exactly one of the Metropolis samplers of NetKet or of "
                "fk.sampler",
                "the same",
            ],
        ),
        (OPERATORS, "Ising", ["`Ising`", RATIOS]),
        (OPERATORS, "Heisenberg", ["`LocalOperator`", RATIOS]),
        (OPERATORS, "LocalLiouvillian", ["no: superoperators aren't supported", ""]),
        (
            OPERATORS,
            "KineticEnergy",
            ["no: operators on continuous spaces have derivatives, and no connected elements", ""],
        ),
        (OPERATORS, "a subclass of your own", ["no: there are accelerated versions of exactly these classes", ""]),
        (DRIVERS, "VMC_SR", [RATIOS, RATIOS, FACTORS]),
        (
            DRIVERS,
            "VMC",
            [RATIOS, RATIOS, "NetKet: VMC is no driver of stochastic reconfiguration: give VMC_SR or Infidelity_SR"],
        ),
        (SPACES, "Spin(1/2, total_sz=0)", [RATIOS, RATIOS]),
        (
            SPACES,
            "Spin(1)",
            [
                f"{NETWORK}: some sites don't have two local states",
                f"{NETWORK}: the operator acts on sites that have more than two local states",
            ],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_cells(table: Table, name: str, cells: list[str]) -> None:
    assert row(table, name).cells() == cells


def test_a_row_leaves_nothing_enabled() -> None:
    row(OPERATORS, "LocalLiouvillian").cells()
    assert not any(part.is_enabled() for part in (fk.local_energy, fk.sampler, fk.natural_gradient))
    fk.local_energy.enable()
    try:
        row(OPERATORS, "LocalLiouvillian").cells()
        assert fk.local_energy.is_enabled()
        assert not fk.sampler.is_enabled()
    finally:
        fk.local_energy.disable()


@newest
def test_the_page_has_all_rows() -> None:
    """In the order of the tables."""
    made = MADE.read(PAGE)
    sections = made.split("## ")[1:]
    assert [section.splitlines()[0] for section in sections] == [table.title for table in TABLES]
    for section, table in zip(sections, TABLES, strict=True):
        names = [line.split(" | ")[0].strip("| `") for line in section.splitlines() if line.startswith("| ")]
        assert names == [table.headings[0], *(found.name for found in table.rows)]


@newest
@of_the_page
@pytest.mark.thorough
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.title)
def test_the_page_is_what_the_command_makes(table: Table) -> None:
    made = f"{MADE.read(PAGE)}\n\n## "
    assert made.partition(f"## {table.title}\n\n")[2].partition("\n\n## ")[0] == command.table_in_markdown(table)


BASES = {"AbstractARNN", "ARNNSequential", "FastARNNSequential", "RNN", "FastRNN"}
"""Classes whose subclasses are models."""


@newest
def test_all_of_netkets_models_are_there() -> None:
    public = {
        name
        for place in (nk.models, nk.models.tensor_networks, nk.experimental.models)
        for name, model in inspect.getmembers(place, inspect.isclass)
        if issubclass(model, nn.Module) and name not in BASES
    }
    assert public | {"GCNN"} <= {found.name for found in MODELS.rows}  # a function that makes one of several


@newest
def test_all_of_netkets_rules_are_there() -> None:
    rules = {
        name
        for name, rule in inspect.getmembers(nk.sampler.rules, inspect.isclass)
        if issubclass(rule, nk.sampler.rules.MetropolisRule) and rule is not nk.sampler.rules.MetropolisRule
    }
    assert rules - {"CustomRuleNumpy"} <= {found.name for found in RULES.rows}  # a sampler of its own, as other -Numpy


def test_names_of_models() -> None:
    names = {found.name: found.key for found in MODELS.rows}
    assert names["fk.models.PairProduct(general=True)"] == "pairproduct"
    assert names["nn.Conv"] == "conv"


def test_one_model_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    command.supports("jastrow", None)
    assert capsys.readouterr().out == "\n".join(
        [
            "Jastrow",
            "  of: spins ½",
            f"  sampling: {RATIOS}",
            f"  local energies: {RATIOS}",
            "  update: closed form, derivatives in Rust",
            "",
            "",
        ]
    )


def test_a_page_without_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Nothing\n")
    with pytest.raises(ValueError, match="must have the lines '<!-- made by `ferroket supports --page`: -->'"):
        MADE.write(page, "text")
    page.write_text(f"before\n\n{MADE.start}\nold\n{MADE.end}\nafter\n")
    MADE.write(page, "new\n")
    assert page.read_text() == f"before\n\n{MADE.start}\n\nnew\n\n{MADE.end}\nafter\n"
    assert MADE.read(page) == "new"


def test_cells_with_bars() -> None:
    assert pages.table(["a", "b"], [["1", "|x|"]]) == "| a | b |\n|---|---|\n| 1 | \\|x\\| |"
