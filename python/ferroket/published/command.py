"""What ``ferroket reproduce`` does."""

import sys
from pathlib import Path

from rich.console import Console
from rich.table import Table

from ferroket.distributed import running
from ferroket.published import page
from ferroket.published.results import RESULTS

SCRIPTS = Path(__file__).parent / "scripts"
"""Links to the files in ``examples/published``, of which a wheel has copies."""

_USAGE_ERROR = 2


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
        SystemExit: Always, with the script's exit code; 2 for a name that there isn't.
    """
    if name not in RESULTS:
        print(f"ferroket reproduce: there is no {name!r}; there are {', '.join(RESULTS)}", file=sys.stderr)
        raise SystemExit(_USAGE_ERROR)
    running.run(str(SCRIPTS / f"{RESULTS[name].script}.py"), [name, *arguments])


def write_page(path: Path, logs: Path) -> None:
    """Writes a page's tables, and ``pictures/published.png`` beside the page."""
    page.write(path, logs)
    page.draw(path.parent / "pictures" / "published.png", logs)
