"""What ``fk.explain`` tells of a driver: layer by layer, with numbers that are right."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import netket as nk
import pytest

import ferroket as fk
from ferroket.natural_gradient import Explanation, Layer, gram
from support.variational_states import CHAIN, SPINS, TRANSLATIONS, make_state

ISING = nk.operator.IsingJax(SPINS, CHAIN, h=0.7)
MIB = 2**20


class Convolution(nn.Module):
    """A channel for each site, and four out of it."""

    features: int = 4

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        conv = nn.Conv(self.features, (3,), padding="CIRCULAR", param_dtype=complex)
        return nk.nn.activation.log_cosh(conv(x.reshape(len(x), -1, 1).astype(complex))).sum(axis=(1, 2))


class Twice(nn.Module):
    """A layer that is used twice, with its bias."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        layer = nn.Dense(6, param_dtype=float)
        return jnp.tanh(layer(jnp.tanh(layer(x.astype(float))))).sum(axis=-1)


class Unreadable(nn.Module):
    """The derivative of a sort takes places that depend on the sample."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = jnp.sort(nn.Dense(6, param_dtype=float)(x.astype(float)), axis=-1)
        return (y * jnp.arange(6.0)).sum(axis=-1)


class WithoutPositions(nn.Module):
    """A convolution of fewer sites than its kernel has."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = x.astype(float)
        empty = nn.Conv(4, (3,), padding="VALID", param_dtype=float)(x[:, :2, None])
        return nn.Dense(1, use_bias=False, param_dtype=float)(x)[..., 0] + empty.sum(axis=(1, 2))


class NotUsed(nn.Module):
    """A parameter that ln ψ doesn't depend on."""

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        self.param("nothing", nn.initializers.normal(), (2, 3), float)
        return nn.Dense(1, use_bias=False, param_dtype=float)(x.astype(float))[..., 0]


def explained(model: Any, n_samples: int = 24, **settings: Any) -> Explanation:
    state = make_state(model, SPINS, n_samples=n_samples)
    settings = {"diag_shift": 0.1, "use_ntk": True, **settings}
    found: Explanation = fk.natural_gradient.explain(
        fk.driver.VMC_SR(ISING, nk.optimizer.Sgd(0.05), variational_state=state, **settings)
    )
    return found


def layer(explanation: Explanation, name: str) -> Layer:
    return next(layer for layer in explanation.layers if layer.name == name)


def test_rbm() -> None:
    found = explained(nk.models.RBM(alpha=2, param_dtype=complex), linear_solver=nk.optimizer.solver.cholesky)
    assert found.matrix == "one complex Hermitian system of 24 unknowns"
    assert found.solver == "fk.optimizer.solver.cholesky in the place of cholesky"
    kernel, bias = layer(found, "Dense/kernel"), layer(found, "Dense/bias")
    assert found.chunk_size is None
    assert kernel.form == "factors"
    assert kernel.found == "a product with 6 inputs and 12 outputs at one position"
    # x has a one for the bias. Of half of all pairs of samples: x·x', δ·δ', and their product. Complex ones are four.
    assert kernel.flops == 4 * 24**2 * (7 + 12 + 2)
    assert kernel.memory == 24 * (7 * 8 + 12 * 16)  # σ is real
    assert (bias.form, bias.flops, bias.memory) == ("factors", 0, 0)
    visible = layer(found, "visible_bias")
    assert visible.form == "rows of factors"
    assert visible.flops == 4 * (24 * 24 + 2 * 24) * 6
    assert str(found) == "\n".join(
        [
            "factors: no Jacobian; one complex Hermitian system of 24 unknowns, which isn't formed",
            "  Dense/bias (12): factors; it is one more row of Dense/kernel",
            "  Dense/kernel (6×12): factors, 4.84e-05 GFLOP, 0.00568 MiB; "
            "a product with 6 inputs and 12 outputs at one position",
            "  visible_bias (6): rows of factors, 1.5e-05 GFLOP, 0.00146 MiB; "
            "a product with 6 inputs and one output at one position",
            "differentiated in Rust, in lanes: 4 operations, 1 of them products",
            "solver: fk.optimizer.solver.cholesky in the place of cholesky",
            "memory of factors and rows on each device: 0.00714 MiB",
            "memory of the matrix and its solution on each device: 0.00439 MiB",
        ]
    )


def test_why_the_matrix_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    of_pairs = explained(nk.models.Jastrow(param_dtype=float), use_ntk=True)
    assert of_pairs.kernel.endswith(" unknowns, which is formed")
    assert of_pairs.reasons == ["the matrix is formed: rows of pairs of sites are a part of it"]
    assert [reason.kind for reason in of_pairs.reasons] == [fk.ReasonKind.NO_FACTORS]
    rbm = nk.models.RBM(alpha=2, param_dtype=float)
    of_solver = explained(rbm, use_ntk=True, linear_solver=nk.optimizer.solver.pinv_smooth)
    assert of_solver.reasons == ["the matrix is formed: the solver asks for it"]
    assert [reason.kind for reason in of_solver.reasons] == [fk.ReasonKind.SOLVER]
    monkeypatch.setattr(gram, "MEMORY", 1000)  # of 24 samples with 6 numbers each, of 64 bits
    of_memory = explained(rbm, use_ntk=True).reasons
    assert of_memory == ["the matrix is formed: rows of factors would take 0.0011 MiB beside it, more than 0.000954"]
    assert [reason.kind for reason in of_memory] == [fk.ReasonKind.MEMORY]


def test_no_positions() -> None:
    kernel = layer(explained(WithoutPositions()), "Conv_0/kernel")
    assert kernel.found == "a product with 3 inputs and 4 outputs at 0 positions"


def test_mlp() -> None:
    """Real parameters and values, whose layers have a bias each but the last."""
    found = explained(nk.models.MLP(hidden_dims=(5, 4), param_dtype=float), chunk_size_bwd=8)
    assert found.matrix == "one real symmetric system of 24 unknowns"
    kernels = {
        found_layer.name: (found_layer.form, found_layer.flops, found_layer.memory)
        for found_layer in found.layers
        if "kernel" in found_layer.name
    }
    assert kernels == {
        "MLP_0/Dense_0/kernel": ("factors", 24**2 * (7 + 5 + 2), 24 * (7 + 5) * 8),
        "MLP_0/Dense_1/kernel": ("factors", 24**2 * (6 + 4 + 2), 24 * (6 + 4) * 8),
        "MLP_0/Dense_2/kernel": ("rows of factors", 24 * (24 + 2) * 4, 24 * (4 + 1) * 8),
    }
    for place in (0, 1):
        assert layer(found, f"MLP_0/Dense_{place}/bias").found == f"it is one more row of MLP_0/Dense_{place}/kernel"
    assert not found.reasons


def test_what_xla_differentiates() -> None:
    found = explained(Unreadable(), chunk_size_bwd=8)
    assert found.chunk_size == 8
    assert found.derivatives == "differentiated by XLA"
    assert found.reasons == ["XLA differentiates it: the kernels have no 'sort'"]
    assert found.reasons[0].kind is fk.ReasonKind.OPERATION
    assert "configurations at once: 8" in str(found)


def test_convolution() -> None:
    found = explained(Convolution())
    kernel, bias = layer(found, "Conv_0/kernel"), layer(found, "Conv_0/bias")
    assert kernel.found == "a product with 3 inputs and 4 outputs at 6 positions"
    assert kernel.form == "rows of factors"  # 24 rows of 12 numbers, or 36 pairs of positions
    assert kernel.flops == 4 * 24 * (24 + 12) * 12
    assert kernel.memory == 24 * 3 * 4 * 16
    assert (bias.form, bias.found) == ("rows", "it is used by add")
    assert bias.flops == 4 * 24**2 * 4
    assert "3×1×4" in str(kernel)
    assert not found.reasons


def test_symmetric_rbm() -> None:
    """Its kernel is gathered into a larger one, so it has rows, which is told."""
    found = explained(nk.models.RBMSymm(symmetries=TRANSLATIONS, alpha=2, param_dtype=float))
    kernel = layer(found, "Dense/kernel")
    assert kernel.form == "rows"
    assert kernel.flops == 24**2 * 12
    assert kernel.memory == 24 * 12 * 8
    assert found.reasons == ["Dense/kernel has rows of its own, since it is used by gather"]
    assert "not faster, because Dense/kernel has rows of its own" in str(found)


def test_layers_that_are_used_twice() -> None:
    """A bias is a row of its kernel only where both are used once."""
    found = explained(Twice())
    kernel, bias = layer(found, "Dense_0/kernel"), layer(found, "Dense_0/bias")
    assert kernel.found == "a product with 6 inputs and 6 outputs at 2 positions"
    assert kernel.memory == 24 * 2 * (6 + 6) * 8
    assert bias.found == "a product with one input and 6 outputs at 2 positions"


def test_what_is_not_used() -> None:
    nothing = layer(explained(NotUsed()), "nothing")
    assert nothing.found == "the log-amplitude doesn't depend on it"
    assert nothing.memory == 24 * 6 * 8


@pytest.mark.parametrize(
    ("model", "kind", "side", "n_rows"),
    [
        (nk.models.RBM(alpha=2, param_dtype=complex), "complex Hermitian", 90, 24),
        (nk.models.MLP(hidden_dims=(5, 4), param_dtype=float), "real symmetric", 35 + 24 + 4, 24),
        (nk.models.RBMModPhase(alpha=1), "real symmetric", 2 * 42, 2 * 24),
    ],
)
def test_by_parameters(model: Any, kind: str, side: int, n_rows: int) -> None:
    """The matrix of all parameters is made of rows of some samples at once, and that is told."""
    found = explained(model, use_ntk=False)
    matrix = f"one {kind} system of {side} unknowns"
    assert str(found).startswith(f"factors: no Jacobian, but rows of some samples at once; {matrix}\n")
    weight = 4 if kind == "complex Hermitian" else 1
    assert sum(found_layer.memory for found_layer in found.layers) == found.memory
    assert sum(found_layer.flops for found_layer in found.layers) == 2 * weight * n_rows * side**2
    assert {found_layer.form for found_layer in found.layers} <= {"rows", "rows of factors"}


def test_real_and_imaginary_parts_apart() -> None:
    """With proj_reg, or a solver of a user's, the matrix is real and has twice the rows."""
    model = nk.models.RBM(alpha=2, param_dtype=complex)
    for settings, reason in (
        ({"proj_reg": 0.1}, "proj_reg treats real and imaginary parts alike"),
        ({"linear_solver": jnp.linalg.solve}, "the solver isn't known"),
    ):
        found = explained(model, **settings)
        assert found.matrix == "one real symmetric system of 48 unknowns"
        assert any(reason in text for text in found.reasons)
        assert layer(found, "Dense/kernel").flops == 4 * 24**2 * (7 + 4 * (12 + 2))
    by_parameters = explained(model, use_ntk=False, linear_solver=jnp.linalg.solve)
    assert by_parameters.matrix == "one real symmetric system of 180 unknowns"


def rbm_driver(cls: Any, **settings: Any) -> Any:
    state = make_state(nk.models.RBM(alpha=1), SPINS)
    return cls(ISING, nk.optimizer.Sgd(0.05), variational_state=state, **settings)


def test_netkets_own() -> None:
    found = fk.natural_gradient.explain(rbm_driver(nk.driver.VMC_SR, diag_shift=0.1))
    assert found.path == "NetKet"
    assert "call fk.enable(), or take the one of fk.driver" in str(found)


def test_the_three_parts_of_a_step() -> None:
    state = nk.vqs.MCState(fk.sampler.MetropolisLocal(SPINS), nk.models.RBM(alpha=1, param_dtype=float), n_samples=16)
    settings = {"diag_shift": 0.1, "use_ntk": True}
    driver = fk.driver.VMC_SR(fk.accelerate(ISING), nk.optimizer.Sgd(0.05), variational_state=state, **settings)
    found = fk.explain(driver)
    assert str(found.sampling) == "chains in Rust: the local rule, with amplitude ratios of RBM"
    assert str(found.local_energy) == "known ratios: amplitude ratios of RBM in Rust; no connected configurations"
    assert found.update == fk.natural_gradient.explain(driver)
    lines = str(found).splitlines()
    assert [line for line in lines if not line.startswith(" ")] == ["sampling", "local energies", "update"]
    assert lines[1] == f"  {found.sampling}"
    assert lines[5].startswith("  factors: no Jacobian; one real symmetric system of 16 unknowns")
    assert found.update.matrix == "one real symmetric system of 16 unknowns"


def test_drivers_with_quantum_geometric_tensors() -> None:
    kernel = "the quantum geometric tensor from the factors of the log-derivatives"
    ours = fk.explain(rbm_driver(nk.driver.VMC, preconditioner=fk.optimizer.SR(diag_shift=0.1))).update
    assert (ours.path, ours.kernel) == ("factors", kernel)
    assert layer(ours, "Dense/kernel").form == "factors"
    assert str(layer(ours, "Dense/bias")) == "Dense/bias (6): factors; it is one more row of Dense/kernel"
    theirs = rbm_driver(nk.driver.VMC, preconditioner=nk.optimizer.SR(nk.optimizer.qgt.QGTOnTheFly, diag_shift=0.1))
    euler = nk.experimental.dynamics.Euler(0.1)
    dynamics = nk.experimental.driver.TDVP(ISING, theirs.state, euler)
    with_settings = nk.optimizer.qgt.QGTJacobianDense(diag_shift=0.1)
    dense = nk.experimental.driver.TDVP(ISING, theirs.state, euler, qgt=with_settings)
    for driver in (theirs, dynamics, dense):
        assert fk.explain(driver).update.reasons == [
            "the quantum geometric tensor is NetKet's: call fk.enable(), or take fk.optimizer.SR"
        ]
    fk.enable()
    try:
        for driver in (theirs, dynamics, dense):
            found = fk.explain(driver)
            assert (found.update, found.local_energy.ansatz) == (ours, "RBM")
        own = rbm_driver(nk.driver.VMC, preconditioner=nk.optimizer.SR(lambda state, **_: state, diag_shift=0.1))
        assert fk.explain(own).update.reasons == ["the quantum geometric tensor isn't known"]
    finally:
        fk.disable()


def test_a_driver_without_a_linear_system() -> None:
    found = fk.explain(rbm_driver(nk.driver.VMC)).update
    assert found.path == "NetKet"
    assert found.reasons == ["VMC is no driver of stochastic reconfiguration: give VMC_SR or Infidelity_SR"]
