"""What SLURM's ``srun`` tells a rank, so that ranks can meet without MPI.

``srun`` starts processes with or without an MPI library among them. Its variables say who is who and on which nodes,
which is all that JAX's coordinator needs.
"""

import re
from collections.abc import Mapping
from itertools import product
from typing import NamedTuple

from ferroket.distributed.coordinator import asked_port, choose_host, join, resolve
from ferroket.distributed.node import Node

# JAX's coordinator gets a port above those that Linux gives to outgoing connections (32768 to 60999).
_FIRST_PORT, _PORTS = 61440, 4096
# Jobs that share a node have neighbouring numbers, and each counts its steps from 0.
_STEP_STRIDE = 521

# What to do where MPI sees one rank in each process that srun started.
NO_PMI = (
    "srun has to be told how MPI finds the other ranks: `srun --mpi=pmi2` for MPICH and Intel MPI, "
    "`srun --mpi=pmix` for Open MPI (`srun --mpi=list` shows what this cluster has). Or start the ranks with mpirun "
    "inside the allocation, or set FERROKET_COLLECTIVES=gloo, which needs no MPI"
)

_RANGES = r"\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*"
_BRACKETS = rf"\[{_RANGES}\]"
_HOST = rf"(?:[^\s,\[\]]|{_BRACKETS})+"


class Step(NamedTuple):
    """One rank's place in a job step, the unit that ``srun`` starts.

    Attributes:
        rank: this process's number, from 0.
        size: the number of processes.
        local_rank: this process's number on its node.
        local_size: the number of processes on its node.
        node: the number of its node, from 0.
        hosts: the nodes of the step, by number.
        host: the name by which other nodes reach rank 0's.
        port: the coordinator's port, the same on every rank, and another one for each step.
        gpus_on_node: the GPUs that the step has on this node, None if it asked for none.
    """

    rank: int
    size: int
    local_rank: int
    local_size: int
    node: int
    hosts: tuple[str, ...]
    host: str
    port: int
    gpus_on_node: int | None

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes of the step, as far as their names tell, for :class:`Coordinator`."""
        return tuple(Node(host, host, host, host) for host in self.hosts)

    @property
    def coordinator(self) -> str:
        """Where this rank finds JAX's coordinator.

        Raises:
            RuntimeError: the name of rank 0's node doesn't resolve, or there to no address that the others reach.
        """
        if self.node == 0:  # where the name may lead to loopback, and the coordinator doesn't listen there
            return join(choose_host(self.nodes), self.port)
        resolve(self.host)  # or raise; the name may have several addresses, of which JAX tries all
        return join(self.host, self.port)


def step(variables: Mapping[str, str]) -> Step | None:
    """The step that this process is a task of.

    Args:
        variables: the environment. FERROKET_COORDINATOR_HOST and FERROKET_COORDINATOR_PORT override what would be
            chosen.

    Returns:
        The step; None if ``srun`` didn't start this process. The process of a batch script is no task of a step.

    Raises:
        RuntimeError: a variable of SLURM is missing or makes no sense; which node rank 0 is on can't be told.
    """
    if "SLURM_PROCID" not in variables or "SLURM_STEP_NUM_TASKS" not in variables:
        return None
    hosts = expand(_read(variables, "SLURM_STEP_NODELIST", rf"{_HOST}(?:,{_HOST})*"))
    tasks = _tasks_per_node(_read(variables, "SLURM_STEP_TASKS_PER_NODE", r"\d+(\(x\d+\))?(,\d+(\(x\d+\))?)*"))
    node = _number(variables, "SLURM_NODEID")
    if not node < len(tasks) == len(hosts):
        raise RuntimeError(
            f"SLURM's variables contradict each other: SLURM_NODEID is {node}, SLURM_STEP_NODELIST names {len(hosts)} "
            f"nodes and SLURM_STEP_TASKS_PER_NODE {len(tasks)}. Did a script set one of them?"
        )
    job, number = _number(variables, "SLURM_JOB_ID"), _number(variables, "SLURM_STEP_ID")
    port = _FIRST_PORT + (job + _STEP_STRIDE * number) % _PORTS
    return Step(
        rank=_number(variables, "SLURM_PROCID"),
        size=_number(variables, "SLURM_STEP_NUM_TASKS"),
        local_rank=_number(variables, "SLURM_LOCALID"),
        local_size=tasks[node],
        node=node,
        hosts=tuple(hosts),
        host=variables.get("FERROKET_COORDINATOR_HOST") or _first_host(hosts, variables),
        port=asked_port(variables) or port,
        gpus_on_node=_number(variables, "SLURM_GPUS_ON_NODE") if "SLURM_GPUS_ON_NODE" in variables else None,
    )


def expand(hostlist: str) -> list[str]:
    """The names in a list as SLURM writes it.

    >>> expand("n[08-10,12],login")
    ['n08', 'n09', 'n10', 'n12', 'login']
    """
    names: list[str] = []
    for host in re.findall(_HOST, hostlist):
        parts = re.split(rf"({_BRACKETS})", host)
        names += map("".join, product(*(_numbers(part[1:-1]) if part.startswith("[") else [part] for part in parts)))
    return names


def _numbers(ranges: str) -> list[str]:
    """``08-10,12``: 08, 09, 10, 12."""
    numbers = []
    for ends in ranges.split(","):
        first, _, last = ends.partition("-")
        numbers += [f"{number:0{len(first)}}" for number in range(int(first), int(last or first) + 1)]
    return numbers


def _tasks_per_node(text: str) -> list[int]:
    """``2(x3),1``: 2, 2, 2, 1."""
    return [int(tasks) for tasks, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text) for _ in range(int(times or 1))]


def _first_host(hosts: list[str], variables: Mapping[str, str]) -> str:
    """Rank 0's node: the first, but where the user distributes the tasks by hand."""
    if len(hosts) > 1 and variables.get("SLURM_DISTRIBUTION", "").startswith("arbitrary"):
        raise RuntimeError(
            "SLURM_DISTRIBUTION is 'arbitrary', so the ranks can't tell which of the nodes "
            f"{variables['SLURM_STEP_NODELIST']} runs rank 0. Name it in FERROKET_COORDINATOR_HOST"
        )
    return hosts[0]


def _read(variables: Mapping[str, str], name: str, pattern: str) -> str:
    value = variables.get(name)
    if value is None or not re.fullmatch(pattern, value):
        what = "not set" if value is None else repr(value)
        raise RuntimeError(
            f"{name} is {what}, but srun started this process and sets it otherwise. Was the environment changed "
            "between srun and the script? Start the script by srun directly, or with mpirun"
        )
    return value


def _number(variables: Mapping[str, str], name: str) -> int:
    return int(_read(variables, name, r"\d+"))
