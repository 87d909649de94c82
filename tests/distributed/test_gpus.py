"""Which GPUs each rank computes on; the driver is a stand-in, compiled here, that shows as many as it is told."""

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ferroket.distributed import gpus
from ferroket.distributed.gpus import Gpus
from support.hosts import make_hosts
from support.mpi import Finished, run_alone, run_ranks
from support.srun import run_srun

A, B, C, D = (f"0000:0{bus}:00.0" for bus in "1234")


@pytest.mark.parametrize(
    ("seen", "ids"),
    [
        # Each rank of the node sees all of its GPUs.
        ([[A, B]] * 2, [[0], [1]]),
        ([[A, B, C, D]] * 4, [[0], [1], [2], [3]]),
        # Fewer ranks than GPUs: one each.
        ([[A, B, C, D]] * 2, [[0], [1]]),
        # One rank a node: all.
        ([[A, B, C, D]], [None]),
        ([[A]], [[0]]),
        # The launcher shows each rank its own.
        ([[A], [B]], [[0], [0]]),
        ([[A, B], [C, D]], [None, None]),
        ([[A, B], [C]], [None, [0]]),
        # The launcher shows each socket's ranks its own.
        ([[A, B], [A, B], [C, D], [C, D]], [[0], [1], [0], [1]]),
    ],
)
def test_plan(seen: list[list[str]], ids: list[list[int] | None]) -> None:
    assert gpus.plan(seen, "node1") == ids


def test_more_ranks_than_gpus() -> None:
    with pytest.raises(RuntimeError) as caught:
        gpus.plan([[A, B]] * 3, "node1")
    assert str(caught.value).startswith(f"3 ranks on node1 share 2 GPUs ({A}, {B}), but each needs one of its own")
    assert "mpirun -ppn 2" in str(caught.value)


def test_ranks_that_see_each_others() -> None:
    with pytest.raises(RuntimeError, match=f"some see the same: {B}. .*--gpus-per-task=1"):
        gpus.plan([[A, B], [B, C]], "node1")


def test_without_asking_the_others() -> None:
    # Nothing is known of the node: all see the same.
    assert gpus.plan(gpus.suppose([A, B], 1, 2, None), "node1")[1] == [1]
    # All GPUs of the node are seen by all.
    assert gpus.plan(gpus.suppose([A, B], 1, 2, 2), "node1")[1] == [1]
    # The node has more: these are this rank's own.
    assert gpus.plan(gpus.suppose([B], 1, 2, 2), "node1")[1] == [0]
    assert gpus.plan(gpus.suppose([C, D], 1, 2, 4), "node1")[1] is None
    with pytest.raises(RuntimeError, match="2 ranks on node1 share 1 GPU "):
        gpus.plan(gpus.suppose([A], 1, 2, 1), "node1")


@pytest.mark.parametrize(
    "variables",
    [
        {"JAX_PLATFORMS": "cpu"},
        {"JAX_PLATFORMS": "cpu,cuda"},
        {"JAX_PLATFORM_NAME": "cpu"},
        {"JAX_PLATFORMS": "tpu"},
    ],
)
def test_another_platform_was_asked_for(variables: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "_ask", lambda driver: (A,))
    monkeypatch.setattr(gpus, "_installed", lambda: ["cuda"])
    assert gpus.find(variables) == Gpus(None, ())


def test_the_package_and_a_gpu_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "_ask", lambda driver: (A,))
    assert gpus.find({}) == Gpus(None, ())
    monkeypatch.setattr(gpus, "_installed", lambda: ["rocm"])
    assert gpus.find({}) == gpus.find({"JAX_PLATFORMS": "gpu"}) == Gpus("rocm", (A,))


DRIVER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define COUNT atoi(getenv("FAKE_GPUS"))
#define FIRST (getenv("FAKE_FIRST") ? atoi(getenv("FAKE_FIRST")) : 0)
int cuInit(unsigned flags) { return flags ? 1 : COUNT ? 0 : 100; }
int cuDeviceGetCount(int *count) { *count = COUNT; return COUNT < 9 ? 0 : 999; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetPCIBusId(char *bus, int length, int device) {
    return snprintf(bus, length, "0000:%02X:00.0", FIRST + device + 1) >= length;
}
int cuDeviceGetUuid_v2(char *uuid, int device) { memset(uuid, 16 + FIRST + device, 16); return 0; }
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables with which a process finds the stand-in for CUDA's driver, and JAX's package."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("driver")
    (folder / "cuda.c").write_text(DRIVER)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", folder / "libcuda.so.1", folder / "cuda.c"], check=True)
    (folder / "jax_plugins" / "xla_cuda12").mkdir(parents=True)
    (folder / "jax_plugins" / "xla_cuda12" / "__init__.py").touch()
    return {"LD_LIBRARY_PATH": str(folder), "PYTHONPATH": f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}


FIND = """
import os, sys
from ferroket.distributed import gpus
try:
    print(gpus.find(os.environ))
except RuntimeError as error:
    print(error)
assert "jax" not in sys.modules
"""
TWO = (
    "Gpus(platform='cuda', devices=('0000:01:00.0 10101010101010101010101010101010', "
    "'0000:02:00.0 11111111111111111111111111111111'))"
)


@pytest.mark.parametrize(
    ("variables", "answer"),
    [
        ({"FAKE_GPUS": "2"}, TWO),
        ({"FAKE_GPUS": "2", "JAX_PLATFORMS": "cuda"}, TWO),
        ({"FAKE_GPUS": "2", "JAX_PLATFORMS": "gpu,cpu"}, TWO),
        # The package for GPUs on a node without one: JAX falls back to the CPU by itself.
        ({"FAKE_GPUS": "0"}, "Gpus(platform=None, devices=())"),
        ({"FAKE_GPUS": "9"}, "Gpus(platform=None, devices=())"),
        (
            {"FAKE_GPUS": "0", "JAX_PLATFORMS": "cuda"},
            "JAX_PLATFORMS is 'cuda', but this process sees no GPU (cuda: the driver shows no device). Ask the batch",
        ),
        ({"FAKE_GPUS": "9", "JAX_PLATFORMS": "cuda"}, "(cuda: cuDeviceGetCount of libcuda.so.1 failed with error 999)"),
        ({"JAX_PLATFORMS": "rocm"}, "(rocm: "),
    ],
)
def test_the_driver_is_asked(driver: dict[str, str], variables: dict[str, str], answer: str) -> None:
    assert answer in run_alone(FIND, timeout=20, **driver, **variables).ok().stdout


def test_no_driver() -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU")
    assert "Gpus(platform=None" in run_alone(FIND, timeout=20).ok().stdout
    stdout = run_alone(FIND, timeout=20, JAX_PLATFORMS="cuda").ok().stdout
    assert "this process sees no GPU (cuda: libcuda.so.1: cannot open shared object file" in stdout
    stdout = run_alone(FIND, timeout=20, JAX_PLATFORMS="gpu").ok().stdout
    assert "this process sees no GPU (JAX's package for GPUs is not installed)" in stdout


# What ``fk.initialize()`` passes to JAX. JAX itself is stopped before it would look for GPUs.

ARGUMENTS = """
import os, sys
from ferroket import _lib
os.environ["MPITRAMPOLINE_LIB"] = _lib.__file__  # so that jax may be imported first, and be changed
import jax
from jax._src import distributed

passed = {}
connect = jax.distributed.initialize

def record(**arguments):
    passed.update(arguments)
    # The ranks connect, so that what follows finds its peers.
    connect(**arguments)

jax.distributed.initialize = record
jax.process_count = lambda: passed["num_processes"]
jax.local_device_count = lambda: len(passed["local_device_ids"] or [])
jax.default_backend = lambda: "gpu"

import ferroket as fk
info = fk.initialize()
on_cpus = jax.config.jax_cpu_collectives_implementation
line = f"<{passed['process_id']}/{passed['num_processes']} {passed['local_device_ids']} {info.collectives} {on_cpus}>"
print(f"{line}\\n", end="", flush=True)
assert not {name for name in os.environ if name.startswith("NCCL_")}
"""


def arguments(job: Finished) -> list[str]:
    """Rank, ``local_device_ids``, collectives between GPUs, and between CPUs, which JAX has beside them."""
    assert job.returncode == 0, job.stdout + job.stderr
    return sorted(re.findall("<(.*?)>", job.stdout))


@pytest.mark.quick
@pytest.mark.mpi
def test_under_mpirun_each_rank_has_one_gpu(driver: dict[str, str]) -> None:
    job = run_ranks(ARGUMENTS, 2, FAKE_GPUS="2", **driver)
    assert arguments(job) == ["0/2 [0] nccl mpi", "1/2 [1] nccl mpi"]


@pytest.mark.mpi
def test_under_mpirun_the_only_rank_has_all(driver: dict[str, str]) -> None:
    job = run_ranks(ARGUMENTS, 1, FAKE_GPUS="4", **driver)
    assert arguments(job) == ["0/1 None nccl mpi"]


@pytest.mark.mpi
def test_under_srun_each_task_has_one_gpu_and_needs_no_mpi(driver: dict[str, str]) -> None:
    job = run_srun(ARGUMENTS, 2, FAKE_GPUS="4", FERROKET_LIBMPI="/nowhere/libmpi.so", **driver)
    assert arguments(job) == ["0/2 [0] nccl gloo", "1/2 [1] nccl gloo"]


@pytest.mark.mpi
def test_under_srun_on_two_nodes(driver: dict[str, str], tmp_path: Path) -> None:
    # The hosts are one machine, so their GPUs have to be different ones.
    script = 'import os; os.environ["FAKE_FIRST"] = str(2 * int(os.environ["SLURM_NODEID"]))\n' + ARGUMENTS
    with make_hosts(tmp_path) as hosts:
        job = run_srun(script, 4, hosts=hosts, FAKE_GPUS="2", **driver)
    assert arguments(job) == ["0/4 [0] nccl gloo", "1/4 [1] nccl gloo", "2/4 [0] nccl gloo", "3/4 [1] nccl gloo"]


@pytest.mark.mpi
def test_under_srun_with_gpus_per_task(driver: dict[str, str]) -> None:
    """Each task sees its own GPU, by another number than the other's."""
    script = 'import os; os.environ["FAKE_FIRST"] = os.environ["SLURM_PROCID"]\n' + ARGUMENTS
    job = run_srun(script, 2, FAKE_GPUS="1", SLURM_GPUS_ON_NODE="2", **driver)
    assert arguments(job) == ["0/2 [0] nccl gloo", "1/2 [0] nccl gloo"]


def test_without_a_launcher_jax_is_left_alone(driver: dict[str, str]) -> None:
    script = ARGUMENTS.split("on_cpus =", maxsplit=1)[0] + "print(info.size, info.collectives, passed)"
    assert run_alone(script, FAKE_GPUS="2", **driver).ok().stdout == "1 none {}\n"


@pytest.mark.mpi
@pytest.mark.parametrize("start", [run_ranks, run_srun])
def test_more_ranks_than_gpus_is_an_error_on_each(driver: dict[str, str], start: Callable[..., Finished]) -> None:
    job = start(ARGUMENTS, 3, FAKE_GPUS="2", timeout=30, **driver)
    assert job.returncode != 0
    assert job.stderr.count("RuntimeError: 3 ranks on ") == 3, job.stderr
    assert job.stderr.count("share 2 GPUs (0000:01:00.0 ") == 3


@pytest.mark.mpi
def test_one_gpu_that_each_rank_takes_for_its_own(driver: dict[str, str]) -> None:
    """What the batch system says of the node is wrong, and is found out once the ranks have met."""
    job = run_srun(ARGUMENTS, 2, FAKE_GPUS="1", SLURM_GPUS_ON_NODE="2", timeout=30, **driver)
    assert job.returncode != 0
    assert job.stderr.count("share 1 GPU (0000:01:00.0 ") == 2, job.stderr


@pytest.mark.mpi
def test_jaxs_own_choice_of_devices_is_left_to_it(driver: dict[str, str]) -> None:
    job = run_ranks(ARGUMENTS, 2, FAKE_GPUS="2", JAX_LOCAL_DEVICE_IDS="1", **driver)
    assert arguments(job) == ["0/2 None nccl mpi", "1/2 None nccl mpi"]


@pytest.mark.mpi
def test_a_rank_without_gpus_is_named(driver: dict[str, str]) -> None:
    script = 'import os; os.environ["FAKE_GPUS"] = str(2 - 2 * int(os.environ["PMI_RANK"]))\n' + ARGUMENTS
    job = run_ranks(script, 2, timeout=30, **driver)
    assert job.returncode != 0
    assert job.stderr.count("the platform that JAX computes on is cuda on rank 0 and cpu on rank 1") == 2, job.stderr
    job = run_ranks(script, 2, timeout=30, JAX_PLATFORMS="cuda", **driver)
    assert job.stderr.count("rank 1 on") >= 2
    assert job.stderr.count("JAX_PLATFORMS is 'cuda', but this process sees no GPU") == 2, job.stderr
