"""Where JAX's coordinator listens: on loopback where it can, on a port that nobody else has."""

import os
import socket
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from ferroket.distributed.node import Node

_LOOPBACK = "127.0.0.1"


class Coordinator:
    """An address for the coordinator, with its port reserved until the block is left.

    A port that is chosen and let go can be taken by another job before JAX listens on it. So the socket stays
    bound, without listening, and shares the port with JAX's (``SO_REUSEPORT``); the kernel gives it to no one else.

    Args:
        nodes: the node of each rank, rank 0's first.

    Raises:
        RuntimeError: the node's name doesn't resolve, or the port that was asked for is taken.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._host = _choose_host(nodes)
        self._socket = _reserve(self._host, _asked_port())
        self.address = f"{self._host}:{self._socket.getsockname()[1]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._socket.close()


def _choose_host(nodes: Sequence[Node]) -> str:
    """Loopback if all ranks are on one node, else the address of this node that the others reach."""
    asked = os.environ.get("FERROKET_COORDINATOR_HOST")
    if asked:
        return _resolve(asked)
    here = nodes[0]
    others = [node for node in nodes if node.network != here.network]
    if not others:
        return _LOOPBACK
    address = _resolve(here.hostname)
    if not address.startswith("127."):
        return address
    # Debian maps a machine's own name to 127.0.1.1. The way to another node tells the address that it sees.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((_resolve(others[0].hostname), 9))  # no packet is sent
        return str(probe.getsockname()[0])


def _resolve(name: str) -> str:
    try:
        return str(socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
    except OSError as error:
        raise RuntimeError(
            f"the host name {name!r} doesn't resolve to an address ({error}), but the ranks of a job on several "
            "nodes have to reach rank 0 by it. Name the address of rank 0's node in "
            "FERROKET_COORDINATOR_HOST, or add the name to /etc/hosts or the DNS"
        ) from error


def _asked_port() -> int:
    """The port in FERROKET_COORDINATOR_PORT, or 0 for any that is free."""
    text = os.environ.get("FERROKET_COORDINATOR_PORT", "0")
    if not (text.isascii() and text.isdigit() and int(text) < 1 << 16):
        raise RuntimeError(f"FERROKET_COORDINATOR_PORT is {text!r}, but a port is a number from 1 to 65535")
    return int(text)


def _reserve(host: str, port: int) -> socket.socket:
    """A socket bound to a port that nobody else uses."""
    try:
        if port:
            # A port that is shared may be bound twice; one that nobody has can be bound without sharing.
            with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind((host, port))
        reserved = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        reserved.bind((host, port))
    except OSError as error:
        raise RuntimeError(
            f"JAX's coordinator can't listen on {host}:{port} ({error.strerror}). Another job may use the port: choose "
            "another in FERROKET_COORDINATOR_PORT, or unset it, and a free one is found"
        ) from error
    return reserved
