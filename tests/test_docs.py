"""The documents keep up with the code: shell blocks are right, variables and options are those that exist."""

import ast
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from ferroket.cli import app
from ferroket.local_energy import family

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
CLUSTER = ROOT / "docs" / "running-on-a-cluster.md"
OPERATORS = ROOT / "docs" / "operators.md"
LOCAL_ENERGY = ROOT / "docs" / "local-energy.md"
SAMPLING = ROOT / "docs" / "sampling.md"
README = ROOT / "README.md"

# Set by our own commands for the processes that they start.
INTERNAL = {"FERROKET_JOB", "FERROKET_OUTPUT", "FERROKET_BENCH_RESULT"}


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_shell_blocks_are_right(page: Path) -> None:
    checker = shutil.which("shellcheck")
    for block in blocks(page, "bash"):
        # Bash itself finds what isn't a script; shellcheck, where it is installed, what isn't a good one.
        # SC1091: it can't read what is sourced.
        command = [checker, "--shell=bash", "--exclude=SC1091", "-"] if checker else ["bash", "-n"]
        done = subprocess.run(command, input=block, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.name)
def test_python_blocks_compile(page: Path) -> None:
    for block in blocks(page, "python"):
        compile(block, page.name, "exec")


def results(code: str, names: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Runs code, and gives each expression with a comment behind it: the expression, its value, and the comment."""
    for statement in ast.parse(code).body:
        last = code.splitlines()[statement.end_lineno - 1]  # type: ignore[operator]
        comment = last.encode()[statement.end_col_offset :].decode().strip()
        if isinstance(statement, ast.Expr) and comment.startswith("# "):
            expression = ast.unparse(statement)
            yield expression, repr(eval(expression, names)), comment.removeprefix("# ")
        else:
            exec(compile(ast.Module([statement], []), "a block", "exec"), names)


@pytest.mark.parametrize(
    ("page", "words", "at_least"),
    [(OPERATORS, "", 10), (LOCAL_ENERGY, "", 4), (SAMPLING, "", 5), (README, "fk.accelerate|explain", 3)],
    ids=lambda value: value.name if isinstance(value, Path) else None,
)
def test_blocks_run_and_say_what_comes_out(
    page: Path, words: str, at_least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(family, "FAMILIES", list(family.FAMILIES))  # a page adds one
    names: dict[str, Any] = {}
    some = [block for block in blocks(page, "python") if re.search(words, block)]
    found = [result for block in some for result in results(block, names)]
    assert len(found) >= at_least
    for expression, value, said in found:
        assert value == said, f"{expression} is {value}, and not {said}"


def test_every_variable_is_in_the_table_and_none_else() -> None:
    sources = [
        file for folder in ("python", "rust") for file in (ROOT / folder).rglob("*") if file.suffix in (".py", ".rs")
    ]
    used = {name for file in sources for name in re.findall(r"FERROKET_[A-Z_]*[A-Z]", file.read_text())} - INTERNAL
    text = CLUSTER.read_text()
    variables = text[text.index("## Variables") :]
    assert set(re.findall(r"FERROKET_[A-Z_]*[A-Z]", variables)) == used
    assert set(re.findall(r"FERROKET_[A-Z_]*[A-Z]", text)) <= used


@pytest.mark.parametrize("page", [README, *PAGES], ids=lambda page: page.name)
def test_commands_and_their_options_exist(page: Path) -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    for name, rest in re.findall(r"\bferroket ([a-z]+)\b([^\n`]*)", page.read_text()):
        if name not in commands:
            assert not rest.strip().startswith("-"), f"ferroket {name}{rest}"
            continue
        known = {option for parameter in commands[name].params for option in parameter.opts}
        own = re.split(r"\brun\.py\b|#", rest)[0]
        assert {word for word in own.split() if word.startswith("-")} <= known, f"ferroket {name}{rest}"


def test_the_doctors_words_are_its_own() -> None:
    """Each line that a page quotes is one that the doctor can print."""
    source = (ROOT / "python" / "ferroket" / "distributed" / "doctor" / "judge.py").read_text()
    patterns = [pattern(node) for node in ast.walk(ast.parse(source)) if isinstance(node, ast.JoinedStr)]
    quoted = re.findall(r"^(?:ERROR|WARNING): (.*(?:\n  .*)*)", CLUSTER.read_text(), re.MULTILINE)
    assert len(quoted) >= 10
    for line in (" ".join(line.split()) for line in quoted):
        assert any(re.fullmatch(pattern, line) for pattern in patterns), line


def pattern(text: ast.JoinedStr) -> str:
    """The expression that an f-string's values match; one without enough words of its own matches nothing."""
    words = [part.value if isinstance(part, ast.Constant) else None for part in text.values]
    if sum(len(str(word)) for word in words if word) < len(" ranks share "):
        return r"\b\B"
    return "".join(".*" if word is None else re.escape(str(word)) for word in words)
