"""Communicators of groups of ranks: found in a program's text, and created by their members alone."""

import re
import textwrap

import pytest

from ferroket.distributed.communicators import groups_of, refuse_float16, refuse_large
from support.mpi import PREFIXES, run_ranks

PRELUDE = """
import ferroket as fk
info = fk.initialize()
from ferroket import _lib
import jax, jax.numpy as jnp, numpy as np
from jax import lax, shard_map
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
rank, devices = info.rank, jax.devices()

def array(mesh, spec, shape):
    values = np.arange(np.prod(shape), dtype=np.float64).reshape(shape) + 1
    return values, jax.make_array_from_callback(shape, NamedSharding(mesh, spec), lambda i: values[i])

def own(x):
    return np.asarray(x.addressable_data(0))

def run(f, mesh, spec, x):
    return jax.jit(shard_map(f, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))(x)
"""
# Nothing was left to a split of the whole world, which would wait for all ranks.
END = "\nassert _lib.unannounced_groups() == 0, _lib.unannounced_groups()\n"

THREADS = """
import threading, time

def work(place):
    time.sleep(1.5 * (place ^ rank))  # the other group first on each rank
    mesh = Mesh(np.array([devices[r] for r in ((0, 1), (1, 0))[place]]), ("S",))
    x = array(mesh, P("S"), (2,))[1]
    found[place] = float(own(run(lambda x: lax.psum(x * (place + 2), "S"), mesh, P("S"), x))[0])

found = [0.0, 0.0]
if rank < 2:
    threads = [threading.Thread(target=work, args=(place,)) for place in (0, 1)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    assert found == [6.0, 9.0], found
"""

AT_EXIT = """
import atexit

def save():
    mesh = Mesh(np.array(devices).reshape(1, -1)[:, ::-1], ("a", "b"))
    x = array(mesh, P("b"), (len(devices),))[1]
    print("SAVED", float(own(run(lambda x: lax.psum(x, "b"), mesh, P("b"), x))[0]), flush=True)

atexit.register(save)
"""


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", PREFIXES)
def test_threads_create_groups_in_another_order_on_each_rank(mpi: str) -> None:
    run_ranks(PRELUDE + THREADS + END, 3, mpi=mpi).ok()


@pytest.mark.mpi
def test_a_group_that_is_first_used_in_an_exit_handler() -> None:
    job = run_ranks(PRELUDE + AT_EXIT, 2).ok()
    assert job.stdout.count("SAVED 3.0") == 2


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("replica_groups={{0,1},{2,3}}", {(0, 1), (2, 3)}),
        ("replica_groups={{2,0},{3,1}}", {(2, 0), (3, 1)}),
        ("replica_groups={{0},{1},{2},{3}}", {(0,), (1,), (2,), (3,)}),
        ("replica_groups={}", {(0, 1, 2, 3)}),
        ("replica_groups=[2,2]<=[4]", {(0, 1), (2, 3)}),
        ("replica_groups=[2,2]<=[2,2]T(1,0)", {(0, 2), (1, 3)}),
        ("replica_groups=[1,4]<=[4]", {(0, 1, 2, 3)}),
        ("replica_groups=mesh['a'=2,'b'=2] {'a'}", {(0, 2), (1, 3)}),
        ("replica_groups=mesh['a'=2,'b'=2] {'b'}", {(0, 1), (2, 3)}),
        ("replica_groups=mesh['a'=2,'b'=2] {'a','b'}", {(0, 1, 2, 3)}),
        ("replica_groups=mesh['a'=2,'b'=2] {'b','a'}", {(0, 2, 1, 3)}),
        ("replica_groups=mesh[a=2,b=2] {b,a}", {(0, 2, 1, 3)}),
        ("replica_groups=mesh['a'=2,'b'=2] {}", {(0,), (1,), (2,), (3,)}),
        ("replica_groups=mesh['a:(1)2'=2,'x], {=2,'=2] {'x], {=2,'}", {(0, 1), (2, 3)}),
        ("replica_groups=mesh['a'=4] {'a':(1)2}", {(0, 2), (1, 3)}),
        ("replica_groups=mesh['a'=4] {'a':(2)2}", {(0, 1), (2, 3)}),
        ("replica_groups=mesh['a'=2,'b'=2], device_ids=([2,2]<=[2,2]T(1,0)) {'b'}", {(0, 2), (1, 3)}),
        ("replica_groups=mesh['a'=2,'b'=2], device_ids=([2,2]T(1,0)) {'b'}", {(0, 2), (1, 3)}),
        ("replica_groups=mesh['a'=2,'b'=1,'c'=2], device_ids=([2,2]T(1,0)) {'a'}", {(0, 1), (2, 3)}),
        ("replica_groups=mesh['a'=2,'b'=2], device_ids=(3,1,2,0) {'b'}", {(3, 1), (2, 0)}),
    ],
)
@pytest.mark.parametrize("operation", ["all-reduce", "all-gather-start", "reduce-scatter"])
def test_groups_in_a_programs_text(operation: str, attributes: str, expected: set[tuple[int, ...]]) -> None:
    text = f"  %x.1 = f32[4]{{0}} {operation}(%p), channel_id=1, {attributes}, use_global_device_ids=true\n"
    assert groups_of("HloModule m\n" + text, 4) == expected


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        ("'a':(1)2,'a':(4)2", (0, 1, 4, 5)),
        ("'a':(4)2,'a':(1)2", (0, 4, 1, 5)),
        ("'a':(4)2,'b'", (0, 8, 1, 9)),
        ("'b','a':(2)2", (0, 2, 8, 10)),
    ],
)
def test_parts_of_axes(axes: str, expected: tuple[int, ...]) -> None:
    """The group of the first device, and as many groups as there are."""
    groups = groups_of(f"%x = f32[4] all-reduce(%p), replica_groups=mesh['b'=2,'a'=8] {{{axes}}}", 16)
    assert expected in groups
    assert len(groups) == 16 // len(expected)


@pytest.mark.parametrize(
    "attributes",
    [
        "replica_groups={{0,1},{1,2}}",
        "replica_groups={{0,1}}",
        "replica_groups=[2,4]<=[8]",
        "replica_groups=mesh['a'=2,'b'=2] {'c'}",
        "replica_groups=mesh['a'=2,'b'=4] {'a'}",
        "replica_groups=mesh['a'=4] {'a':(1)4,'a':(2)2}",
        "replica_groups=mesh['a'=4, 'b'=1] {'a'}",
        "replica_groups=written_otherwise(0,1)",
    ],
)
@pytest.mark.parametrize("operation", ["all-reduce", "of-a-later-xla"])
def test_groups_that_cannot_be_read_are_an_error(operation: str, attributes: str) -> None:
    """It names the instruction: a group that is left out would be one that hangs."""
    text = f"  %x.1 = f32[4]{{0}} {operation}(%p), channel_id=1, {attributes}, to_apply=%sum\n"
    with pytest.raises(RuntimeError, match=re.escape(f"{operation}(%p), channel_id=1, {attributes}")):
        groups_of("HloModule m\n" + text, 4)


def test_what_metadata_say_is_no_group() -> None:
    line = '%y = f32[4]{0} add(%p, %q), metadata={op_name="all-reduce(, replica_groups=x"}'
    assert groups_of(line, 4) == set()


def test_a_permutation_is_among_all() -> None:
    text = "%p = f32[1]{0} collective-permute(%x), channel_id=1, source_target_pairs={{0,2},{1,3}}"
    assert groups_of(text, 4) == {(0, 1, 2, 3)}


def test_a_program_without_collectives_has_no_groups() -> None:
    assert groups_of('%y = f32[4]{0} add(%all-reduce.1, %x), metadata={op_name="all-reduce"}', 4) == set()


@pytest.mark.parametrize("operation", ["all-reduce", "all-gather", "reduce-scatter", "all-reduce-start"])
def test_float16_is_refused_with_the_way_out(operation: str) -> None:
    for shape in ("f16[4]{0}", "(f32[2]{0}, f16[2]{0})"):
        line = f"  ROOT %x.1 = {shape} {operation}(%p), replica_groups={{{{0,1}}}}"
        with pytest.raises(TypeError, match=r"of float16 over ranks.*astype\(jnp.float32\)"):
            refuse_float16(line)
    refuse_float16(f"%a = f16[4] add(%b, %c)\n%x = bf16[4] {operation}(%p)\n%y = f16[4] all-to-all(%a)")


@pytest.mark.parametrize(
    ("instruction", "length"),
    [
        ("%y = f64[2147483647] all-reduce(%x), replica_groups={{0,1}}", None),
        ("%y = f64[2,1073741824]{1,0} all-reduce(%x), replica_groups={{0,1}}", "2147483648 elements"),
        ("%y = (f32[3], s32[65536,65536]{1,0}) all-reduce(%x, %z), replica_groups={}", "4294967296 elements"),
        ("%y = f32[2147483648] reduce-scatter(%x), replica_groups={}", "2147483648 elements"),
        ("%y = c64[268435455] collective-permute(%x), source_target_pairs={{0,1},{1,0}}", None),
        ("%y = c64[268435456] collective-permute(%x), source_target_pairs={{0,1},{1,0}}", "2147483648 bytes"),
        ("%y = (pred[2147483648], pred[1]) all-to-all(%x, %z), replica_groups={{0,1}}", "2147483648 bytes"),
        ("%y = f64[2,268435455] all-gather(%x), replica_groups={{0,1}}, dimensions={0}", None),
        ("%y = f64[2,268435456] all-gather(%x), replica_groups={{0,1}}, dimensions={0}", "2147483648 bytes"),
        ("%y = f64[268435456] add(%x, %x)", None),
    ],
)
def test_messages_that_xla_would_cut_off_are_refused(instruction: str, length: str | None) -> None:
    if length is None:
        refuse_large(instruction, 2)
    else:
        with pytest.raises(ValueError, match=rf"{length} in a message.*Make it smaller"):
            refuse_large(instruction, 2)


@pytest.mark.mpi
def test_large_messages_are_an_error_on_every_rank_and_the_job_goes_on() -> None:
    """The values are never computed: the program is refused before it runs."""
    job = run_ranks(
        PRELUDE
        + """
mesh = Mesh(np.array(devices), ("s",))
x = jax.jit(lambda: jnp.ones(2, jnp.int8), out_shardings=NamedSharding(mesh, P()))()
f = lambda x: lax.psum(jnp.broadcast_to(x[:1, None], (2**16, 2**15)), "s")[:1, 0]
try:
    print(jax.jit(shard_map(f, mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False))(x))
except ValueError as error:
    print("refused" if "2147483648 elements" in str(error) else error)
print(int(run(lambda x: lax.psum(x, "s"), mesh, P(), x).addressable_data(0)[0]))
""",
        2,
    ).ok()
    assert sorted(job.stdout.split()) == ["2", "2", "refused", "refused"]


@pytest.mark.mpi
def test_float16_is_an_error_on_every_rank_and_the_job_goes_on() -> None:
    body = """
    mesh = Mesh(np.array(devices), ("s",))
    values, x = array(mesh, P("s"), (2,))
    for _ in range(2):
        try:
            run(lambda x: lax.psum(x.astype(jnp.float16), "s"), mesh, P("s"), x)
        except TypeError as error:
            assert "all-reduce of float16 over ranks" in str(error)
        else:
            raise AssertionError
    np.testing.assert_allclose(own(run(lambda x: lax.psum(x, "s"), mesh, P("s"), x)), 3)
    """
    run_ranks(PRELUDE + textwrap.dedent(body) + END, 2).ok()


@pytest.mark.quick("mpich")
@pytest.mark.mpi
@pytest.mark.parametrize("mpi", PREFIXES)
def test_meshes_over_some_of_the_ranks(mpi: str) -> None:
    """Only their members run the programs; the groups overlap, in all orders, and come again in other meshes."""
    body = """
    for members in ([0, 1], [3, 1], [0, 2, 3], [1, 0], [2], [0, 1, 2, 3], [3, 2, 1, 0]):
        if rank in members:
            mesh = Mesh(np.array([devices[i] for i in members]), ("s",))
            values, x = array(mesh, P("s"), (len(members),))
            total = run(lambda x: lax.psum(x, "s"), mesh, P("s"), x)
            gathered = run(lambda x: lax.all_gather(x, "s", tiled=True).sum(keepdims=True) * x, mesh, P("s"), x)
            place = members.index(rank)
            np.testing.assert_allclose(own(total), values.sum())
            np.testing.assert_allclose(own(gathered), values.sum() * values[place])
    """
    run_ranks(PRELUDE + textwrap.dedent(body) + END, 4, mpi=mpi).ok()


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", PREFIXES)
def test_axes_of_a_mesh_over_some_of_the_ranks_in_any_order(mpi: str) -> None:
    """The order of the axes is that of the group's ranks; the last rank takes no part."""
    body = """
    for axes in (("b", "a"), ("a", "b"), "b", "a"):
        if rank < 4:
            mesh = Mesh(np.array(devices[:4]).reshape(2, 2), ("a", "b"))
            spec = P(("a", "b"))
            values, x = array(mesh, spec, (4,))
            members = np.arange(4).reshape(2, 2)
            members = members[rank // 2] if axes == "b" else members[:, rank % 2] if axes == "a" else members
            members = members.T.ravel() if axes == ("b", "a") else members.ravel()
            total = run(lambda x: lax.psum(x, axes), mesh, spec, x)
            np.testing.assert_allclose(own(total), values[members].sum())
            weights = jnp.arange(1.0, len(members) + 1)
            ordered = run(lambda x: (lax.all_gather(x, axes, tiled=True) * weights).sum(keepdims=True), mesh, spec, x)
            np.testing.assert_allclose(own(ordered), (values[members] * weights).sum())
    """
    run_ranks(PRELUDE + textwrap.dedent(body) + END, 5, mpi=mpi).ok()


@pytest.mark.mpi
def test_groups_that_only_some_ranks_have_made_before() -> None:
    """Ranks 0 and 1 know their half of the mesh's axis from a mesh of their own; 2 and 3 don't."""
    body = """
    if rank < 2:
        mesh = Mesh(np.array(devices[:2]), ("s",))
        values, x = array(mesh, P("s"), (2,))
        np.testing.assert_allclose(own(run(lambda x: lax.psum(x, "s"), mesh, P("s"), x)), 3)
    mesh = Mesh(np.array(devices).reshape(2, 2), ("a", "b"))
    values, x = array(mesh, P(("a", "b")), (4,))
    np.testing.assert_allclose(own(run(lambda x: lax.psum(x, "b"), mesh, P(("a", "b")), x)), [3, 3, 7, 7][rank])
    np.testing.assert_allclose(own(run(lambda x: lax.psum(x, "a"), mesh, P(("a", "b")), x)), [4, 6, 4, 6][rank])
    """
    run_ranks(PRELUDE + textwrap.dedent(body) + END, 4).ok()


@pytest.mark.mpi
def test_every_group_of_one_program_and_groups_of_one() -> None:
    body = """
    mesh = Mesh(np.array(devices).reshape(2, 2, 1), ("a", "b", "c"))
    spec = P(("a", "b"))
    values, x = array(mesh, spec, (4,))

    def work(x):
        a, b, both = lax.psum(x, "a"), lax.psum(x, "b"), lax.psum(x, ("b", "a"))
        alone = lax.all_gather(x, "c").sum(0) + lax.psum(x, "c")
        moved = lax.ppermute(x, "a", [(0, 1), (1, 0)])
        branch = lax.cond(both.sum() > 100, lambda: lax.pmax(x, "a"), lambda: -lax.pmax(x, "b"))
        return jnp.stack([a, b, both, alone, moved, branch], 1)

    expected = np.array([
        [4, 6, 4, 6], [3, 3, 7, 7], [10] * 4, [2, 4, 6, 8], [3, 4, 1, 2], [-2, -2, -4, -4],
    ]).T
    np.testing.assert_allclose(own(run(work, mesh, spec, x)), expected[[rank]])
    """
    run_ranks(PRELUDE + textwrap.dedent(body) + END, 4).ok()


@pytest.mark.mpi
def test_arrays_that_xla_partitions_by_itself() -> None:
    body = """
    mesh = Mesh(np.array(devices).reshape(2, 2), ("a", "b"))
    values, x = array(mesh, P("a", "b"), (8, 8))
    total, other = jax.jit(
        lambda x: (x.sum(0), x.T),
        out_shardings=(NamedSharding(mesh, P("b")), NamedSharding(mesh, P("a", "b"))),
    )(x)
    half = slice(4 * (rank % 2), 4 * (rank % 2) + 4)
    np.testing.assert_allclose(own(total), values.sum(0)[half])
    np.testing.assert_allclose(own(other), values.T[4 * (rank // 2) : 4 * (rank // 2) + 4, half])
    moved = jax.device_put(x, NamedSharding(Mesh(np.array(devices[::-1]), ("z",)), P("z")))
    np.testing.assert_allclose(own(moved), values[2 * (3 - rank) : 2 * (3 - rank) + 2])
    """
    # XLA of JAX 0.12 warns that JAX has no meshes with an order of their own, and takes them.
    run_ranks(PRELUDE + textwrap.dedent(body) + END, 4, TF_CPP_MIN_LOG_LEVEL="2").ok()


@pytest.mark.mpi
def test_a_mesh_that_the_script_has_set() -> None:
    """NetKet sets one; what we run must not depend on it, while groups are made and when the script has ended."""
    body = """
    jax.sharding.set_mesh(jax.make_mesh((4,), ("S",), axis_types=(jax.sharding.AxisType.Explicit,)))
    if rank < 2:
        mesh = Mesh(np.array(devices[:2]), ("s",))
        values, x = array(mesh, P("s"), (2,))
        np.testing.assert_allclose(own(x).sum(), rank + 1)
    mesh = jax.sharding.get_abstract_mesh()
    total = jax.jit(shard_map(lambda: lax.psum(lax.axis_index("S"), "S"), in_specs=(), out_specs=P()))()
    assert int(total) == 6
    """
    run_ranks(PRELUDE + textwrap.dedent(body) + END, 4).ok()


@pytest.mark.mpi
def test_threads_that_need_new_groups_at_once() -> None:
    """Rank 0 is in the groups of both threads, each other rank in those of one; each group is new."""
    job = run_ranks(
        PRELUDE
        + """
from concurrent.futures import ThreadPoolExecutor

def totals(groups):
    found = []
    for group in groups:
        if rank in group:
            mesh = Mesh(np.array([devices[r] for r in group]), ("s",))
            _, x = array(mesh, P("s"), (2,))
            for count in range(20):
                f = lambda x: lax.psum(lax.psum(x, "s") * count, "s")
                found.append(float(own(run(f, mesh, P("s"), x))[0]))
    return float(sum(found))

with ThreadPoolExecutor(2) as threads:
    print(list(threads.map(totals, [[(0, 1), (1, 0)], [(0, 2), (2, 0)]])))
"""
        + END,
        3,
        timeout=120,
    )
    total = 2 * 6.0 * sum(range(20))
    expected = [(total, total), (total, 0.0), (0.0, total)]
    assert sorted(job.ok().lines()) == sorted(f"[{one}, {other}]" for one, other in expected), job.stdout
