"""Models: what samples them, evaluates their local energies and makes their updates."""

from collections.abc import Callable
from functools import partial
from typing import Any

import flax.linen as nn
import jax
import netket as nk

from ferroket import acceleration, models
from ferroket.bench.models import ResCNN, ViT
from ferroket.supports.systems import (
    SQUARE,
    System,
    density_matrices,
    fermions,
    particles,
    spins,
    spins_one,
)
from ferroket.supports.tables import Row, Table
from ferroket.supports.words import of_samples, of_update

Model = Callable[[System], Any]


class _Sites(nn.Module):
    """A model of sets whose members are the sites."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        result: jax.Array = nk.models.DeepSetMLP(features_phi=(4,), features_rho=(4,))(x[..., None])
        return result


def _of_sites(cls: Any, **settings: Any) -> Model:
    return lambda system: cls(hilbert=system.hilbert, **settings)


def _autoregressive(cls: Any, **settings: Any) -> Model:
    return _of_sites(cls, layers=1, features=2, **settings)


def _square() -> Any:
    return SQUARE.translation_group()


def _pairs(system: System) -> Any:
    return models.PairProduct(system.hilbert)


def _mvmc(system: System) -> Any:
    space = system.hilbert
    return models.Product((models.PairProduct(space), models.DensityJastrow(space), models.Gutzwiller(space)))


def _doublons(system: System) -> Any:
    return models.DoublonHolon(system.hilbert, [SQUARE.adjacency_list()])


_MLP = partial(nk.models.MLP, hidden_dims=(8,))
_XMODELS, _TENSORS = nk.experimental.models, nk.models.tensor_networks

_ON_SPINS: dict[str, Model] = {
    "RBM": lambda _: nk.models.RBM(),
    "RBMModPhase": lambda _: nk.models.RBMModPhase(),
    "RBMMultiVal": lambda _: nk.models.RBMMultiVal(n_classes=2),
    "RBMSymm": lambda _: nk.models.RBMSymm(symmetries=_square()),
    "Jastrow": lambda _: nk.models.Jastrow(),
    "MLP": lambda _: _MLP(),
    "DeepSetMLP": lambda _: _Sites(),
    "GCNN": lambda _: nk.models.GCNN(SQUARE, layers=2, features=2),
    'GCNN(mode="irreps")': lambda _: nk.models.GCNN(_square(), layers=2, features=2, mode="irreps"),
    "ARNNDense": _autoregressive(nk.models.ARNNDense),
    "ARNNConv1D": _autoregressive(nk.models.ARNNConv1D, kernel_size=2),
    "ARNNConv2D": _autoregressive(nk.models.ARNNConv2D, kernel_size=(2, 2)),
    "FastARNNDense": _autoregressive(nk.models.FastARNNDense),
    "FastARNNConv1D": _autoregressive(nk.models.FastARNNConv1D, kernel_size=2),
    "FastARNNConv2D": _autoregressive(nk.models.FastARNNConv2D, kernel_size=(2, 2)),
    "LSTMNet": _autoregressive(_XMODELS.LSTMNet),
    "GRUNet1D": _autoregressive(_XMODELS.GRUNet1D),
    "FastLSTMNet": _autoregressive(_XMODELS.FastLSTMNet),
    "FastGRUNet1D": _autoregressive(_XMODELS.FastGRUNet1D),
    "MPSOpen": _of_sites(_TENSORS.MPSOpen, bond_dim=2),
    "MPSPeriodic": _of_sites(_TENSORS.MPSPeriodic, bond_dim=2),
    "LogStateVector": _of_sites(nk.models.LogStateVector),
    "fk.models.symmetrise": lambda system: models.symmetrise(_MLP(), system.hilbert, _square(), parity=1),
    "nn.Conv": lambda _: ResCNN((4, 4)),
    "nn.MultiHeadDotProductAttention": lambda _: ViT((4, 4), features=4, heads=2),
}
_ON_FERMIONS: dict[str, Model] = {
    "Slater2nd": _of_sites(nk.models.Slater2nd),
    "MultiSlater2nd": _of_sites(nk.models.MultiSlater2nd, n_determinants=2),
    "fk.models.SlaterJastrow": _of_sites(models.SlaterJastrow),
    "fk.models.PairProduct": _pairs,
    "fk.models.PairProduct(general=True)": lambda system: models.PairProduct(system.hilbert, general=True),
    "fk.models.PairProduct(rotations=…)": lambda system: models.PairProduct(
        system.hilbert, rotations=models.spin_rotations(0, 4)
    ),
    "fk.models.PairProduct(correlations=RBM)": lambda system: models.PairProduct(
        system.hilbert, symmetries=_square(), correlations=nk.models.RBM(param_dtype=float)
    ),
    "fk.models.Gutzwiller": _of_sites(models.Gutzwiller),
    "fk.models.DensityJastrow": _of_sites(models.DensityJastrow),
    "fk.models.DoublonHolon": _doublons,
    "fk.models.Product": _mvmc,
    "fk.models.Backflow": _of_sites(models.Backflow),
    "fk.models.HiddenFermions": _of_sites(models.HiddenFermions),
    "RBM": lambda _: nk.models.RBM(),
    "MLP": lambda _: _MLP(),
}
_ON_SPINS_ONE: dict[str, Model] = {"RBM": lambda _: nk.models.RBM(), "MLP": lambda _: _MLP()}
_OF_DENSITY_MATRICES: dict[str, Model] = {
    "NDM": lambda _: nk.models.NDM(),
    "MPDOOpen": lambda system: _TENSORS.MPDOOpen(hilbert=system.hilbert.physical, bond_dim=2),
    "MPDOPeriodic": lambda system: _TENSORS.MPDOPeriodic(hilbert=system.hilbert.physical, bond_dim=2),
}
_OF_PARTICLES: dict[str, Model] = {
    "Gaussian": lambda _: nk.models.Gaussian(),
    "DeepSetRelDistance": lambda system: nk.models.DeepSetRelDistance(
        hilbert=system.hilbert, layers_phi=1, layers_rho=1, features_phi=(4,), features_rho=(1,)
    ),
}
_ALL: list[tuple[Callable[[], System], dict[str, Model]]] = [
    (spins, _ON_SPINS),
    (fermions, _ON_FERMIONS),
    (spins_one, _ON_SPINS_ONE),
    (density_matrices, _OF_DENSITY_MATRICES),
    (particles, _OF_PARTICLES),
]


def _cells(make_system: Callable[[], System], make: Model) -> list[str]:
    system = make_system()
    found = acceleration.plan_of_step(system.driver(make(system)))
    is_known = make is _ON_SPINS_ONE["RBM"]  # on other spaces
    return [
        system.title,
        of_samples(found.sampling, is_known=is_known),
        of_samples(found.local_energy, is_known=is_known),
        of_update(found.update),
    ]


MODELS = Table(
    "Models",
    ["model", "of", "sampling", "local energies", "update"],
    [Row(name, partial(_cells, system, make)) for system, named in _ALL for name, make in named.items()],
)
