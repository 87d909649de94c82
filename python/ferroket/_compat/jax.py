"""Every private name of JAX and jaxlib that Ferroket uses or replaces, where no public one does the same.

Checked on JAX 0.8.0, 0.10.2 and 0.12.0.1. Importing this module doesn't import JAX: ``fk.initialize()`` has to prepare
the process before.
"""

import copy
import hashlib
import re
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any
from weakref import WeakKeyDictionary

from ferroket._compat.names import Private

_EXECUTABLE = "to see each compiled program before it runs, with its devices and collectives"
_COMPILATION = "to mark programs, and to keep them for all ranks: JAX's own cache keeps those of process 0, for itself"
_STORE = "the store of keys and values of JAX's coordinator, for ranks that have no MPI and for the watchdog"
_INDEXING = "networks may look up numbers in arrays that they close over, in functions on each device too"
_NANS = "with jax_debug_nans a rank would run a program of all ranks again, operation by operation, alone"
_SLICES = "jax.make_mesh refuses the CPUs of several nodes, each of which JAX counts as a slice"
_TILES = "the devices that hold the tiles of an array, where XLA doesn't say the mesh"

PRIVATE = (
    Private("jax._src.interpreters.pxla:ExecuteReplicated.__call__", _EXECUTABLE, ("self", "args")),
    Private("jax._src.interpreters.pxla:ExecuteReplicated.in_handler", _EXECUTABLE),
    Private("jax._src.interpreters.pxla:ExecuteReplicated.out_handler", _EXECUTABLE),
    Private("jax._src.interpreters.pxla:ExecuteReplicated.xla_executable", _EXECUTABLE),
    Private("jax._src.interpreters.pxla:InputsHandler.in_shardings", _EXECUTABLE),
    Private("jax._src.interpreters.pxla:ResultsHandler.out_shardings", _EXECUTABLE),
    Private("jax._src.sharding:Sharding._device_assignment", f"{_EXECUTABLE}; {_TILES}"),
    Private("jax._src.sharding:Sharding._to_xla_hlo_sharding", _TILES, ("self", "num_dimensions")),
    Private("jax._src.lib.xla_client:HloSharding.is_replicated", _TILES),
    Private("jax._src.lib.xla_client:HloSharding.tile_assignment_dimensions", _TILES),
    Private("jax._src.lib.xla_client:HloSharding.tile_assignment_devices", _TILES),
    Private("jaxlib._jax:LoadedExecutable.hlo_modules", _EXECUTABLE),
    Private("jaxlib._jax:make_gloo_tcp_collectives", "the address that gloo listens at", ("hostname",)),
    Private("jax._src.compilation_cache:is_cache_used", _COMPILATION, ("backend",)),
    Private("jax._src.distributed:global_state.client", _STORE),
    Private("jaxlib._jax:DistributedRuntimeClient.key_value_set_bytes", _STORE),
    Private("jaxlib._jax:DistributedRuntimeClient.blocking_key_value_get_bytes", _STORE),
    Private("jaxlib._jax:DistributedRuntimeClient.wait_at_barrier", _STORE),
    Private("jaxlib._jax:DistributedRuntimeClient.key_value_set", _STORE, ("allow_overwrite",)),
    Private("jaxlib._jax:DistributedRuntimeClient.key_value_dir_get", _STORE),
    Private("jaxlib._jax:DistributedRuntimeClient.key_value_try_get", _STORE),
    Private(
        "jax._src.compiler:compile_or_get_cached",
        _COMPILATION,
        ("backend", "computation", "devices", "compile_options", "host_callbacks", "executable_devices"),
    ),
    Private("jax._src.lib.xla_client:CompileOptions.device_assignment", _COMPILATION),
    Private("jax._src.lib.xla_client:CompileOptions.SerializeAsString", _COMPILATION),
    Private("jax._src.lib.xla_client:DeviceAssignment.create", _COMPILATION),
    Private("jaxlib._jax:Client.deserialize_executable", _COMPILATION),
    Private("jax._src.custom_partitioning:_sharding_callbacks", _COMPILATION),
    Private("jax._src.custom_partitioning:_ShardingCallbackInfo.partition", _COMPILATION),
    Private("jax._src.custom_partitioning:_ShardingCallbackInfo.mesh", _COMPILATION),
    Private("jax._src.numpy.indexing:canonicalize_sharding", _INDEXING, ("sharding", "api_name")),
    Private("jax._src.config:trace_context", "whether two threads of Python would compile the same program"),
    Private("jax._src.xla_bridge:backends_are_initialized", "whether fk.initialize() comes too late"),
    Private("jax._src.dispatch:prim_requires_devices_during_lowering", "to partition primitives by their shardings"),
    Private("jax._src.core:DebugInfo", "programs of one equation: JAX warns of those without"),
    Private("jax._src.api_util:maybe_recursive_nan_check", _NANS, ("e", "fun", "args", "kwargs")),
    Private("jaxlib._jax:Device.__getattr__", _SLICES),
    Private("jax.distributed:initialize", "a script under `ferroket run` may call it, though JAX is connected already"),
)


def is_backend_started() -> bool:
    """Whether JAX has started a backend in this process. The public names start the one that they are asked for."""
    if "jax" not in sys.modules:
        return False
    from jax._src import xla_bridge

    return bool(xla_bridge.backends_are_initialized())


def trace_context() -> Any:
    """All settings of JAX's, in this thread, on which a compiled program may depend."""
    from jax._src import config

    return config.trace_context()


def coordination_client() -> Any:
    """This process's client of JAX's coordinator, with its store of keys and values; None if JAX isn't connected."""
    from jax._src import distributed

    return distributed.global_state.client


def set_gloo_address(address: str) -> None:
    """Has gloo listen at an address, instead of the one that the host's name has. JAX has no setting for it."""
    from jax._src.lib import _jax

    _jax.make_gloo_tcp_collectives = partial(_jax.make_gloo_tcp_collectives, hostname=address)


def before_each_run(prepare: Callable[[Any], None]) -> None:
    """Has ``prepare(program)`` called before each run of a compiled program, whatever compiled it."""
    from jax._src.interpreters import pxla

    run = pxla.ExecuteReplicated.__call__

    def prepared_run(program: Any, *arguments: Any) -> Any:
        prepare(program)
        return run(program, *arguments)

    pxla.ExecuteReplicated.__call__ = prepared_run


def devices_of_program(program: Any) -> Sequence[Any]:
    """The devices of a compiled program on a mesh, in the order of its device assignment; none for other programs."""
    from jax.sharding import SingleDeviceSharding

    shardings = [*program.in_handler.in_shardings, *program.out_handler.out_shardings]
    on_mesh = (sharding for sharding in shardings if not isinstance(sharding, SingleDeviceSharding))
    return next((sharding._device_assignment for sharding in on_mesh), ())


def hlo_of_program(program: Any) -> str:
    """The text of a compiled program."""
    return "\n".join(module.to_string() for module in program.xla_executable.hlo_modules())


# In the text of a program an operation with a custom partitioning has the address of the functions that partition it.
_PARTITIONED = re.compile(r'(@CustomSPMDPartitioning\(.*?\bbackend_config = )"(\d+)"')
_names: WeakKeyDictionary[Callable[..., Any], str] = WeakKeyDictionary()


def name_partition(partition: Callable[..., Any], name: str) -> None:
    """Names the function of a custom partitioning, from which everything follows that it does to a program."""
    _names[partition] = name


def _with_names_of_partitions(text: str) -> str | None:
    """A program's text with names in place of the addresses of partitions; None if one has no name."""
    if "CustomSPMDPartitioning" not in text:
        return text
    from jax._src.custom_partitioning import _sharding_callbacks

    infos = {address: _sharding_callbacks.get(address.encode()) for _, address in _PARTITIONED.findall(text)}
    names = {address: _names.get(info.partition) if info else None for address, info in infos.items()}
    if None in names.values() or len(_PARTITIONED.findall(text)) != text.count("@CustomSPMDPartitioning"):
        return None
    return _PARTITIONED.sub(lambda found: f"{found[1]}{names[found[2]]} over {infos[found[2]].mesh}", text)


@dataclass(frozen=True)
class Compilation:
    """A program that JAX wants compiled."""

    compile: Callable[[], Any]
    """What JAX would do: it compiles the program, or reads it from a cache of the user's if it is of one process."""
    module: Any
    """The program in MLIR."""
    devices: Sequence[Any]
    """Those that it is compiled for."""
    can_be_kept: bool
    """It is for CPUs, and has no callbacks into Python, which hold addresses of this process; nor has JAX been told to
    keep programs of one process by itself, or to keep none."""
    spans_processes: bool
    """Whether it runs on CPUs of several processes."""
    _backend: Any
    _options: Any
    _executable_devices: Any

    def text(self) -> str | None:
        """The program's text, with no address of this process in it; None if there is a part that has no name."""
        return _with_names_of_partitions(str(self.module))

    def key(self) -> str | None:
        """What tells this program from others of this version of XLA: its text, and how it is to be compiled.

        JAX's own key has the number of the process, too. Here a single device has no number: any will do.

        Returns:
            None if the program isn't all in its text: where a function without a name partitions a part of it.
        """
        import numpy as np
        from jax._src.lib import xla_client

        text = self.text()
        if text is None:
            return None
        options = copy.deepcopy(self._options)
        if len(self.devices) == 1:
            options.device_assignment = xla_client.DeviceAssignment.create(np.zeros((1, 1), int))
        return hashlib.sha256(text.encode() + options.SerializeAsString()).hexdigest()

    def dump(self, program: Any) -> bytes | None:
        """The compiled program as bytes; None if XLA can't write it."""
        try:
            # up to JAX 0.9 the backend writes programs
            dump = getattr(program, "serialize", None) or partial(self._backend.serialize_executable, program)
            return bytes(dump())
        except Exception:  # of many kinds, as JAX itself sees it
            return None

    def load(self, stored: bytes) -> Any:
        """The compiled program from its bytes; None if XLA can't read them."""
        try:
            return self._backend.deserialize_executable(stored, self._executable_devices, self._options)
        except Exception:  # of many kinds, as JAX itself sees it
            return None


def replace_compilation(provide: Callable[[Compilation], Any]) -> None:
    """Has ``provide(compilation)`` give JAX its compiled programs.

    What was replaced before is what ``compilation.compile`` does.
    """
    import jax
    import numpy as np
    from jax._src import compiler

    compile_or_get_cached = compiler.compile_or_get_cached

    def compiled(
        backend: Any,
        computation: Any,
        devices: Any,
        compile_options: Any,
        host_callbacks: Any,
        executable_devices: Any,
        *others: Any,
    ) -> Any:
        compile_it = partial(
            compile_or_get_cached,
            backend,
            computation,
            devices,
            compile_options,
            host_callbacks,
            executable_devices,
            *others,
        )
        spans_processes = _spans_processes(backend, devices)
        keeps = jax.config.jax_enable_compilation_cache and (
            spans_processes or not jax.config.jax_compilation_cache_dir
        )
        can_be_kept = backend.platform == "cpu" and not host_callbacks and keeps
        devices_in_order = list(np.ravel(devices))
        return provide(
            Compilation(
                compile_it,
                computation,
                devices_in_order,
                can_be_kept,
                spans_processes,
                backend,
                compile_options,
                executable_devices,
            )
        )

    compiler.compile_or_get_cached = compiled


def _spans_processes(backend: Any, devices: Any) -> bool:
    """Whether a program runs on CPUs of several processes."""
    import numpy as np

    return backend.platform == "cpu" and len({device.process_index for device in np.ravel(devices)}) > 1


class _Compiling(threading.local):
    """What this thread compiles."""

    spans_processes = False


_compiling = _Compiling()


def bypass_cache_across_processes() -> None:
    """From now on JAX's own persistent cache doesn't take part in compiling programs for CPUs of several processes.

    It keeps what process 0 has compiled, for process 0 alone. A program that XLA reads may run independent collectives
    in another order than the same program compiled, so process 0 would pair its collectives with others of its peers.
    """
    from jax._src import compilation_cache, compiler

    compile_or_get_cached, is_cache_used = compiler.compile_or_get_cached, compilation_cache.is_cache_used

    @wraps(compile_or_get_cached)
    def compiled(backend: Any, computation: Any, devices: Any, *others: Any) -> Any:
        _compiling.spans_processes = _spans_processes(backend, devices)
        try:
            return compile_or_get_cached(backend, computation, devices, *others)
        finally:
            _compiling.spans_processes = False

    @wraps(is_cache_used)
    def is_used(backend: Any) -> bool:
        return not _compiling.spans_processes and is_cache_used(backend)

    compiler.compile_or_get_cached = compiled
    compilation_cache.is_cache_used = is_used


def tiles_of_sharding(sharding: Any, n_dims: int) -> tuple[Any, Any]:
    """Where the tiles of an array with ``n_dims`` dimensions are.

    Returns:
        The devices in the order of the device assignment, and their numbers in it, with a dimension for each of the
        array (and maybe more, for copies); None in place of the numbers if each device has the whole array.
    """
    import numpy as np

    tiles = sharding._to_xla_hlo_sharding(n_dims)
    devices = sharding._device_assignment
    if tiles.is_replicated():
        return devices, None
    return devices, np.reshape(tiles.tile_assignment_devices(), tiles.tile_assignment_dimensions())


def lower_with_devices(*primitives: Any) -> None:
    """Has JAX tell the devices to primitives when they are lowered: they are partitioned by their shardings."""
    from jax._src.dispatch import prim_requires_devices_during_lowering

    prim_requires_devices_during_lowering.update(primitives)


def replace_distributed_initialize(replace: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Puts ``replace(jax.distributed.initialize)`` in its place."""
    import jax

    jax.distributed.initialize = replace(jax.distributed.initialize)


def join_nodes() -> None:
    """Has JAX count the CPUs of all nodes as one slice, as it does those of one node.

    It counts each node as a slice, whose devices share a fast network, and :func:`jax.make_mesh` refuses several.
    """
    from jaxlib._jax import Device

    def slice_index(device: Any) -> int:
        return 0 if device.platform == "cpu" else int(Device.__getattr__(device, "slice_index"))

    Device.slice_index = property(slice_index)


def raise_at_nans_of_many_processes() -> None:
    """Has jax_debug_nans and jax_debug_infs raise an error where a program of many processes gives such a value.

    JAX would look for the operation by running them one by one, each a program of all processes, on this one alone.
    """
    import jax
    from jax._src import api_util

    search = api_util.maybe_recursive_nan_check

    @wraps(search)
    def searched(e: Any, fun: Any, args: Any, kwargs: Any) -> Any:
        leaves = jax.tree.leaves((args, kwargs))
        if all(leaf.is_fully_addressable for leaf in leaves if isinstance(leaf, jax.Array)):
            return search(e, fun, args, kwargs)
        name = getattr(fun, "__name__", "a function")
        raise FloatingPointError(
            f"invalid value ({e.ty}) encountered in the output of {name} on process {jax.process_index()}. Which "
            "of its operations gave it one process alone can't find out, since each is a program of all: run "
            "the script in one process, or jax.debug.print values on the way"
        ) from None

    api_util.maybe_recursive_nan_check = searched


def allow_indexing_of_closures() -> None:
    """Has JAX index arrays that a function on each device, :func:`jax.shard_map`, closes over.

    Such an array is of a mesh whose axes are automatic, and in the function they are manual. JAX allows all operations
    but this one, for which it asks the array's own mesh. Where an array isn't sharded, its mesh needn't be asked.
    """
    import jax
    from jax._src.numpy import indexing

    canonicalize = indexing.canonicalize_sharding

    @wraps(canonicalize)
    def canonicalized(sharding: Any, *more: Any, **settings: Any) -> Any:
        spec = getattr(sharding, "spec", None)
        if spec is not None and not any(spec) and jax.sharding.get_abstract_mesh().manual_axes:
            return None
        return canonicalize(sharding, *more, **settings)

    indexing.canonicalize_sharding = canonicalized


def jaxpr_of(eqn: Any, variables: Sequence[Any]) -> Any:
    """A program of one equation.

    Args:
        eqn: The equation.
        variables: Those that it takes, each once.
    """
    from jax._src.core import DebugInfo
    from jax.extend.core import Jaxpr

    names = DebugInfo(eqn.primitive.name, None, ("",) * len(variables), ("",) * len(eqn.outvars))
    return Jaxpr([], variables, eqn.outvars, [eqn], debug_info=names)


def inputs_of_scan(settings: dict[str, Any]) -> tuple[int, int]:
    """How many of a loop's inputs are constants, and how many are carried; the others are parts, one for each step."""
    if "num_consts" in settings:  # up to JAX 0.11
        return settings["num_consts"], settings["num_carry"]
    constants, carried, _ = settings["ft_in"].unpack()
    return len(constants), len(carried)


def index_of_platform(eqn: Any) -> int:
    """Which of its cases a function that differs by platform is, on the platform of this process."""
    import jax

    of_cases = eqn.params["platforms"]
    own = [place for place, names in enumerate(of_cases) if names is not None and jax.default_backend() in names]
    return own[0] if own else of_cases.index(None)


def expansion_of(eqn: Any) -> Callable[..., Any] | None:
    """How JAX writes out a primitive that it keeps whole while it traces; None for all others, and before JAX 0.12."""
    return eqn.primitive.to_lojax if eqn.primitive.name == "call_hi_primitive" else None


def solution_of(eqn: Any, inputs: Sequence[Any]) -> tuple[Any, Sequence[Any], Sequence[Any]]:
    """What solves a linear system whose matrix is known as a function: a jaxpr, its constants and its arguments."""
    solve = eqn.params["jaxprs"].solve
    lengths = eqn.params["const_lengths"]
    first = lengths.matvec + lengths.vecmat
    right = inputs[sum(lengths) :]
    return solve.jaxpr, solve.consts, [*inputs[first : first + lengths.solve], *right]
