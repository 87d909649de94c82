"""The closed form of a quadratic ln ψ: NetKet's Jastrow factor."""

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest
from netket._src.ngd.sr_srt_common import srt

from ferroket.natural_gradient.examination import examine, model_of_function
from ferroket.natural_gradient.ntk import log_derivatives_of
from ferroket.natural_gradient.pairs import Pairs
from ferroket.natural_gradient.vmc_sr import update_by_flat_ntk

SPINS = nk.hilbert.Spin(0.5, 7)


def test_by_definition() -> None:
    rng = np.random.default_rng(1)
    x, other = rng.normal(size=(5, 4)), rng.normal(size=(3, 4))
    delta, of_other = (rng.normal(size=(n, 2)) + 1j * rng.normal(size=(n, 2)) for n in (5, 3))

    def definition(x: np.ndarray, delta: np.ndarray) -> np.ndarray:
        products = np.array([[a[i] * a[j] for i in range(4) for j in range(i)] for a in x])
        return delta[:, :, None] * products[:, None]

    rows, columns = definition(x, delta), definition(other, of_other)
    pairs, others = Pairs(jnp.asarray(x), jnp.asarray(delta)), Pairs(jnp.asarray(other), jnp.asarray(of_other))
    np.testing.assert_allclose(pairs.rows(), rows, atol=1e-14)
    expected = np.einsum("sci,tdi->sctd", rows, columns.conj())
    np.testing.assert_allclose(pairs.gram(others, is_holomorphic=True), expected, atol=1e-13)
    np.testing.assert_allclose(pairs.gram(others), expected.real, atol=1e-13)
    vector, weights = rng.normal(size=6), rng.normal(size=(5, 2))
    np.testing.assert_allclose(pairs.dot(jnp.asarray(vector)), rows @ vector, atol=1e-13)
    np.testing.assert_allclose(
        pairs.weighted_sum(jnp.asarray(weights)), np.einsum("sc,sci->i", weights, rows), atol=1e-13
    )


@pytest.mark.parametrize("dtype", [float, complex])
def test_updates(dtype: type) -> None:
    model = nk.models.Jastrow(param_dtype=dtype)
    state = nk.vqs.MCState(nk.sampler.MetropolisLocal(SPINS), model, n_samples=32, seed=1)
    x = SPINS.random_state(jax.random.key(2), 32)
    rng = np.random.default_rng(3)
    energies = jnp.asarray(rng.normal(size=32) + 1j * rng.normal(size=32))
    arguments = state._apply_fun, energies, state.parameters, state.model_state, x
    assert examine(state._apply_fun, *arguments[2:]).model is not None
    rows = log_derivatives_of(state._apply_fun, state.parameters, state.model_state, x, mode="complex")
    assert set(rows.pairs) == ({0} if dtype is complex else set())  # two rows of a sample have no closed form
    mode = "complex" if dtype is complex else "real"
    for momentum in (None, 0.7):
        old = jnp.asarray(rng.normal(size=21 * (2 if dtype is complex else 1))) if momentum else None
        settings = {"diag_shift": 1e-3, "solver_fn": nk.optimizer.solver.cholesky, "mode": mode}
        settings |= {"momentum": momentum, "old_updates": old}
        expected, found = srt(*arguments, **settings), update_by_flat_ntk(*arguments, **settings)
        for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


def test_another_function_of_the_module_is_not_the_module() -> None:
    model = nk.models.Jastrow(param_dtype=float)
    x = SPINS.random_state(jax.random.key(2), 4)
    variables = model.init(jax.random.key(0), x)

    def twice(module: nk.models.Jastrow, variables: dict, x: jax.Array) -> jax.Array:
        return 2 * module.apply(variables, x)

    for function, expected in ((nk.jax.HashablePartial(twice, model), None), (model.apply, model)):
        assert examine(function, variables["params"], {}, x).model == expected
        assert model_of_function(function) == expected
