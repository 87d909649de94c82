"""Kernels on each level of vector instructions that this processor has."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ferroket import _lib
from support.disassembly import can_disassemble, disassembled, outlined

# Local energies and samples of models that Rust knows, and of one whose dense layers it evaluates.
RESULTS = """
import sys
import jax
import netket as nk
import numpy as np
import ferroket as fk

spins = nk.hilbert.Spin(1 / 2, 10, total_sz=0)
chain = nk.graph.Chain(10)
heisenberg = fk.accelerate(nk.operator.Heisenberg(spins, chain, cls=nk.operator.LocalOperatorJax))
fermions = nk.hilbert.SpinOrbitalFermions(6, s=1 / 2, n_fermions_per_spin=(3, 2))
ring = nk.graph.Chain(6)
hubbard = fk.operator.FermiHubbard(fermions, ring, t=1.0, U=4.0)
exchange = fk.sampler.MetropolisExchange(spins, graph=chain, n_chains=4)
hops = fk.sampler.MetropolisFermionHop(fermions, graph=ring, n_chains=4)
wide = {"kernel_init": jax.nn.initializers.normal(0.3)}
CASES = {
    "rbm": (exchange, nk.models.RBM(alpha=3, param_dtype=float, **wide), heisenberg),
    "complex_rbm": (exchange, nk.models.RBM(alpha=3, param_dtype=complex, **wide), heisenberg),
    "single_rbm": (exchange, nk.models.RBM(alpha=3, param_dtype=np.float32, **wide), heisenberg),
    "jastrow": (exchange, nk.models.Jastrow(param_dtype=complex), heisenberg),
    "mlp": (exchange, nk.models.MLP(hidden_dims=(24, 20), param_dtype=float), heisenberg),
    "determinants": (hops, nk.models.Slater2nd(fermions, restricted=False), hubbard),
}
found = {}
for name, (sampler, model, operator) in CASES.items():
    state = nk.vqs.MCState(sampler, model, n_samples=256, seed=1, sampler_seed=2)
    found[f"{name} samples"] = np.asarray(state.samples)
    found[f"{name} energies"] = np.asarray(jax.numpy.asarray(state.local_estimators(operator)))
np.savez(sys.argv[1], level=fk._lib.simd_level(), **found)
"""

LISTING = """
0000000000001000 <a kernel>:
    1000:\tmov    %rsp,%rdi
    1003:\tcall   1030 <multiplied@@Base+0x20>
    1008:\tcall   1050
    100d:\tvmulpd %ymm0,%ymm1,%ymm0
    1010:\tcall   1030 <multiplied@@Base+0x20>
    1015:\tcall   1070
    101a:\tret
    101b:\tint3
    1030:\tvmovapd (%rsi),%ymm0
    1034:\tvmulpd (%rdx),%ymm0,%ymm0
    1038:\tvmovapd %ymm0,(%rdi)
    103c:\tvzeroupper
    103f:\tret
    1040:\tint3
    1050:\tmulsd  %xmm1,%xmm0
    1054:\tret
    1055:\tint3
    1070:\tvxorpd %zmm0,%zmm1,%zmm0
    1074:\tret
    1080:\tvaddpd %zmm0,%zmm1,%zmm0
    1084:\tret
"""


def python(program: str, *arguments: str, level: str) -> subprocess.Popen[str]:
    environment = {"FERROKET_SIMD": level, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.Popen(command, env=os.environ | environment, stderr=subprocess.PIPE, text=True)


def test_results_are_the_same_on_each_level(tmp_path: Path) -> None:
    levels = _lib.simd_levels()
    jobs = [python(RESULTS, str(tmp_path / level), level=level) for level in levels]
    errors = [job.communicate()[1] for job in jobs]
    assert [job.returncode for job in jobs] == [0] * len(jobs), errors
    results = {level: np.load(tmp_path / f"{level}.npz") for level in levels}
    expected = results["scalar"]
    assert len(expected.files) == 13
    for level, found in results.items():
        assert found["level"] == level
        for name in set(expected.files) - {"level"}:
            if name.endswith("samples"):
                np.testing.assert_array_equal(found[name], expected[name], err_msg=f"{name}, {level}")
            else:
                tolerance = 1e-4 if name.startswith("single") else 1e-11
                np.testing.assert_allclose(
                    found[name], expected[name], rtol=tolerance, atol=tolerance, err_msg=f"{name}, {level}"
                )


@pytest.mark.parametrize("program", ["import ferroket as fk; fk.initialize()", "import ferroket.ffi"])
def test_a_level_that_is_not_there_is_an_error(program: str) -> None:
    job = python(program, level="mmx")
    errors = job.communicate()[1]
    levels = ", ".join(_lib.simd_levels())
    assert job.returncode
    assert errors.splitlines()[-1] == (
        f"ValueError: FERROKET_SIMD is 'mmx', but this processor has the levels {levels}: set it to one of these, or "
        "to auto for the best one"
    )


def test_functions_of_vector_instructions_are_found() -> None:
    assert outlined(LISTING.splitlines()) == {"vmovapd vmulpd vmovapd vzeroupper ret": 2, "vxorpd ret": 1}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the names are those of x86's instructions")
@pytest.mark.skipif(not can_disassemble(), reason="there is no objdump (apt-get install binutils)")
def test_no_vector_instruction_is_a_call() -> None:
    assert outlined(disassembled(Path(_lib.__file__))) == {}
