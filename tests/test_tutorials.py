"""The tutorials: notebooks whose cells run, alone, and whose assertions hold."""

import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from blocks import TUTORIALS, assert_blocks_run, blocks, is_notebook
from mpi import mpirun

ROOT = Path(__file__).parents[1]
BY_NAME: dict[str, Any] = {"ids": lambda page: page.name}

# Pages that have what not every NetKet has: a driver that is saved.
NETKET = {"on-a-cluster.md": "3.23"}


def starts_ranks(page: Path) -> bool:
    return any("mpirun -n" in cell for cell in blocks(page, "python"))


def run(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if Version(version("netket")) < Version(NETKET.get(page.name, "0")):
        pytest.skip(f"it is for NetKet {NETKET[page.name]}")
    monkeypatch.chdir(folder)
    (folder / "examples").symlink_to(ROOT / "examples")  # as in a clone
    assert_blocks_run(page, 480)  # a minute on two cores that nobody else uses


@pytest.mark.thorough
@pytest.mark.parametrize("page", [page for page in TUTORIALS if not starts_ranks(page)], **BY_NAME)
def test_cells_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(page, tmp_path, monkeypatch)


@pytest.mark.mpi
@pytest.mark.parametrize("page", [page for page in TUTORIALS if starts_ranks(page)], **BY_NAME)
def test_cells_run_that_start_ranks(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mpirun()
    run(page, tmp_path, monkeypatch)


@pytest.mark.parametrize("page", TUTORIALS, **BY_NAME)
def test_a_tutorial_is_a_notebook(page: Path) -> None:
    """All of its Python is in cells, some of which draw and check; links lead on, and the documents have the page."""
    text = page.read_text()
    assert is_notebook(page)
    assert "\n```python\n" not in text
    code = "\n".join(blocks(page, "python"))
    assert "plt.subplots(" in code
    assert re.search(r"^assert ", code, re.MULTILINE)
    assert "\n## Next\n" in text
    assert re.search(rf"^tutorials/{page.stem}$", (ROOT / "docs" / "index.md").read_text(), re.MULTILINE)


def test_cells_of_a_notebook_are_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tags go, and Python takes the place of IPython's magics."""
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    cells = [
        ":tags: [remove-cell]\n\nassert 1 + 1 == 2\n",
        "%%writefile a.py\nprint('a')\n",
        "%%bash\nexit 3\n",
        "x = 1\nx; # 2\n",
    ]
    fences = "".join(f"```{{code-cell}} python\n{cell}```\n\n" for cell in cells)
    page.write_text(f"---\njupytext: {{}}\nkernelspec:\n  name: python3\n---\n\n{fences}")
    found = blocks(page, "python")
    assert is_notebook(page)
    assert found[0] == "assert 1 + 1 == 2\n"
    assert found[1] == "__import__('pathlib').Path('a.py').write_text(\"print('a')\\n\")\n"
    assert found[3] == "x = 1\nx; # 2\n"
    with pytest.raises(AssertionError, match="exit status 3"):
        assert_blocks_run(page, 60)
    page.write_text(page.read_text().replace(cells[2], ""))
    with pytest.raises(AssertionError, match="x is 1, and not 2"):
        assert_blocks_run(page, 60)
