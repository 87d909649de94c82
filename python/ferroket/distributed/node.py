"""Which machine this process runs on, so that ranks can tell who shares one."""

import socket
from pathlib import Path
from typing import NamedTuple


class Node(NamedTuple):
    """Two ranks with the same ``machine`` share cores; with the same ``network`` too, they share loopback."""

    hostname: str
    machine: str
    network: str


def this_node() -> Node:
    """The node of this process: the name, the running kernel, and the network namespace."""
    hostname = socket.gethostname()
    try:
        machine = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        network = str(Path("/proc/self/ns/net").readlink())
    except OSError:  # not Linux: the name has to do
        machine = network = hostname
    return Node(hostname, machine, f"{machine} {network}")
