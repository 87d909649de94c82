"""Where JAX's coordinator listens."""

import socket

import pytest

from ferroket.distributed.coordinator import Coordinator
from ferroket.distributed.node import Node, this_node

HERE = Node("here.invalid", "m0", "n0")
THERE = Node("there.invalid", "m1", "n1")


def test_one_node_listens_on_loopback_whatever_its_name() -> None:
    with Coordinator([HERE, HERE]) as coordinator:
        host, port = coordinator.address.split(":")
    assert host == "127.0.0.1"
    assert 1024 <= int(port) < 1 << 16


def test_a_reserved_port_can_be_listened_on_by_one_that_shares_and_by_nobody_else() -> None:
    with Coordinator([HERE]) as coordinator:
        port = int(coordinator.address.rsplit(":", 1)[1])
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(("127.0.0.1", port))
        with socket.socket() as grpc:
            grpc.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            grpc.bind(("127.0.0.1", port))
            grpc.listen()


def test_two_coordinators_have_two_ports() -> None:
    with Coordinator([HERE]) as one, Coordinator([HERE]) as other:
        assert one.address != other.address


def test_the_port_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    with Coordinator([HERE]) as free:
        port = free.address.rsplit(":", 1)[1]
    monkeypatch.setenv("FERROKET_COORDINATOR_PORT", port)
    with Coordinator([HERE]) as coordinator:
        assert coordinator.address == f"127.0.0.1:{port}"


@pytest.mark.parametrize("shares", [False, True])
def test_a_taken_port_is_an_error(monkeypatch: pytest.MonkeyPatch, *, shares: bool) -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, int(shares))
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setenv("FERROKET_COORDINATOR_PORT", str(port))
        with pytest.raises(RuntimeError, match=rf"can't listen on 127.0.0.1:{port}.*FERROKET_COORDINATOR_PORT"):
            Coordinator([HERE])


@pytest.mark.parametrize("text", ["x", "70000", "-1", "1.5"])
def test_a_port_that_is_none_is_an_error(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("FERROKET_COORDINATOR_PORT", text)
    with pytest.raises(RuntimeError, match=f"FERROKET_COORDINATOR_PORT is '{text}'"):
        Coordinator([HERE])


def test_a_name_that_does_not_resolve_is_an_error_with_the_mend() -> None:
    with pytest.raises(RuntimeError, match=r"'here.invalid' doesn't resolve .*FERROKET_COORDINATOR_HOST"):
        Coordinator([HERE, THERE])


def test_the_host_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERROKET_COORDINATOR_HOST", "127.0.0.1")
    with Coordinator([HERE, THERE]) as coordinator:
        assert coordinator.address.startswith("127.0.0.1:")


def test_several_nodes_use_the_address_that_the_others_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    resolved = {"here.invalid": "127.0.0.2", "there.invalid": "127.0.0.1"}

    def getaddrinfo(name: str, *_: object) -> list[tuple[object, ...]]:
        return [(None, None, None, None, (resolved[name], 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    # The node's own name is loopback here, so the way to the other node decides.
    with Coordinator([HERE, THERE]) as coordinator:
        assert coordinator.address.startswith("127.0.0.1:")


def test_this_node_is_always_the_same() -> None:
    assert this_node() == this_node()
    assert this_node().hostname == socket.gethostname()
