"""Arrays of a job of many processes: thin helpers over :mod:`jax.experimental.multihost_utils`.

But for :func:`is_main` and :func:`print_once`, all ranks must call them, in the same order, as they must run the same
JAX programs: a rank that doesn't is found by the watchdog. Without a launcher, there is one rank. What fails on one
rank is an error on all.
"""

import hashlib
import os
import re
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

_PIECE = 1 << 30
"""Bytes that are sent at once: XLA cuts counts beyond 2³¹ - 1."""


def is_main() -> bool:
    """Whether this is rank 0, the one to print and to write files. Any rank may ask."""
    import jax

    return jax.process_index() == 0


def print_once(*values: Any, **options: Any) -> None:
    """As :func:`print`, at once, on rank 0 alone. Any rank may call it, with values that it has."""
    if is_main():
        print(*values, **{"flush": True, **options})


def barrier(name: str = "ferroket") -> None:
    """Returns when all ranks have called it with the same name. All ranks must call it.

    Raises:
        AssertionError: The names differ.
    """
    from jax.experimental import multihost_utils

    multihost_utils.sync_global_devices(name)


def replicate(tree: Any) -> Any:
    """Makes arrays that each device holds as a whole, of values that all ranks have. All ranks must call it.

    Args:
        tree: A pytree of arrays or numbers, the same on all ranks.

    Returns:
        The tree of :class:`jax.Array`.

    Raises:
        ValueError: On some rank the values, shapes or dtypes differ from rank 0's; raised on every rank.
    """
    import jax
    from jax.sharding import PartitionSpec

    leaves, structure = jax.tree.flatten(jax.tree.map(np.asarray, tree))
    _agree_on("the values that are to be replicated", [leaf.tobytes() for leaf in leaves] + _types(leaves, structure))
    sharding = _sharding(PartitionSpec())
    arrays = [jax.make_array_from_callback(leaf.shape, sharding, leaf.__getitem__) for leaf in leaves]
    return jax.tree.unflatten(structure, arrays)


def gather(tree: Any) -> Any:
    """Gives every rank the whole of arrays that are spread over processes. All ranks must call it.

    Args:
        tree: A pytree of arrays. Those that each process has whole aren't sent.

    Returns:
        The tree of :class:`numpy.ndarray`, of the shapes that the arrays have.
    """
    import jax
    from jax.experimental import multihost_utils

    def whole(array: Any) -> np.ndarray:
        if not isinstance(array, jax.Array) or array.is_fully_addressable or array.is_fully_replicated:
            return np.asarray(array)
        return np.asarray(multihost_utils.process_allgather(array, tiled=True))

    return jax.tree.map(whole, tree)


def broadcast(value: Any) -> np.ndarray:
    """Gives every rank the value of rank 0, so that all go the same way. All ranks must call it.

    Args:
        value: A number, a truth value or an array, of one shape and dtype on all ranks; rank 0's counts.

    Returns:
        Rank 0's, as an array.
    """
    own = np.asarray(value)
    return np.frombuffer(_broadcast(own.tobytes()), own.dtype).reshape(own.shape)


def from_process_local(tree: Any, axis: int = 0) -> Any:
    """Joins the parts that the ranks have to arrays over all devices. All ranks must call it.

    Args:
        tree: A pytree of this rank's parts, of the same shapes and dtypes on all ranks. Fill up what is shorter, such
            as the last batch of a data loader: where a rank has nothing to add, the others would wait for it.
        axis: The parts are joined along it, in the order of the ranks. A negative one counts from each part's last.
            Its length in each part must be a multiple of the number of devices of a process.

    Returns:
        The tree of :class:`jax.Array`, sharded along the axis.

    Raises:
        ValueError: On some rank the shapes or dtypes differ from rank 0's, or the devices can't share them; raised on
            every rank.
    """
    import jax
    from jax.sharding import PartitionSpec

    leaves, structure = jax.tree.flatten(jax.tree.map(np.asarray, tree))
    _agree_on("the shapes and dtypes of the parts", _types(leaves, structure))
    devices = jax.local_device_count()
    for leaf in leaves:
        if not -leaf.ndim <= axis < leaf.ndim or leaf.shape[axis] % devices:
            raise ValueError(
                f"a part has shape {leaf.shape}, but it must have an axis {axis}, whose length is a multiple of "
                f"{devices}, the number of devices of this process"
            )
    arrays = [
        jax.make_array_from_process_local_data(_sharding(PartitionSpec(*(None,) * (axis % leaf.ndim), "ranks")), leaf)
        for leaf in leaves
    ]
    return jax.tree.unflatten(structure, arrays)


def save(path: str | os.PathLike[str], tree: Any) -> None:
    """Writes arrays to a file, once, by rank 0. All ranks must call it, and none returns before the file is there.

    The file is written under another name, and renamed when it is complete: nothing is ever half-written. Rank 0 needs
    room for the whole tree, the others for one array of it at a time. For arrays that are too large for that there is
    Orbax, with which each rank writes what it has.

    Args:
        path: The file, in a folder that exists. One that is there already is replaced.
        tree: A pytree of arrays, however they are spread, or anything else that Flax serializes, such as a state or a
            driver of NetKet's. The format is that of :func:`flax.serialization.to_bytes`.

    Raises:
        OSError: The file can't be written; raised on every rank.
        TypeError: The tree has what Flax doesn't serialize; raised on every rank.
    """
    import jax
    from flax import serialization

    def whole_on_main(part: Any) -> Any:
        if not isinstance(part, jax.Array):
            return part  # numbers stay numbers: a state of NetKet's gets its n_samples back
        whole = gather(part)
        return whole if is_main() else None

    parts = jax.tree.map(whole_on_main, serialization.to_state_dict(tree))
    # The others have no arrays left, but what Flax can't serialize is an error for them as well.
    data, error = serialization.msgpack_serialize(parts), None
    if is_main():
        try:
            write(Path(path), data)
        except OSError as failure:
            error = failure
    _raise_everywhere(error)


def load(path: str | os.PathLike[str], like: Any) -> Any:
    """Reads what :func:`save` has written, on any number of ranks. All ranks must call it; rank 0 alone reads.

    Args:
        path: The file.
        like: What has the same structure, and arrays of the same shapes: a pytree, a state, a driver.

    Returns:
        The same with what was saved, spread over devices as ``like`` is; :class:`numpy.ndarray` where that has them.

    Raises:
        OSError: The file can't be read; raised on every rank.
        ValueError: It holds another structure, or other shapes; raised on every rank.
        TypeError: A state of ``like`` has parameters that aren't JAX's arrays; raised on every rank.
    """
    from flax import serialization

    data, error = b"", None
    if is_main():
        try:
            data = Path(path).read_bytes()
        except OSError as failure:
            error = failure
    _raise_everywhere(error)
    parts = serialization.msgpack_restore(_broadcast(data))
    placed = _placed(parts, serialization.to_state_dict(like), str(path))
    try:
        return serialization.from_state_dict(like, placed)
    except AttributeError as error:
        if error.name != "sharding":
            raise
        raise TypeError(
            f"{path} can't be put where like has {type(error.obj).__name__}, which has no sharding: give states "
            "parameters that are JAX's arrays, as jax.tree.map(jnp.asarray, parameters)"
        ) from error


def _placed(part: Any, model: Any, path: str, where: str = "") -> Any:
    """What a file has, with its arrays spread as those of the model are."""
    import jax

    if isinstance(part, dict) and isinstance(model, dict):
        return {
            key: _placed(inner, model[key], path, f"{where}[{key!r}]") if key in model else inner
            for key, inner in part.items()
        }
    if isinstance(part, dict) or isinstance(model, dict):
        return part  # Flax says what is wrong, if anything is
    if model is not None and np.shape(part) != np.shape(model):
        raise ValueError(
            f"{path!r} has an array of shape {np.shape(part)} at {where}, but `like` has one of {np.shape(model)}: "
            "make it with the sizes of what was saved, such as n_chains"
        )
    if isinstance(model, jax.Array):
        return jax.make_array_from_callback(model.shape, model.sharding, np.asarray(part).__getitem__)
    return np.asarray(part) if isinstance(model, np.ndarray) else part


def _sharding(spec: Any) -> Any:
    import jax

    return jax.sharding.NamedSharding(jax.sharding.Mesh(np.array(jax.devices()), ("ranks",)), spec)


def _types(leaves: Sequence[np.ndarray], structure: Any) -> list[bytes]:
    """The structure of a tree, without the addresses of functions and objects, and of each leaf its shape and dtype."""
    described = re.sub(r" at 0x[0-9a-f]+", "", str(structure))
    return [described.encode(), *(f"{leaf.shape} {leaf.dtype}".encode() for leaf in leaves)]


def _agree_on(what: str, parts: Sequence[bytes]) -> None:
    """An error on every rank unless all have the same."""
    from jax.experimental import multihost_utils

    digest = hashlib.sha256()
    for part in parts:
        digest.update(hashlib.sha256(part).digest())
    mine = np.frombuffer(digest.digest(), np.uint8)
    of_all = np.asarray(multihost_utils.process_allgather(mine)).reshape(-1, mine.size)
    others = [str(rank) for rank in range(len(of_all)) if (of_all[rank] != of_all[0]).any()]
    if others:
        names = f"rank{'s' * (len(others) > 1)} {', '.join(others)}"
        raise ValueError(f"{what} must be the same on all ranks, but those of {names} differ from rank 0's")


def _broadcast(data: bytes) -> bytes:
    """The bytes of rank 0."""
    from jax.experimental import multihost_utils

    def send(part: np.ndarray) -> np.ndarray:
        return np.asarray(multihost_utils.broadcast_one_to_all(part)).astype(np.uint8)

    length = int.from_bytes(send(np.frombuffer(len(data).to_bytes(8, "little"), np.uint8)).tobytes(), "little")
    pieces = []
    for start in range(0, length, _PIECE):
        size = min(_PIECE, length - start)
        own = np.frombuffer(data, np.uint8, size, start) if is_main() else np.zeros(size, np.uint8)
        pieces.append(send(own).tobytes())
    return b"".join(pieces)


def _raise_everywhere(error: OSError | None) -> None:
    """Raises the error that rank 0 has, if it has one."""
    text = "" if error is None else f"{error.errno or 0}\n{error.strerror or error}\n{error.filename or ''}"
    found = _broadcast(text.encode()).decode()
    if found:
        number, words, name = found.split("\n", 2)
        raise OSError(int(number), words, name)


def write(path: Path, data: bytes) -> None:
    """Writes a file under another name, and renames it when it is complete: nothing is ever half-written."""
    written = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with written.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        written.replace(path)
    except BaseException:
        written.unlink(missing_ok=True)
        raise
