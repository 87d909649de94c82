"""Which part of ci/schedule.txt is run at a commit."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILE = ROOT / "ci" / "parts.py"
_spec = importlib.util.spec_from_file_location("parts", FILE)
assert _spec
assert _spec.loader
parts = sys.modules["parts"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(parts)

SCHEDULE = parts.read(parts.SCHEDULE.read_text())
EXAMPLE = parts.read("# a comment\nt ONLY='a b'\n  a/ b/c.py\nu\n  b/\n  d/\nv w\n  b/ e\n")


def test_a_schedule_is_read() -> None:
    assert [(part.goals, part.paths) for part in EXAMPLE] == [
        ("t ONLY='a b'", ("a/", "b/c.py")),
        ("u", ("b/", "d/")),
        ("v w", ("b/", "e")),
    ]


def test_changes_are_read() -> None:
    """Of two commits, with a file that isn't text, one that has been moved, and one that both change."""
    log = "3\t4\ta/x\0-\t-\tb/y\0\x001\t2\t\0a/old\0b/new\0\x0010\t0\ta/x\0"
    assert parts.changes(log) == {"a/x": 17, "b/y": 1, "b/new": 3}


@pytest.mark.parametrize(
    ("changed", "chosen"),
    [
        # By turn: the third, sixth, ninth and twelfth have the next part, whatever has changed.
        ({"a/x": 5, "d/x": 4}, [0, 0, 1, 0, 0, 2, 0, 0, 0, 0, 0, 1]),
        ({"a/x": 5, "d/x": 6}, [1, 1, 1, 1, 1, 2, 1, 1, 0, 1, 1, 1]),
        ({"d/x": 6, "e": 7, "f": 90}, [2, 2, 1, 2, 2, 2, 2, 2, 0, 2, 2, 1]),
        ({"b/c.py": 1}, [1, 2, 1, 0, 1, 2, 2, 0, 0, 1, 2, 1]),
        ({"b/x": 2, "a/x": 1}, [2, 1, 1, 2, 1, 2, 2, 1, 0, 2, 1, 1]),
        ({"f": 9}, [1, 2, 1, 1, 2, 2, 1, 2, 0, 1, 2, 1]),
        ({}, [1, 2, 1, 1, 2, 2, 1, 2, 0, 1, 2, 1]),
    ],
    ids=["first", "second", "third", "all alike", "two alike", "none", "nothing"],
)
def test_choice(changed: dict[str, int], chosen: list[int]) -> None:
    assert [parts.choose(EXAMPLE, changed, count)[0] for count in range(1, 13)] == chosen


def test_reasons() -> None:
    assert parts.choose(EXAMPLE, {"a/x": 5, "z": 1}, 4) == (0, "5 of 6 changed lines")
    assert parts.choose(EXAMPLE, {"a/x": 5}, 6) == (2, "in turn")
    assert parts.choose(EXAMPLE, {"z": 5}, 5) == (2, "in turn, since no part is changed")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("python/ferroket/operator/ising.py", {0}),
        ("rust/mpi-abi/src/groups.rs", {1, 3, 6}),
        ("python/ferroket/distributed/startup.py", {1, 6}),
        ("python/ferroket/sampler/metropolis.py", {2}),
        ("docs/start-here.md", {4}),
        ("ci/lowest.txt", {4, 5}),
        ("ci/newest-3.12.txt", {7, 8}),
        ("pyproject.toml", {4, 5, 7, 8}),
        ("python/ferroket/natural_gradient/ntk.py", {3, 5, 8}),
    ],
)
def test_what_a_change_has_tested(path: str, expected: set[int]) -> None:
    """In the 27 commits of a turn each part is run, and those of this path at the other 18."""
    chosen = [parts.choose(SCHEDULE, {path: 1}, count)[0] for count in range(27)]
    assert set(chosen[::3]) == set(range(9))
    assert set(chosen[1::3] + chosen[2::3]) == expected


def test_paths_of_the_schedule_are_there() -> None:
    missing = [path for part in SCHEDULE for path in part.paths if not any(ROOT.glob(f"{path.rstrip('/')}*"))]
    assert missing == []
    folders = {path for part in SCHEDULE for path in part.paths if (ROOT / path).is_dir()}
    assert [path for path in sorted(folders) if not path.endswith("/")] == []


def test_all_sources_and_tests_are_in_the_schedule() -> None:
    files = [
        *ROOT.glob("python/ferroket/*/*.py"),
        *ROOT.glob("python/ferroket/*.py*"),
        *ROOT.glob("rust/*/src/**/*.rs"),
        *ROOT.glob("tests/*/*.py"),
        *ROOT.glob("ci/*.txt"),
    ]
    known = tuple(path for part in SCHEDULE for path in part.paths)
    names = [str(file.relative_to(ROOT)) for file in files]
    assert len(names) > 500
    outside = [name for name in names if not name.startswith((*known, "tests/netket_tests/"))]
    assert outside == ["ci/schedule.txt", "ci/stubtest.txt"]


def test_goals_are_targets_of_make() -> None:
    targets = set(re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE))
    targets = {name for line in targets for name in line.split()}
    goals = [re.sub(r'\w+="[^"]*"', "", part.goals).split() for part in SCHEDULE]
    assert all(goals)
    assert {name for names in goals for name in names} <= targets


def test_it_runs_in_a_repository(tmp_path: Path) -> None:
    """Of commits that change one file each; only those since CI_BASE count, if it is set."""
    (tmp_path / "ci").mkdir()
    for name in ("parts.py", "schedule.txt"):
        (tmp_path / "ci" / name).write_text((FILE.with_name(name)).read_text())

    def run(*command: str, **env: str) -> str:
        who = {f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        env = {"PATH": os.environ["PATH"], **who, **env}
        done = subprocess.run(command, cwd=tmp_path, env=env, check=True, text=True, capture_output=True)
        return done.stdout.strip()

    def commit(file: str, lines: int) -> None:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("a line\n" * lines)
        run("git", "add", file)
        run("git", "commit", "--quiet", "--message", file)

    run("git", "init", "--quiet")
    commit("python/ferroket/operator/a.py", 30)
    commit("python/ferroket/sampler/a.py", 20)
    run("git", "mv", "python/ferroket/sampler/a.py", "python/ferroket/sampler/b.py")
    run("git", "commit", "--quiet", "--message", "moved")
    commit("elsewhere", 50)
    assert run(sys.executable, str(tmp_path / "ci/parts.py")) == "0 30 of 100 changed lines"
    assert run(sys.executable, str(tmp_path / "ci/parts.py"), CI_BASE="HEAD~3") == "2 20 of 70 changed lines"
    commit("docs/a.md", 40)
    assert run(sys.executable, str(tmp_path / "ci/parts.py")) == "4 40 of 140 changed lines"
    commit("docs/b.md", 1)
    assert run(sys.executable, str(tmp_path / "ci/parts.py")) == "2 in turn"
