"""The code blocks of a document, which run as one script: ``python code_blocks.py PAGE``.

The cells of a notebook are its Python blocks, with Python in the place of ``%%bash`` and ``%%writefile``.
An expression with a comment behind it says its value there. What it is and what is said is printed as JSON.
"""

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

# The notebooks.
TUTORIALS = sorted((Path(__file__).parents[2] / "docs" / "tutorials").glob("*.md"))

# Comments that say something else.
PROSE = {"above the imports of jax and netket"}


def blocks(page: Path, language: str) -> list[str]:
    """The blocks of a page in one language."""
    found = re.findall(rf"^```({{code-cell}} )?{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    return [_cell(block) if is_cell else block for is_cell, block in found]


def is_notebook(page: Path) -> bool:
    """Whether a page begins with what makes it a notebook."""
    return bool(re.match(r"---\n(.*\n)*?kernelspec:", page.read_text()))


def _cell(cell: str) -> str:
    """A cell as Python, without its tags."""
    code = re.sub(r"\A(:.*\n)+\n?", "", cell)
    magic, _, rest = code.partition("\n")
    if magic == "%%bash":
        return f"__import__('subprocess').run(['bash', '-e'], input={rest!r}, text=True, check=True)\n"
    if magic.startswith("%%writefile "):
        return f"__import__('pathlib').Path({magic.split()[1]!r}).write_text({rest!r})\n"
    return code


def comments(code: str) -> Iterator[tuple[ast.stmt, str | None]]:
    """The statements of a block, expressions with what they are said to be."""
    for statement in ast.parse(code).body:
        last = code.splitlines()[statement.end_lineno - 1]  # type: ignore[operator]
        comment = last.encode()[statement.end_col_offset :].decode().lstrip("; ").rstrip().removeprefix("# ")
        said = isinstance(statement, ast.Expr) and comment not in ("", *PROSE)
        yield statement, comment if said else None


def assert_blocks_run(page: Path, timeout: float) -> None:
    """Asserts that the Python blocks of a page run, in a process of their own, and say what comes out."""
    from support.mpi import environment, run_command

    job = run_command([sys.executable, Path(__file__), page], environment(MPLBACKEND="agg"), timeout)
    assert job.returncode == 0, job.stdout + job.stderr
    found = [json.loads(result) for result in re.findall("^RESULT (.*)$", job.stdout, re.MULTILINE)]
    said = [said for block in blocks(page, "python") for _, said in comments(block) if said]
    assert [result[2] for result in found] == said
    for expression, value, comment in found:
        assert value == comment, f"{expression} is {value}, and not {comment}"


def _main() -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    page = Path(sys.argv[1])
    for block in blocks(page, "python"):
        # Two steps show as well as 300 that it runs. A notebook's cells are run as they are.
        for statement, said in comments(block if is_notebook(page) else block.replace(".run(300)", ".run(2)")):
            if said is None:
                exec(compile(ast.Module([statement], []), "a block", "exec"), names)
            else:
                expression = ast.unparse(statement)
                print("RESULT", json.dumps([expression, repr(eval(expression, names)), said]))


if __name__ == "__main__":
    _main()
