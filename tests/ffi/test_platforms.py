"""What runs where: a call of Rust on CPUs, pure JAX elsewhere, with the same numbers."""

import dataclasses

import jax
import jax.numpy as jnp
import netket as nk
import numpy as np
import pytest
from hypothesis import given, settings
from jax import export

from ferroket.operator import Ising
from ferroket.operator.compiled.ising import ISING
from support import ising


def lowered(platform, wrap=lambda f: f):
    hilbert = nk.hilbert.Spin(0.5, 4)
    operator = Ising(hilbert, nk.graph.Chain(4), h=1.0)
    function = jax.jit(wrap(lambda op, x: op.get_conn_padded(x)))
    return function.trace(operator, hilbert.all_states()).lower(lowering_platforms=(platform,)).as_text()


def mel_gradient(function):
    return lambda op, x: jax.grad(lambda h: function(Ising(op.hilbert, op.edges, h=h), x)[1].sum())(op.h)


@pytest.mark.parametrize("platform", ["cuda", "rocm", "tpu"])
def test_other_platforms_are_pure_jax(platform):
    for wrap in (lambda f: f, mel_gradient, lambda f: jax.vmap(f, (None, 0))):
        assert "custom_call" not in lowered(platform, wrap)


def test_cpus_call_rust():
    assert lowered("cpu").count("@ferroket_ising") == 1


def test_export_for_two_platforms():
    hilbert = nk.hilbert.Spin(0.5, 4)
    operator = Ising(hilbert, nk.graph.Chain(4), h=1.0)
    function = jax.jit(operator.get_conn_padded)
    checks = [export.DisabledSafetyCheck.custom_call("ferroket_ising")]
    exported = export.export(function, platforms=("cpu", "cuda"), disabled_checks=checks)(hilbert.all_states())
    for mine, theirs in zip(exported.call(hilbert.all_states()), function(hilbert.all_states()), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@settings(max_examples=15, deadline=None)
@given(ising.problems())
def test_pure_jax_has_the_same_numbers(problem):
    operator = Ising(problem.hilbert, problem.edges, h=problem.h, J=problem.J, dtype=problem.dtype)
    first, second = problem.hilbert.local_states
    x = problem.x.astype(np.uint8) if problem.x.dtype == bool else problem.x
    for states in (True, False):
        found = ISING.reference(
            jnp.asarray(x),
            operator.edges,
            jnp.asarray(operator.h, operator.dtype),
            operator.J,
            n_conn=operator.max_conn_size,
            states=states,
            first=first,
            second=second,
        )
        expected = operator.get_conn_padded(x)
        for mine, theirs in zip(found, expected if states else expected[1:], strict=True):
            assert mine.dtype == theirs.dtype
            np.testing.assert_array_equal(mine, theirs)


def test_pure_jax_has_no_number_for_samples_of_another_space():
    operator = Ising(nk.hilbert.Spin(0.5, 3), nk.graph.Chain(3), h=1.0)
    x = jnp.array([[1, 1, -1], [1, 0, 1]])
    (mels,) = ISING.reference(x, operator.edges, operator.h, operator.J, n_conn=4, states=False, first=1.0, second=-1.0)
    np.testing.assert_array_equal(np.isnan(mels), [[False] * 4, [True] * 4])


def test_unknown_handler():
    with pytest.raises(ValueError, match=r"no handler 'ferroket_nothing', but \['ferroket_chains_jastrow', "):
        dataclasses.replace(ISING, target="ferroket_nothing")
