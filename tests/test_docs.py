"""The documents keep up with the code: all blocks run, and variables and options are those that exist."""

import ast
import math
import os
import re
import tomllib
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from packaging.version import Version
from typer.main import get_command

from ferroket.cli import app
from ferroket.distributed.info import single_process
from support.code_blocks import TUTORIALS, assert_blocks_run, blocks, comments
from support.mpi import mpirun, run_ranks
from support.shell_scripts import check, make_home, run

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md")), *TUTORIALS]
VARIABLES = ROOT / "docs" / "variables.md"
EXAMPLES = ROOT / "docs" / "examples.md"
BENCHMARKS = ROOT / "docs" / "benchmarks.md"
FIGURES = tomllib.loads((ROOT / "docs" / "figures.toml").read_text())["figure"]
BY_NAME = {"ids": lambda page: page.name}

# Pages that have what not every NetKet has: a driver that is saved.
NETKET = {"running-on-a-cluster.md": "3.23"}
# Set by our own commands for the processes that they start.
INTERNAL = {"FERROKET_JOB", "FERROKET_OUTPUT", "FERROKET_BENCH_RESULT"}


@pytest.mark.parametrize("page", PAGES, **BY_NAME)
def test_shell_blocks_are_good_shell(page: Path) -> None:
    for block in blocks(page, "bash"):
        check("#!/bin/bash\n" + block)


def ranks(command: str) -> int:
    """How many processes of run.py a command starts, where launchers start two."""
    if not re.search(r"\brun\.py\b", command) or command.startswith("ferroket job"):
        return 0
    if "--rank" in command:  # the others are not to be seen
        return 1
    return 2 if re.search(r"\b(mpirun|srun|launch)\b", command) else 1


@pytest.mark.mpi
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "bash")], **BY_NAME)
def test_shell_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two ranks on this node in the place of more, and stand-ins for what only a cluster has."""
    home = make_home(tmp_path / "home")
    monkeypatch.chdir(home / "job")
    for block in blocks(page, "bash"):
        # What isn't here: other nodes, many cores, a cluster's own MPI.
        here = re.sub(r" -hosts \S+", "", re.sub(r"-n \d+", "-n 2", block))
        here = re.sub(r"taskset -c \S+", f"taskset -c {min(os.sched_getaffinity(0))}", here).replace(
            "/opt/mpich", str(mpirun().parents[1])
        )
        lines, _ = run(
            home,
            ["bash", "-e", "-c", f'source "$HOME/venv/bin/activate"\n{here}'],
            timeout=120,
            SLURM_NTASKS="2",
            SLURM_CPUS_PER_TASK="1",
        )
        commands = [line.split("#")[0] for line in here.splitlines()]
        assert len(lines) == sum(ranks(command) for command in commands), here


@pytest.mark.quick("README.md")
@pytest.mark.parametrize(
    "page", [page for page in PAGES if blocks(page, "python") and page not in TUTORIALS], **BY_NAME
)
def test_python_blocks_run_and_say_what_comes_out(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if Version(version("netket")) < Version(NETKET.get(page.name, "0")):
        pytest.skip(f"its blocks are for NetKet {NETKET[page.name]}")
    monkeypatch.chdir(tmp_path)
    assert_blocks_run(page, 120)


@pytest.mark.mpi
def test_the_readmes_first_script_prints_what_is_said(tmp_path: Path) -> None:
    """On two ranks, with all of its steps: the energy is that of the page within its error, and near the exact one."""
    line = r"(-\S+) ± (\S+) \[σ²=(\S+), R̂=(\S+)\]$"
    (said,) = re.findall(rf"^\$ mpirun -n 2 python run.py\n{line}", README.read_text(), re.MULTILINE)
    script = tmp_path / "run.py"
    script.write_text(blocks(README, "python")[0])
    job = run_ranks(script, 2, timeout=300)
    assert job.returncode == 0, job.stdout + job.stderr
    (found,) = re.findall(rf"^{line}", job.stdout, re.MULTILINE)
    energy, error, variance, r_hat = map(float, found)
    there, there_error, there_variance, there_r_hat = map(float, said)
    assert energy == pytest.approx(there, abs=3 * there_error)
    assert error == pytest.approx(there_error, rel=0.5)
    assert variance == pytest.approx(there_variance, rel=0.5)
    assert r_hat == pytest.approx(there_r_hat, abs=0.03)
    for value in (energy, there):
        assert value == pytest.approx(-2 / math.sin(math.pi / 40), rel=1e-3)


@pytest.mark.parametrize("page", PAGES, **BY_NAME)
def test_exact_energies_are_right(page: Path) -> None:
    for sites, value in re.findall(r"-2 / sin\(π / (\d+)\) = (-\d+\.\d+)", page.read_text()):
        digits = len(value.partition(".")[2])
        assert f"{-2 / math.sin(math.pi / int(sites)):.{digits}f}" == value


def test_the_demos_line_is_right() -> None:
    """Its three numbers belong together; `tests/examples` runs the script."""
    (line,) = re.findall(r"^energy (\S+), exact (\S+), relative error (\S+)$", README.read_text(), re.MULTILINE)
    energy, exact = map(float, line[:2])
    assert f"{-2 / math.sin(math.pi / 40):.6f}" == line[1]
    assert f"{abs(energy / exact - 1):.1e}" == line[2]


@pytest.mark.parametrize("page", [README, ROOT / "docs" / "start-here.md"], **BY_NAME)
def test_what_runs_is_shown_as_it_is_printed(page: Path) -> None:
    """The lines of `print(info)`, and the versions with which the tests run on the lowest Python."""
    (block,) = re.findall(r"^```\n( *launcher: .*?)\n```$", page.read_text(), re.MULTILINE | re.DOTALL)
    shown = dict(line.strip().split(": ", 1) for line in block.splitlines())
    numbers = dict(pair.split(" ") for pair in shown["versions"].split(", "))
    info = replace(single_process(), reductions=shown["reductions"], versions=numbers)
    labels = [line.partition(": ")[0] for line in str(info).splitlines()]
    assert [line.partition(": ")[0] for line in block.splitlines()] == labels
    pins = (ROOT / "ci" / "newest-3.11.txt").read_text()
    installed = {name: number for name, number in numbers.items() if name != "ferroket"}
    assert installed == {name: re.search(rf"^{name}==(.*)$", pins, re.MULTILINE)[1] for name in installed}  # type: ignore[index]
    assert numbers["ferroket"] == version("ferroket")
    assert shown["kernels"] == f"Rust, ferroket {numbers['ferroket']}, avx512"
    (flag,) = re.findall(r"`(--xla_cpu_experimental_ynn\S+)`", VARIABLES.read_text())
    why = f"since jaxlib {numbers['jaxlib']} computes some of them wrong"
    assert shown["reductions"] == f"not by YNNPACK, {why} ({flag})"


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure["name"])
def test_pages_agree_on_a_figure(figure: dict[str, Any]) -> None:
    assert len(set(figure["pages"])) > 1
    for page in figure["pages"]:
        assert figure["text"] in " ".join((ROOT / page).read_text().split()), page


def rows(page: Path) -> list[list[str]]:
    """The rows of a page's tables of benchmarks: what, Ferroket's time, the other one, the ratio, and so on."""
    head = r"^\| what \| Ferroket \| compared with \|.*\n\|[-|]+\n"
    tables = re.findall(rf"{head}((?:\|.*\n)+)", page.read_text(), re.MULTILINE)
    return [[cell.strip() for cell in line.strip("|").split("|")] for table in tables for line in table.splitlines()]


def test_rows_of_benchmarks_are_figures() -> None:
    """A row that stands on another page than that of the benchmarks is in the list, with all of its pages."""
    texts = {figure["text"]: set(figure["pages"]) for figure in FIGURES}
    others = {page: rows(page) for page in PAGES if page != BENCHMARKS and rows(page)}
    assert len(others[README]) == 6
    for page, found in others.items():
        for row in found:
            assert texts[f"| {' | '.join(row)} |"] >= {str(page.relative_to(ROOT)), "docs/benchmarks.md"}


UNITS = {"µs": 1e-6, "ms": 1e-3, "s": 1.0}


def bounds(number: str) -> tuple[float, float]:
    """The least and the largest value that is rounded to a decimal number."""
    half = 0.5 * 10.0 ** -len(number.partition(".")[2])
    return float(number) - half, float(number) + half


def test_ratios_of_benchmarks_are_those_of_the_times() -> None:
    found = rows(BENCHMARKS)
    assert len(found) > 40
    assert len({(row[0], re.split(r" [\d.]+ ", row[2])[0]) for row in found}) == len(found)
    for row in found:
        times = []
        for cell in row[1:3]:
            *_, number, unit = cell.split()
            times.append([UNITS[unit] * bound for bound in bounds(number)])
        (least, most), (other_least, other_most) = times
        lowest, highest = bounds(row[3])
        assert other_least / most <= highest, row
        assert other_most / least >= lowest, row


def test_the_table_of_operators_has_the_ratio_of_the_benchmarks() -> None:
    (ratio,) = {row[3] for row in rows(BENCHMARKS) if "int8" in row[0] and "JAX" in row[2]}
    assert f"| Ising chain, 128 sites | {ratio} |" in (ROOT / "docs" / "operators.md").read_text()


def test_the_page_of_benchmarks_has_the_cases_of_whole_steps() -> None:
    """With the numbers of their parameters and samples."""
    from ferroket.bench.states import CASES, STEPS  # after pytest has read the file: this starts JAX

    lines = re.findall(r"^\| `([^`]+)` \| ([\d ]*) \| (\d+) \|", BENCHMARKS.read_text(), re.MULTILINE)
    told = {name: (int(parameters.replace(" ", "")), int(n)) for name, parameters, n in lines if parameters.strip()}
    spins = {name: case for name, case in (CASES | STEPS).items() if not name.startswith(("Fermi", "t-V", "H6"))}
    counted = {}
    for name, case in spins.items():
        sites = np.ones((1, case.hamiltonian().hilbert.size))
        variables = jax.eval_shape(case.model().init, jax.random.key(0), sites)
        counted[name] = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(variables["params"])), case.samples
    assert told == counted


RELEASES = re.compile(r"""pip install ['"]?ferroket|ferroket\[""")
PLACES = [
    *PAGES,
    *sorted(file for file in (ROOT / "examples").rglob("*") if file.suffix in (".py", ".sh", ".yaml", ".def")),
]


@pytest.mark.parametrize("file", PLACES, **BY_NAME)
def test_nothing_is_installed_from_a_release_that_isnt_there(file: Path) -> None:
    """Until the first release, whoever says how to install says that there is none."""
    text = " ".join(file.read_text().replace("#", " ").split())
    assert not RELEASES.search(text)
    if re.search(r"pip install '?\.[\[ `]|ferroket-\*\.whl", text):
        assert re.search(r"There is no release (of Ferroket )?yet|pip has installed an MPI", text)


def test_pages_name_the_versions_that_a_clone_needs() -> None:
    rust = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["rust-version"]
    python = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
    for name in ("README.md", "docs/index.md", "docs/start-here.md", "docs/running-on-a-cluster.md"):
        text = " ".join((ROOT / name).read_text().split())
        assert f"Python {python} or later" in text
        assert f"[Rust](https://rustup.rs) {rust} or later" in text


@pytest.mark.parametrize("file", [*PAGES, *sorted((ROOT / "examples").glob("*.py"))], **BY_NAME)
def test_scripts_make_updates_and_samples_as_ferroket_does(file: Path) -> None:
    """NetKet's driver is replaced when Ferroket is enabled only; a local rule leaves the sector of a magnetisation."""
    code = file.read_text() if file.suffix == ".py" else "\n".join(blocks(file, "python"))
    assert "nk.driver.VMC_SR(" not in code or "fk.enable()" in code or "ferroket run" in code
    assert "MetropolisLocal(" not in code.partition("total_sz")[2]


@pytest.mark.parametrize(
    ("page", "at_least"),
    [
        ("operators", 10),
        ("local-energy", 4),
        ("sampling", 5),
        ("natural-gradient", 9),
        ("arrays", 2),
        ("coming-from", 3),
    ],
)
def test_results_are_recognised(page: str, at_least: int) -> None:
    """The test above would pass if no comment were taken for a result."""
    code = blocks(ROOT / "docs" / f"{page}.md", "python")
    assert sum(said is not None for block in code for _, said in comments(block)) >= at_least


def test_every_example_is_on_the_page() -> None:
    folder = ROOT / "examples"
    kinds = (".py", ".sh", ".yaml", ".def", ".eb")
    there = {str(file.relative_to(folder)) for file in folder.rglob("*.*") if file.suffix in kinds}
    assert set(re.findall(r"\(\.\./examples/(\S+)\)", EXAMPLES.read_text())) == there
    # And what the tables of the guides' sections name exists.
    named = set(re.findall(r"`([\w-]+\.(?:py|sh|yaml|def))`", EXAMPLES.read_text()))
    assert named <= {Path(name).name for name in there}


def test_every_variable_is_in_the_table_and_none_else() -> None:
    sources = [
        file for folder in ("python", "rust") for file in (ROOT / folder).rglob("*") if file.suffix in (".py", ".rs")
    ]
    used = {name for file in sources for name in re.findall(r"FERROKET_[A-Z_]*[A-Z]", file.read_text())} - INTERNAL
    assert set(re.findall(r"FERROKET_[A-Z_]*[A-Z]", VARIABLES.read_text())) == used
    for page in PAGES:
        assert set(re.findall(r"FERROKET_[A-Z_]*[A-Z]", page.read_text())) <= used


@pytest.mark.parametrize("page", PAGES, **BY_NAME)
def test_commands_and_their_options_exist(page: Path) -> None:
    for words in re.findall(r"(?<!import )\bferroket ([a-z][^\n`]*)", page.read_text()):
        command, rest = get_command(app), re.split(r"\brun\.py\b|#|\|", words)[0].split()
        while rest and rest[0] in getattr(command, "commands", {}):
            command = command.commands[rest.pop(0)]  # type: ignore[attr-defined]
        assert not getattr(command, "commands", {}) or not rest or rest[0].startswith(("-", "...")), f"ferroket {words}"
        known = {option for parameter in command.params for option in [*parameter.opts, *parameter.secondary_opts]}
        assert {word for word in rest if word.startswith("-")} <= known, f"ferroket {words}"


def test_the_doctors_words_are_its_own() -> None:
    """Each line that a page quotes is one that the doctor can print."""
    doctor = ROOT / "python" / "ferroket" / "distributed" / "doctor"
    trees = [ast.parse((doctor / name).read_text()) for name in ("diagnosis.py", "performance.py")]
    patterns = [pattern(node) for tree in trees for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)]
    text = "".join(page.read_text() for page in PAGES)
    quoted = re.findall(r"^(?:ERROR|WARNING): (.*(?:\n  .*)*)", text, re.MULTILINE)
    assert len(quoted) >= 10
    for line in (" ".join(line.split()) for line in quoted):
        assert any(re.fullmatch(pattern, line) for pattern in patterns), line


def pattern(text: ast.JoinedStr) -> str:
    """The expression that an f-string's values match; one without enough words of its own matches nothing."""
    words = [part.value if isinstance(part, ast.Constant) else None for part in text.values]
    if sum(len(str(word)) for word in words if word) < len(" ranks share "):
        return r"\b\B"
    return "".join(".*" if word is None else re.escape(str(word)) for word in words)
