"""Adds documents to a site that has those of other versions: python ci/pages.py SITE BUILT VERSION URL.

SITE has a folder for each version, `switcher.json`, from which the pages know of each other, and an `index.html` that
leads to the newest release, or to `main` before there is one. CI keeps it in the branch `gh-pages`.
"""

import json
import shutil
import sys
from pathlib import Path

DEVELOPMENT = "main"


def releases(site: Path) -> list[str]:
    """The versions of the site's releases, the newest first."""
    folders = (path.parent.name for path in site.glob("*/index.html"))
    numbers = [tuple(map(int, name.split("."))) for name in folders if name != DEVELOPMENT]
    return [".".join(map(str, number)) for number in sorted(numbers, reverse=True)]


def add(site: Path, built: Path, version: str, url: str) -> None:
    """Puts the built documents into the site in the place of those of the same version, and writes its list anew.

    Args:
        site: The folder of the site.
        built: What `make docs` has made.
        version: `main`, or the number of a release, such as 0.1.0.
        url: The address of the site, without a slash at its end.
    """
    shutil.rmtree(site / version, ignore_errors=True)
    shutil.copytree(built, site / version)
    found = releases(site)
    first = found[0] if found else DEVELOPMENT
    every = [DEVELOPMENT, *found] if (site / DEVELOPMENT).exists() else found
    entries = [{"name": name, "version": name, "url": f"{url}/{name}/", "preferred": name == first} for name in every]
    (site / "switcher.json").write_text(json.dumps(entries, indent=2) + "\n")
    (site / "index.html").write_text(
        f'<!doctype html><title>Ferroket</title><meta http-equiv="refresh" content="0; url={first}/">'
        f'<a href="{first}/">Ferroket {first}</a>\n'
    )
    (site / ".nojekyll").touch()  # folders that begin with _ are part of the site


if __name__ == "__main__":
    _, site, built, version, url = sys.argv
    add(Path(site), Path(built), version, url)
