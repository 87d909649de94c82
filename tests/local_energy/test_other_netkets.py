"""What a later NetKet may change: nothing of it passes in silence."""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import netket as nk
import numpy as np
import plum
import pytest
from netket.operator import DiscreteJaxOperator, DiscreteOperator
from netket.operator._fermion2nd.base import FermionOperator2ndBase
from netket.operator._local_operator.base import LocalOperatorBase
from netket.operator._pauli_strings.base import PauliStringsBase
from netket.vqs import MCState, get_local_kernel

import ferroket as fk
from ferroket._compat import netket as compat
from ferroket.local_energy import patching
from ferroket.operator import cache
from support.variational_states import CHAIN, MODELS, SPINS, make_state


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    fk.disable()
    patching._rules.cache_clear()


def has_no_rule(name: str) -> str:
    return rf"NetKet {re.escape(nk.__version__)} has no rule {name}.*: install NetKet 3\.20\.5 to 3\.23\.0"


def test_other_dispatch_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without those that it replaces, ``enable`` is an error, and replaces nothing."""

    def get_local_kernel_arguments(vstate: MCState, operator: DiscreteOperator, options: dict) -> Any:
        """With one argument more."""

    other = plum.Function(get_local_kernel_arguments).dispatch(get_local_kernel_arguments)
    monkeypatch.setattr(patching, "get_local_kernel_arguments", other)
    patching._rules.cache_clear()
    state, operator = make_state(MODELS["RBM"], SPINS), nk.operator.IsingJax(SPINS, CHAIN, h=0.7)
    before = get_local_kernel(state, operator)
    with pytest.raises(
        RuntimeError, match=has_no_rule(r"get_local_kernel_arguments\(MCState, DiscreteOperator\), in whose place")
    ):
        fk.enable()
    assert not fk.local_energy.is_enabled()
    assert not fk.sampler.is_enabled()
    assert get_local_kernel(state, operator) is before


def test_each_dispatch_rule_is_looked_for() -> None:
    found = {(rule.function.__name__, rule.netkets) for rule in patching._rules()}
    assert len(found) == 6
    for types in ((MCState, DiscreteOperator, float), (MCState,), (MCState, DiscreteJaxOperator, int, int)):
        names = ", ".join(cls.__name__ for cls in types)
        with pytest.raises(compat.MissingNameError, match=has_no_rule(rf"get_local_kernel\({names}\)")):
            compat.rule_of(get_local_kernel, *types)


FERMIONS = nk.hilbert.SpinOrbitalFermions(3)
CHANGED = {
    "LocalOperatorJax": (LocalOperatorBase, lambda cls: cls(SPINS, [np.diag([1.0, 0.3])], [[1]])),
    "LocalOperatorNumba": (LocalOperatorBase, lambda cls: cls(SPINS, [np.diag([1.0, 0.3])], [[1]])),
    "PauliStringsJax": (PauliStringsBase, lambda cls: cls(SPINS, ["XXIIII"], [0.7])),
    "PauliStringsNumba": (PauliStringsBase, lambda cls: cls(SPINS, ["XXIIII"], [0.7])),
    "FermionOperator2ndJax": (FermionOperator2ndBase, lambda cls: cls(FERMIONS, ["0^ 1", "1^ 0"], [1.0, 1.0])),
    "FermionOperator2ndNumba": (FermionOperator2ndBase, lambda cls: cls(FERMIONS, ["0^ 1", "1^ 0"], [1.0, 1.0])),
}


def renamed(name: str) -> property:
    """An attribute that NetKet's code finds, and ours doesn't."""

    def get(self: Any) -> Any:
        if sys._getframe(1).f_globals["__name__"].startswith("ferroket"):
            raise AttributeError(name)
        return self.__dict__["_renamed"]

    def put(self: Any, value: Any) -> None:
        self.__dict__["_renamed"] = value

    return property(get, put)


@pytest.mark.parametrize("name", CHANGED)
def test_another_name_of_what_says_that_an_operator_changed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then it is accelerated again each time."""
    base, make = CHANGED[name]
    monkeypatch.setattr(base, "_initialized", renamed("_initialized"), raising=False)
    operator, more = (make(getattr(nk.operator, name)) for _ in range(2))
    assert not compat.compute_tables(operator)
    fk.enable()
    before = patching.replacement(operator)
    assert before is not None
    operator += more
    after = patching.replacement(operator)
    assert after is not None
    np.testing.assert_allclose(after.to_dense(), 2 * before.to_dense(), rtol=1e-14)
    assert np.abs(before.to_dense()).max() > 0.1


@pytest.mark.parametrize("name", CHANGED)
def test_the_name_there_is(name: str) -> None:
    operator = CHANGED[name][1](getattr(nk.operator, name))
    assert compat.compute_tables(operator)
    assert cache.accelerated(operator) is cache.accelerated(operator)
    assert operator._initialized is True


@pytest.mark.parametrize("name", ["_sample_chain", "_sample_next"])
def test_other_methods_of_samplers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    here = compat.sampling_methods()
    assert set(here) == {"_sample_chain", "_sample_next"}
    message = rf"NetKet .* has no MetropolisSampler\.{name}\(machine, parameters, state.*\), in whose place Ferroket"
    monkeypatch.setattr(nk.sampler.MetropolisSampler, name, lambda self, machine, parameters, state, rng: None)
    with pytest.raises(compat.MissingNameError, match=message):
        compat.sampling_methods()
    monkeypatch.delattr(nk.sampler.MetropolisSampler, name)
    with pytest.raises(compat.MissingNameError, match=message):
        compat.sampling_methods()


def test_the_versions_in_messages_are_those_tested() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert list(compat.TESTED) == project["tool"]["ferroket"]["tested"]["netket"]
