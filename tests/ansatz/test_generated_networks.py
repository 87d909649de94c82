"""Random networks: the law of the samples, local energies and updates, beside enumeration and NetKet alone."""

from collections.abc import Iterator
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import Phase, assume, event, given, reject, settings
from hypothesis import strategies as st

from checked_networks import SETTINGS, Setting, UnsuitableNetworkError, check_network, random_variables
from generated_networks import networks
from generated_operators import checks
from mpi import FULL

pytestmark = [
    pytest.mark.usefixtures("quick_compilation", "no_kept_programs"),
    pytest.mark.thorough,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(1200),
]

NETWORKS = 40
"""For each space."""
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
