"""In NetKet's hands: expectation values, gradients, drivers and samplers, equal to those with NetKet's operator."""

import jax
import netket as nk
import numpy as np
import pytest

from ferroket.operator import Ising

HILBERT = nk.hilbert.Spin(0.5, 6)
GRAPH = nk.graph.Chain(6)
OPERATORS = [cls(HILBERT, GRAPH, h=1.3, J=-0.7) for cls in (Ising, nk.operator.IsingJax)]


def state(operator=None, param_dtype=float, **kwargs):
    sampler = (
        nk.sampler.MetropolisHamiltonian(HILBERT, hamiltonian=operator, n_chains=16)
        if operator is not None
        else nk.sampler.MetropolisLocal(HILBERT, n_chains=16)
    )
    model = nk.models.RBM(alpha=1, param_dtype=param_dtype)
    return nk.vqs.MCState(sampler, model, n_samples=64, seed=1, sampler_seed=2, **kwargs)


def assert_same(results, rtol=1e-12):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-12), *results)


@pytest.mark.quick("True-16-complex")
@pytest.mark.parametrize(
    ("packed", "chunk_size", "param_dtype"), [(False, None, float), (False, 4, complex), (True, 16, complex)]
)
def test_expectation_values(packed, chunk_size, param_dtype):
    flag = "netket_experimental_packed_kernel"
    if packed and not hasattr(nk.config, flag):
        pytest.skip("this NetKet has no packed kernel")
    if packed:
        nk.config.update(flag, True)
    try:
        vstate = state(param_dtype=param_dtype, chunk_size=chunk_size)
        results = []
        for operator in OPERATORS:
            energy, gradient = vstate.expect_and_grad(operator)
            local = vstate.local_estimators(operator)
            results.append((vstate.expect(operator).mean, energy.mean, energy.variance, gradient, local))
    finally:
        if packed:
            nk.config.update(flag, False)
    assert_same(results)
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(results[0][3])) > 1e-3


@pytest.mark.thorough
def test_non_hermitian_operators():
    vstate = state(param_dtype=complex)
    ours = Ising(HILBERT, GRAPH, h=1.3 + 0.5j, J=-0.7)
    operators = [ours, ours.to_local_operator()]
    assert [operator.is_hermitian for operator in operators] == [False, False]
    nk.config.update("netket_experimental", True)  # NetKet computes such gradients only then
    try:
        assert_same([(vstate.expect(op).mean, vstate.expect_and_grad(op)[1]) for op in operators], 1e-10)
    finally:
        nk.config.update("netket_experimental", False)


def test_full_sum_state():
    vstate = nk.vqs.FullSumState(HILBERT, nk.models.RBM(), seed=1)
    assert_same([(vstate.expect(op).mean, vstate.expect_and_grad(op)[1]) for op in OPERATORS])


@pytest.mark.parametrize("driver", ["VMC", "VMC_SR"])
def test_steps_of_a_driver(driver):
    parameters = []
    for operator in OPERATORS:
        vstate = state()
        optimizer = nk.optimizer.Sgd(0.05)
        if driver == "VMC":
            run = nk.driver.VMC(operator, optimizer, variational_state=vstate)
        else:
            run = nk.driver.VMC_SR(operator, optimizer, variational_state=vstate, diag_shift=0.01)
        run.run(3, out=nk.logging.RuntimeLog(), show_progress=False)
        parameters.append(vstate.parameters)
    assert_same(parameters, 1e-9)


@pytest.mark.thorough
def test_hamiltonian_sampler():
    samples = []
    for operator in OPERATORS:
        vstate = state(operator)
        samples.append((np.asarray(vstate.samples), vstate.expect(operator).mean))
    assert_same(samples)


@pytest.mark.thorough
def test_time_evolution():
    parameters = []
    for operator in OPERATORS:
        vstate = nk.vqs.FullSumState(HILBERT, nk.models.RBM(param_dtype=complex), seed=1)
        # Without a shift the equations are singular, and rounding errors are all that there is in some directions.
        qgt = nk.optimizer.qgt.QGTJacobianDense(holomorphic=True, diag_shift=0.01)
        integrator = nk.experimental.dynamics.Euler(dt=0.01)
        driver = nk.experimental.TDVP(operator, vstate, integrator, qgt=qgt, propagation_type="real")
        driver.run(0.02, out=nk.logging.RuntimeLog(), show_progress=False)
        parameters.append(vstate.parameters)
    assert_same(parameters, 1e-7)


def test_derivative_of_the_energy_by_the_field():
    vstate = nk.vqs.FullSumState(HILBERT, nk.models.RBM(), seed=1)
    psi = vstate.to_array()

    def energy(cls, h):
        x = HILBERT.all_states()
        xp, mels = cls(HILBERT, GRAPH, h=h, J=-0.7).get_conn_padded(x)
        return (psi * (mels * psi[HILBERT.states_to_numbers(xp)]).sum(-1)).sum()

    slopes = [jax.grad(lambda h, cls=cls: energy(cls, h))(1.3) for cls in (Ising, nk.operator.IsingJax)]
    magnetisation = sum(nk.operator.spin.sigmax(HILBERT, i) for i in range(6))
    np.testing.assert_allclose(slopes, -vstate.expect(magnetisation).mean, rtol=1e-12)
