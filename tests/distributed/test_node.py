"""Which ranks know each other by process numbers, and what they report to each other."""

import pickle

import pytest

from ferroket.distributed import failure, startup
from ferroket.distributed.gpus import Gpus
from ferroket.distributed.node import Node, this_node


def test_this_node() -> None:
    node = this_node()
    assert node == this_node()
    assert node.network.startswith(node.machine)
    assert node.processes.startswith(node.machine)
    assert node.network != node.processes


def test_the_first_rank_of_each_container_watches_its_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[list[tuple[str, tuple[int, int]]]] = []
    monkeypatch.setattr(failure, "watch", lambda ranks, meeting: watched.append((ranks, meeting)))
    nodes = [Node(name, "machine", "network", processes) for name, processes in zip("aabbb", "11222", strict=True)]
    reports = [
        startup._Report(
            {}, node, (0,), None, Gpus(None, ()), (20 + rank, 3) if rank != 3 else None, None, None, 1 << 33
        )
        for rank, node in enumerate(nodes)
    ]
    told: list[bytes] = []
    for rank in range(5):
        startup._watch_nodes(Group(rank, told), reports)
    (first, own), (second, other) = watched
    assert first == [("rank 0 of 5 on a", (20, 3)), ("rank 1 of 5 on a", (21, 3))]
    assert second == [("rank 2 of 5 on b", (22, 3)), ("rank 4 of 5 on b", (24, 3))]
    assert own.listener
    assert other.listener is None
    assert (own.address, own.password) == (other.address, other.password)
    assert own.address.startswith("127.0.0.1:")  # the nodes share a network
    assert len(own.password) == 32


class Group:
    """Ranks that call one after the other, as a process group."""

    def __init__(self, rank: int, told: list[bytes]) -> None:
        self.rank, self.size = rank, 5
        self._told = told

    def broadcast(self, own: bytes) -> bytes:
        if self.rank == 0:
            self._told.append(own)
        return self._told[0]


REPORT = startup._Report(
    {"jax": "0.10"}, this_node(), (0, 3), 8, Gpus("cuda", ("a", "b")), (5, 2), "cache", None, 1 << 33
)


def test_what_a_rank_reports_is_data() -> None:
    assert startup._Report.load(REPORT.dump()) == REPORT
    for found in (pickle.dumps(REPORT), b"", b"[]", b"{}", REPORT.dump().replace(b'"0,3"', b'"x"')):
        with pytest.raises(ValueError, match="this is no report of a rank"):
            startup._Report.load(found)
