"""How Sphinx builds these pages: `make docs`."""

import inspect
import logging
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from ferroket import __version__ as release
from ferroket import sampler

project = "Ferroket"
author = "the Ferroket developers"
extensions = [
    "myst_nb",
    *(f"sphinx.ext.{name}" for name in ("autodoc", "intersphinx", "napoleon", "viewcode")),
    "sphinx_copybutton",
]

# Types and functions of others are links to their documents. Without a network they are plain text.
intersphinx_mapping = {
    "python": ("https://docs.python.org/3", None),
    "numpy": ("https://numpy.org/doc/stable", None),
    "jax": ("https://docs.jax.dev/en/latest", None),
    "netket": ("https://netket.readthedocs.io/en/latest", None),
    "mpi4py": ("https://mpi4py.readthedocs.io/en/stable", None),
}
intersphinx_timeout = 5  # seconds

# Pages are read on GitHub too: a link to a heading is page.md#the-heading, as there.
myst_heading_anchors = 3
myst_enable_extensions = ["alert"]  # > [!NOTE], as there

# The pages in tutorials/ are notebooks, which say so in their first lines. Each build runs all of them, in a temporary
# folder in this clone, since what they print depends on more than their text. The other pages have no cells.
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_timeout = 300  # seconds for one cell
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_output_stderr = "remove"  # progress bars
tempfile.tempdir = str(Path(__file__).parents[1] / "target" / "notebooks")
Path(tempfile.tempdir).mkdir(parents=True, exist_ok=True)
os.environ["MATPLOTLIBRC"] = str(Path(__file__).parent / "matplotlibrc")
os.environ["NETKET_NO_TIPS"] = "1"

strip_signature_backslash = True  # or `jax_` in "Args:" loses its underscore
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
napoleon_use_ivar = True
napoleon_custom_sections = [("Environment", "params_style")]
add_module_names = False
toc_object_entries_show_parents = "hide"
maximum_signature_line_length = 100

smartquotes_action = "D"  # dashes alone: σ' is no quotation

html_theme = "sphinx_book_theme"
html_title = f"{project} {release}"
html_theme_options: dict[str, Any] = {"show_toc_level": 2, "navbar_persistent": []}
html_static_path = ["static"]
html_css_files = ["pages.css"]
html_show_sourcelink = False
html_copy_source = False
# CI names the site that has these pages beside those of other versions, and their own version: ci/pages.py.
if site := os.environ.get("DOCS_URL"):
    version = os.environ["DOCS_VERSION"]
    html_baseurl = f"{site}/{version}/"
    switcher = {"json_url": f"{site}/switcher.json", "version_match": version}
    html_theme_options |= {"switcher": switcher, "check_switcher": False, "show_version_warning_banner": True}
    sidebar = ["navbar-logo.html", "version-switcher.html", "search-button-field.html", "sbt-sidebar-nav.html"]
    html_sidebars = {"**": sidebar}
copybutton_prompt_text = "$ "
copybutton_exclude = ".linenos, .gp, .go"

# What functions give, and nobody makes.
RESULTS = ("RuntimeInfo", "Plan", "Layer", "QGTFactors", "Enabled")


def signature(app: Sphinx, what: str, name: str, obj: Any, options: Any, text: str | None, result: str | None) -> Any:
    """A signature without private arguments and without types that say nothing."""
    if what == "class" and name.endswith(RESULTS):
        return "", None
    if text is None:  # no function
        return None
    text = re.sub(r"(, |(?<=\())_\w+: [^,)]*|: (~typing\.)?Any\b", "", text)
    return text, None if result in ("Any", "~typing.Any", "None") else result


def commands(app: Sphinx, page: str, source: list[str]) -> None:
    """The commands with their options, as Typer describes them."""
    if page == "api/command-line":
        typer = [sys.executable, "-m", "typer", "ferroket.cli", "utils", "docs", "--name", "ferroket"]
        text = subprocess.run(typer, check=True, capture_output=True, text=True).stdout
        source[0] += text[text.index("## ") :]


def is_about_code(record: logging.LogRecord) -> bool:
    """Whether a message isn't that a site can't be reached: that is no mistake in these pages."""
    return "failed to reach any of the inventories" not in str(record.msg)


def setup(app: Sphinx) -> None:
    """Sphinx calls this."""
    logging.getLogger("sphinx.sphinx.ext.intersphinx").addFilter(is_about_code)
    # Sphinx takes defaults from the source, and fails where a signature shows arguments that are handed on.
    for function in filter(inspect.isfunction, vars(sampler).values()):
        vars(function).pop("__signature__", None)
    app.connect("autodoc-process-signature", signature)
    app.connect("source-read", commands)
