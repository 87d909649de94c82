"""A run that is stopped, and started again on any number of ranks, goes on with the same chains and numbers."""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from support.mpi import FAST_COMPILATION, PREFIXES, START, Finished, mpirun, run_alone, run_ranks
from support.srun import run_srun

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(900)]

# Seconds: NetKet compiles for half a minute, on a busy machine for longer.
LONG = 240

STEPS = 6
STOPS = 3
"""In this step a run is stopped that is to be."""

# Our samplers and operators, and drivers that keep something from step to step, or don't.
CASES = {
    "VMC_SR": """
space = nk.hilbert.Spin(s=1 / 2, N=10)
energy = fk.operator.Ising(space, nk.graph.Chain(10), h=1.0)
sampler = fk.sampler.MetropolisLocal(space, n_chains=16)
model = nk.models.RBM(alpha=1, param_dtype=float)
def make_driver(state):
    return fk.driver.VMC_SR(energy, nk.optimizer.Sgd(0.05), variational_state=state, diag_shift=1e-3)
""",
    "VMC_SR with momentum": """
space = nk.hilbert.Spin(s=1 / 2, N=8, total_sz=0)
energy = fk.operator.Heisenberg(space, nk.graph.Chain(8))
sampler = fk.sampler.MetropolisExchange(space, graph=nk.graph.Chain(8), n_chains=16)
model = nk.models.RBM(alpha=2, param_dtype=complex)
def make_driver(state):
    return fk.driver.VMC_SR(
        energy, nk.optimizer.Sgd(0.05), variational_state=state, diag_shift=1e-2, momentum=0.8, use_ntk=True
    )
""",
    "VMC": """
space = nk.hilbert.Spin(s=1 / 2, N=8)
energy = fk.operator.Ising(space, nk.graph.Chain(8), h=1.0)
sampler = fk.sampler.MetropolisHamiltonian(space, energy, n_chains=16)
model = nk.models.Jastrow(param_dtype=float)
def make_driver(state):
    return nk.driver.VMC(energy, nk.optimizer.Adam(0.02), variational_state=state)
""",
    "VMC of a network with NetKet's chains": """
space = nk.hilbert.Spin(s=1 / 2, N=8)
energy = fk.operator.Ising(space, nk.graph.Chain(8), h=1.0)
sampler = fk.sampler.MetropolisLocal(space, n_chains=16)
model = nk.models.MLP(hidden_dims=(6, 6))
def make_driver(state):
    return nk.driver.VMC(energy, nk.optimizer.Adam(0.02), variational_state=state)
""",
}

# As a user writes it, and what each step has computed.
RUN = (
    START
    + """
import contextlib, hashlib, json, os, signal, sys, time
from pathlib import Path
import jax, netket as nk, numpy as np, psutil
fd = fk.distributed
folder = Path(os.environ["FOLDER"])
<case>
state = nk.vqs.MCState(sampler, model, n_samples=64, seed=1, sampler_seed=2)
driver = make_driver(state)
with contextlib.suppress(FileNotFoundError):
    driver = fd.load(folder / "run.mpack", like=driver)

def digest(tree):
    return hashlib.sha256(b"".join(leaf.tobytes() for leaf in jax.tree.leaves(fd.gather(tree)))).hexdigest()[:16]

class Keep(nk.callbacks.AbstractCallback):
    def on_step_start(self, step, log, driver):
        fd.save(folder / "run.mpack", driver)

    def before_parameter_update(self, step, log, driver):
        mean = complex(np.asarray(log["Energy"].mean))
        fd.print_once("STEP", json.dumps([
            step, digest(driver.state.samples), digest(driver.state.parameters), mean.real.hex(), mean.imag.hex(),
        ]))
        if step == int(os.environ.get("STOPS", -1)):
            <stop>

driver.run(<steps> - driver.step_count, callback=[Keep(), *<callbacks>], show_progress=False)
fd.print_once("END", driver.step_count)
"""
)

# The launcher is told to stop, as by `kill` and batch systems; or all ranks at once, as by SLURM at a time limit.
LAUNCHER = """
            if info.rank == 0:
                next(each for each in psutil.Process().parents() if each.name().startswith("mpi")).terminate()
            time.sleep(60)
"""
RANKS = """
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)
"""


def script(case: str, stop: str = "pass", callbacks: str = "[]") -> str:
    parts = {"case": CASES[case], "stop": stop.strip(), "steps": str(STEPS), "callbacks": callbacks}
    return re.sub("<(case|stop|steps|callbacks)>", lambda found: parts[found[1]], RUN)


def start(text: str, n: int, folder: Path, mpi: str = "mpich", **env: str) -> Finished:
    env = {"FOLDER": str(folder), "XLA_FLAGS": FAST_COMPILATION, **env}
    return run_alone(text, LONG, **env) if n == 1 else run_ranks(text, n, mpi=mpi, timeout=LONG, **env)


def steps(*jobs: Finished) -> dict[int, list[str]]:
    """What the steps of jobs have computed; those that ran again have to have done the same."""
    found: dict[int, list[str]] = {}
    for job in jobs:
        for line in re.findall("^STEP (.*)$", job.stdout, re.MULTILINE):
            step, *numbers = json.loads(line)
            assert found.setdefault(step, numbers) == numbers
    return found


def energies(found: dict[int, list[str]]) -> np.ndarray:
    return np.array([[float.fromhex(part) for part in found[step][2:]] for step in sorted(found)])


def finished(job: Finished) -> Finished:
    assert (job.returncode, f"END {STEPS}" in job.stdout) == (0, True), job.stdout + job.stderr
    return job


def stopped(job: Finished) -> Finished:
    assert job.returncode != 0, job.stdout + job.stderr
    assert sorted(steps(job)) == list(range(STOPS + 1)), job.stdout + job.stderr
    return job


@dataclass(frozen=True)
class Stopped:
    """A run of two ranks, whole and stopped."""

    case: str
    whole: dict[int, list[str]]
    job: Finished
    kept: bytes


@pytest.fixture(scope="module", params=CASES)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    case = request.param
    whole = steps(finished(start(script(case), 2, tmp_path_factory.mktemp("whole"))))
    assert sorted(whole) == list(range(STEPS))
    folder = tmp_path_factory.mktemp("stopped")
    job = stopped(start(script(case, RANKS), 2, folder, STOPS=str(STOPS)))
    assert [file.name for file in folder.iterdir()] == ["run.mpack"]
    return Stopped(case, whole, job, (folder / "run.mpack").read_bytes())


def restart(run: Stopped, n: int, folder: Path) -> dict[int, list[str]]:
    (folder / "run.mpack").write_bytes(run.kept)
    found = steps(finished(start(script(run.case), n, folder)))
    assert sorted(found) == list(range(STOPS, STEPS))
    return found


@pytest.mark.quick("VMC_SR")
def test_the_same_numbers_to_the_bit(run: Stopped, tmp_path: Path) -> None:
    assert steps(run.job) | restart(run, 2, tmp_path) == run.whole


@pytest.mark.parametrize("n", [1, 4])
def test_on_other_numbers_of_ranks(run: Stopped, n: int, tmp_path: Path) -> None:
    """The same chains to the bit; sums over ranks, and so all that comes after, differ by rounding."""
    found = restart(run, n, tmp_path)
    expected = {step: run.whole[step] for step in found}
    assert found[STOPS][:2] == expected[STOPS][:2]  # samples and parameters
    assert [found[step][0] for step in found] == [expected[step][0] for step in found]
    np.testing.assert_allclose(energies(found), energies(expected), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("mpi", PREFIXES)
def test_a_launcher_is_stopped(mpi: str, tmp_path: Path) -> None:
    job = stopped(start(script("VMC_SR", LAUNCHER), 2, tmp_path, mpi, STOPS=str(STOPS)))
    again = finished(start(script("VMC_SR"), 2, tmp_path, mpi))
    assert sorted(steps(job, again)) == list(range(STEPS))


SCONTROL = """#!/bin/sh
echo "scontrol $*" >> "$FOLDER/calls"
case "$1" in
    show) echo "   Requeue=1 Restarts=0" ;;
    requeue) kill -TERM $(cat "$FOLDER"/rank?) ;;
esac
"""
SQUEUE = """#!/bin/sh
echo 0:10
"""


def test_slurm_requeues_the_job(tmp_path: Path) -> None:
    """NetKet's AutoSlurmRequeue with stand-ins for SLURM's commands; the job goes on when it is started again."""
    for name, text in (("scontrol", SCONTROL), ("squeue", SQUEUE)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    # The ten seconds are over as soon as the run starts, and then again after the restart, but for the count.
    requeue = "[nk.callbacks.AutoSlurmRequeue(before=10, max_requeue_count=1)]"
    text = script("VMC_SR", callbacks=requeue).replace(
        "driver.run(", '(folder / f"rank{info.rank}").write_text(f"{os.getpid()}\\n")\ndriver.run('
    )
    path = f"{tmp_path}:{mpirun().parent}:{os.environ['PATH']}"
    env = {"FOLDER": str(tmp_path), "XLA_FLAGS": FAST_COMPILATION, "PATH": path}
    first = run_srun(text, 2, mpi="pmi2", timeout=LONG, **env)
    assert first.returncode != 0
    # What NetKet prints of it may be lost in mpirun's pipes: its ranks end at once.
    calls = (tmp_path / "calls").read_text()
    assert calls.count("scontrol requeue") == 1
    second = finished(run_srun(text, 2, mpi="pmi2", timeout=LONG, SLURM_RESTART_COUNT="1", **env))
    assert sorted(steps(first, second)) == list(range(STEPS))
    assert (tmp_path / "calls").read_text() == calls


# The state alone, as NetKet's and Flax's guides save it.
SAVED = (
    START
    + """
import flax, hashlib, os, sys
from pathlib import Path
import netket as nk, numpy as np
<case>
def make_state(**seeds):
    return nk.vqs.MCState(sampler, model, n_samples=64, **seeds)

file = Path(os.environ["FOLDER"], "state.mpack")
if file.exists():
    state = flax.serialization.from_bytes(make_state(seed=5, sampler_seed=6), file.read_bytes())
else:
    state = make_state(seed=1, sampler_seed=2)
    state.sample()
    saved = flax.serialization.to_bytes(state)
    fk.distributed.barrier()
    if info.rank == 0:
        file.write_bytes(saved)
found = [fk.distributed.gather(samples) for samples in (state.samples, state.sample(), state.sample())]
counts = [int(state.sampler_state.n_steps), int(state.sampler_state.n_accepted)]
fk.distributed.print_once("FOUND", *[hashlib.sha256(samples.tobytes()).hexdigest() for samples in found], *counts)
"""
)


@pytest.mark.parametrize("case", CASES)
def test_states_by_flax(case: str, tmp_path: Path) -> None:
    text = SAVED.replace("<case>", CASES[case])
    lines = []
    for n in (2, 1, 2, 4):
        job = start(text, n, tmp_path)
        assert job.returncode == 0, job.stdout + job.stderr
        lines += re.findall("^FOUND .*$", job.stdout, re.MULTILINE)
    assert len(lines) == 4
    assert len(set(lines)) == 1


def test_another_number_of_chains_is_an_error(tmp_path: Path) -> None:
    """NetKet's chains are 16 a rank unless their number is given: then a run can't go on as it was."""
    text = script("VMC_SR").replace("n_chains=16", "n_chains_per_rank=16")
    finished(start(text, 2, tmp_path))
    job = start(text, 1, tmp_path)
    assert job.returncode != 0
    assert f"ValueError: '{tmp_path}/run.mpack' has an array of shape (32" in job.stderr
    assert "make it with the sizes of what was saved, such as n_chains" in job.stderr


SOAK = (
    START
    + """
import gc, json, os
from pathlib import Path
import netket as nk
<case>
state = nk.vqs.MCState(sampler, model, n_samples=64, seed=1, sampler_seed=2)
driver = make_driver(state)
found = []

def keep(step, log, driver):
    if step in (<steps> // 10, <steps> - 1):
        gc.collect()
        lines = Path("/proc/self/status").read_text().splitlines()
        found.append(next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")))
    return True

driver.run(<steps>, callback=keep, show_progress=False)
print(f"<KIB {found[0]} {found[1]}>\\n", end="", flush=True)
"""
)
SOAK_STEPS = int(os.environ.get("FERROKET_TEST_STEPS", "0"))


@pytest.mark.skipif(not SOAK_STEPS, reason="minutes: make soak")
@pytest.mark.timeout(600 + SOAK_STEPS)
@pytest.mark.parametrize("case", CASES)
def test_soak_memory_is_constant(case: str) -> None:
    """FERROKET_TEST_STEPS of them, `make soak` runs 5000."""
    text = SOAK.replace("<case>", CASES[case]).replace("<steps>", str(SOAK_STEPS))
    job = run_ranks(text, 2, timeout=300 + SOAK_STEPS, XLA_FLAGS=FAST_COMPILATION)
    assert job.returncode == 0, job.stdout + job.stderr
    found = [(int(first), int(last)) for first, last in re.findall(r"<KIB (\d+) (\d+)>", job.stdout)]
    assert len(found) == 2
    assert all(last - first < 8 << 10 for first, last in found), found
