"""Jobs over several hosts, each a network namespace with a name and an address of its own."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from support.hosts import Host, Names, as_debian, by_dns, make_hosts, run_on_hosts
from support.mpi import FULL, START, SUM, Finished, run_ranks

pytestmark = pytest.mark.mpi

EXAMPLE = Path(__file__).parents[2] / "examples" / "ising_vmc.py"

# The sum of the ranks, and where the coordinator's port is listened on in the rank's own host.
PSUM = (
    START
    + SUM
    + """
import psutil
port = int(info.coordinator.rsplit(":", 1)[1])
# A socket for both versions of the protocol writes an address of version 4 as ::ffff:10.77.0.1.
listening = [c.laddr.ip.removeprefix("::ffff:") for c in psutil.net_connections("tcp")
             if c.status == "LISTEN" and c.laddr.port == port]
print(f"{info.rank} {info.hostname} {value} {info.coordinator.rsplit(':', 1)[0]} {listening}\\n", end="", flush=True)
"""
)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[list[Host]]:
    with make_hosts(tmp_path) as hosts:
        yield hosts


def expected(hosts: Sequence[Host], coordinator: str, per_host: int = 1) -> list[str]:
    """The lines of PSUM. Only rank 0's host listens, and only on the address that the others reach."""
    n = len(hosts) * per_host
    value = n * (n - 1) // 2
    return [
        f"{rank} {hosts[rank // per_host].name} {value} {coordinator} {[coordinator] if rank < per_host else []}"
        for rank in range(n)
    ]


def energy(job: Finished) -> str:
    found = re.search(r"^energy .*$", job.stdout, re.MULTILINE)
    assert found, job.stdout + job.stderr
    return found[0]


@pytest.mark.skipif(not FULL, reason="two minutes for what shorter programs tell: FERROKET_TEST_FULL=1")
def test_the_demo_on_two_hosts_gives_what_it_gives_on_one(hosts: list[Host]) -> None:
    # Standard error has NetKet's progress bar.
    job = run_on_hosts(EXAMPLE, hosts, timeout=150)
    assert job.returncode == 0, job.stderr
    assert energy(job) == energy(run_ranks(EXAMPLE, 2))
    assert "rank 0 0; rank 1 1 (bound by ferroket)" in job.stdout or "shared" in job.stdout


def test_the_coordinator_listens_where_the_other_hosts_reach_it_and_nowhere_else(hosts: list[Host]) -> None:
    assert run_on_hosts(PSUM, hosts).ok().lines() == expected(hosts, hosts[0].address)


def test_on_one_host_it_listens_on_loopback(hosts: list[Host]) -> None:
    job = run_on_hosts(PSUM, hosts[1:], per_host=2).ok()
    assert job.lines() == expected(hosts[1:], "127.0.0.1", per_host=2)


@pytest.mark.quick
def test_three_hosts_of_two_ranks(tmp_path: Path) -> None:
    with make_hosts(tmp_path, n=3) as hosts:
        assert run_on_hosts(PSUM, hosts, per_host=2).ok().lines() == expected(hosts, hosts[0].address, per_host=2)


FAILS = (
    START
    + SUM
    + """
import os, signal, time
total(x).block_until_ready()
if rank == <rank>:
    time.sleep(2)  # the watchers have started
    <end>
while True:
    total(x).block_until_ready()
"""
)


@pytest.mark.quick("kill-1")
@pytest.mark.parametrize("rank", [0, 1, 2])
@pytest.mark.parametrize("end", ["raise ValueError('the reason')", "os.kill(os.getpid(), 9)"], ids=["raise", "kill"])
def test_the_rank_that_failed_first_is_named_once_from_wherever_it_was(end: str, rank: int, tmp_path: Path) -> None:
    with make_hosts(tmp_path, n=3) as hosts:
        job = run_on_hosts(FAILS.replace("<rank>", str(rank)).replace("<end>", end), hosts)
        assert job.returncode != 0
        ours = [line for line in job.stderr.splitlines() if line.startswith("ferroket: ")]
        assert len(ours) == 1, job.stderr
        assert ours[0].startswith(f"ferroket: rank {rank} of 3 on {hosts[rank].name}"), job.stderr
        assert ("uncaught ValueError" if "raise" in end else "killed (SIGKILL)") in ours[0], job.stderr


def test_hosts_whose_own_name_leads_to_loopback(tmp_path: Path) -> None:
    with make_hosts(tmp_path, as_debian) as hosts:
        assert run_on_hosts(PSUM, hosts).ok().lines() == expected(hosts, hosts[0].address)


def test_the_coordinators_host_can_be_named(hosts: list[Host]) -> None:
    job = run_on_hosts(PSUM, hosts, FERROKET_COORDINATOR_HOST=hosts[0].second).ok()
    assert job.lines() == expected(hosts, hosts[0].second)


@pytest.mark.parametrize("names", [by_dns, as_debian])
def test_gloo_over_hosts(tmp_path: Path, names: Names) -> None:
    with make_hosts(tmp_path, names) as hosts:
        job = run_on_hosts(PSUM, hosts, FERROKET_COLLECTIVES="gloo")
        assert job.returncode == 0, job.stderr
        # Gloo itself prints too, and into the ranks' lines.
        for line in expected(hosts, hosts[0].address):
            assert line in job.stdout


# Bad input: an error on every rank, that names the cause and the mend.

INITIALIZE = "import ferroket as fk; fk.initialize()"


def without_own(host: Host, hosts: Sequence[Host]) -> dict[str, str]:
    return {other.name: other.address for other in hosts if other is not host}


def all_loopback(host: Host, hosts: Sequence[Host]) -> dict[str, str]:
    return {other.name: "127.0.1.1" for other in hosts}


def test_a_host_that_does_not_know_its_own_name(tmp_path: Path) -> None:
    with make_hosts(tmp_path, without_own) as hosts:
        job = run_on_hosts(INITIALIZE, hosts, timeout=30)
        assert job.returncode != 0
        problem = f"RuntimeError: rank 0 on {hosts[0].name}: the host name '{hosts[0].name}' doesn't resolve"
        assert job.stderr.count(problem) == 2, job.stderr
        assert job.stderr.count("Name the address of rank 0's node in FERROKET_COORDINATOR_HOST") == 2
        # ... and the mend mends it.
        named = run_on_hosts(PSUM, hosts, FERROKET_COORDINATOR_HOST=hosts[0].address)
        assert named.ok().lines() == expected(hosts, hosts[0].address)


def test_names_that_lead_to_loopback_everywhere(tmp_path: Path) -> None:
    with make_hosts(tmp_path, all_loopback) as hosts:
        job = run_on_hosts(INITIALIZE, hosts, timeout=30)
        assert job.returncode != 0
        problem = (
            f"'{hosts[0].name}' resolves to 127.0.1.1 on rank 0's node, which the ranks on '{hosts[1].name}' can't"
        )
        assert job.stderr.count(problem) == 2, job.stderr


def test_the_coordinators_host_is_another_one(hosts: list[Host]) -> None:
    job = run_on_hosts(INITIALIZE, hosts, timeout=30, FERROKET_COORDINATOR_HOST=hosts[1].address)
    assert job.returncode != 0
    assert job.stderr.count(f"{hosts[1].address} is no address of {hosts[0].name}, where rank 0 runs") == 2, job.stderr


# One rank fails on another host than mpirun's.


@pytest.mark.parametrize(
    "end", ['raise ValueError("the reason")', "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"]
)
def test_a_rank_that_fails_on_another_host_ends_the_job(hosts: list[Host], end: str) -> None:
    script = PSUM + f"if info.rank == 1:\n    {end}\nfor _ in range(10**7): total(x).block_until_ready()\n"
    job = run_on_hosts(script, hosts, timeout=30)
    assert job.returncode != 0
    assert f"rank 1 of 2 on {hosts[1].name}" in job.stderr
    if "raise" in end:
        assert job.stderr.count("ValueError: the reason") == 1
        assert "uncaught ValueError, so the whole job" in job.stderr
    else:
        assert "killed (SIGKILL)" in job.stderr
