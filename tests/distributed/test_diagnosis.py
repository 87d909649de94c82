"""The diagnosis of ``ferroket doctor``: each classic mistake is named with its mend."""

from dataclasses import replace

import pytest

from ferroket.distributed.doctor.diagnosis import diagnose
from ferroket.distributed.doctor.reductions import Computation
from support.doctor_examinations import FAST, GIB, LIBRARY, RANK, alone, failed, job, the_problem


def test_a_healthy_job_has_no_problems() -> None:
    assert diagnose(job()) == []
    assert diagnose(job(alone(), replace(alone(), rank=1))) == []
    four = [replace(RANK, rank=rank) for rank in range(4)]
    assert diagnose(job(*four)) == []


INDEPENDENT = "RuntimeError: it says that this is rank 0 of 2, but the ranks would be 2 independent runs. Do it"


def test_independent_runs() -> None:
    problem = the_problem(failed(INDEPENDENT), "error")
    assert "MPICH's mpirun (hydra) (/opt/mpich/bin/mpirun) and the MPI library MPICH 5.0.2" in problem.text
    assert "don't belong together: 2 independent runs, each rank 0 of 1" in problem.text
    assert "two families" not in problem.text
    assert "name the library that belongs to the launcher in FERROKET_LIBMPI" in problem.mend


def test_library_and_launcher_of_two_families() -> None:
    other = replace(LIBRARY, family="Open MPI", version="Open MPI v5", mpirun="/opt/ompi/bin/mpirun")
    problem = the_problem(failed("the process ended with exit code 1", library=other), "error")
    assert "which are of two families, don't belong together: ranks that don't find each other" in problem.text
    assert "or start with the library's own launcher, /opt/ompi/bin/mpirun -n 2" in problem.mend
    named = replace(other, origin="named in MPI4PY_LIBMPI")
    facts = replace(RANK, variables={"MPI4PY_LIBMPI": "/opt/ompi/lib/libmpi.so.40"})
    problem = the_problem(failed(INDEPENDENT, facts, library=named), "error")
    assert problem.mend.startswith("unset MPI4PY_LIBMPI")


def test_srun_without_pmi() -> None:
    rank = replace(RANK, launcher="SLURM's srun", launcher_kind="slurm", started_by=[])
    assert "srun --mpi=pmi2" in the_problem(failed(INDEPENDENT, rank), "error").mend


def test_hydra_in_a_job_of_slurm_with_pmix() -> None:
    ranks = [replace(RANK, rank=rank, variables={"PMIX_NAMESPACE": "slurm.pmix.7.0"}) for rank in (0, 1)]
    problem = the_problem(job(*ranks), "warning")
    assert "PMIX_NAMESPACE is set beside the variables of mpirun" in problem.text
    assert "SLURM_MPI_TYPE=none" in problem.mend


def test_hydra_that_slurm_has_bound() -> None:
    facts = replace(RANK, variables={"SLURM_CPUS_ON_NODE": "4"}, available_cores=1)
    problem = the_problem(job(facts, replace(facts, rank=1), bound=[[0], [0]]), "warning")
    assert problem.text.startswith("2 ranks share 1 core, but the job has 4 there (SLURM_CPUS_ON_NODE)")
    assert "SLURM_CPU_BIND=none" in problem.mend


def test_a_launcher_whose_variables_are_lost() -> None:
    facts = replace(alone(), started_by=["/opt/mpich/bin/hydra_pmi_proxy", "/opt/mpich/bin/mpirun"])
    problem = the_problem(job(facts, outcome=None), "error")
    assert "started by /opt/mpich/bin/mpirun, but its environment has none of the variables" in problem.text
    assert "no `env -i`" in problem.mend


def test_no_library() -> None:
    error = "no MPI library was found. Install one beside this package, or name it. Tried: \n  a: not there\n  b: old"
    problem = the_problem(job(library=None, library_error=error, outcome=None), "error")
    assert problem.text == "no MPI library was found"
    assert problem.mend.startswith("Install one beside this package, or name it")
    assert "ferroket launch --collectives gloo" in problem.mend
    gloo = replace(RANK, variables={"FERROKET_COLLECTIVES": "gloo"})
    assert diagnose(job(gloo, library=None, library_error=error)) == []


def test_no_mpirun() -> None:
    missing = replace(LIBRARY, mpirun=None, mpirun_error="no mpirun belongs to it")
    problem = the_problem(job(alone(), library=missing, outcome=None), "error")
    assert problem.text == "no mpirun belongs to it"
    assert diagnose(job(library=missing)) == []  # srun starts it, say


def test_another_mpirun_on_path() -> None:
    problem = the_problem(job(alone(mpirun_on_path="/usr/bin/mpirun"), outcome=None), "warning")
    assert "`mpirun` in this shell is /usr/bin/mpirun" in problem.text
    assert "start with /opt/mpich/bin/mpirun, or put /opt/mpich/bin first on PATH" in problem.mend


def test_a_missing_and_an_old_package() -> None:
    missing = replace(RANK, versions={**RANK.versions, "netket": None})
    problem = the_problem(job(missing, outcome=None), "error")
    assert problem.text == "netket is not installed for Python 3.12.1, /venv/bin/python"
    assert problem.mend == "pip install netket"
    old = replace(RANK, versions={**RANK.versions, "jax": "0.6.12"})
    problem = the_problem(job(old), "warning")
    assert "jax 0.6.12 is older than 0.8" in problem.text
    assert problem.mend == "pip install --upgrade 'jax>=0.8'"
    the_problem(failed("AttributeError: shard_map", old), "error")
    assert diagnose(job(replace(RANK, versions={**RANK.versions, "jax": "0.10.0rc1"}))) == []


def test_an_early_import() -> None:
    early = replace(RANK, early=["jax"], startup_file="/venv/sitecustomize.py")
    problem = the_problem(failed("RuntimeError: rank 0 on a: fk.initialize() came too late", early), "error")
    assert "Python imports jax when it starts (rank 0)" in problem.text
    assert problem.mend == "remove the import from /venv/sitecustomize.py"


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({"JAX_NUM_CPU_DEVICES": "4"}, "JAX_NUM_CPU_DEVICES"),
        ({"XLA_FLAGS": "--a=1 --xla_force_host_platform_device_count=4"}, "--xla_force_host_platform_device_count"),
    ],
)
def test_several_devices_a_process(variables: dict[str, str], name: str) -> None:
    facts = replace(RANK, variables=variables)
    problem = the_problem(failed("RuntimeError: this process has 4 CPU devices", facts), "error")
    assert problem.text.startswith(name)
    assert "asks for 4 CPU devices" in problem.text
    assert "start 4 times as many ranks" in problem.mend
    assert diagnose(job(replace(facts, variables={**variables, "FERROKET_COLLECTIVES": "gloo"}), library=None)) == []


def test_a_failure_of_another_kind_is_shown_with_its_own_mend() -> None:
    text = "ValueError: FERROKET_BIND is 'x'. Choose another"
    problem = the_problem(failed(text), "error")
    assert problem.text == "rank 0 on node1 failed in fk.initialize(): ValueError: FERROKET_BIND is 'x'"
    assert problem.mend == "Choose another"
    killed = failed("the process was killed by SIGKILL")
    assert "start fewer ranks" in the_problem(killed, "error").mend
    assert "pip check" in the_problem(failed("ImportError: cannot import"), "error").mend
    crash = failed("the process was killed by SIGSEGV", stage="psum", output=["bad things"])
    problem = the_problem(crash, "error")
    assert "failed in psum: the process was killed by SIGSEGV" in problem.text
    assert "/opt/mpich/bin/mpirun -n 2 hostname" in problem.mend
    root = failed("the process ended with exit code 1", output=["prterun has detected an attempt to run as root."])
    assert "OMPI_ALLOW_RUN_AS_ROOT=1" in the_problem(root, "error").mend


def test_ranks_on_one_core_while_others_are_idle() -> None:
    problem = the_problem(job(bound=[[2], [2]]), "warning")
    assert problem.text == "ranks 0-1 run on the same core 2, though 4 are there for 2 ranks"
    assert "drop the options by which mpirun, srun or taskset bind the ranks" in problem.mend


def test_ranks_that_nobody_bound() -> None:
    facts = replace(RANK, variables={"FERROKET_BIND": "none"})
    problem = the_problem(job(facts, replace(facts, rank=1), bound=[[0, 1, 2, 3]] * 2, threads=4), "warning")
    assert "FERROKET_BIND is none, and 2 ranks run on the same 4 cores (0-3), with 8 threads of XLA" in problem.text
    assert problem.mend.startswith("unset FERROKET_BIND")


def test_more_ranks_than_cores() -> None:
    ranks = [replace(RANK, rank=rank) for rank in range(8)]
    problem = the_problem(job(*ranks, bound=[[rank % 4] for rank in range(8)]), "warning")
    assert problem.text == "8 ranks share 4 cores"
    assert problem.mend == "start 4 ranks on the node, or ask for more cores"


def test_hyperthreads_of_one_core() -> None:
    facts = replace(RANK, physical=["0.0", "0.0", "0.1", "0.1"], node_physical=2)
    problem = the_problem(job(facts, replace(facts, rank=1), bound=[[0], [1]]), "warning")
    assert problem.text == "2 ranks run on 1 physical core: hyperthreads share a core"
    assert diagnose(job(facts, replace(facts, rank=1), bound=[[0, 1], [2, 3]], threads=2)) == []
    four = [replace(facts, rank=rank) for rank in range(4)]
    problem = the_problem(job(*four, bound=[[0, 1], [2, 3]] * 2), "warning")
    assert problem.text == "4 ranks share 2 physical cores"


def test_ranks_that_never_started_are_not_blamed_for_cores_that_they_would_have_divided() -> None:
    the_problem(failed("ValueError: x"), "error")
    one_core = replace(RANK, cores=[0], physical=["0.0"])
    problems = diagnose(failed("ValueError: x", one_core, replace(one_core, rank=1)))
    assert "run on the same core 0" in problems[1].text


def test_each_node_is_diagnosed_by_itself() -> None:
    ranks = [replace(RANK, rank=rank, machine=f"n{rank // 2}", hostname=f"n{rank // 2}") for rank in range(4)]
    assert diagnose(job(*ranks, bound=[[0], [1], [0], [1]])) == []
    problem = the_problem(job(*ranks, bound=[[0], [1], [3], [3]]), "warning")
    assert problem.text == "ranks 2-3 on n1 run on the same core 3, though 4 are there for 2 ranks"


def test_more_threads_than_cores() -> None:
    problem = the_problem(job(threads=4), "warning")
    assert problem.text == "2 ranks have 8 threads of XLA for 2 cores"
    assert problem.mend.startswith("unset PJRT_NPROC")
    openmp = replace(RANK, variables={"OMP_NUM_THREADS": "4"})
    problem = the_problem(job(openmp, replace(openmp, rank=1), bound=[[0, 1], [2, 3]], threads=2), "warning")
    assert problem.text == "OMP_NUM_THREADS is 4: 2 ranks may start 8 threads on 4 cores"
    assert problem.mend == "OMP_NUM_THREADS=2"
    enough = replace(RANK, variables={"OMP_NUM_THREADS": "2"})
    assert diagnose(job(enough, replace(enough, rank=1), bound=[[0, 1], [2, 3]], threads=2)) == []


def test_less_time_than_cores() -> None:
    problem = the_problem(job(replace(RANK, quota=1.5), replace(RANK, rank=1)), "warning")
    assert "allows 1.5 cores' worth of time, but 2 ranks on 2 cores may use more" in problem.text
    assert "docker run --cpus=2" in problem.mend
    assert diagnose(job(replace(RANK, quota=2.0))) == []


def test_little_memory() -> None:
    small = replace(RANK, shm=[64 << 20, 20 << 20])
    problem = the_problem(job(small, replace(RANK, rank=1)), "warning")
    assert "/dev/shm has 20 MiB free of 64, but MPI may take 16 for each of 2 ranks" in problem.text
    assert "docker run --shm-size=1g" in problem.mend
    problem = the_problem(job(replace(RANK, memory_limit=GIB), replace(RANK, rank=1)), "warning")
    assert "1024 MiB of memory leave 512 MiB for each of 2 ranks" in problem.text
    problem = the_problem(job(replace(RANK, tmp_error="No space left")), "warning")
    assert "TMPDIR" in problem.mend


def test_other_settings() -> None:
    trampoline = replace(RANK, variables={"MPITRAMPOLINE_LIB": "/nowhere/libmpiwrapper.so"})
    problem = the_problem(job(trampoline), "warning")
    assert problem.text.startswith("MPITRAMPOLINE_LIB is /nowhere/libmpiwrapper.so, which isn't ferroket's")
    assert "though fk.initialize() replaces it" in problem.text
    assert problem.mend == "unset MPITRAMPOLINE_LIB"
    crash = failed("the process ended with exit code 1", trampoline, output=["MPItrampoline: Could not dlopen"])
    assert "and jaxlib can't load it" in the_problem(crash, "error").text
    problem = the_problem(job(replace(RANK, variables={"FERROKET_COLLECTIVES": "gloo"})), "warning")
    assert "gloo, which is slower than MPI" in problem.text
    assert problem.mend == "unset FERROKET_COLLECTIVES"


def test_ranks_that_differ() -> None:
    other = replace(RANK, rank=1, versions={**RANK.versions, "numpy": "1.26"})
    problem = the_problem(job(RANK, other), "warning")
    assert problem.text == "numpy is 3.1 on rank 0, but 1.26 on rank 1"
    other = replace(RANK, rank=1, variables={"XLA_FLAGS": "--x"})
    problem = the_problem(job(RANK, other), "warning")
    assert problem.text == "XLA_FLAGS is missing on rank 0, but --x on rank 1"
    assert "same environment" in problem.mend


def test_a_slow_psum() -> None:
    slow = replace(FAST, mean=2.5e-3)
    outcome = job().outcome
    assert outcome
    problem = the_problem(job(outcome=replace(outcome, psum=[slow])), "warning")
    assert problem.text.startswith("a psum of 4 B takes 2.5 ms on one node, where 0.05 ms are usual; the node's load")
    several = replace(outcome, psum=[slow], info={"nodes": 2})
    assert diagnose(job(outcome=several)) == []
    one_core = [replace(facts, available_cores=1) for facts in (RANK, replace(RANK, rank=1))]
    shared = job(*one_core, bound=[[0], [0]])
    assert shared.outcome
    problem = the_problem(replace(shared, outcome=replace(shared.outcome, psum=[slow])), "warning")
    assert problem.text == "2 ranks share 1 core"


def test_a_name_that_does_not_resolve_matters_on_several_nodes_only() -> None:
    lost = replace(RANK, address=None, address_error="Name or service not known")
    assert diagnose(job(lost)) == []
    other = replace(lost, rank=1, hostname="node2", machine="node2")
    problem = the_problem(job(RANK, other, bound=[[0], [0]]), "warning")
    assert "the host name node2 doesn't resolve on its own node (Name or service not known)" in problem.text
    assert "FERROKET_COORDINATOR_HOST" in problem.mend


def test_errors_come_first() -> None:
    facts = replace(RANK, shm=[0, 0], early=["jax"])
    assert [problem.severity for problem in diagnose(failed("x", facts))] == ["error", "warning"]


def test_a_jaxlib_that_computes_wrong_numbers() -> None:
    right = Computation(name="mean(x)", dtype="float32", wrong=[])
    wrong = Computation(
        name="sum(x)", dtype="float64", wrong=["rank 0 got 1 in place of 2", "rank 1 got 1 in place of 2"]
    )
    outcome = job().outcome
    assert outcome
    assert diagnose(job(outcome=replace(outcome, reductions=[right]))) == []
    ranks = [replace(RANK, rank=rank, versions={**RANK.versions, "jaxlib": "0.10.2"}) for rank in range(2)]
    problem = the_problem(job(*ranks, outcome=replace(outcome, reductions=[right, wrong])), "error")
    assert problem.text == (
        "jaxlib 0.10.2 computes wrong numbers, in 1 of 2 computations: sum(x) in float64, rank 0 got 1 in place of 2 "
        "(and 1 more rank)"
    )
    flag = "--xla_cpu_experimental_ynn_fusion_type=individual_dot"
    assert problem.mend == f"export XLA_FLAGS={flag}, or install another version of jaxlib"
    unknown = the_problem(job(outcome=replace(outcome, reductions=[wrong])), "error")
    assert unknown.mend == "install another version of jaxlib, and report this page"
