"""Communicators for groups of ranks: created by their members alone, before a program needs them.

XLA's wrapper of MPI creates a communicator for a group by splitting the world, which waits for *all* ranks. A program
on a mesh over some of the ranks waits for ever, and so does one for whose groups only some ranks have communicators.
Our wrapper can create a communicator by its members alone, but has to be told them: XLA's call doesn't say. So each
program is looked at before it runs for the first time. Each new group in it is announced to the wrapper, and a tiny
program is run that does nothing but gather over it; XLA keeps its communicator for good. They are created in an order
that is the same on all ranks, so no two wait for each other.
"""

import math
import re
import threading
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy as np

from ferroket import _lib
from ferroket._compat.jax import before_each_run, devices_of_program, hlo_of_program
from ferroket.distributed.programs import compare_late_marker, is_marker, own_programs

Group = tuple[Any, ...]
"""The devices of a group, in its order."""

_COLLECTIVE = re.compile(
    r"(?:all-reduce|all-gather|reduce-scatter|all-to-all|collective-permute|collective-broadcast)(?:-start)?\("
)
_FLOAT16 = re.compile(r"= [^=]*\bf16\[[^=]*?\b(all-reduce|all-gather|reduce-scatter)(?:-start)?\(")
# The three ways in which XLA writes groups: a list of lists; the rows of an arange that is reshaped, transposed and
# reshaped again; and axes of a mesh, whose devices are those of an arange or of a list. `'a':(2)2` is a part of an
# axis, of 2 after its first 2. JAX's names of axes may hold anything but a quotation mark.
_LISTED = re.compile(r"replica_groups=\{((?:\{[\d,]*\},?)*)\}")
_TILED = re.compile(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?")
_ARANGE = re.compile(r"(?:\[[\d,]+\]<=)?\[([\d,]+)\](?:T\(([\d,]+)\))?")
_NAME = r"(?:'[^']*'|[\w.-]+)"
_AXIS = re.compile(rf"({_NAME})=(\d+)")
_PART = re.compile(rf"({_NAME})(?::\((\d+)\)(\d+))?")
_MESH = re.compile(
    rf"replica_groups=mesh\[({_NAME}=\d+(?:,{_NAME}=\d+)*)\]"
    r"(?:, device_ids=\(([\d,\[\]<=T()]*)\))?"
    rf" \{{((?:{_NAME}(?::\(\d+\)\d+)?,?)*)\}}"
)


def groups_of(hlo: str, devices: int) -> set[tuple[int, ...]]:
    """The groups that the collectives of a compiled program work on.

    Args:
        hlo: the text of the program.
        devices: how many devices it runs on.

    Returns:
        For each group the places of its devices in the program's device assignment.

    Raises:
        RuntimeError: the groups of a collective are written in a way that isn't known.
    """
    found: set[tuple[int, ...]] = set()
    for line in hlo.splitlines():
        instruction = line.partition(", metadata={")[0]
        if not _COLLECTIVE.search(instruction) and "replica_groups=" not in instruction:
            continue
        groups = _groups_of_one(instruction, devices)
        # Each device is in one group; what was read otherwise was misread.
        if sorted(place for group in groups for place in group) != list(range(devices)):
            raise RuntimeError(_unreadable(instruction.strip(), devices))
        found.update(groups)
    return found


def _groups_of_one(instruction: str, devices: int) -> list[tuple[int, ...]]:
    """The groups of one collective; none if they are written in a way that isn't known."""
    if is_marker(instruction):
        return [(place,) for place in range(devices)]
    if listed := _LISTED.search(instruction):
        everyone = [tuple(range(devices))]
        return [_numbers(text) for text in re.findall(r"\{([\d,]+)\}", listed[1])] or everyone
    if mesh := _MESH.search(instruction):
        return _along_axes(mesh[1], mesh[2], mesh[3])
    if tiled := _TILED.search(instruction):
        return _rows(_arange(tiled[2], tiled[3]).reshape(_numbers(tiled[1])))
    return [] if "replica_groups=" in instruction else [tuple(range(devices))]


def _unreadable(instruction: str, devices: int) -> str:
    from importlib.metadata import version

    return (
        f"Ferroket can't read which of this program's {devices} devices a collective is over, as jaxlib "
        f"{version('jaxlib')} writes it, and a wrong guess could hang the job: {instruction}\nUse a version of JAX "
        "that Ferroket's README names, or gloo instead of MPI: fk.initialize(collectives='gloo')"
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(",")))


def _arange(shape: str, order: str | None) -> np.ndarray[Any, Any]:
    """``[2,2]T(1,0)``: an arange of this shape, its axes in this order, flat."""
    numbers = _numbers(shape)
    axes = _numbers(order) if order else range(len(numbers))
    return np.arange(math.prod(numbers)).reshape(numbers).transpose(*axes).ravel()


def _rows(places: np.ndarray[Any, Any]) -> list[tuple[int, ...]]:
    return [tuple(map(int, row)) for row in places]


def _along_axes(mesh: str, devices: str | None, axes: str) -> list[tuple[int, ...]]:
    """The groups along axes of a mesh, or along parts of them: the last one that is named varies fastest."""
    sizes = {name: int(size) for name, size in _AXIS.findall(mesh)}
    if devices is None:
        places = np.arange(math.prod(sizes.values()))
    elif arange := _ARANGE.fullmatch(devices):
        places = _arange(arange[1], arange[2])
    else:
        places = np.array([int(number) for number in re.findall(r"\d+", devices)])
    parts = [
        (name, int(before), int(size)) if size else (name, 1, sizes.get(name, 0))
        for name, before, size in _PART.findall(axes)
    ]
    # Each axis of the mesh becomes several dimensions: its parts, and what is between them.
    shape: list[int] = []
    dimension: dict[tuple[str, int, int], int] = {}
    for axis, full in sizes.items():
        done = 1
        for part in sorted(part for part in parts if part[0] == axis):
            _, before, size = part
            dimension[part] = len(shape) + 1
            shape += [before // done, size]
            done = before * size
        shape.append(full // done)
    if len(dimension) != len(parts) or math.prod(shape) != places.size:
        return []  # an axis that isn't one of the mesh, or parts that overlap
    inside = [dimension[part] for part in parts]
    outside = [axis for axis in range(len(shape)) if axis not in inside]
    members = math.prod(shape[axis] for axis in inside)
    return _rows(places.reshape(shape).transpose(*outside, *inside).reshape(-1, members))


def refuse_float16(hlo: str) -> None:
    """Explains what XLA would refuse in a compiled program.

    Raises:
        TypeError: it reduces or gathers float16 over ranks.
    """
    found = _FLOAT16.search(hlo)
    if found:
        raise TypeError(
            f"this program has an {found[1]} of float16 over ranks, which XLA's MPI collectives can't do (float8 "
            "becomes float16 on the way). Convert around it, jax.lax.psum(x.astype(jnp.float32), ...).astype(x.dtype), "
            "or compute in bfloat16, which XLA converts by itself"
        )


_MOST = 2**31 - 1
_SHAPE = re.compile(r"\b(pred|[a-z]+\d+)[a-z0-9]*\[([\d,]*)\]")
_BITS = {"pred": 8, "c64": 64, "c128": 128}


def refuse_large(hlo: str, devices: int) -> None:
    """Explains what XLA would do wrong in a compiled program: it cuts lengths of messages to 32 bits, in silence.

    XLA counts elements in sums, and bytes in other messages.

    Args:
        hlo: the text of the program.
        devices: how many devices it runs on.

    Raises:
        ValueError: a collective has a message that is too long.
    """
    for line in hlo.splitlines():
        instruction = line.partition(", metadata={")[0]
        found = _COLLECTIVE.search(instruction)
        if not found:
            continue
        kind = found[0].rstrip("(")
        # What is gathered comes in parts, each a message; what is exchanged is a tuple of messages.
        parts = len(_groups_of_one(instruction, devices)[0]) if kind.startswith("all-gather") else 1
        for dtype, dims in _SHAPE.findall(instruction[: found.start()]):
            elements = math.prod(map(int, filter(None, dims.split(",")))) // parts
            bits = _BITS.get(dtype) or int(re.sub(r"\D", "", dtype))
            in_elements = kind.startswith(("all-reduce", "reduce-scatter"))
            length, unit = (elements, "elements") if in_elements else (elements * bits // 8, "bytes")
            if length > _MOST:
                raise ValueError(
                    f"this program has an {kind} of {dtype}[{dims}], {length} {unit} in a message, but XLA's MPI "
                    f"collectives count at most {_MOST} {unit} and would cut it off. Make it smaller: compute in "
                    "chunks, or use more ranks"
                )


class _Communicators:
    """The communicators of this process, by group."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._lock = threading.Lock()
        self._created: dict[tuple[int, ...], Future[Callable[[], None]]] = {}
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()
        self._compiler = _Compiler()

    def prepare(self, program: Any) -> None:
        """Creates communicators for the new groups of a compiled program that is about to run."""
        if program in self._seen or getattr(_creating, "inside", False):
            return
        devices = devices_of_program(program)
        if devices and devices[0].platform == "cpu":
            hlo = hlo_of_program(program)
            groups = groups_of(hlo, len(devices))
            refuse_float16(hlo)
            refuse_large(hlo, len(devices))
            compare_late_marker(hlo, lambda line: bool(_COLLECTIVE.search(line)))
            self.create(tuple(devices[place] for place in places) for places in groups)
        self._seen.add(program)

    def create(self, groups: Iterable[Group]) -> None:
        """Creates the communicators of those groups of which this process is a member, if it hasn't them yet."""
        for group in sorted(groups, key=_ids):
            if any(device.process_index == self._rank for device in group):
                self._create(group)

    def _create(self, group: Group) -> None:
        """Creates a group's communicator. A thread waits for another that creates the same, and for no other one."""
        own: Future[Callable[[], None]] = Future()
        with self._lock:
            created = self._created.setdefault(_ids(group), own)
        if created is not own:
            created.result()
            return
        announcement = (group[0].id, [device.process_index for device in group])
        try:
            gather = self._compiler.compile(group)
            _lib.announce_group(*announcement)
            _creating.inside = True  # this program needs no other
            try:
                gather()
            finally:
                _creating.inside = False
                _lib.withdraw_group(*announcement)
            own.set_result(gather)
        except BaseException as error:
            del self._created[_ids(group)]
            own.set_exception(error)
            raise

    def gather(self, group: Group) -> None:
        """Runs the program that created a group's communicator, and waits for it."""
        self._created[_ids(group)].result()()


_creating = threading.local()


def _ids(group: Group) -> tuple[int, ...]:
    return tuple(device.id for device in group)


class _Compiler:
    """Compiles in a thread of its own, free of what the caller's has set: a mesh, a trace, a default device.

    The thread is there from the start, since Python starts none any more when exit handlers run.
    """

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Group, Future[Callable[[], None]]]] = SimpleQueue()
        threading.Thread(target=self._run, name="ferroket compiler", daemon=True).start()

    def compile(self, group: Group) -> Callable[[], None]:
        """A function that gathers over a group, and waits for it."""
        done: Future[Callable[[], None]] = Future()
        self._jobs.put((group, done))
        return done.result()

    def _run(self) -> None:
        while True:
            group, done = self._jobs.get()
            try:
                done.set_result(_compile_gather(group))
            except BaseException as error:
                done.set_exception(error)


def _compile_gather(group: Group) -> Callable[[], None]:
    """Compiles a program that gathers over a group.

    A sum would do as well, but XLA leaves that out where the group has one member.
    """
    import jax
    from jax.sharding import Mesh, NamedSharding
    from jax.sharding import PartitionSpec as P

    mesh = Mesh(np.array(group), ("group",))
    own = next(device for device in group if device.process_index == jax.process_index())
    gather = jax.shard_map(
        partial(jax.lax.all_gather, axis_name="group", tiled=True),
        mesh=mesh,
        in_specs=P("group"),
        out_specs=P(),
        check_vma=False,
    )
    part = jax.device_put(np.ones(1, np.float32), own)
    ones = jax.make_array_from_single_device_arrays((len(group),), NamedSharding(mesh, P("group")), [part])
    with own_programs():
        gathered = jax.jit(gather).lower(ones).compile()

    def run() -> None:
        gathered(ones).block_until_ready()

    return run


def create_before_use() -> Callable[[], None]:
    """From now on JAX's programs find their communicators. That of all ranks is created now; all have to call it.

    Returns:
        A function that returns when all programs with collectives that were started before have ended: JAX runs them
        one after the other, and the function adds one. All ranks have to call it.
    """
    import jax

    communicators = _Communicators(jax.process_index())
    before_each_run(communicators.prepare)
    everyone = tuple(jax.devices())
    communicators.create([(device,) for device in everyone])  # for markers, with which all others begin
    communicators.create([everyone])
    return partial(communicators.gather, everyone)
