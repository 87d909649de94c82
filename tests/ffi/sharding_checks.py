"""Run by test_sharding.py in a process with four devices: each check prints whether it passed."""

import ferroket  # noqa: F401 - before JAX starts, so that this jaxlib computes right sums

# isort: split
import traceback

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from ferroket.operator import Ising
from support import compiled_forms as forms
from support.comparisons import COLLECTIVES

HILBERT = nk.hilbert.Spin(0.5, 6)
EDGES = np.array(nk.graph.Chain(6).edges())
X = np.array(HILBERT.random_state(jax.random.key(0), 16))
DEVICES = np.array(jax.devices())

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
    assert "ferroket_" in hlo
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


def check_forms():
    mesh = Mesh(DEVICES, ("S",))
    for form in (forms.some_forms()["kinds"], forms.some_forms()["matrices"]):
        x = forms.states_of(form, 16)
        expected = [*forms.by_definition(form, x), (forms.by_definition(form, x)[1] != 0).sum(-1)]
        with use_mesh(mesh):
            sharded = jax.device_put(x, NamedSharding(mesh, P("S")))
            function = jax.jit(lambda form, x: (*form.padded(x), form.count(x)))
            assert_no_collective(function, form, sharded)
            for mine, other in zip(function(form, sharded), expected, strict=True):
                np.testing.assert_allclose(mine, other, rtol=1e-14)
                assert mine.sharding.is_equivalent_to(NamedSharding(mesh, P("S")), mine.ndim)
            # In pure JAX there is no communication either.
            hlo = forms.reference.lower(form, sharded).compile().as_text()
            assert not any(name in hlo for name in COLLECTIVES)
            for mine, other in zip(forms.reference(form, sharded), expected, strict=False):
                np.testing.assert_allclose(mine, other, rtol=1e-14)
                assert mine.sharding.is_equivalent_to(NamedSharding(mesh, P("S")), mine.ndim)


def check_forms_in_batches_that_do_not_divide():
    # The samples that fill the shards up are valid, also where 0 or one value is no state of all sites.
    mesh = Mesh(DEVICES, ("S",))
    form = forms.random_matrices(
        np.random.default_rng(0), nk.hilbert.Spin(1.5, 2) * nk.hilbert.Spin(1, 1), [[0], [1, 2]]
    )
    with use_mesh(mesh):

        def function(x):
            x = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, P("S")))
            results = (*form.padded(x), form.count(x))
            return [jax.lax.with_sharding_constraint(y, NamedSharding(mesh, P())) for y in results]

        for batch in (1, 5, 13):
            x = forms.states_of(form, batch)
            expected = [*forms.by_definition(form, x), (forms.by_definition(form, x)[1] != 0).sum(-1)]
            compiled = jax.jit(function).lower(x).compile()
            assert f"s8[{-(-batch // 4)},{form.max_conn_size},3]" in compiled.as_text()
            for mine, other in zip(compiled(x), expected, strict=True):
                np.testing.assert_allclose(mine, other, rtol=1e-14)


def check_compact_elements_of_each_device():
    mesh = Mesh(DEVICES, ("S",))
    with use_mesh(mesh):
        for form in (forms.some_forms()["terms"], forms.some_forms()["matrices"]):
            x = forms.states_of(form, 16)
            sharded = jax.device_put(x, NamedSharding(mesh, P("S")))
            capacity = 4 * form.max_conn_size

            def on_device(values, x, form=form, capacity=capacity):
                xp, mels, sample, cursor = form.replace_values(values).compact(x, (0, 0), capacity)
                return xp, mels, sample, cursor

            for check_vma in (True, False):
                mapped = jax.shard_map(
                    on_device, mesh=mesh, in_specs=(P(), P("S")), out_specs=P("S"), check_vma=check_vma
                )
                assert_no_collective(jax.jit(mapped), form.values, sharded)
                xp, mels, sample, cursor = (np.asarray(result) for result in jax.jit(mapped)(form.values, sharded))
                assert cursor.tolist() == [4, 0] * 4
                for i in range(4):
                    part = slice(i * capacity, (i + 1) * capacity)
                    used = sample[part] < 4
                    expected = forms.nonzero(form, x[4 * i : 4 * i + 4])
                    for mine, other in zip((xp, mels, sample), expected, strict=True):
                        np.testing.assert_allclose(mine[part][used], other, rtol=1e-14)

                def loss(values, x, form=form, capacity=capacity):
                    mels = on_device(values, x, form, capacity)[1]
                    return jax.lax.psum((mels**2).sum(), "S")

                summed = jax.shard_map(loss, mesh=mesh, in_specs=(P(), P("S")), out_specs=P(), check_vma=check_vma)
                slope = jax.grad(lambda values, x=x, form=form: (form.replace_values(values).mels(x) ** 2).sum())
                np.testing.assert_allclose(
                    jax.jit(jax.grad(summed))(form.values, sharded), slope(form.values), rtol=1e-12, atol=1e-12
                )


def check_compact_elements_are_never_gathered():
    form = forms.some_forms()["terms"]
    x = forms.states_of(form, 16)
    mesh = Mesh(DEVICES, ("S",))
    refusal = "the samples are sharded, but the compact form is about all samples of one device: call it inside of"
    with use_mesh(mesh):
        sharded = jax.device_put(x, NamedSharding(mesh, P("S")))
        for function in (form.compact, jax.jit(lambda x, *args: form.compact(x + 0, *args), static_argnums=(1, 2))):
            with pytest.raises((RuntimeError, ValueError), match=refusal):
                function(sharded, (0, 0), 32)
        # What all devices hold, all of them compute.
        whole = jax.device_put(x, NamedSharding(mesh, P()))
        function = jax.jit(lambda x: form.compact(x, (0, 0), 500)[:3])
        assert_no_collective(function, whole)
        n = len(forms.nonzero(form, x)[1])
        for mine, other in zip(function(whole), forms.nonzero(form, x), strict=True):
            np.testing.assert_allclose(mine[:n], other, rtol=1e-14)
        _, mels, _ = form.flattened(sharded)
        np.testing.assert_allclose(mels, forms.nonzero(form, x)[1], rtol=1e-14)
    mesh = jax.make_mesh((4,), ("S",), axis_types=(AxisType.Explicit,))
    with use_mesh(mesh):
        sharded = jax.device_put(x, NamedSharding(mesh, P("S")))
        with pytest.raises(ValueError, match=refusal):
            form.compact(sharded, (0, 0), 32)
        xp, mels = form.padded(sharded)
        assert [jax.typeof(y).sharding.spec for y in (xp, mels)] == [P("S", None, None), P("S", None)]
        assert jax.typeof(form.count(sharded)).sharding.spec == P("S")
        np.testing.assert_allclose(mels, forms.by_definition(form, x)[1], rtol=1e-14)


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
