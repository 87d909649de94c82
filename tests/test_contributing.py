"""What the pages for those who work on the code name exists: files, targets of make, commands, packages and crates."""

import re
import tomllib
from pathlib import Path

import pytest
from typer.main import get_command

from ferroket.cli import app

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / name for name in ("CONTRIBUTING.md", "docs/architecture.md", "rust/README.md", "SECURITY.md")]
PAGES += sorted((ROOT / ".github").rglob("*.md"))
BY_NAME = {"ids": lambda page: page.name}

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
MAKEFILE = (ROOT / "Makefile").read_text()
CRATES = ("kernels", "xla-ffi", "handlers", "mpi-abi", "extension")


def is_there(name: str) -> bool:
    """Whether a path exists: from the root, or where its first part is no folder there, anywhere in the sources."""
    if (ROOT / Path(name).parts[0]).exists():
        return any(ROOT.glob(name.rstrip("/"))) and (not name.endswith("/") or (ROOT / name).is_dir())
    found = (path for top in ("python", "rust", "tests", "docs") for path in (ROOT / top).rglob(Path(name).parts[0]))
    return any((path.parent / name).exists() and path.is_dir() == name.endswith("/") for path in found)


def names_of(text: str) -> set[str]:
    """The paths in code spans, and in the commands in them."""
    words = {word.strip("\"'") for span in re.findall(r"`([^`\n]+)`", text) for word in span.split()}
    words = {word.partition("=")[2].strip("\"'") if word.startswith("ONLY=") else word for word in words}
    path = r"[\w.*-]*(?:/[\w.*-]*)+|[\w.*-]+\.(?:py|pyi|rs|md|toml|txt|yml|yaml|cff|svg)"
    return {word for word in words if re.fullmatch(path, word) and not word.startswith(".venv")}


@pytest.mark.parametrize("page", PAGES, **BY_NAME)
def test_paths_exist(page: Path) -> None:
    assert [name for name in sorted(names_of(page.read_text())) if not is_there(name)] == []


@pytest.mark.parametrize("page", PAGES, **BY_NAME)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if link.startswith("https://"):
            continue
        file, _, heading = link.partition("#")
        # The documents have this page under another name.
        target = (ROOT / "CONTRIBUTING.md") if file == "contributing.md" else (page.parent / file if file else page)
        assert target.exists(), link
        headings = re.findall(r"^#+ (.*)$", target.read_text(), re.MULTILINE)
        assert heading in ["", *(re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in headings)], link


def test_names_are_found() -> None:
    """The test above would pass if no path were found."""
    assert names_of('`a/b.py`, `make test ONLY="c/d"`, `e.rs` and `fk.run` of f/g') == {"a/b.py", "c/d", "e.rs"}
    counts = [len(names_of(page.read_text())) for page in PAGES[:3]]
    assert all(count > least for count, least in zip(counts, (80, 40, 15), strict=True)), counts
    assert [is_there(name) for name in ("tests/support/mpi.py", "python/ferroket/ffi/", "ci/newest-*.txt")] == [
        True
    ] * 3
    assert [is_there(name) for name in ("affinity.py", "algebra/")] == [True] * 2
    wrong = (
        "tests/no.py",
        "no.py",
        "tests/support/mpi.py/",
        "python/ferroket/cli/",
        "ci/oldest-*.txt",
        "algebra/no.py",
    )
    assert [is_there(name) for name in wrong] == [False] * len(wrong)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], **BY_NAME)
def test_targets_of_make_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*(?: [a-z-]+)*):", MAKEFILE, re.MULTILINE))
    targets = {name for line in targets for name in line.split()}
    named = set(re.findall(r"(?:`|^)make ([a-z-]+)", page.read_text(), re.MULTILINE))
    assert named <= targets


def test_commands_exist() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    named = re.findall(r"\bferroket ([a-z-]+)(?: ([a-z-]+))?", "\n".join(page.read_text() for page in PAGES))
    assert {command for command, _ in named} == {"bench", "doctor", "reproduce"}
    benchmarks = {name for command, name in named if command == "bench" and name}
    assert len(benchmarks) >= 5
    assert benchmarks <= set(commands["bench"].commands)


def test_marks_of_tests_are_described() -> None:
    """In the table, each in a row of its own."""
    marks = {re.match(r"\w+", mark)[0] for mark in PROJECT["tool"]["pytest"]["ini_options"]["markers"]}  # type: ignore[index]
    _, table = (ROOT / "CONTRIBUTING.md").read_text().split("The marks:\n\n| mark | |\n|---|---|\n")
    rows = table.partition("\n\n")[0].splitlines()
    assert {re.match(r"\| `(\w+)` \|", row)[1] for row in rows} == marks  # type: ignore[index]


def test_the_picture_of_the_layout_has_all_packages_in_their_order() -> None:
    """From top to bottom as in the contract that `make lint` checks."""
    layers = PROJECT["tool"]["importlinter"]["contracts"][0]["layers"]
    order = {name.strip(): place for place, layer in enumerate(layers) for name in layer.split("|")}
    picture = (ROOT / "docs" / "pictures" / "layout.svg").read_text()
    boxes = {name: int(y) for y, name in re.findall(r'<text x="[\d.]+" y="(\d+)">([\w.-]+)', picture)}
    assert set(boxes) == {*order, *CRATES, "ferroket._lib"} - {"__main__", "extension"}
    assert "the crate extension" in picture
    # The job is one tall box beside those of the physics, and what everyone uses is the last row.
    packages = [name for name in order if name in boxes and name not in ("distributed", "pages", "usage")]
    for above in packages:
        assert all(boxes[above] < boxes[below] for below in packages if order[above] < order[below]), above


@pytest.mark.parametrize("name", CRATES)
def test_crates_use_what_their_table_says(name: str) -> None:
    readme = (ROOT / "rust" / "README.md").read_text()
    ((uses, unsafe),) = re.findall(rf"^\| `{name}` \| (.*) \| (.*) \|$", readme, re.MULTILINE)
    dependencies = tomllib.loads((ROOT / "rust" / name / "Cargo.toml").read_text())["dependencies"]
    found = {key.removeprefix("ferroket-") for key in dependencies if key.startswith("ferroket-")}
    said = {"none of the others": set(), "all of them": set(CRATES) - {name}}
    assert found == said.get(uses, set(re.findall("`(.*?)`", uses)))
    code = {
        str(file.relative_to(ROOT)): re.sub(r"//.*", "", file.read_text())
        for file in sorted((ROOT / "rust" / name / "src").rglob("*.rs"))
    }
    with_unsafe = {file for file, text in code.items() if re.search(r"\bunsafe\b", text)}
    if name in ("kernels", "handlers"):
        assert with_unsafe == set(re.findall("`(.*?)`", unsafe))
    else:
        assert with_unsafe
