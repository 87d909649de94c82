"""Which ranks know each other by process numbers."""

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
    monkeypatch.setattr(failure, "watch", watched.append)
    nodes = [Node(name, "machine", "network", processes) for name, processes in zip("aabbb", "11222", strict=True)]
    reports = [
        startup._Report({}, node, (0,), Gpus(None, ()), (20 + rank, 3) if rank != 3 else None, None)
        for rank, node in enumerate(nodes)
    ]
    for rank in range(5):
        startup._watch_node(rank, reports)
    assert watched == [
        [("rank 0 of 5 on a", (20, 3)), ("rank 1 of 5 on a", (21, 3))],
        [("rank 2 of 5 on b", (22, 3)), ("rank 4 of 5 on b", (24, 3))],
    ]
