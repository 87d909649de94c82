"""Run by `operator/test_restriction.py` in a process with four devices, whose numbers are compared with matrices."""

import ferroket  # noqa: F401 - before JAX starts, so that this jaxlib computes right sums

# isort: split
import jax
import netket as nk
import numpy as np

import ferroket as fk
from constrained import CASES, RYDBERG, Blockade
from four_devices import COLLECTIVES, elements


def check_connected_elements() -> None:
    for name in ("Rydberg atoms", "Ising", "matrices"):
        case = CASES[name]
        operator = case.make(fk.operator, case.hilbert)
        x = case.states[np.arange(16) % len(case.states)]
        expected = elements(operator, x)
        sharded = nk.jax.sharding.shard_along_axis(jax.numpy.asarray(x), axis=0)
        compiled = elements.lower(operator, sharded).compile()
        assert not [name for name in COLLECTIVES if name in compiled.as_text()]
        for mine, right in zip(compiled(operator, sharded), expected, strict=True):
            assert mine.sharding.is_equivalent_to(sharded.sharding, mine.ndim)
            np.testing.assert_allclose(mine, right, rtol=1e-12)


def check_states() -> None:
    case = CASES["Rydberg atoms"]
    operator = case.make(fk.operator, RYDBERG)
    model = nk.models.RBM(alpha=1, kernel_init=jax.nn.initializers.normal(0.3))
    sampler = fk.sampler.MetropolisHamiltonian(RYDBERG, operator, n_chains=64)
    state = nk.vqs.MCState(sampler, model, n_samples=8192, seed=1, sampler_seed=2)
    assert bool(Blockade()(state.samples).all())
    psi = np.asarray(state.to_array())
    energy, gradient = state.expect_and_grad(operator)
    assert abs(energy.mean - psi.conj() @ case.matrix @ psi) < 5 * energy.error_of_mean
    local = state.local_estimators(operator)
    local = np.asarray(getattr(local, "data", local)).ravel()  # an array before NetKet 3.23
    of_all = (case.matrix @ psi) / psi
    number = {tuple(row): i for i, row in enumerate(case.states.tolist())}
    samples = np.asarray(state.samples).reshape(-1, 6).tolist()
    np.testing.assert_allclose(local, of_all[[number[tuple(row)] for row in samples]], rtol=1e-10)
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))


if __name__ == "__main__":
    assert jax.device_count() == 4
    check_connected_elements()
    check_states()
