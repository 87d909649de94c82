"""Which machine this process runs on, so that ranks can tell who shares one."""

import socket
from pathlib import Path
from typing import NamedTuple


class Node(NamedTuple):
    """Two ranks with the same ``machine`` share cores; with the same ``network`` too, they share loopback.

    With the same ``processes`` they know each other by process numbers, which containers have of their own.
    """

    hostname: str
    machine: str
    network: str
    processes: str


def this_node() -> Node:
    """The node of this process: the name, the running kernel, and the namespaces."""
    hostname = socket.gethostname()
    try:
        machine = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        network, processes = (str(Path("/proc/self/ns", kind).readlink()) for kind in ("net", "pid"))
    except OSError:  # not Linux: the name has to do
        machine = network = processes = hostname
    return Node(hostname, machine, f"{machine} {network}", f"{machine} {processes}")
