"""Marks the programs of many ranks, so that ranks find out when they run different ones.

MPI pairs calls by their order: if one rank alone computes a sum, its number is added to the others' next one. So each
program for many ranks begins with a marker, by which our MPI wrapper knows what runs, and compares it among the ranks
with each collective (``rust/mpi-abi/src/checks.rs``). A marker is a gather over this rank alone, since XLA runs
collectives one after the other: those that follow it are the program's. XLA puts it first. Where it doesn't, ranks
compare what they run at the marker, too, so that nothing leaves a program unseen.
"""

import inspect
import json
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ferroket import _lib
from ferroket._compat.jax import Compilation, coordination_client, replace_compilation
from ferroket.distributed.failure import abort_job
from ferroket.distributed.fingerprint import fingerprint
from ferroket.distributed.places import describe_ranks, group_by
from ferroket.distributed.progress import digest, python_stacks

_HANDLER = "ferroket_program"

_own = threading.local()


def mark_programs() -> None:
    """From now on JAX's programs for many processes begin with a marker, and ranks compare what they run."""
    import jax

    jax.ffi.register_ffi_target(_HANDLER, _lib.marker_handler(), platform="cpu")
    replace_compilation(_marked)
    _lib.compare_programs(True)


@contextmanager
def own_programs() -> Iterator[None]:
    """What this thread compiles inside belongs to the runtime, and isn't in the history that ranks compare."""
    _own.inside = True
    try:
        yield
    finally:
        _own.inside = False


# Seconds in which other ranks find a difference, too, and in which the first of them ends the job.
_OTHERS = 1.0
_FIRST = 10.0

_FOLDER = "ferroket/difference/"
_STACKS = "ferroket/difference-stacks/"

# So many places are shown.
_SHOWN_PLACES = 8


def end_if_ranks_differ(rank: int, hosts: Sequence[str]) -> None:
    """Starts a thread that ends the job, with what each rank does, if this rank finds that others are in another call.

    Args:
        rank: this rank.
        hosts: the host of each rank.
    """
    threading.Thread(target=_end_after_difference, args=(rank, hosts), name="ferroket check", daemon=True).start()


def _end_after_difference(rank: int, hosts: Sequence[str]) -> None:
    place, number = _lib.wait_for_difference()
    with suppress(Exception):  # closed, or somebody's own
        sys.stdout.flush()
    store, stacks = coordination_client(), python_stacks()
    store.key_value_set(f"{_FOLDER}{rank}", json.dumps([place, number, digest(stacks), hash("ferroket")]))
    stack_key = f"{_STACKS}{digest(stacks)}"  # of thousands of ranks most are in the same place, and one sends it
    if not any(key == stack_key for key, _ in store.key_value_dir_get(_STACKS)):
        store.key_value_set(stack_key, stacks, allow_overwrite=True)
    time.sleep(_OTHERS)
    found = {int(key.rsplit("/", 1)[1]): json.loads(text) for key, text in store.key_value_dir_get(_FOLDER)}
    if rank != min(found):
        time.sleep(_FIRST)
    known = {key.rsplit("/", 1)[1]: stack for key, stack in store.key_value_dir_get(_STACKS)}
    print(describe_difference(found, known, hosts), file=sys.stderr, flush=True)
    abort_job(1, "other ranks are in another call of MPI")


def describe_difference(
    found: Mapping[int, tuple[str, int, str, int]], stacks: Mapping[str, str], hosts: Sequence[str]
) -> str:
    """Where ranks are that are in different calls of MPI: those in the same place together.

    Args:
        found: by rank: what it is in, a number for that, the digest of its stacks, and the hash of a text.
        stacks: by digest.
        hosts: the host of each rank.
    """
    lines = ["ferroket: the ranks are in different calls of MPI, and a number of one would be added to another's:"]
    places = group_by(sorted(found), lambda rank: (found[rank][0], found[rank][1], found[rank][2]))
    for (place, _, stack), ranks in places[:_SHOWN_PLACES]:
        lines += [
            f"{describe_ranks(ranks, hosts)} {'are' if len(ranks) > 1 else 'is'} in {place}",
            stacks.get(stack, ""),
        ]
    if len(places) > _SHOWN_PLACES:
        lines.append(f"(and {len(places) - _SHOWN_PLACES} more places)")
    lines.append(
        "Every rank has to run the same JAX programs on the values that they share, in the same order: look for a "
        "computation under `if jax.process_index() == 0:`, or in a loop whose length differs. (A program has the line "
        "where a rank compiled it first. FERROKET_CHECK=off leaves the check out.)"
    )
    if len({seed for *_, seed in found.values()}) > 1:
        lines.append(
            "If a loop goes over a set, its order is another on each rank, since each has its own PYTHONHASHSEED: sort "
            "it, or start the script with `ferroket launch` or `ferroket run`, which give all ranks one."
        )
    return "\n".join(line for line in lines if line)


def _marked(compilation: Compilation) -> Any:
    """The compiled program, with a marker at its beginning if it is one of many processes."""
    devices, module = compilation.devices, compilation.module
    if compilation.spans_processes:
        main = next(operation for operation in module.body.operations if _name_of(operation) == "main")
        program, places = fingerprint(module)
        _lib.name_program(program, f"{_name_of(module.operation)}, compiled {_user_line()}")
        kind = "own" if getattr(_own, "inside", False) else "whole" if _is_whole(main) else "spread"
        ranks = [device.process_index for device in devices]
        with ExitStack() as markers:
            markers.enter_context(_at_begin(module, main, _lib.program_marker(program, ranks, kind), len(devices)))
            for block, number in places:
                markers.enter_context(_in_branch(block, _lib.program_marker(number, ranks, "place")))
            return compilation.compile()
    return compilation.compile()


def _name_of(operation: Any) -> str:
    attributes = operation.attributes
    return str(attributes["sym_name"]).strip('"') if "sym_name" in attributes else ""


def _is_whole(main: Any) -> bool:
    """Whether each device has all of each argument and of each result."""
    shardings = [
        str(attributes)
        for name in ("arg_attrs", "res_attrs")
        if name in main.attributes
        for attributes in main.attributes[name]
    ]
    return not any('{"' in text or "devices=" in text for text in shardings)


def _user_line() -> str:
    """Where the script calls what is compiled now."""
    inner = tuple(str(Path(__file__).parent.parent.parent / name) for name in ("jax", "ferroket", "netket", "flax"))
    for frame, line in traceback.walk_stack(inspect.currentframe()):
        file = frame.f_code.co_filename
        if not file.startswith(inner) and "/site-packages/" not in file:
            return f"at {file}:{line}"
    return "nowhere in the script"


_COMPUTATION = re.compile(r"^(?:ENTRY )?%?([\w.-]+) \(.*\) -> .*\{$", re.MULTILINE)
# Each name is looked at once, from its beginning: a constant or a call's attributes may be one of a million letters.
_CALLEE = re.compile(
    r"\b(?:to_apply|calls|body|condition|\w++(?<=_computation))=%?([\w.-]++)|(?<![\w.-])%?([\w.-]++)(?=[,}])"
)


def compare_late_marker(hlo: str, is_collective: Callable[[str], bool]) -> None:
    """Has ranks compare what they run at a marker, if a collective of its program or branch may come before it.

    Args:
        hlo: the text of a compiled program, in which XLA has put all instructions into their order.
        is_collective: tells of an instruction whether it is one.
    """
    parts = re.split(_COMPUTATION, hlo)
    bodies = dict(zip(parts[1::2], parts[2::2], strict=True))
    communicates = {name for name, body in bodies.items() if any(map(is_collective, body.splitlines()))}
    while more := {name for name, body in bodies.items() if _callees(body) & communicates} - communicates:
        communicates |= more
    for body in bodies.values():
        for line in body.splitlines():
            if is_marker(line):
                break
            if is_collective(line) or _callees(line) & communicates:
                for marker in _MARKER.findall(body):
                    _lib.compare_at_marker(int(marker) % 2**64)
                break


def is_marker(instruction: str) -> bool:
    """Whether a collective of a compiled program is its marker: over replicas of a device, of which there is one."""
    return "replica_groups={{0}}" in instruction and "channel_id=" not in instruction


_MARKER = re.compile(rf"constant\(\{{{_lib.program_marker(0, [], 'own')[0]}, (-?\d+),")


def _callees(text: str) -> set[str]:
    return {name for pair in _CALLEE.findall(text) for name in pair if name}


@contextmanager
def _at_begin(module: Any, main: Any, marker: list[int], size: int) -> Iterator[None]:
    """Has a program begin with a marker, in a part of it that is written for each device.

    JAX may have the same module compiled again, with other options: in the end it is what it was.
    """
    from jax.extend.mlir import ir
    from jax.extend.mlir.dialects import sdy

    with module.context, ir.Location.unknown(module.context):
        mesh, is_new = _mesh(module, size)
        axes = [ir.StringAttr.get(name) for name in _AXIS.findall(str(mesh))]
        with ir.InsertionPoint.at_block_begin(main.regions[0].blocks[0]):
            message = _message(marker)
            everywhere = ir.Attribute.parse(f"#sdy.sharding_per_value<[<@{_name_of(mesh)}, [{{}}]>]>")
            none = sdy.TensorShardingPerValueAttr.get([])
            part = sdy.ManualComputationOp([], [message.result], everywhere, none, sdy.ManualAxesAttr.get(axes))
            inside = ir.Block.create_at_start(part.regions[0], (message.result.type,))
            with ir.InsertionPoint(inside):
                _gather(inside.arguments[0])
                sdy.ReturnOp([])
    try:
        yield
    finally:
        for operation in (part, message, *([mesh] if is_new else [])):
            operation.operation.erase()


@contextmanager
def _in_branch(block: Any, marker: list[int]) -> Iterator[None]:
    """Has a branch, or each round of a loop, begin with a marker, where a program is written for each device."""
    from jax.extend.mlir import ir
    from jax.extend.mlir.dialects import stablehlo

    context = block.owner.operation.context
    with context, ir.Location.unknown(context), ir.InsertionPoint.at_block_begin(block):
        operations = [_message(marker)]
        if len(block.arguments):  # so that XLA doesn't take the marker out of a loop
            operations.append(stablehlo.OptimizationBarrierOp([operations[0].result, *block.arguments]))
        operations += _gather(operations[-1].results[0])
    try:
        yield
    finally:
        for operation in reversed(operations):
            operation.operation.erase()


def _message(marker: list[int]) -> Any:
    """A constant with a marker's numbers."""
    from jax.extend.mlir import ir
    from jax.extend.mlir.dialects import stablehlo

    return stablehlo.ConstantOp(ir.DenseElementsAttr.get(np.array(marker, np.uint64).view(np.int64)))


def _gather(message: Any) -> list[Any]:
    """Gathers a message over each device alone, and hands it to a handler that does nothing, so that XLA keeps it."""
    from jax.extend.mlir import ir
    from jax.extend.mlir.dialects import stablehlo

    alone = ir.DenseIntElementsAttr.get(np.zeros((1, 1), np.int64))
    gather = stablehlo.AllGatherOp([message.type], [message], all_gather_dim=0, replica_groups=alone)
    attributes = {
        "call_target_name": ir.StringAttr.get(_HANDLER),
        "has_side_effect": ir.BoolAttr.get(True),
        "api_version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 4),
        "backend_config": ir.DictAttr.get({}),
    }
    return [gather, ir.Operation.create("stablehlo.custom_call", operands=[gather.results[0]], attributes=attributes)]


_AXIS = re.compile(r'"([^"]+)"=\d+')


def _mesh(module: Any, size: int) -> tuple[Any, bool]:
    """A mesh of all devices, which the program has, or gets, and whether it is new."""
    from jax.extend.mlir import ir

    for operation in module.body.operations:
        sizes = [int(number) for number in re.findall(r'"=(\d+)', str(operation).partition("{stablehlo.mesh")[0])]
        if operation.operation.name == "sdy.mesh" and sizes and int(np.prod(sizes)) == size:
            return operation, False
    with ir.InsertionPoint.at_block_begin(module.body):
        parsed = ir.Attribute.parse(f'#sdy.mesh<["ferroket"={size}]>')
        attributes = {"sym_name": ir.StringAttr.get("ferroket_mesh"), "mesh": parsed}
        return ir.Operation.create("sdy.mesh", attributes=attributes), True
