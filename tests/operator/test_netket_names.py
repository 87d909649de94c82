"""What our operators use of NetKet's without a promise: each must be there."""

import netket as nk
import pytest

from ferroket._compat import netket as compat

SPINS, CHAIN = nk.hilbert.Spin(0.5, 3), nk.graph.Chain(3)
BOSONS, FERMIONS = nk.hilbert.Fock(2, 3), nk.hilbert.SpinOrbitalFermions(3, n_fermions=2)
OBJECTS = {
    nk.operator.IsingJax: lambda: nk.operator.IsingJax(SPINS, CHAIN, h=1.0),
    nk.operator.BoseHubbardJax: lambda: nk.operator.BoseHubbardJax(BOSONS, CHAIN, U=1.0),
    nk.operator.LocalOperatorJax: lambda: nk.operator.LocalOperatorJax(SPINS, [[0, 1], [1, 0]], [0]),
    nk.operator.PauliStringsJax: lambda: nk.operator.PauliStringsJax(SPINS, ["XZI"]),
    nk.operator.FermionOperator2ndJax: lambda: nk.operator.FermionOperator2ndJax(FERMIONS, ["0^ 1"]),
}


@pytest.mark.parametrize("cls", compat.INHERITED, ids=lambda cls: cls.__name__)
def test_attributes_of_definitions(cls):
    assert set(compat.INHERITED[cls]) <= set(vars(OBJECTS[cls]()))


@pytest.mark.parametrize("cls", compat.OVERRIDDEN, ids=lambda cls: cls.__name__)
def test_methods_that_are_overridden(cls):
    assert [name for name in compat.OVERRIDDEN[cls] if not callable(getattr(cls, name, None))] == []


def test_what_is_read():
    states = compat.range_of_local_states(SPINS)
    assert [states.start, states.start + states.step] == SPINS.local_states
    assert compat.cutoff_of(nk.operator.PauliStringsJax(SPINS, ["XZI"], cutoff=1e-3)) == 1e-3
    assert compat.order_of(nk.operator.FermionOperator2ndJax(FERMIONS, ["0 1^"])) is None
    conserving = compat.ParticleNumberConserving.from_fermionoperator2nd(
        nk.operator.FermionOperator2ndJax(FERMIONS, ["0^ 1"])
    )
    assert set(compat.tables_of_conserving(conserving)) == {"diag", "offdiag"}
