"""The site with the documents of all versions, as ci/pages.py makes it."""

import json
import subprocess
import sys
from pathlib import Path

ADD = [sys.executable, str(Path(__file__).parents[1] / "ci" / "pages.py")]
URL = "https://example.org/ferroket"


def test_versions_of_a_site(tmp_path: Path) -> None:
    built, site = tmp_path / "built", tmp_path / "site"
    (built / "_static").mkdir(parents=True)
    for number, version in enumerate(["main", "0.9.0", "0.10.0", "0.9.1", "main"]):
        (built / "index.html").write_text(f"{version}, {number}")
        (built / f"page-{number}.html").touch()
        subprocess.run([*ADD, site, built, version, URL], check=True)
        (built / f"page-{number}.html").unlink()
        first = {0: "main", 1: "0.9.0"}.get(number, "0.10.0")
        assert f'url={first}/"' in (site / "index.html").read_text()

    entries = json.loads((site / "switcher.json").read_text())
    assert [entry["version"] for entry in entries] == ["main", "0.10.0", "0.9.1", "0.9.0"]
    assert [entry["url"] for entry in entries][:2] == [f"{URL}/main/", f"{URL}/0.10.0/"]
    assert [entry["version"] for entry in entries if entry["preferred"]] == ["0.10.0"]
    # The pages of main are the last ones alone.
    assert {path.name for path in (site / "main").iterdir()} == {"index.html", "page-4.html", "_static"}
    assert (site / "main" / "index.html").read_text() == "main, 4"
