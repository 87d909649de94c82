"""What completion and ``help`` read of samplers and drivers: the names of all arguments."""

import inspect

import netket as nk
import numpy as np
import pytest

import ferroket as fk

OF_SAMPLERS = ["sweep_size", "reset_chains", "n_chains", "n_chains_per_rank", "chunk_size", "machine_pow", "dtype"]
PAIRS = ["clusters", "graph", "d_max"]
OF_UPDATES = ["diag_shift", "proj_reg", "momentum", "linear_solver", "chunk_size_bwd", "mode", "use_ntk", "on_the_fly"]
OWN = ["trust_region", "machine_pow", "diag_scale"]
NAMES = {
    fk.sampler.MetropolisSampler: ["hilbert", "rule", *OF_SAMPLERS],
    fk.sampler.MetropolisLocal: ["hilbert", *OF_SAMPLERS],
    fk.sampler.MetropolisExchange: ["hilbert", *PAIRS, "probabilities", *OF_SAMPLERS],
    fk.sampler.MetropolisFermionHop: ["hilbert", *PAIRS, "spin_symmetric", *OF_SAMPLERS],
    fk.sampler.MetropolisSiteExchange: ["hilbert", *PAIRS, "exchange", *OF_SAMPLERS],
    fk.sampler.MetropolisHamiltonian: ["hilbert", "hamiltonian", *OF_SAMPLERS],
    fk.driver.VMC_SR: ["hamiltonian", "optimizer", "variational_state", *OWN, *OF_UPDATES],
    fk.driver.Infidelity_SR: ["target_state", "optimizer", "variational_state", "operator", *OF_UPDATES],
}
"""What NetKet 3.20.5 has as well; later ones may have more."""


@pytest.mark.parametrize("made", NAMES, ids=lambda made: made.__name__)
def test_all_arguments_have_names(made: type) -> None:
    parameters = inspect.signature(made).parameters
    assert set(NAMES[made]) <= set(parameters)
    assert {parameter.kind for parameter in parameters.values()} == {
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.KEYWORD_ONLY,
    }


def test_all_public_ones_are_here() -> None:
    public = {getattr(fk.driver, name) for name in fk.driver.__all__}
    public |= {getattr(fk.sampler, name) for name in fk.sampler.__all__ if name.startswith("Metropolis")}
    assert public == set(NAMES)


def test_defaults_are_those_that_hold() -> None:
    sampler = inspect.signature(fk.sampler.MetropolisLocal).parameters
    made = fk.sampler.MetropolisLocal(nk.hilbert.Spin(0.5, 4))
    assert sampler["machine_pow"].default == made.machine_pow == 2
    assert inspect.signature(fk.sampler.MetropolisFermionHop).parameters["dtype"].default is np.int8
    assert inspect.signature(fk.driver.VMC_SR).parameters["trust_region"].default is None
