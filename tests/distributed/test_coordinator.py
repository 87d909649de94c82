"""Where JAX's coordinator listens."""

import socket

import pytest

from ferroket.distributed.coordinator import Coordinator
from ferroket.distributed.node import Node, this_node

HERE = Node("here.invalid", "m0", "n0", "p0")
THERE = Node("there.invalid", "m1", "n1", "p1")


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


ELSEWHERE = "192.0.2.1"  # reserved for documentation


@pytest.fixture
def address() -> str:
    """This machine's address on the way to others."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((ELSEWHERE, 9))
        except OSError as error:
            pytest.skip(f"this machine has no network: {error}")
        return str(probe.getsockname()[0])


def resolve(monkeypatch: pytest.MonkeyPatch, **addresses: str) -> None:
    """Lets names below ``.invalid`` resolve."""

    def getaddrinfo(name: str, *_: object, **__: object) -> list[tuple[object, ...]]:
        address = addresses.get(name.removesuffix(".invalid"), name)
        return [(socket.AF_INET6 if ":" in address else socket.AF_INET, None, None, None, (address, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)


def test_the_host_can_be_named(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv("FERROKET_COORDINATOR_HOST", address)
    for nodes in ([HERE, THERE], [HERE]):
        with Coordinator(nodes) as coordinator:
            assert coordinator.address.startswith(f"{address}:")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "::1", "::"])
def test_a_host_that_means_another_node_on_each_node(monkeypatch: pytest.MonkeyPatch, host: str) -> None:
    monkeypatch.setenv("FERROKET_COORDINATOR_HOST", host)
    with pytest.raises(RuntimeError, match=f"'{host}' resolves to {host} on rank 0's node, .* 'there.invalid' can't"):
        Coordinator([HERE, THERE])


def test_a_host_that_is_another_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERROKET_COORDINATOR_HOST", ELSEWHERE)
    with pytest.raises(RuntimeError, match=r"192.0.2.1 is no address of here.invalid, where rank 0 runs"):
        Coordinator([HERE, THERE])


def test_a_name_that_leads_to_loopback_is_looked_up_on_the_way_to_the_others(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    resolve(monkeypatch, here="127.0.1.1", there=ELSEWHERE)
    with Coordinator([HERE, THERE]) as coordinator:
        assert coordinator.address.startswith(f"{address}:")


def test_names_that_all_lead_to_loopback_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(monkeypatch, here="127.0.1.1", there="127.0.1.1")
    with pytest.raises(RuntimeError, match=r"'here.invalid' resolves to 127.* can't reach.*FERROKET_COORDINATOR_HOST"):
        Coordinator([HERE, THERE])


def test_an_address_of_version_6_is_in_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERROKET_COORDINATOR_HOST", "::1")
    try:
        with Coordinator([HERE]) as coordinator:
            assert coordinator.address.startswith("[::1]:")
    except RuntimeError as error:
        pytest.skip(f"this machine has no IPv6: {error}")


def test_the_port_that_the_other_ranks_expect() -> None:
    with Coordinator([HERE]) as free:
        port = int(free.address.rsplit(":", 1)[1])
    with Coordinator([HERE], port) as coordinator:
        assert coordinator.address == f"127.0.0.1:{port}"


def test_this_node_is_always_the_same() -> None:
    assert this_node() == this_node()
    assert this_node().hostname == socket.gethostname()
