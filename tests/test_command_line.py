"""The command line: what it says, and with which exit code it ends."""

import io
import os
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from platform import python_version

import pytest
from rich.console import Console
from typer.main import get_command
from typer.testing import CliRunner

from ferroket import cli
from ferroket.bench import cases, operators, progress, report
from ferroket.bench.report import Report, Row
from ferroket.distributed import info, running
from ferroket.published.command import reproduce
from ferroket.published.page import MADE

BENCHMARKS = sorted(get_command(cli.app).commands["bench"].commands)  # type: ignore[attr-defined]
PAGE = Path(__file__).parents[1] / "docs" / "api" / "command-line.md"


def ferroket(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    own = {**os.environ, "COLUMNS": "300", **env}
    command = [sys.executable, "-m", "ferroket", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, env=own)


def invoke(*arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout, and stderr without the box that typer draws, each in one line."""
    done = CliRunner(env={"COLUMNS": "300"}).invoke(cli.app, [*arguments], prog_name="ferroket")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, " ".join(re.sub("[│╭╮╰╯─]", " ", done.stderr).split())


def test_version() -> None:
    code, out, _ = invoke("--version")
    lines = out.splitlines()
    assert code == 0
    assert lines[:5] == [
        f"Ferroket {version('ferroket')}",
        f"JAX {version('jax')}",
        f"jaxlib {version('jaxlib')}",
        f"NetKet {version('netket')}",
        f"Python {python_version()}",
    ]
    assert re.fullmatch(r"MPI .*, /.*", lines[5])


def test_version_without_mpi_and_without_netket(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_mpi(_: list[Path]) -> None:
        raise RuntimeError("no MPI library was found")

    def found(name: str) -> str:
        if name == "netket":
            raise info.PackageNotFoundError
        return "1.2"

    monkeypatch.setattr(info._lib, "find_mpi", no_mpi)
    monkeypatch.setattr(info, "version", found)
    assert info.version_text().splitlines() == [
        "Ferroket 1.2",
        "JAX 1.2",
        "jaxlib 1.2",
        "NetKet isn't installed",
        f"Python {python_version()}",
        "MPI none found: ferroket doctor says where it was looked for",
    ]


def test_version_does_not_import_jax() -> None:
    code = "import sys, ferroket.cli as f; f.app(['--version'], standalone_mode=False); exit('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "place", "expected"),
    [
        ("ferroket b", 1, ["bench"]),
        ("ferroket bench so", 2, ["solve"]),
        ("ferroket job slurm --n", 3, ["--name", "--nodes"]),
        ("ferroket launch --collectives g", 3, ["gloo"]),
        ("ferroket reproduce hubbard", 2, ["hubbard-cylinder-64", "hubbard-square-16"]),
    ],
)
def test_completion(words: str, place: int, expected: list[str]) -> None:
    done = ferroket(_FERROKET_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=str(place))
    assert sorted(done.stdout.split()) == expected


def test_options_of_benchmarks_and_of_ranks_are_the_same_everywhere() -> None:
    commands = get_command(cli.app).commands  # type: ignore[attr-defined]
    files = {}
    for name, command in commands["bench"].commands.items():
        files[name] = [(p.opts, p.help) for p in command.params if p.name in ("json", "plot")]
    assert len(BENCHMARKS) == 13
    assert all(found == files["operators"] for found in files.values())
    assert [opts for opts, _ in files["operators"]] == [["--json"], ["--plot"]]
    ranks = [p for name in BENCHMARKS for p in commands["bench"].commands[name].params if p.name == "ranks"]
    ranks += [p for p in commands["launch"].params if p.name == "ranks"]
    assert [p.opts for p in ranks] == [["--ranks", "-n"]] * 6
    per_node = [p.opts for c in commands["job"].commands.values() for p in c.params if p.name == "ranks_per_node"]
    assert per_node == [["--ranks-per-node", "-n"]] * 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            "doctor /no/such/file",
            "ferroket doctor: FILE '/no/such/file': there is no folder '/no/such'. Make it, or name",
        ),
        ("doctor /", "ferroket doctor: FILE '/' is a folder: name a file"),
        ("launch -n 0 run.py", "Invalid value for '--ranks' / '-n': 0 has to be 1 or more"),
        ("launch -n two run.py", "Invalid value for '--ranks' / '-n': two has to be a whole number"),
        ("launch -n 2 --rank x run.py", "Invalid value for '--rank': x has to be a whole number"),
        ("launch -n 2 --rank 2 run.py", "ferroket launch: --rank is 2, but the ranks of -n 2 are 0 to 1"),
        ("launch -n 2 no/run.py", "ferroket launch: can't open file"),
        ("reproduce nothing", "ferroket reproduce: there is no 'nothing'; there are ising-chain-32, heis"),
        (
            "reproduce --page no.md",
            "ferroket reproduce: --page 'no.md': there is no such file. Name the page whose tables",
        ),
        (
            "reproduce --page page.md --logs /no",
            "ferroket reproduce: --logs '/no': no log of a run that came to an end is",
        ),
        ("supports nothing", "ferroket supports: there is no model 'nothing'; there are RBM, RBMModPhase, "),
        (
            "supports --page no.md",
            "ferroket supports: --page 'no.md': there is no such file. Name the page whose tables",
        ),
        ("supports --page page.md", "page.md must have the lines '<!-- made by `ferroket supports --page`: -->'"),
        ("bench operators --batch 0", "Invalid value for '--batch': 0 has to be 1 or more"),
        ("bench operators --rounds 1.5", "Invalid value for '--rounds': 1.5 has to be a whole number"),
        (
            "bench operators --cases ViT",
            "ferroket bench operators: no case has 'ViT' in its name: there are Ising chain 1",
        ),
        (
            "bench scaling -n 1,a",
            "ferroket bench scaling: ranks are '1,a': they have to be whole numbers with commas betw",
        ),
        (
            "bench scaling --ranks 2,4",
            "ferroket bench scaling: ranks are 2, 4: 1 has to be among them, and nothing below",
        ),
        ("bench scaling --batch 7", "ferroket bench scaling: batch is 7: 8 ranks need at least 8 samples"),
        ("bench oversubscription -n 1", "Invalid value for '--ranks' / '-n': 1 has to be 2 or more"),
        ("bench nonsense", "No such command 'nonsense'."),
    ],
)
def test_bad_values_are_usage_errors(
    arguments: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.py").touch()
    kept = f"{MADE.start}\nkept\n{MADE.end}\n"
    Path("page.md").write_text(kept)
    code, out, err = invoke(*arguments.split())
    assert (code, out) == (2, "")
    assert message in err
    assert Path("page.md").read_text() == kept


@pytest.mark.parametrize("name", BENCHMARKS)
@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("--json=/no/x.json", "--json '/no/x.json': there is no folder '/no'. Make it, or name a file elsewhere"),
        ("--plot=/no/x.png", "--plot '/no/x.png': there is no folder '/no'. Make it, or name a file elsewhere"),
        ("--plot=x.doc", "--plot 'x.doc': a picture's name has to end in one of "),
    ],
)
def test_files_are_checked_before_anything_is_measured(
    name: str, option: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "shown", lambda: pytest.fail("it has begun"))
    code, out, err = invoke("bench", name, option)
    assert (code, out) == (2, "")
    assert err.startswith(f"ferroket bench {name}: {message}")


def test_a_plot_needs_matplotlib_before_anything_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setattr(progress, "shown", lambda: pytest.fail("it has begun"))
    assert invoke("bench", "operators", "--plot", "x.png") == (
        2,
        "",
        "ferroket bench operators: --plot 'x.png': drawing needs matplotlib, which isn't installed: "
        "pip install matplotlib",
    )


def test_a_benchmark_without_mpi_is_a_usage_error() -> None:
    done = ferroket("bench", "binding", FERROKET_LIBMPI="/nowhere/libmpi.so")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "ferroket bench binding: FERROKET_LIBMPI names /nowhere/libmpi.so, which can't be used"
    )
    assert "Traceback" not in done.stderr


def test_a_folder_that_a_result_cannot_have(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = ferroket("reproduce", "ising-chain-32", "--folder", str(tmp_path / "file" / "x"))
    assert done.returncode == 2
    assert f"argument --folder: '{tmp_path}/file/x' can't be made: Not a directory. Name another" in done.stderr
    assert "Traceback" not in done.stderr


def test_options_of_a_result_are_read_before_anything_large_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "run", lambda *_: pytest.fail("it has begun"))
    with pytest.raises(SystemExit) as end:
        reproduce("ising-chain-32", ["--minutes", "x"])
    assert end.value.code == 2
    done = ferroket("reproduce", "ising-chain-32", "--minutes", "x")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("usage: ferroket reproduce [-h]")
    assert done.stderr.endswith("ferroket reproduce: error: argument --minutes: invalid float value: 'x'\n")


def test_rows_are_printed_as_they_are_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows = {"one": Row("one", {"ours": 1.0, "theirs": 2.0}), "two": Row("  two [x]", {"ours": 3e-3, "theirs": 6e-6})}

    def run(**settings: object) -> Report:
        return Report("both", "ours", cases.run({name: lambda _, name=name: [rows[name]] for name in rows}, **settings))  # type: ignore[misc, arg-type]

    monkeypatch.setattr(operators, "run", lambda *, cases, batch, rounds: run(cases=cases, batch=batch))
    code, out, _ = invoke("bench", "operators", "--json", str(tmp_path / "x.json"), "--plot", str(tmp_path / "x.svg"))
    assert code == 0
    assert out.splitlines()[:2] == ["one: ours 1 s, theirs 2 s", "two [x]: ours 3 ms, theirs 6 µs"]
    assert "both" in out.splitlines()[2]
    assert (tmp_path / "x.json").stat().st_size > 0
    assert (tmp_path / "x.svg").stat().st_size > 0


def test_a_terminal_shows_what_is_measured_now() -> None:
    terminal, plain = (Console(file=io.StringIO(), force_terminal=shown, width=80) for shown in (True, False))
    for console in (terminal, plain):
        with progress.shown(console):
            progress.measuring("chain, case 1 of 2")
            progress.starting("vmc on 2 ranks")
            progress.measured("chain: ours 1 s")
    progress.measuring("nobody sees this")
    assert plain.file.getvalue() == "chain: ours 1 s\n"  # type: ignore[attr-defined]
    shown = terminal.file.getvalue()  # type: ignore[attr-defined]
    assert "measuring chain, case 1 of 2\x1b" in shown
    assert "measuring chain, case 1 of 2: vmc on 2 ranks" in shown
    assert "chain: ours 1 s\n" in shown
    assert "nobody" not in shown


def test_exit_codes_are_documented() -> None:
    codes = re.findall(r"^\| (\S[^|]*?) \|", PAGE.read_text(), re.MULTILINE)
    assert codes == ["code", "0", "1", "2", "128 + n", "any other"]
    assert report._NO_MATPLOTLIB.rsplit(": ", 1)[1] in PAGE.read_text()
