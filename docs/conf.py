"""Settings of the documentation: ``python -m sphinx -W --keep-going -b html docs docs/_build``."""

from __future__ import annotations

import io
import os
import pkgutil
import runpy
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any
from unittest.mock import patch

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

sys.path.insert(0, str(Path(__file__).parents[1]))

import captum_goat

project = "captum_goat"
author = "The captum_goat authors"
project_copyright = author
version = release = captum_goat.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",
    "myst_nb",
]
exclude_patterns = ["_build"]
# The tutorials are shown with the outputs that they were saved with.
nb_execution_mode = "off"
for notebook in (Path(__file__).parents[1] / "tutorials").glob("*.ipynb"):
    shown = Path(__file__).parent / "tutorials" / notebook.name  # not in git
    shown.parent.mkdir(exist_ok=True)
    shown.write_bytes(notebook.read_bytes())
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["tables.css"]
html_title = f"captum_goat {release}"
highlight_language = "python3"

# Links to headings, as GitHub makes them.
myst_heading_anchors = 3

autodoc_default_options = {"show-inheritance": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
# Under "Attributes", not as entries of their own: named tuples and data classes would have every field twice.
napoleon_use_ivar = True

# References to our own names must lead somewhere. Those to other packages have nothing to lead to without a network.
# Modules that are no part of the interface may be named, but have no page.
nitpicky = True
nitpick_ignore = [("py:mod", module.name) for module in pkgutil.walk_packages(captum_goat.__path__, "captum_goat.")]
nitpick_ignore_regex = [
    ("py:.*", r"(?!captum_goat).*"),
    ("py:.*", r"captum_goat\..*\._\w+"),
    # Names of modules that are no part of the interface, in the page about the inside.
    ("py:.*", r"captum_goat\.(adjacency|fields|hooks|inputs|method|rules|shapley|tracking)\.\w+\..*"),
]


class CommandHelp(SphinxDirective):
    """Shows what a command prints with ``--help``: ``.. command-help:: benchmarks speed``."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Run the command."""
        module, *words = self.arguments[0].split()
        printed = io.StringIO()
        with (
            patch.object(sys, "argv", [module, *words, "--help"]),
            patch.dict(os.environ, {"COLUMNS": "100"}),
            redirect_stdout(printed),
        ):
            try:
                runpy.run_module(module, run_name="__main__")
            except SystemExit as end:
                if end.code:
                    raise self.error(f"'{self.arguments[0]} --help' ended with {end.code}.") from end
        text = printed.getvalue().rstrip()
        return [nodes.literal_block(text, text, language="text")]


def skip_fields(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Leave out the fields of named tuples, of which Python only says which number they have."""
    return True if type(obj).__name__ == "_tuplegetter" else None


def keep_colons(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Begin the text of a property with an empty comment, or what stands before a colon would be taken for its type."""
    if what == "property":
        lines[:0] = ["..", ""]


def setup(app: Sphinx) -> None:
    """Add what Sphinx does not have."""
    app.add_directive("command-help", CommandHelp)
    app.connect("autodoc-skip-member", skip_fields)
    app.connect("autodoc-process-docstring", keep_colons, priority=400)  # before napoleon, which has 500
