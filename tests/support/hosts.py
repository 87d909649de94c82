"""Several hosts on one machine, for tests: namespaces with names, addresses, processes and files of their own.

All of it lies in namespaces, so nothing of the machine's own network changes, and addresses can't clash with it.
"""

import os
import shutil
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.mpi import Finished, environment, mpirun, run_command

# How a host's /etc/hosts is written, from the host and all of them.
Names = Callable[["Host", Sequence["Host"]], Mapping[str, str]]


@dataclass(frozen=True)
class Host:
    """A host: commands run on it with ``enter COMMAND ARGS``."""

    name: str
    address: str
    second: str  # its address in a second network between the same hosts
    namespace: str
    enter: Path


def by_dns(host: Host, hosts: Sequence[Host]) -> dict[str, str]:
    """Every name leads to its host's address."""
    return {other.name: other.address for other in hosts}


def as_debian(host: Host, hosts: Sequence[Host]) -> dict[str, str]:
    """As Debian's installer writes it: a host's own name leads to a loopback address."""
    return {**by_dns(host, hosts), host.name: "127.0.1.1"}


@contextmanager
def make_hosts(folder: Path, names: Names = by_dns, n: int = 2, ipv6: bool = False) -> Iterator[list[Host]]:
    """Hosts that reach each other, until the block is left; skips the test where they may not be made.

    Args:
        folder: for the hosts' files.
        names: what each host's /etc/hosts says; nothing else resolves names there.
        n: how many.
        ipv6: the hosts have addresses of version 6 only.
    """
    _skip_unless_allowed()
    tag = uuid.uuid4().hex[:6]
    network = "fd77::{}/64 fd78::{}/64" if ipv6 else "10.77.0.{}/24 10.78.0.{}/24"
    hosts = []
    for number in range(1, n + 1):
        first, second = (address.format(number).partition("/")[0] for address in network.split())
        name = f"host{number}-{tag}"
        hosts.append(Host(name, first, second, f"ferroket-{name}", folder / f"enter-{name}"))
    switch = f"ferroket-switch-{tag}"
    with ExitStack() as stack:
        for namespace in (switch, *(host.namespace for host in hosts)):
            _ip("netns", "add", namespace)
            stack.callback(_ip, "netns", "delete", namespace)
            _ip("-n", namespace, "link", "set", "lo", "up")
        _ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        _ip("-n", switch, "link", "set", "bridge", "up")
        for number, host in enumerate(hosts, 1):
            port = f"port{number}"
            _ip("link", "add", port, "netns", switch, "type", "veth", "peer", "name", "eth0", "netns", host.namespace)
            _ip("-n", switch, "link", "set", port, "master", "bridge", "up")
            for address in network.split():
                # Without `nodad` an address of version 6 can't be used in its first second.
                nodad = ["nodad"] if ipv6 else []
                _ip("-n", host.namespace, "address", "add", address.format(number), "dev", "eth0", *nodad)
            _ip("-n", host.namespace, "link", "set", "eth0", "up")
            _write_files(folder, host, {"localhost": "127.0.0.1", **names(host, hosts)})
        yield hosts


def run_on_hosts(
    script: str | Path, hosts: Sequence[Host], per_host: int = 1, *, timeout: float = 90, **env: str
) -> Finished:
    """Runs a script, a text or a file, on some ranks of each host, with MPICH's mpirun on the first one."""
    launcher = _remote_shell(hosts[0].enter.parent, hosts)
    python: list[str | Path] = [sys.executable]
    python += [script] if isinstance(script, Path) else ["-c", textwrap.dedent(script)]
    command = [hosts[0].enter, mpirun(), "-launcher", "ssh", "-launcher-exec", launcher, "-localhost", hosts[0].address]
    command += ["-hosts", ",".join(f"{host.address}:{per_host}" for host in hosts), "-n", str(per_host * len(hosts))]
    return run_command([*command, *python], environment(**env), timeout)


def _skip_unless_allowed() -> None:
    for tool in ("ip", "unshare", "mount"):
        if shutil.which(tool, path=_PATH) is None:
            pytest.skip(f"making hosts needs the command {tool}")
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "--uts", "--pid", "--fork", "true"],
        env={"PATH": _PATH},
        text=True,
        capture_output=True,
        check=False,
    )
    if tried.returncode or os.geteuid() != 0:
        pytest.skip(f"making network namespaces is not allowed here: {tried.stderr.strip() or 'not root'}")


_PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], env={"PATH": _PATH}, text=True, capture_output=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


def _write_files(folder: Path, host: Host, names: Mapping[str, str]) -> None:
    hosts, order, boot_id = (folder / f"{kind}-{host.name}" for kind in ("hosts", "nsswitch", "boot-id"))
    boot_id.write_text(f"{uuid.uuid4()}\n")  # by which libraries tell who shares memory with whom
    hosts.write_text("".join(f"{address} {name}\n" for name, address in names.items()))
    order.write_text("hosts: files\n")
    host.enter.write_text(
        f"""#!/bin/sh
PATH={_PATH}
exec ip netns exec {host.namespace} unshare --uts --mount --pid --fork --kill-child sh -c '
mount -t proc proc /proc && mount -t tmpfs tmpfs /dev/shm && mount --bind {boot_id} /proc/sys/kernel/random/boot_id &&
mount --bind {hosts} /etc/hosts && mount --bind {order} /etc/nsswitch.conf && hostname {host.name} || exit
"$@"
code=$?
sleep 1  # its other processes end with this one
exit $code
' sh "$@"
"""
    )
    host.enter.chmod(0o755)


def _remote_shell(folder: Path, hosts: Sequence[Host]) -> Path:
    """A stand-in for ssh: ``FILE -x HOST COMMAND``, where a shell on the host takes the command apart again."""
    cases = "\n".join(f'{host.name}|{host.address}) exec {host.enter} sh -c "$*" ;;' for host in hosts)
    file = folder / "remote-shell"
    file.write_text(
        f'#!/bin/sh\nshift\nhost=$1\nshift\ncase $host in\n{cases}\nesac\necho "no host $host" >&2\nexit 1\n'
    )
    file.chmod(0o755)
    return file
