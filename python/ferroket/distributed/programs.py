"""Marks the programs of many ranks, so that ranks find out when they run different ones.

MPI pairs calls by their order: if one rank alone computes a sum, its number is added to the others' next one. So each
program for many ranks begins with a marker, by which our MPI wrapper knows what runs, and compares it among the ranks
with each collective (``rust/mpi-abi/src/checks.rs``). A marker is a gather over this rank alone, since XLA runs
collectives one after the other: those that follow it are the program's. XLA puts it first. Where it doesn't, ranks
compare what they run at the marker, too, so that nothing leaves a program unseen.
"""

import hashlib
import inspect
import json
import re
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from ferroket import _lib
from ferroket._compat.jax import Compilation, coordination_client, replace_compilation
from ferroket.distributed.failure import abort_job
from ferroket.distributed.watchdog import python_stacks

_HANDLER = "ferroket_program"

# What differs from rank to rank in the same program: the values of constants, the numbers of results, and addresses.
_VALUES = re.compile(r"dense<[^>]*>|dense_resource<[^>]*>|%[\w#:]+|\bloc\(.*\)$|\bbackend_config = \"\d*\"")

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


def end_if_ranks_differ(rank: int, hosts: Sequence[str]) -> None:
    """Starts a thread that ends the job, with what each rank does, if this rank finds that others are in another call.

    Args:
        rank: this rank.
        hosts: the host of each rank.
    """
    threading.Thread(target=_end_after_difference, args=(rank, hosts), name="ferroket check", daemon=True).start()


def _end_after_difference(rank: int, hosts: Sequence[str]) -> None:
    place = _lib.wait_for_difference()
    with suppress(Exception):  # closed, or somebody's own
        sys.stdout.flush()
    store = coordination_client()
    store.key_value_set(f"{_FOLDER}{rank}", json.dumps([place, python_stacks()]))
    time.sleep(_OTHERS)
    found = {int(key.rsplit("/", 1)[1]): json.loads(text) for key, text in store.key_value_dir_get(_FOLDER)}
    if rank != min(found):
        time.sleep(_FIRST)
    lines = ["ferroket: the ranks are in different calls of MPI, and a number of one would be added to another's:"]
    for other in sorted(found):
        place, stack = found[other]
        lines += [f"rank {other} ({hosts[other]}) is in {place}", stack]
    lines.append(
        "Every rank has to run the same JAX programs on the values that they share, in the same order: look for a "
        "computation under `if jax.process_index() == 0:`, or in a loop whose length differs. (A program has the line "
        "where a rank compiled it first. FERROKET_CHECK=off leaves the check out.)"
    )
    print("\n".join(lines), file=sys.stderr, flush=True)
    abort_job(1, "other ranks are in another call of MPI")


def _marked(compilation: Compilation) -> Any:
    """The compiled program, with a marker at its beginning if it is one of many processes."""
    devices, module = compilation.devices, compilation.module
    if compilation.spans_processes:
        main = next(operation for operation in module.body.operations if _name_of(operation) == "main")
        program = fingerprint(compilation.text() or str(module))
        _lib.name_program(program, f"{_name_of(module.operation)}, compiled {_user_line()}")
        kind = "own" if getattr(_own, "inside", False) else "whole" if _is_whole(main) else "spread"
        marker = _lib.program_marker(program, [device.process_index for device in devices], kind)
        _insert(module, main, np.array(marker, np.uint64).view(np.int64), len(devices))
    return compilation.compile()


def _name_of(operation: Any) -> str:
    attributes = operation.attributes
    return str(attributes["sym_name"]).strip('"') if "sym_name" in attributes else ""


def _hash(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def fingerprint(text: str) -> int:
    """A number for a program in MLIR: the same on all ranks that compile it, though its constants may differ.

    The order of its operations doesn't matter: it may be that of a Python set.
    """
    lines = sorted(_VALUES.sub("", line) for line in text.splitlines())
    return _hash("\n".join(lines).encode())


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
_CALLEE = re.compile(r"(?:to_apply|calls|body|condition|\w+_computation)=%?([\w.-]+)|%?([\w.-]+)(?=[,}])")


def compare_late_marker(hlo: str, is_collective: Callable[[str], bool]) -> None:
    """Has ranks compare what they run at a program's marker, if a collective of the program may come before it.

    Args:
        hlo: the text of a compiled program, in which XLA has put all instructions into their order.
        is_collective: tells of an instruction whether it is one.
    """
    found = _MARKER.search(hlo)
    if not found:
        return
    parts = re.split(_COMPUTATION, hlo)
    bodies = dict(zip(parts[1::2], parts[2::2], strict=True))
    communicates = {name for name, body in bodies.items() if any(map(is_collective, body.splitlines()))}
    while more := {name for name, body in bodies.items() if _callees(body) & communicates} - communicates:
        communicates |= more
    for line in hlo.partition("\nENTRY ")[2].splitlines()[1:]:
        if is_marker(line):
            return
        if is_collective(line) or _callees(line) & communicates:
            _lib.compare_at_marker(int(found[1]) % 2**64)
            return


def is_marker(instruction: str) -> bool:
    """Whether a collective of a compiled program is its marker: over replicas of a device, of which there is one."""
    return "replica_groups={{0}}" in instruction and "channel_id=" not in instruction


_MARKER = re.compile(rf"constant\(\{{{_lib.program_marker(0, [], 'own')[0]}, (-?\d+),")


def _callees(text: str) -> set[str]:
    return {name for pair in _CALLEE.findall(text) for name in pair if name}


def _insert(module: Any, main: Any, marker: np.ndarray[Any, Any], size: int) -> None:
    """Gathers the marker over each device alone, and hands it to a handler that does nothing, so that XLA keeps it."""
    from jax.extend.mlir import ir
    from jax.extend.mlir.dialects import sdy, stablehlo

    with module.context, ir.Location.unknown(module.context):
        mesh = _mesh(module, size)
        axes = [ir.StringAttr.get(name) for name in _AXIS.findall(str(mesh))]
        with ir.InsertionPoint.at_block_begin(main.regions[0].blocks[0]):
            message = stablehlo.ConstantOp(ir.DenseElementsAttr.get(marker)).result
            everywhere = ir.Attribute.parse(f"#sdy.sharding_per_value<[<@{_name_of(mesh)}, [{{}}]>]>")
            none = sdy.TensorShardingPerValueAttr.get([])
            region = sdy.ManualComputationOp([], [message], everywhere, none, sdy.ManualAxesAttr.get(axes))
            inside = ir.Block.create_at_start(region.regions[0], (message.type,))
            with ir.InsertionPoint(inside):
                alone = ir.DenseIntElementsAttr.get(np.zeros((1, 1), np.int64))
                gathered = stablehlo.AllGatherOp(
                    [message.type], [inside.arguments[0]], all_gather_dim=0, replica_groups=alone
                )
                ir.Operation.create(
                    "stablehlo.custom_call",
                    operands=[gathered.results[0]],
                    attributes={
                        "call_target_name": ir.StringAttr.get(_HANDLER),
                        "has_side_effect": ir.BoolAttr.get(True),
                        "api_version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 4),
                        "backend_config": ir.DictAttr.get({}),
                    },
                )
                sdy.ReturnOp([])


_AXIS = re.compile(r'"([^"]+)"=\d+')


def _mesh(module: Any, size: int) -> Any:
    """A mesh of all devices, which the program has, or gets."""
    from jax.extend.mlir import ir

    for operation in module.body.operations:
        sizes = [int(number) for number in re.findall(r'"=(\d+)', str(operation).partition("{stablehlo.mesh")[0])]
        if operation.operation.name == "sdy.mesh" and sizes and int(np.prod(sizes)) == size:
            return operation
    with ir.InsertionPoint.at_block_begin(module.body):
        parsed = ir.Attribute.parse(f'#sdy.mesh<["ferroket"={size}]>')
        attributes = {"sym_name": ir.StringAttr.get("ferroket_mesh"), "mesh": parsed}
        return ir.Operation.create("sdy.mesh", attributes=attributes)
