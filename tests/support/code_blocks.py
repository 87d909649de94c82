"""The code blocks of a document, which run as one script: ``python code_blocks.py PAGE``.

An expression with a comment behind it says its value there. What it is and what is said is printed as JSON.
"""

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

# Comments that say something else.
PROSE = {"above the imports of jax and netket"}


def blocks(page: Path, language: str) -> list[str]:
    """The blocks of a page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def comments(code: str) -> Iterator[tuple[ast.stmt, str | None]]:
    """The statements of a block, expressions with what they are said to be."""
    for statement in ast.parse(code).body:
        last = code.splitlines()[statement.end_lineno - 1]  # type: ignore[operator]
        comment = last.encode()[statement.end_col_offset :].decode().strip().removeprefix("# ")
        said = isinstance(statement, ast.Expr) and comment not in ("", *PROSE)
        yield statement, comment if said else None


def _main() -> None:
    names: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(Path(sys.argv[1]), "python"):
        # Two steps show as well as 300 that it runs.
        for statement, said in comments(block.replace(".run(300)", ".run(2)")):
            if said is None:
                exec(compile(ast.Module([statement], []), "a block", "exec"), names)
            else:
                expression = ast.unparse(statement)
                print("RESULT", json.dumps([expression, repr(eval(expression, names)), said]))


if __name__ == "__main__":
    _main()
