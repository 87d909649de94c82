"""Random networks: ln ψ, the law of the samples, local energies and updates, beside enumeration and NetKet alone."""

from collections.abc import Iterator
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, assume, event, given, reject, settings
from hypothesis import strategies as st

from ferroket.network import UnreadableError, read, structure
from support.generated_networks import networks
from support.generated_operators import checks
from support.mpi import FULL
from support.network_checks import (
    SETTINGS,
    Setting,
    UnsuitableNetworkError,
    assert_close,
    check_network,
    precision,
    random_variables,
)

pytestmark = [
    pytest.mark.usefixtures("quick_compilation", "no_kept_programs"),
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(1200),
]

NETWORKS = 40
"""For each space."""
NETWORKS_IN_LANES = 60
PHASES = [phase for phase in Phase if FULL or phase is not Phase.shrink]
"""To find a smaller network takes minutes, so it is done when all tests are asked for."""


@pytest.fixture(scope="module")
def no_kept_programs() -> Iterator[None]:
    """Writing some compiled programs to JAX's cache ends the process, in XLA; and no other run has these networks."""
    jax.config.update("jax_enable_compilation_cache", False)
    yield
    jax.config.update("jax_enable_compilation_cache", True)


def is_evaluated(setting: Setting, model: nn.Module) -> bool:
    """Whether JAX takes the network, and its derivatives."""
    try:
        variables = random_variables(model, setting.n_sites, with_gates=True)
        x = jnp.asarray(setting.case.states, np.int8)

        def total(variables: Any) -> jax.Array:
            value: jax.Array = model.apply(variables, x).real.sum()
            return value

        jax.eval_shape(jax.grad(total), variables)
    except (TypeError, ValueError, NotImplementedError) as error:
        event(f"not evaluated: {type(error).__name__} {str(error)[:80]}")
        return False
    return True


UNREADABLE = ("the kernels have no 'reduce_prod' of complex numbers",)
"""Why the kernels don't evaluate some networks of what they have."""
LARGEST = 1e6
"""Of ln ψ that is compared."""


@pytest.mark.quick("local")
@pytest.mark.parametrize("name", ["local", "Bose-Hubbard", "fermions"])
@settings(checks(NETWORKS_IN_LANES), phases=PHASES)
@given(data=st.data())
def test_in_lanes(name: str, data: Any) -> None:
    """The kernels' ln ψ is the network's own, whole and behind its first layer."""
    setting = SETTINGS[name]
    model = data.draw(networks(setting.case.hilbert, in_lanes=True))
    assume(is_evaluated(setting, model))
    variables = random_variables(model, setting.n_sites, with_gates=True)
    log_psi = jax.jit(model.apply)
    states = np.asarray(setting.case.states)
    dtype = jnp.finfo(jax.eval_shape(log_psi, variables, states.astype(np.int8)).dtype).dtype
    x = jnp.asarray(states, dtype)
    try:
        program = read(lambda variables, x: model.apply(variables, x[None]).reshape(()), variables, x[0])
    except UnreadableError as why:
        if str(why) not in UNREADABLE:
            raise
        event(str(why))
        reject()
    tolerance = precision(model, variables)
    expected = np.asarray(log_psi(variables, x))
    if (np.abs(expected[~np.isneginf(expected.real)]) < LARGEST).all():
        found = program.evaluate(x, program.operands(variables))
        assert_close("ln ψ", found, expected, tolerance)
    else:
        event("ln ψ is large, or none")
    split = structure(model.apply, variables, jax.ShapeDtypeStruct(states.shape[1:], np.int8), key=object())
    if split.is_updated and split.rest is not None:
        event("has a first layer")
        expected = np.asarray(log_psi(variables, states.astype(np.int8)))
        sums = jax.jit(jax.vmap(split.first_layer.sums, (None, 0)))(variables, states.astype(np.int8))
        if (np.abs(expected[~np.isneginf(expected.real)]) < LARGEST).all():
            assert_close("ln ψ of sums", split.rest.evaluate(sums, split.rest.operands(variables)), expected, tolerance)


@pytest.mark.thorough
@pytest.mark.parametrize("name", SETTINGS)
@settings(checks(NETWORKS), phases=PHASES)
@given(data=st.data())
def test_networks(name: str, data: Any) -> None:
    setting = SETTINGS[name]
    model = data.draw(networks(setting.case.hilbert))
    assume(is_evaluated(setting, model))
    try:
        check_network(setting, model)
    except UnsuitableNetworkError as why:
        event(str(why))
        reject()
