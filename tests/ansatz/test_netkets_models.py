"""What is said of each of NetKet's models on the page about networks."""

import inspect
import re
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import flax.linen as nn
import netket as nk
import pytest
from packaging.version import Version

import ferroket as fk
from ferroket._compat import netket as compat

PAGE = Path(__file__).parents[2] / "docs" / "networks.md"
SQUARE = nk.graph.Square(3)
SPINS = nk.hilbert.Spin(0.5, SQUARE.n_nodes)
CHAIN = nk.graph.Chain(4)
FERMIONS = nk.hilbert.SpinOrbitalFermions(4, s=0.5, n_fermions_per_spin=(2, 2))

pytestmark = pytest.mark.usefixtures("quick_compilation")


class SetsOfSites(nn.Module):
    """A model of sets, each of whose members is a site."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        return nk.models.DeepSetMLP(features_phi=(4,), features_rho=(4,))(x[..., None])


def autoregressive(model: Any, **arguments: Any) -> nn.Module:
    made: nn.Module = model(hilbert=SPINS, layers=1, features=2, **arguments)
    return made


def small(name: str) -> Any:
    """One of NetKet's models, with few parameters."""
    model = model_named(name)
    made: dict[str, Callable[[], Any]] = {
        "DeepSetMLP": SetsOfSites,
        "GCNN": lambda: model(SQUARE, layers=2, features=2),
        "LogStateVector": lambda: model(SPINS),
        "MLP": lambda: model(hidden_dims=(3,)),
        "RBMMultiVal": lambda: model(n_classes=2),
        "RBMSymm": lambda: model(symmetries=SQUARE.translation_group(), alpha=1),
        "Slater2nd": lambda: model(FERMIONS),
        "MultiSlater2nd": lambda: model(FERMIONS, n_determinants=2),
        **dict.fromkeys(("MPSOpen", "MPSPeriodic"), lambda: model(hilbert=SPINS, bond_dim=2)),
    }
    if name in made:
        return made[name]()
    if not re.search("ARNN|LSTM|GRU", name):
        return model()
    kernel_size = {"ARNNConv1D": {"kernel_size": 2}, "ARNNConv2D": {"kernel_size": (2, 2)}}
    return autoregressive(model, **kernel_size.get(name.removeprefix("Fast"), {}))


PLACES = (nk.models, nk.models.tensor_networks, nk.experimental.models)


def model_named(name: str) -> Any:
    return next((found for place in PLACES if (found := getattr(place, name, None)) is not None), None)


def in_words(name: str) -> tuple[str, list[str]]:
    """What evaluates the local energies of a model, as the table says it, and why nothing faster does."""
    if name in ("Slater2nd", "MultiSlater2nd"):
        sampler = fk.sampler.MetropolisFermionHop(FERMIONS, graph=CHAIN, n_chains=4)
        operator = fk.accelerate(compat.FermiHubbard(FERMIONS, t=1.0, U=1.0, graph=CHAIN))
    else:
        sampler, operator = fk.sampler.MetropolisLocal(SPINS, n_chains=4), fk.operator.Ising(SPINS, SQUARE, h=1.0)
    with warnings.catch_warnings(action="ignore"):
        state = nk.vqs.MCState(sampler, small(name), n_samples=8)
        plan = fk.explain(state, operator)
    if plan.path != "any network":
        return plan.path, plan.reasons
    words = "in Rust, in lanes" if plan.rest else "XLA"
    return (words if plan.first_layer is None else f"{words}; sums are updated"), plan.reasons


def table() -> dict[str, tuple[str, str]]:
    """By model: what evaluates it, and what is said about it."""
    section = PAGE.read_text().partition("\n## NetKet's models\n")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in section.splitlines() if "|" in line]
    return {name: (row[1], row[2]) for row in rows for name in re.findall(r"`(\w+)`", row[0])}


IN_TABLE = table()
OF_OTHER_SPACES = {"NDM", "MPDOOpen", "MPDOPeriodic", "Gaussian", "DeepSetRelDistance"}
"""Models of density matrices and of continuous spaces, which no operator of ours is for."""

BASES = {"AbstractARNN", "ARNNSequential", "FastARNNSequential", "RNN", "FastRNN"}
"""Classes whose subclasses are models."""


@pytest.mark.quick("MLP", "GCNN", "ARNNDense", "MPSOpen", "DeepSetMLP")
@pytest.mark.parametrize("name", sorted(IN_TABLE.keys() - OF_OTHER_SPACES))
def test_the_table_says_what_evaluates_a_model(name: str) -> None:
    if model_named(name) is None:
        pytest.skip("this NetKet doesn't have it")
    path, remark = IN_TABLE[name]
    found, reasons = in_words(name)
    assert path == found
    if path.startswith(("XLA", "NetKet")):
        assert remark in " ".join(reasons)


@pytest.mark.skipif(Version(version("netket")) < Version("3.23"), reason="the table is of the models of NetKet 3.23")
def test_the_table_has_all_models() -> None:
    public = {
        name
        for place in PLACES
        for name, model in inspect.getmembers(place, inspect.isclass)
        if issubclass(model, nn.Module) and name not in BASES
    }
    public |= {name for name in ("GCNN",) if hasattr(nk.models, name)}  # a function that makes one of several
    assert not public - IN_TABLE.keys()
    assert {IN_TABLE[name][0] for name in OF_OTHER_SPACES} == {"NetKet"}
