"""Ranks that run different programs are stopped before a number of one becomes part of another's."""

import re
import textwrap
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from ferroket import _lib
from ferroket.distributed import programs
from support.mpi import MPIS, run_ranks

PRELUDE = """
import ferroket as fk
info = fk.initialize()
import os
import jax, jax.numpy as jnp, numpy as np
import jax.experimental.custom_partitioning
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
rank, size = info.rank, info.size
mesh = jax.make_mesh((size,), ("S",))
def spread(values):
    return jax.make_array_from_process_local_data(NamedSharding(mesh, P("S")), np.asarray(values))
def on_each(f, out=P()):
    return jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("S"), out_specs=out, check_vma=False))
def show(x):
    print("NUMBER", float(np.asarray(x.addressable_data(0) if isinstance(x, jax.Array) else x).ravel()[0]), flush=True)
x = spread(np.ones(4, np.float32))
"""


def both(first: str, second: str, out: str = "P()") -> str:
    """The program ``first`` on rank 0 and ``second`` on the others, of values that differ."""
    return (
        f"a, b = spread(np.full(1, 10.0)), spread(np.full(1, 1.0))\n"
        f"f = (lambda a, b: {second}) if rank else (lambda a, b: {first})\n"
        f"show(jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P('S'), out_specs={out}, check_vma=False))(a, b))"
    )


WRONG = {
    "other operands": (both("lax.psum(a - b, 'S')", "lax.psum(b - a, 'S')"), set(), ["jit__lambda"]),
    "another order of functions": (
        both("lax.psum(jnp.sin(jnp.exp(b)), 'S')", "lax.psum(jnp.exp(jnp.sin(b)), 'S')"),
        set(),
        ["jit__lambda"],
    ),
    "other pairs of a permutation": (
        both("lax.ppermute(a, 'S', [(0, 1)])", "lax.ppermute(a, 'S', [(0, 1), (1, 0)])", "P('S')"),
        {"0.0"},  # rank 0 receives nothing
        ["jit__lambda"],
    ),
    "one rank computes alone": (
        "show(x.sum())\nif rank == 0:\n    show((10 * x).sum())\nshow(x.sum())",
        {"8.0", "80.0"},
        ["jit__reduce_sum", "jit_multiply"],
    ),
    "it has done so before": (
        "both = [show((10 * x).sum()), show(x.sum())]\nif rank == 0:\n    show((10 * x).sum())\nshow(x.sum())",
        {"8.0", "80.0"},
        ["jit__reduce_sum", "jit_multiply"],
    ),
    "loops of different length": (
        "for i in range(2 + rank):\n    y = (x + i).sum()\nshow((x * x).max() + y)",
        {"13.0", "25.0"},
        ["jit__reduce_sum"],
    ),
    "another branch": (
        both(*["lax.cond(lax.axis_index('S') == 0, lambda: lax.psum(a, 'S'), lambda: lax.psum(jnp.sin(b), 'S'))"] * 2),
        set(),
        ["jit__lambda"],
    ),
    "a branch without a sum": (
        both(*["lax.psum(lax.cond(lax.axis_index('S') == 0, lambda: lax.psum(a, 'S'), lambda: b), 'S')"] * 2),
        set(),
        ["jit__lambda"],
    ),
    "another round of a loop": (
        both(*["lax.psum(lax.fori_loop(0, 2 + lax.axis_index('S'), lambda i, s: lax.psum(s, 'S'), a), 'S')"] * 2),
        set(),
        ["jit__lambda"],
    ),
    "another shape": ("show((x if rank else spread(np.ones(8, np.float32))).sum())", set(), ["jit__reduce_sum"]),
    "another type": ("show((x if rank else x.astype(jnp.int32)).sum())", set(), ["float32", "int32"]),
    "another operation": ("show(x.max() if rank else x.sum())", set(), ["jit__reduce_max", "jit__reduce_sum"]),
    "another kind of call": (
        "f = on_each(lambda x: lax.all_gather(x, 'S')) if rank else on_each(lambda x: lax.psum(x, 'S'))\nshow(f(x))",
        set(),
        ["MPI_Allgather", "MPI_Allreduce"],
    ),
    "another message": (
        "n = 1 + rank\ndef f(x):\n    return n * lax.ppermute(x, 'S', [(0, 1), (1, 0)])\n"
        "def g(x):\n    return lax.ppermute(x + 1, 'S', [(0, 1), (1, 0)])\nshow(on_each(g if rank else f, P('S'))(x))",
        set(),
        ["jit_"],
    ),
    "an extra expect": (
        """
        import netket as nk
        fk.enable()
        hilbert = nk.hilbert.Spin(0.5, 6)
        ising = nk.operator.Ising(hilbert, nk.graph.Chain(6), h=1.0)
        state = nk.vqs.MCState(nk.sampler.MetropolisLocal(hilbert, n_chains=8), nk.models.RBM(), n_samples=64, seed=1)
        energy = state.expect(ising)
        if rank == 0:
            state.sample()
            print("NUMBER", float(state.expect(ising).mean.real) * 0, flush=True)
        print("NUMBER", float(state.expect_and_grad(ising)[0].mean.real) * 0, flush=True)
        """,
        set(),
        ["rank 0 ", "rank 1 "],
    ),
}


@pytest.mark.mpi
@pytest.mark.quick("mpich-one rank", "mpich-another message")
@pytest.mark.parametrize("case", WRONG)
@pytest.mark.parametrize("mpi", MPIS)
def test_no_wrong_number_is_printed(mpi: str, case: str) -> None:
    script, right, told = WRONG[case]
    job = run_ranks(PRELUDE + textwrap.dedent(script), 2, mpi=mpi, timeout=80)
    assert job.returncode != 0, job.stdout + job.stderr
    assert set(re.findall(r"NUMBER (\S+)", job.stdout)) <= right, job.stdout
    assert "the ranks are in different calls of MPI" in job.stderr, job.stderr
    # Who only sends in a permutation finds no difference.
    finders = ["rank 1 ("] if "permutation" in case else ["rank 0 (", "rank 1 ("]
    for text in [*finders, *told]:
        assert text in job.stderr, job.stderr


RIGHT = """
branches = lambda x: lax.cond(x[0] > 0, lambda: lax.psum(x, "S"), lambda: lax.pmax(x, "S"))  # all take the same
assert float(on_each(branches)(x)[0]) == size
def steps(x):
    return lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, branches(s[1]) / size), (0, x))[1]
assert float(on_each(steps)(x)[0]) == 1
if rank == 0:  # what each rank has whole is looked at by one alone
    total = x.sum()
    whole = (total * 2).real
else:
    total = x.sum()
assert float(x.sum()) == 4 * size
some = Mesh(np.array(jax.devices()[:2]), ("S",))
if rank < 2:  # programs of some ranks, in between
    y = jax.make_array_from_process_local_data(NamedSharding(some, P("S")), np.ones(1 + 0 * rank))
    for _ in range(3):
        assert float((y * 2).sum()) == 4
assert float((x * 3).sum()) == 12 * size
alone = jnp.arange(3.0 + rank).sum()  # one of this rank alone, another on each
assert float(jax.jit(lambda x: (x + rank).sum())(x)) >= 0  # constants may differ
# functions of this process, at other addresses on each
called = on_each(lambda x: lax.psum(jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x).sum(), "S"))
assert abs(float(called(x)) - 4 * size * np.sin(1)) < 1e-5
def summed(x):
    if os.environ["FERROKET_CHECK"] == "on":  # which registers this handler
        jax.ffi.ffi_call("ferroket_program", (), has_side_effect=True)(pointer=np.int64(1234 + rank))
    return lax.psum(x.sum(), "S")
summed.__name__ = summed.__qualname__ = f"loss_of_rank_{rank}"
summed = on_each(summed)
if rank == 0:  # the same lowering, compiled once more
    summed.lower(x).compile(compiler_options={"xla_cpu_enable_fast_math": True})
assert float(summed(x)) == 4 * size
partitioned = jax.experimental.custom_partitioning.custom_partitioning(lambda x: 2 * x)
partitioned.def_partition(
    partition=lambda mesh, arguments, result: (mesh, lambda x: 2 * x, result.sharding, (arguments[0].sharding,)),
    sharding_rule="i -> i")
assert float(jax.jit(lambda x: partitioned(x).sum())(x)) == 8 * size
rounds = on_each(lambda x: lax.fori_loop(0, 5, lambda i, s: lax.psum(s, "S") / size + lax.ppermute(
    s, "S", [(i, (i + 1) % size) for i in range(size)]), x).sum(), P())
assert float(rounds(x)) == 4 * 2**5
for n in (1, 29, 30, 31, 60, 61, 1000, 100000):
    for dtype in (np.float32, np.float64, np.complex64, np.complex128, np.int8, np.uint16, np.int64):
        values = (np.arange(n) % 5).astype(dtype)
        for f, result in ((lax.psum, size * values), (lax.pmax, values), (lax.pmin, values)):
            if not (f is not lax.psum and np.issubdtype(dtype, np.complexfloating)):
                found = on_each(lambda x: f(x, "S"), P())(spread(values))
                assert np.array_equal(np.asarray(found), result), (n, dtype, f)
print("RIGHT")
"""


@pytest.mark.mpi
@pytest.mark.quick("mpich-on")
@pytest.mark.parametrize("check", ["on", "off"])
@pytest.mark.parametrize("mpi", MPIS)
def test_no_false_alarm(mpi: str, check: str) -> None:
    job = run_ranks(PRELUDE + RIGHT, 3, mpi=mpi, timeout=240, FERROKET_CHECK=check).ok()
    assert job.stdout.count("RIGHT") == 3


NAN = """
jax.config.update("jax_debug_nans", True)
def log_of_part(x):
    return jnp.log(x - 0 * x.mean())
y = jax.jit(log_of_part)(spread(np.full(1, 1 - 2.0 * rank)))
show(jnp.exp(y).sum())
"""


@pytest.mark.mpi
@pytest.mark.parametrize("mpi", MPIS)
def test_a_nan_on_one_rank_is_an_error_there(mpi: str) -> None:
    job = run_ranks(PRELUDE + NAN, 2, mpi=mpi)
    assert job.returncode != 0
    assert "NUMBER" not in job.stdout
    assert "FloatingPointError: invalid value (nan) encountered in the output of log_of_part on process 1" in job.stderr
    assert "different calls of MPI" not in job.stderr


@pytest.mark.parametrize(("spec", "is_whole"), [(P(), True), (P("S"), False), (P(None, "S"), False)])
def test_programs_on_values_that_each_device_has_whole(spec: P, is_whole: bool) -> None:
    sharding = NamedSharding(jax.make_mesh((1,), ("S",)), spec)
    module = jax.jit(lambda x: x + 1, in_shardings=sharding, out_shardings=sharding).lower(jnp.ones((2, 2)))
    operations = module.compiler_ir("stablehlo").body.operations
    main = next(operation for operation in operations if programs._name_of(operation) == "main")
    assert programs._is_whole(main) is is_whole


HLO = """HloModule jit_f, is_scheduled=true

%sums (p: f32[]) -> f32[] {{
  %p = f32[] parameter(0)
  ROOT %r = f32[] all-reduce(%p), channel_id=1, replica_groups={{{{0,1}}}}, to_apply=%add
}}

%loop (p: f32[]) -> f32[] {{
  ROOT %c = f32[] call(%p), to_apply=%sums
}}

ENTRY %main.0_spmd (x: f32[]) -> f32[] {{
  %x = f32[] parameter(0)
  %marker = s64[4]{{0}} constant({{{marker}, -5, 3, 0}})
  {before}
  %g = s64[4]{{0}} all-gather(%marker), replica_groups={{{{0}}}}, dimensions={{0}}
  ROOT %z = f32[] all-reduce(%x), channel_id=2, replica_groups={{{{0,1}}}}, to_apply=%add
}}
"""


@pytest.mark.parametrize(
    ("before", "is_late"),
    [
        ("%y = f32[] add(%x, %x)", False),
        ("%y = f32[] all-reduce(%x), channel_id=3, replica_groups={{0,1}}, to_apply=%add", True),
        ("%y = f32[] while(%x), condition=%c, body=%loop", True),
        ("%y = f32[] conditional(%x), branch_computations={%other, %sums}", True),
        ("%y = f32[] call(%x), to_apply=%add", False),
        # Attributes of a call, of which each letter was once looked at as often as there are letters.
        pytest.param(f'%y = f32[] custom-call(%x), backend_config="{"w" * 500_000}"', False, id="long"),
    ],
)
def test_markers_that_come_late(before: str, is_late: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    from ferroket.distributed.communicators import _COLLECTIVE

    noted: list[int] = []
    monkeypatch.setattr(_lib, "compare_at_marker", noted.append)
    marker = _lib.program_marker(0, [], "own")[0]
    programs.compare_late_marker(HLO.format(marker=marker, before=before), lambda line: bool(_COLLECTIVE.search(line)))
    assert noted == ([2**64 - 5] if is_late else [])


def test_thousands_of_ranks_in_two_places_are_described_in_two_places() -> None:
    size = 4096
    stack = "\n".join(f'  File "/home/user/project/run.py", line {n}, in function_{n}' for n in range(25))
    places = ["MPI_Allreduce of 1 float32 (4 bytes) over all ranks, in jit_f", "MPI_Allgather over all ranks, in jit_g"]
    found = {rank: (places[rank == 7], 5, f"digest{rank == 7}", 1) for rank in range(size)}
    hosts = [f"node{rank // 64}" for rank in range(size)]
    text = programs.describe_difference(found, {"digestFalse": stack, "digestTrue": "  File other"}, hosts)
    assert f"ranks 0-6, 8-4095 (node0, node1, node2, node3 and 60 more) are in {places[0]}\n{stack}\n" in text
    assert f"rank 7 (node0) is in {places[1]}\n  File other\n" in text
    assert "PYTHONHASHSEED" not in text
    everywhere = {rank: ("call", rank, "d", rank) for rank in range(size)}
    text = programs.describe_difference(everywhere, {"d": stack}, hosts)
    assert "(and 4088 more places)" in text
    assert "PYTHONHASHSEED" in text
    assert len(text) < 20_000


def test_where_the_script_compiled() -> None:
    assert programs._user_line().startswith(f"at {Path(__file__)}:")


def test_kinds_of_programs() -> None:
    with pytest.raises(ValueError, match='spread, whole, own or place, not "other"'):
        _lib.program_marker(1, [2], "other")
