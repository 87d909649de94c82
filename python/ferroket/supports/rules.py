"""Transition rules and samplers, with a model whose amplitude ratios are known, and with a network."""

from collections.abc import Callable
from functools import partial
from typing import Any

import netket as nk
from netket.sampler import rules

from ferroket import sampler
from ferroket.sampler.rules import SiteExchangeRule
from ferroket.supports.systems import SQUARE, System, fermions, particles, spins, state_of
from ferroket.supports.tables import Row, Table
from ferroket.supports.words import of_samples

Make = Callable[[System], Any]


def _rule(make: Make) -> Make:
    return lambda system: nk.sampler.MetropolisSampler(system.hilbert, make(system))


def _two_rules(system: System) -> Any:
    return rules.MultipleRules([rules.LocalRule(), rules.ExchangeRule(graph=SQUARE)], [0.5, 0.5])


def _tensor_rule(system: System) -> Any:
    half = nk.hilbert.Spin(0.5, 8)
    both = nk.hilbert.TensorHilbert(half, half)
    return nk.sampler.MetropolisSampler(both, rules.TensorRule(both, [rules.LocalRule(), rules.LocalRule()]))


_ON_SPINS: dict[str, Make] = {
    "LocalRule": _rule(lambda _: rules.LocalRule()),
    "ExchangeRule": _rule(lambda _: rules.ExchangeRule(graph=SQUARE)),
    "HamiltonianRule": _rule(lambda system: rules.HamiltonianRule(system.operator)),
    "MultipleRules": _rule(_two_rules),
    "TensorRule": _tensor_rule,
    "FixedRule": _rule(lambda _: rules.FixedRule()),
    "LocalRuleNumpy": lambda system: nk.sampler.MetropolisLocalNumpy(system.hilbert),
    "HamiltonianRuleNumpy": lambda system: nk.sampler.MetropolisHamiltonianNumpy(
        system.hilbert, hamiltonian=system.operator
    ),
    "ParallelTemperingSampler": lambda system: nk.sampler.ParallelTemperingLocal(system.hilbert, n_replicas=4),
    "ExactSampler": lambda system: nk.sampler.ExactSampler(system.hilbert),
    "ARDirectSampler": lambda system: nk.sampler.ARDirectSampler(system.hilbert),
}
if hasattr(rules, "GlobalSpinFlipRule"):  # NetKet 3.20 has none
    _ON_SPINS["GlobalSpinFlipRule"] = _rule(lambda _: rules.GlobalSpinFlipRule())
_ON_FERMIONS: dict[str, Make] = {
    "FermionHopRule": _rule(lambda system: rules.FermionHopRule(system.hilbert, graph=SQUARE)),
    "fk.sampler.rules.SiteExchangeRule": _rule(lambda system: SiteExchangeRule(system.hilbert, graph=SQUARE)),
    "HamiltonianRule, fermions": _rule(lambda system: rules.HamiltonianRule(system.operator)),
}
_ON_PARTICLES: dict[str, Make] = {
    "GaussianRule": lambda system: system.sampler,
    "LangevinRule": lambda system: nk.sampler.MetropolisAdjustedLangevin(system.hilbert, dt=0.1),
}


def _known(space: Any) -> Any:
    if isinstance(space, nk.hilbert.SpinOrbitalFermions):
        return nk.models.Slater2nd(space)
    return nk.models.RBM() if isinstance(space, nk.hilbert.DiscreteHilbert) else nk.models.Gaussian()


def _cells(make_system: Callable[[], System], make: Make) -> list[str]:
    system = make_system()
    made = make(system)
    if isinstance(made, nk.sampler.ARDirectSampler):
        # It samples no other models.
        plan = sampler.explain(state_of(made, nk.models.ARNNDense(hilbert=system.hilbert, layers=1, features=2)))
        return ["", of_samples(plan)]
    network = nk.models.MLP(hidden_dims=(8,))
    known, other = (sampler.explain(state_of(made, model)) for model in (_known(made.hilbert), network))
    cells = [of_samples(known, is_known=True), of_samples(other)]
    return [cells[0], "the same"] if cells[0] == cells[1] else cells


RULES = Table(
    "Samplers and their rules",
    ["rule or sampler", "with known amplitude ratios", "with a network"],
    [
        Row(name, partial(_cells, system, make))
        for system, named in ((spins, _ON_SPINS), (fermions, _ON_FERMIONS), (particles, _ON_PARTICLES))
        for name, make in named.items()
    ],
)
