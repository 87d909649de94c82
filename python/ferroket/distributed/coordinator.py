"""Where JAX's coordinator listens: on loopback where it can, on a port that nobody else has."""

import errno
import ipaddress
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Self

from ferroket.distributed.node import Node

_LOOPBACK = "127.0.0.1"
_HOST = "FERROKET_COORDINATOR_HOST"
_PORT = "FERROKET_COORDINATOR_PORT"


class Coordinator:
    """An address for the coordinator, with its port reserved until the block is left.

    A port that is chosen and let go can be taken by another job before JAX listens on it. So the socket stays
    bound, without listening, and shares the port with JAX's (``SO_REUSEPORT``); the kernel gives it to no one else.

    Args:
        nodes: the node of each rank, rank 0's first.
        port: the port that the other ranks expect, 0 for any that is free; FERROKET_COORDINATOR_PORT has precedence.

    Raises:
        RuntimeError: no address of this node is known that the others reach; the port that was asked for is taken.
    """

    def __init__(self, nodes: Sequence[Node], port: int = 0) -> None:
        host = choose_host(nodes)
        self._socket = _reserve(host, asked_port(os.environ) or port, nodes[0].hostname)
        self.address = join(host, self._socket.getsockname()[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def join(host: str, port: int) -> str:
    """``host:port``, with the brackets that an IPv6 address needs."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def asked_port(variables: Mapping[str, str]) -> int:
    """The port in FERROKET_COORDINATOR_PORT, or 0 for any that is free.

    Raises:
        RuntimeError: it is no port.
    """
    text = variables.get(_PORT) or "0"
    if not (text.isascii() and text.isdigit() and int(text) < 1 << 16):
        raise RuntimeError(f"{_PORT} is {text!r}, but a port is a number from 1 to 65535")
    return int(text)


def own_address(coordinator: str) -> str:
    """This node's address on the way to the coordinator, at which the other ranks reach it too.

    Args:
        coordinator: ``host:port``.

    Raises:
        RuntimeError: the host doesn't resolve, or there is no way to it.
    """
    return _source(resolve(coordinator.rsplit(":", 1)[0].strip("[]")))


def choose_host(nodes: Sequence[Node]) -> str:
    """Loopback if all ranks are on one node, else the address of this node that the others reach.

    Args:
        nodes: the nodes of the job, this one first.

    Raises:
        RuntimeError: no such address is known.
    """
    here = nodes[0]
    others = [node for node in nodes if node.network != here.network]
    asked = os.environ.get(_HOST)
    if not (asked or others):
        return _LOOPBACK
    name = asked or here.hostname
    address = resolved = resolve(name)
    if not asked and _is_local(resolved):
        # Debian maps a machine's own name to 127.0.1.1. The way to another node tells the address that it sees.
        address = _source(resolve(others[0].hostname))
    if others and _is_local(address):
        raise RuntimeError(
            f"{name!r} resolves to {resolved} on rank 0's node, which the ranks on {others[0].hostname!r} can't reach. "
            f"Name the address of rank 0's node in the network between the nodes in {_HOST}"
        )
    return address


def _is_local(address: str) -> bool:
    """Whether an address means another node on each node."""
    parsed = ipaddress.ip_address(address)
    return parsed.is_loopback or parsed.is_unspecified


def _source(destination: str) -> str:
    """This node's address on the way to another one."""
    family = socket.AF_INET6 if ":" in destination else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((destination, 9))  # no packet is sent
        except OSError as error:
            raise RuntimeError(
                f"there is no way from {socket.gethostname()} to {destination} ({error.strerror}), where other ranks "
                f"of this job are. Name an address of rank 0's node that all nodes reach in {_HOST}"
            ) from error
        return str(probe.getsockname()[0])


def resolve(name: str) -> str:
    """A name's first address, IPv4 before IPv6.

    Raises:
        RuntimeError: it has none.
    """
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise RuntimeError(
            f"the host name {name!r} doesn't resolve to an address ({error}), but the ranks of a job on several "
            f"nodes have to reach rank 0 by it. Name the address of rank 0's node in {_HOST}, or add the name to "
            "/etc/hosts or the DNS"
        ) from error
    first = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return str(first[4][0])


def _reserve(host: str, port: int, hostname: str) -> socket.socket:
    """A socket bound to a port that nobody else uses."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        if port:
            # A port that is shared may be bound twice; one that nobody has can be bound without sharing.
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, port))
        reserved = socket.socket(family, socket.SOCK_STREAM)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind((host, port))
    except OSError as error:
        if error.errno == errno.EADDRNOTAVAIL:
            raise RuntimeError(
                f"{host} is no address of {hostname}, where rank 0 runs and JAX's coordinator has to listen. Is "
                f"{_HOST} another node's, or does {hostname}'s name lead elsewhere? Name rank 0's node in {_HOST}"
            ) from error
        raise RuntimeError(
            f"JAX's coordinator can't listen on {join(host, port)} ({error.strerror}). Another job may use the port: "
            f"choose another in {_PORT}, or unset it, and a free one is found"
        ) from error
    return reserved
