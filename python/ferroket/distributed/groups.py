"""Communicators for groups of ranks: made by their members alone, before a program needs them.

XLA's wrapper of MPI makes a communicator for a group by splitting the world, which waits for *all* ranks. A program
on a mesh over some of the ranks waits for ever, and so does one whose groups only some ranks have made before. The
wrapper can make a group by its members alone, but has to be told them: XLA's call doesn't say. So each program is
looked at before it runs for the first time. For each group in it that is new, a tiny program is run that does nothing
but sum over that group, after the group was announced to the wrapper; XLA keeps its communicator for good. Groups are
made in an order that is the same on all ranks, so no two wait for each other.
"""

import re
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ferroket import _lib

Group = tuple[Any, ...]
"""The devices of a group, in its order."""

_COLLECTIVE = re.compile(
    r"(?:all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute|collective-broadcast)(?:-start)?\("
)
_LISTED = re.compile(r"replica_groups=\{((?:\{[\d,]*\},?)*)\}")
_TILED = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")


def groups_of(hlo: str, devices: int) -> set[tuple[int, ...]]:
    """The groups that the collectives of a compiled program work on.

    Args:
        hlo: the text of the program.
        devices: how many devices it runs on.

    Returns:
        For each group the places of its devices in the program's device assignment.
    """
    found: set[tuple[int, ...]] = set()
    everyone = tuple(range(devices))
    for line in hlo.splitlines():
        if not _COLLECTIVE.search(line):
            continue
        if listed := _LISTED.search(line):
            groups = [tuple(map(int, text.split(","))) for text in re.findall(r"\{([\d,]+)\}", listed[1])]
            found.update(groups or [everyone])
        elif tiled := _TILED.search(line):
            shape, base = (tuple(map(int, text.split(","))) for text in tiled.group(1, 2))
            order = tuple(map(int, tiled[3].split(","))) if tiled[3] else tuple(range(len(base)))
            places = np.arange(devices).reshape(base).transpose(order).reshape(shape)
            found.update(tuple(map(int, row)) for row in places)
        else:
            found.add(everyone)
    return found


class _Groups:
    """The groups that this process is a member of and has a communicator for."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._made: set[tuple[int, ...]] = set()
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()

    def prepare(self, program: Any) -> None:
        """Makes the new groups of a program (``ExecuteReplicated`` of JAX) that is about to run."""
        if program in self._seen:
            return
        self._seen.add(program)
        devices = _devices(program)
        if len({device.process_index for device in devices}) > 1 and devices[0].platform == "cpu":
            hlo = "\n".join(module.to_string() for module in program.xla_executable.hlo_modules())
            self.make(tuple(devices[place] for place in places) for places in groups_of(hlo, len(devices)))

    def make(self, groups: Iterable[Group]) -> None:
        """Makes those groups of which this process is a member, and which it hasn't yet."""
        for group in sorted(groups, key=lambda group: [device.id for device in group]):
            ids = tuple(device.id for device in group)
            ranks = [device.process_index for device in group]
            if self._rank not in ranks or ids in self._made:
                continue
            self._made.add(ids)
            _lib.announce_group((ids[0], ranks))
            if len(group) > 1:  # alone there is nobody to wait for, and a program on one device has no collectives
                try:
                    _sum_over(group)()
                finally:
                    _lib.announce_group(None)


def _devices(program: Any) -> Sequence[Any]:
    """The devices of a program, in the order of its device assignment."""
    shardings = [*program.in_handler.in_shardings, *program.out_handler.out_shardings]
    return next((sharding._device_assignment for sharding in shardings), ())


def _sum_over(group: Group) -> Callable[[], Any]:
    """A program that sums over a group; a call runs it, and waits for it."""
    import jax
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    mesh = Mesh(np.array(group), ("group",))
    own = next(device for device in group if device.process_index == jax.process_index())
    total = jax.jit(
        jax.shard_map(partial(jax.lax.psum, axis_name="group"), mesh=mesh, in_specs=P("group"), out_specs=P())
    )
    with jax.ensure_compile_time_eval():
        part = jax.device_put(np.ones(1, np.float32), own)
        ones = jax.make_array_from_single_device_arrays((len(group),), NamedSharding(mesh, P("group")), [part])

    def run() -> None:
        with jax.ensure_compile_time_eval():
            total(ones).block_until_ready()

    return run


def make_groups_by_their_members() -> Callable[[], None]:
    """From now on JAX's programs find their groups made. The group of all ranks is made now; all have to call it.

    Returns:
        A function that returns when all programs with collectives that were started before have ended: JAX runs them
        one after the other, and the function adds one. All ranks have to call it.
    """
    import jax
    from jax._src.interpreters import pxla

    groups = _Groups(jax.process_index())
    run = pxla.ExecuteReplicated.__call__

    def prepared_run(program: Any, *arguments: Any) -> Any:
        groups.prepare(program)
        return run(program, *arguments)

    pxla.ExecuteReplicated.__call__ = prepared_run
    everyone = tuple(jax.devices())
    groups.make([everyone])
    return _sum_over(everyone)
