"""A trust region and momentum, where an optimisation without them goes astray.

    python examples/trust_region.py
    mpirun -n 4 python examples/trust_region.py

A chain of spins 1/2 with the Heisenberg interaction, from random parameters, with a small diagonal shift. An update is
long where few samples know nothing of a direction, and the state leaves the region in which samples and derivatives
mean anything. A trust region bounds the angle by which a step turns the state. Momentum puts several updates together,
each of which sees little with few samples, and needs the bound the more.
"""

import ferroket as fk

info = fk.initialize()  # before jax and netket are imported

import netket as nk

L, EXACT = 16, -28.569185
chain = nk.graph.Chain(L)
hilbert = nk.hilbert.Spin(0.5, L, total_sz=0)
hamiltonian = nk.operator.Heisenberg(hilbert, chain, sign_rule=True)


def error(*, n_samples: int, learning_rate: float, steps: int, **options: float) -> float:
    """By how much the energy is too high after some steps."""
    state = nk.vqs.MCState(
        fk.sampler.MetropolisExchange(hilbert, graph=chain, n_chains=16),
        nk.models.RBM(alpha=4, param_dtype=complex),
        n_samples=n_samples,
        seed=1,
        sampler_seed=2,
    )
    optimizer = nk.optimizer.Sgd(learning_rate)
    driver = fk.driver.VMC_SR(hamiltonian, optimizer, variational_state=state, mode="complex", use_ntk=True, **options)
    driver.run(steps, show_progress=False)
    return float(state.expect(hamiltonian).mean.real) - EXACT


large = {"n_samples": 256, "learning_rate": 0.3, "steps": 20, "diag_shift": 1e-4}
few = {"n_samples": 64, "learning_rate": 0.05, "steps": 100, "diag_shift": 1e-3, "trust_region": 0.3}
found = {
    "long updates": error(**large),
    "in a trust region": error(**large, trust_region=0.3),
    "few samples": error(**few),
    "with momentum": error(**few, momentum=0.9),
}
if info.rank == 0:
    for name, value in found.items():
        print(f"{name}: energy {value:.2f} above the exact {EXACT}")
