"""What ``ferroket reproduce`` does."""

from pathlib import Path

from rich.console import Console
from rich.table import Table

from ferroket.bench.report import check_plot
from ferroket.distributed import running
from ferroket.published import options, page
from ferroket.published.results import RESULTS
from ferroket.usage import UsageError

SCRIPTS = Path(__file__).parent / "scripts"
"""Links to the files in ``examples/published``, of which a wheel has copies."""


def print_names() -> None:
    """Prints the results that can be reproduced."""
    table = Table(title="ferroket reproduce NAME")
    for heading in ("NAME", "system", "ansatz", "published"):
        table.add_column(heading, no_wrap=heading == "NAME")
    for name, result in RESULTS.items():
        reference = result.references[0]
        table.add_row(name, result.title, result.ansatz, f"{reference.value:.7g} {result.unit}, {reference.method}")
    Console().print(table)


def reproduce(name: str, arguments: list[str]) -> None:
    """Runs the script of a result, as ``ferroket run`` does.

    Args:
        name: The result's name.
        arguments: The script's.

    Raises:
        SystemExit: Always, with the script's exit code; 2, and a usage message, if an option can't be used.
        UsageError: There is no such result.
    """
    if name not in RESULTS:
        raise UsageError(f"there is no {name!r}; there are {', '.join(RESULTS)}")
    options.read([name], [name, *arguments], program="ferroket reproduce")  # before JAX and NetKet are imported
    running.run(str(SCRIPTS / f"{RESULTS[name].script}.py"), [name, *arguments])


def write_page(path: Path, logs: Path) -> None:
    """Writes a page's tables, and ``pictures/published.png`` beside the page.

    Raises:
        UsageError: The page isn't there, can't be written or has no place for the tables; the folder has no logs of
            runs that came to an end; or the picture can't be drawn.
    """
    page.MADE.check(path)
    if not page.read_logs(logs):
        raise UsageError(f"--logs {str(logs)!r}: no log of a run that came to an end is there. Name the logs' folder")
    picture = path.parent / "pictures" / "published.png"
    check_plot(picture, "the picture")
    page.write(path, logs)
    page.draw(picture, logs)
