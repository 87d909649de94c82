"""Sums on CPUs: some versions of jaxlib compute them wrong, and Ferroket sets the flag of XLA's that prevents it.

They run with each list of versions, the lowest and the newest.
"""

import os
from importlib.metadata import version
from pathlib import Path

import pytest

from ferroket._compat import jaxlib
from ferroket.distributed.doctor.reductions import _difference
from support.mpi import run_alone, run_ranks

FLAG = "--xla_cpu_experimental_ynn_fusion_type"
RIGHT = f"{FLAG}=individual_dot"

# Prints which of the doctor's computations differ from NumPy's; the example of jax-ml/jax issue 39103 is beside them.
COMPARE = """
import numpy as np, jax, jax.numpy as jnp
from ferroket.distributed.doctor.reductions import compare
jax.config.update("jax_enable_x64", True)
rows = np.stack([np.arange(16385.0), np.zeros(16385), np.zeros(16385)], axis=1)
sums = jax.jit(lambda x: jax.vmap(lambda row: jnp.sum((jnp.eye(3) @ row) ** 2))(x))(rows)
print("rows", int(np.sum(np.asarray(sums) != rows[:, 0] ** 2)))
print("wrong", sorted({c.name.partition(" ")[0] for c in compare(1, lambda x: [x]) if c.wrong}))
"""


@pytest.mark.quick
@pytest.mark.parametrize("start", ["import ferroket", "import jax, ferroket", "import ferroket as fk; fk.initialize()"])
def test_sums_are_right_as_soon_as_ferroket_is_imported(start: str) -> None:
    assert run_alone(f"{start}\n{COMPARE}").ok().lines() == ["rows 0", "wrong []"]


def test_without_the_flag_they_are_wrong_where_the_table_says_so() -> None:
    """So it also fails when a version in the lists is wrong, and isn't in the table."""
    job = run_alone(f"import jax; jax.devices()\nimport ferroket, os; assert 'XLA_FLAGS' not in os.environ\n{COMPARE}")
    assert job.returncode == 0, job.stderr
    if not jaxlib.is_wrong(version("jaxlib")):
        assert (job.lines(), job.stderr) == (["rows 0", "wrong []"], "")
        return
    assert "'maxima', " in job.lines()[1]
    assert "'sum((E'" in job.lines()[1]
    assert job.stderr.count("RuntimeWarning") == 1
    assert f"jaxlib {version('jaxlib')} computes some sums wrong on CPUs" in job.stderr
    assert (
        f"Move `import ferroket` above netket and above what uses jax, or set the variable XLA_FLAGS={RIGHT}"
        in job.stderr
    )


@pytest.mark.mpi
@pytest.mark.quick
def test_sums_are_right_on_two_ranks() -> None:
    job = run_ranks(
        """
import ferroket as fk
info = fk.initialize()
import json
from ferroket._lib import attach_mpi
from ferroket.distributed.doctor.reductions import compare
from ferroket.distributed.library import search_prefixes
from ferroket.distributed.process_group import MpiProcessGroup
group = MpiProcessGroup(attach_mpi(search_prefixes()))
compared = compare(info.size, lambda own: [json.loads(part) for part in group.allgather(json.dumps(own).encode())])
print(len(compared), [c.name for c in compared if c.wrong])
""",
        2,
    )
    assert job.ok().lines() == ["24 []", "24 []"]


@pytest.mark.mpi
@pytest.mark.skipif(not jaxlib.is_wrong(version("jaxlib")), reason="this jaxlib needs no flag, or doesn't know it")
def test_ranks_with_different_flags_are_stopped() -> None:
    script = f"""
import os
if os.environ["PMI_RANK"] == "1":
    os.environ["XLA_FLAGS"] = "{FLAG}="
import ferroket as fk
fk.initialize()
"""
    job = run_ranks(script, 2)
    assert job.returncode != 0
    assert f"the ranks disagree: {FLAG} in XLA_FLAGS is 'individual_dot' on rank 0 and '' on rank 1" in job.stderr


@pytest.mark.parametrize(
    ("number", "wrong"),
    [
        *[(right, False) for right in ("0.7.0", "0.8.1", "0.9.2", "0.10.0", "0.10.1", "0.12.1", "0.13.0", "1.0")],
        *[(wrong, True) for wrong in ("0.10.2", "0.11.0", "0.11.1", "0.11.2", "0.12.0", "0.12.0.1", "0.11.2.dev3")],
    ],
)
def test_versions(number: str, wrong: bool) -> None:
    assert jaxlib.is_wrong(number) is wrong


@pytest.fixture
def before_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process with a wrong jaxlib, in which JAX hasn't started, and no flags."""
    monkeypatch.setattr(jaxlib, "_version", lambda: "0.10.2")
    monkeypatch.setattr(jaxlib, "is_backend_started", lambda: False)
    monkeypatch.delenv("XLA_FLAGS", raising=False)


@pytest.mark.usefixtures("before_jax")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", RIGHT),
        ("--xla_a=1  --xla_b=2", f"--xla_a=1  --xla_b=2 {RIGHT}"),
        (f"{FLAG}_of_another=1", f"{FLAG}_of_another=1 {RIGHT}"),
        *[
            (own, own)
            for own in (f"{FLAG}=", f"--xla_a=1 {FLAG}=reduce,individual_dot", f"{FLAG}=-reduce --xla_b=2", RIGHT)
        ],
    ],
)
def test_a_setting_of_the_users_stays(monkeypatch: pytest.MonkeyPatch, before: str, after: str) -> None:
    monkeypatch.setenv("XLA_FLAGS", before)
    jaxlib.correct_reductions()
    jaxlib.correct_reductions()  # in a child process
    assert os.environ["XLA_FLAGS"] == after


@pytest.mark.usefixtures("before_jax")
def test_flags_in_a_file_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "flags"
    file.write_text("--xla_a=1\n--xla_b=2\n")
    monkeypatch.setenv("XLA_FLAGS", str(file))
    jaxlib.correct_reductions()
    assert os.environ["XLA_FLAGS"] == f"--xla_a=1 --xla_b=2 {RIGHT}"


@pytest.mark.usefixtures("before_jax")
def test_it_is_said_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="ferroket"):
        jaxlib.correct_reductions()
        jaxlib.correct_reductions()
    assert [record.getMessage() for record in caplog.records] == [
        f"jaxlib 0.10.2 computes some sums wrong on CPUs: {RIGHT} in XLA_FLAGS prevents it"
    ]
    assert jaxlib.explain_reductions() == f"not by YNNPACK, since jaxlib 0.10.2 computes some of them wrong ({RIGHT})"
    monkeypatch.setenv("XLA_FLAGS", f"{FLAG}=reduce")
    assert jaxlib.explain_reductions() == f"some may be wrong: jaxlib 0.10.2, with {FLAG}=reduce set by the user"
    monkeypatch.delenv("XLA_FLAGS")
    assert jaxlib.explain_reductions() == "some are wrong: jaxlib 0.10.2, and XLA's flag came too late"


@pytest.mark.usefixtures("before_jax")
@pytest.mark.parametrize("number", ["0.7.0", "0.12.1", None])
def test_other_versions_are_left_alone(monkeypatch: pytest.MonkeyPatch, number: str | None) -> None:
    """XLA ends a process with a flag that it doesn't know."""
    monkeypatch.setattr(jaxlib, "_version", lambda: number)
    jaxlib.correct_reductions()
    assert "XLA_FLAGS" not in os.environ
    assert jaxlib.explain_reductions() is None


def test_a_difference_is_the_worst_of_all_calls() -> None:
    """Where threads are in each other's way, not each call is wrong."""
    results = iter([[1.0, 2.0]] * 4 + [[1.0, 2.5], [1.25, 2.0]] + [[1.0, 2.0]] * 4)
    assert _difference(lambda: next(results), [1.0, 2.0], 1e-9) == "2.5 in place of 2"
    assert _difference(lambda: [1.0, 2.0 + 1e-10], [1.0, 2.0], 1e-9) == ""
    assert _difference(lambda: [float("nan"), 2.0], [1.0, 2.0], 1e-9) == "nan in place of 1"
