"""The old names of what is in ``fk.ansatz`` are those things, and say so."""

import pkgutil
from typing import Any

import pytest

import ferroket as fk

MOVED = {
    "Amplitudes": "ferroket.ansatz.Amplitudes",
    "Family": "ferroket.ansatz.Ansatz",
    "Machine": "ferroket.ansatz.RBMAmplitudes",
    "ModulusAndPhase": "ferroket.ansatz.ModulusAndPhase",
    "Quadratic": "ferroket.ansatz.JastrowAmplitudes",
    "amplitudes": "ferroket.ansatz.amplitudes",
    "jastrow": "ferroket.ansatz.jastrow",
    "rbm": "ferroket.ansatz.rbm",
    "rbm_mod_phase": "ferroket.ansatz.rbm_mod_phase",
    "rbm_multi_val": "ferroket.ansatz.rbm_multi_val",
    "rbm_symm": "ferroket.ansatz.rbm_symm",
    "register": "ferroket.ansatz.register",
    "rules": "ferroket.local_energy.dispatch",
}


@pytest.mark.parametrize(("old", "new"), MOVED.items())
def test_an_old_name(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"ferroket.local_energy.{old} is deprecated: use {new}") as told:
        found = getattr(fk.local_energy, old)
    assert found is pkgutil.resolve_name(new)
    assert [warning.filename for warning in told] == [__file__]
    with pytest.warns(DeprecationWarning, match=f"use {new}") as told:
        exec(compile(f"from ferroket.local_energy import {old}", __file__, "exec"))
    assert {warning.filename for warning in told} == {__file__}


def test_the_old_name_is_the_users_affair_alone() -> None:
    """In code of this package it is an error of the tests."""
    code = compile("from ferroket.local_energy import Machine", "ours.py", "exec")
    with pytest.raises(DeprecationWarning):
        exec(code, {"__name__": "ferroket.ours"})


def test_no_other_name() -> None:
    with pytest.raises(AttributeError, match=r"module 'ferroket.local_energy' has no attribute 'Familie'"):
        _ = fk.local_energy.Familie  # type: ignore[attr-defined]


@pytest.mark.parametrize("namespace", [fk.local_energy, fk.sampler, fk.natural_gradient], ids=lambda m: m.__name__)
def test_explanations(namespace: Any) -> None:
    explanation = namespace.Explanation("known ratios", known=fk.ansatz.rbm.RBM())
    with pytest.warns(DeprecationWarning, match=r"Plan.family is deprecated: use Plan.ansatz") as told:
        assert explanation.family == "RBM" == explanation.ansatz
    assert [warning.filename for warning in told] == [__file__]
