"""Sphinx builds the site from the whole repository: `make docs`.

The sources are the repository's own files, so that a link works wherever a page is read.
"""

import sys
from pathlib import Path

from sphinx.application import Sphinx

import holdfast
from holdfast.lab.report._series_style import COLORS

sys.path.insert(0, str(Path(__file__).parent))

project = "Holdfast"
version = release = holdfast.__version__
root_doc = "docs/index"
include_patterns = ["*.md", "CITATION.cff", "docs/**", "examples/**"]
exclude_patterns = [
    ".*",
    "**/__pycache__",
    "build",
    "runs",
    "docs/site",
    "docs/results/paper/notes",  # the report has them, and the tables
    "docs/results/paper/tables",
]
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "code_pages",
    "linked_files",
    "mathml",
    "public_names",
]

myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath", "html_image"]
highlight_language = "text"
copybutton_exclude = ".gp, .go, .gt"  # prompts and output stay behind

default_role = "name-or-code"
autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 120  # counted with the full names of types
add_module_names = False
toc_object_entries_show_parents = "hide"
napoleon_use_ivar = True
nitpicky = True
nitpick_ignore_regex = [
    ("py:obj", ".*"),  # single backticks in docstrings, which need not be names
    ("py:.*", r"(?!holdfast)\w+(\.\w+)+"),  # torch, flwr, the standard library: no links, offline
    ("py:.*", r"holdfast(\.\w+)*\._.*"),  # private types in signatures
    ("py:.*", r"holdfast\.registry\.[TM]|holdfast\.lab\.models\.Architecture"),  # not exported
    ("py:class", "Message|RecordDict|Run|default: None"),  # in docstrings inherited from Flower
]

# Furo's variables by the report's names of colors.
palette = {
    "paper": ("background-primary",),
    "raised": ("background-secondary", "code-background", "inline-code-background"),
    "grid": ("background-hover",),
    "rule": ("background-border",),
    "ink": ("foreground-primary", "code-foreground", "api-name", "sidebar-link-text--top-level"),
    "muted": ("foreground-secondary", "foreground-muted", "api-pre-name", "sidebar-link-text"),
    "accent": ("brand-primary", "brand-content", "brand-visited"),
}
fonts = {
    "font-stack": "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', sans-serif",
    "font-stack--headings": "ui-serif, Palatino, Georgia, 'Liberation Serif', serif",
    "font-stack--monospace": "ui-monospace, 'SF Mono', Menlo, 'Liberation Mono', monospace",
}
light, dark = (
    {f"color-{name}": COLORS[color][i] for color, names in palette.items() for name in names}
    for i in range(2)
)

html_theme = "furo"
html_theme_options = {"light_css_variables": light | fonts, "dark_css_variables": dark}
pygments_style = "default"
pygments_dark_style = "github-dark"
html_title = "Holdfast"
html_math_renderer = "mathml"
html_static_path = ["static"]
html_css_files = ["holdfast.css"]
html_extra_path = ["root"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False


def setup(app: Sphinx) -> None:
    """Give the decisions a place below their table."""
    app.connect("source-read", _list_decisions)


def _list_decisions(app: Sphinx, docname: str, content: list[str]) -> None:
    if docname == "docs/decisions/README":
        content[0] += "\n```{toctree}\n:hidden:\n:glob:\n\n*\n```\n"
