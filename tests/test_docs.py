"""The documents keep up with the code: all blocks run, and variables and options are those that exist."""

import ast
import json
import math
import os
import re
import sys
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.version import Version
from typer.main import get_command

from blocks import blocks, comments
from ferroket.cli import app
from mpi import environment, mpirun, run_command, run_ranks
from shell import check, make_home, run

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]
VARIABLES = ROOT / "docs" / "variables.md"
EXAMPLES = ROOT / "docs" / "examples.md"
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
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], **BY_NAME)
def test_python_blocks_run_and_say_what_comes_out(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if Version(version("netket")) < Version(NETKET.get(page.name, "0")):
        pytest.skip(f"its blocks are for NetKet {NETKET[page.name]}")
    monkeypatch.chdir(tmp_path)
    job = run_command([sys.executable, ROOT / "tests" / "blocks.py", page], environment(), 120)
    assert job.returncode == 0, job.stdout + job.stderr
    found = [json.loads(result) for result in re.findall("^RESULT (.*)$", job.stdout, re.MULTILINE)]
    said = [said for block in blocks(page, "python") for _, said in comments(block) if said]
    assert [result[2] for result in found] == said
    for expression, value, comment in found:
        assert value == comment, f"{expression} is {value}, and not {comment}"


@pytest.mark.mpi
def test_the_readmes_first_script_prints_what_is_said(tmp_path: Path) -> None:
    """On two ranks, with all of its steps: the energy is that of the page within its error, and near the exact one."""
    (said,) = re.findall(r"^\$ mpirun -n 2 python run.py\n(-\S+) ± (\S+) ", README.read_text(), re.MULTILINE)
    script = tmp_path / "run.py"
    script.write_text(blocks(README, "python")[0])
    job = run_ranks(script, 2, timeout=300)
    assert job.returncode == 0, job.stdout + job.stderr
    (found,) = re.findall(r"^(-\S+) ± (\S+) ", job.stdout, re.MULTILINE)
    (energy, error), (there, there_error) = (map(float, pair) for pair in (found, said))
    assert energy == pytest.approx(there, abs=3 * there_error)
    assert error == pytest.approx(there_error, rel=0.5)
    assert energy == pytest.approx(-2 / math.sin(math.pi / 40), rel=1e-3)


@pytest.mark.parametrize("file", [*PAGES, *sorted((ROOT / "examples").glob("*.py"))], **BY_NAME)
def test_scripts_make_updates_and_samples_as_ferroket_does(file: Path) -> None:
    """NetKet's driver is replaced by ``fk.enable()`` only, and a local rule leaves the sector of a magnetisation."""
    code = file.read_text() if file.suffix == ".py" else "\n".join(blocks(file, "python"))
    assert "nk.driver.VMC_SR(" not in code or "fk.enable()" in code
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
    there = {
        str(file.relative_to(folder)) for file in folder.rglob("*.*") if file.suffix in (".py", ".sh", ".yaml", ".def")
    }
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
        known = {option for parameter in command.params for option in parameter.opts}
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
