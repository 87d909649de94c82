"""What is loaded with what."""

import subprocess
import sys

import pytest


def run(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("module", ["ferroket", "ferroket.cli", "ferroket.distributed"])
def test_what_needs_no_jax_imports_none(module: str) -> None:
    """``initialize`` prepares MPI and the cores before JAX starts."""
    run(f"import {module}, sys; assert not {{'jax', 'netket', 'numba'}} & set(sys.modules), set(sys.modules)")


@pytest.mark.quick("sampler")
@pytest.mark.parametrize("first", ["operator.ising", "ansatz", "sampler", "local_energy.forces"])
def test_netkets_states_know_our_operators_as_soon_as_there_can_be_one(first: str) -> None:
    """Whatever is imported first."""
    run(f"""
import ferroket.{first}
from ferroket.operator.algebra.accelerated import Accelerated
from netket.vqs import get_local_kernel
assert any(Accelerated in method.signature.types for method in get_local_kernel.methods)
""")
