"""Run by test_sharding.py in a process with four devices: each check prints whether it passed."""

import traceback

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from ferroket.operator import Ising

HILBERT = nk.hilbert.Spin(0.5, 6)
EDGES = np.array(nk.graph.Chain(6).edges())
X = np.array(HILBERT.random_state(jax.random.key(0), 16))
DEVICES = np.array(jax.devices())
COLLECTIVES = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")

use_mesh = jax.set_mesh if hasattr(jax, "set_mesh") else jax.sharding.use_mesh
elements = jax.jit(lambda operator, x: operator.get_conn_padded(x))


def make(h=1.3, J=0.7, cls=Ising):
    return cls(HILBERT, EDGES, h=h, J=J)


def by_numpy(x):
    """The connected elements in NumPy, far from all meshes."""
    flips = np.where(np.eye(7, 6, k=-1, dtype=bool), -x[..., None, :], x[..., None, :])
    mels = np.full((*x.shape[:-1], 7), -1.3)
    mels[..., 0] = 0.7 * (x[..., EDGES[:, 0]].astype(int) * x[..., EDGES[:, 1]]).sum(-1)
    return flips, mels


def assert_elements(found, x):
    for mine, expected in zip(found, by_numpy(np.asarray(x)), strict=True):
        np.testing.assert_allclose(np.asarray(mine), expected, rtol=1e-15)


def assert_no_collective(function, *args):
    hlo = function.lower(*args).compile().as_text()
    assert "ferroket_ising" in hlo
    for name in COLLECTIVES:
        assert name not in hlo, name
    return hlo


def check_sharded_batch():
    mesh = Mesh(DEVICES, ("S",))
    with use_mesh(mesh):
        operator, x = make(), jax.device_put(X, NamedSharding(mesh, P("S")))
        found = elements(operator, x)
        assert_elements(found, X)
        for result in found:
            assert result.sharding.is_equivalent_to(NamedSharding(mesh, P("S")), result.ndim)
        # Each device works on its own four samples.
        assert "s8[4,7,6]" in assert_no_collective(elements, operator, x)
        # The same without a jit of the user, and for the matrix elements alone.
        eager = operator.get_conn_padded(x)
        assert eager[0].sharding.is_equivalent_to(NamedSharding(mesh, P("S")), 3)
        assert_elements(eager, X)
        n_conn = jax.jit(lambda op, x: op.n_conn(x))
        assert_no_collective(n_conn, operator, x)
        np.testing.assert_array_equal(n_conn(operator, x), (by_numpy(X)[1] != 0).sum(-1))


def check_netkets_own_mesh():
    # Importing NetKet has set it.
    assert jax.sharding.get_abstract_mesh().axis_names == ("S",)
    x = HILBERT.random_state(jax.random.key(0), 32)
    assert_elements(make().get_conn_padded(x), x)


def check_in_shardings():
    mesh = Mesh(DEVICES, ("S",))
    with use_mesh(mesh):
        shardings = NamedSharding(mesh, P()), NamedSharding(mesh, P("S"))
        function = jax.jit(lambda operator, x: operator.get_conn_padded(x), in_shardings=shardings)
        found = function(make(), X)
        assert_elements(found, X)
        assert found[0].sharding.is_equivalent_to(NamedSharding(mesh, P("S")), 3)
        assert_no_collective(function, make(), X)


def check_batches_that_do_not_divide():
    mesh = Mesh(DEVICES, ("S",))
    with use_mesh(mesh):

        def function(operator, x):
            x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("S")))
            # As a result of the program they couldn't be sharded unevenly.
            return [jax.lax.with_sharding_constraint(y, NamedSharding(mesh, P())) for y in operator.get_conn_padded(x)]

        for batch in (1, 2, 3, 5, 13):
            x = jax.device_put(X[:batch], NamedSharding(mesh, P()))
            compiled = jax.jit(function).lower(make(), x).compile()
            assert f"s8[{-(-batch // 4)},7,6]" in compiled.as_text()
            assert_elements(jax.jit(function)(make(), x), X[:batch])


def check_two_batch_dimensions():
    mesh = Mesh(DEVICES.reshape(2, 2), ("a", "b"))
    with use_mesh(mesh):
        operator, x = make(), X.reshape(2, 8, 6)
        for spec in (P("a", "b"), P(None, ("a", "b")), P(None, ("b", "a")), P("b")):
            sharded = jax.device_put(x, NamedSharding(mesh, spec))
            found = elements(operator, sharded)
            assert_elements(found, x)
            assert_no_collective(elements, operator, sharded)
            for result in found:
                assert result.sharding.is_equivalent_to(NamedSharding(mesh, spec), result.ndim)

        def uneven(operator, x):
            x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("a", "b")))
            return [jax.lax.with_sharding_constraint(y, NamedSharding(mesh, P())) for y in operator.get_conn_padded(x)]

        odd = jax.device_put(X[:15].reshape(3, 5, 6), NamedSharding(mesh, P()))
        assert_elements(jax.jit(uneven)(operator, odd), odd)


def check_samples_sharded_by_site():
    # Each device needs all sites of its samples: here, and only here, they are gathered.
    mesh = Mesh(DEVICES[:2], ("S",))
    with use_mesh(mesh):
        assert_elements(elements(make(), jax.device_put(X, NamedSharding(mesh, P(None, "S")))), X)


def check_constants_of_the_program():
    mesh = Mesh(DEVICES, ("S",))
    with use_mesh(mesh):
        x = jax.device_put(X, NamedSharding(mesh, P("S")))
        assert_elements(jax.jit(lambda h: make(h).get_conn_padded(x))(1.3), X)


def check_vmap():
    mesh = Mesh(DEVICES, ("S",))
    with use_mesh(mesh):
        operator, x = make(), jax.device_put(X, NamedSharding(mesh, P("S")))
        function = jax.jit(lambda operator, x: jax.vmap(operator.get_conn_padded)(x))
        assert_elements(function(operator, x), X)
        assert_no_collective(function, operator, x)


def _loss(h, x):
    return (make(h, h**2).get_conn_padded(x)[1] ** 3).sum()


def _slope(h):
    # Σ (J c)³ - 6 h³ with J = h², by hand.
    c = (X[:, EDGES[:, 0]].astype(int) * X[:, EDGES[:, 1]]).sum(-1)
    return (6 * h**5 * c**3).sum() - 6 * 16 * 3 * h**2


def check_gradient():
    mesh = Mesh(DEVICES, ("S",))
    with use_mesh(mesh):
        x = jax.device_put(X, NamedSharding(mesh, P("S")))
        for derivative in (jax.grad, jax.jacfwd):
            np.testing.assert_allclose(jax.jit(derivative(_loss))(1.3, x), _slope(1.3), rtol=1e-12)


def check_shard_map():
    mesh = Mesh(DEVICES, ("S",))
    with use_mesh(mesh):
        operator, x = make(), jax.device_put(X, NamedSharding(mesh, P("S")))
        for check_vma in (True, False):

            def nested(function, in_specs, out_specs, check_vma=check_vma):
                return jax.jit(
                    jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=check_vma)
                )

            # With check_vma, P("S") is refused unless the results vary over the axis.
            function = nested(lambda operator, x: operator.get_conn_padded(x), (P(), P("S")), P("S"))
            assert_elements(function(operator, x), X)
            assert_no_collective(function, operator, x)

            loss = nested(lambda h, x: jax.lax.psum(_loss(h, x), "S"), (P(), P("S")), P())
            for derivative in (jax.grad, jax.jacfwd):
                np.testing.assert_allclose(derivative(loss)(1.3, x), _slope(1.3), rtol=1e-12)


def check_shard_map_over_one_of_two_axes():
    mesh = Mesh(DEVICES.reshape(2, 2), ("a", "b"))
    with use_mesh(mesh):
        function = jax.jit(
            jax.shard_map(
                lambda operator, x: operator.get_conn_padded(x),
                in_specs=(P(), P("a")),
                out_specs=P("a"),
                axis_names={"a"},
            )
        )
        assert_elements(function(make(), jax.device_put(X, NamedSharding(mesh, P("a")))), X)


def check_explicit_sharding():
    mesh = jax.make_mesh((4,), ("S",), axis_types=(AxisType.Explicit,))
    with use_mesh(mesh):
        operator, x = make(), jax.device_put(X, NamedSharding(mesh, P("S")))

        def function(operator, x):
            xp, mels = operator.get_conn_padded(x)
            assert (jax.typeof(xp).sharding.spec, jax.typeof(mels).sharding.spec) == (P("S", None, None), P("S", None))
            return xp, mels

        assert_elements(jax.jit(function)(operator, x), X)
        assert_no_collective(jax.jit(function), operator, x)
        assert_elements(jax.jit(lambda op, x: jax.vmap(op.get_conn_padded)(x))(operator, x), X)
        np.testing.assert_allclose(jax.jit(jax.grad(_loss))(1.3, x), _slope(1.3), rtol=1e-12)


def check_invalid_samples():
    mesh = Mesh(DEVICES, ("S",))
    with use_mesh(mesh):
        x = X.copy()
        x[13, 2] = 0
        message = r"sample 1, site 2 has the value 0.*counted among the 4 of this device"
        with pytest.raises((RuntimeError, ValueError), match=message):
            jax.block_until_ready(elements(make(), jax.device_put(x, NamedSharding(mesh, P("S")))))


def check_variational_state():
    results = []
    for cls in (Ising, nk.operator.IsingJax):
        operator = make(cls=cls)
        sampler = nk.sampler.MetropolisHamiltonian(HILBERT, hamiltonian=operator, n_chains=16)
        vstate = nk.vqs.MCState(sampler, nk.models.RBM(), n_samples=64, seed=1, sampler_seed=2)
        run = nk.driver.VMC_SR(operator, nk.optimizer.Sgd(0.05), variational_state=vstate, diag_shift=0.01)
        run.run(2, out=nk.logging.RuntimeLog(), show_progress=False)
        full = nk.vqs.FullSumState(HILBERT, nk.models.RBM(), seed=1)
        results.append([vstate.expect(operator).mean, full.expect(operator).mean, *jax.tree.leaves(vstate.parameters)])
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(np.asarray(mine), np.asarray(theirs), rtol=1e-9)


if __name__ == "__main__":
    assert jnp.size(DEVICES) == 4
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            try:
                check()
                print(f"{name}: passed", flush=True)
            except Exception:
                traceback.print_exc()
                print(f"{name}: failed", flush=True)
