"""The API is complete, and a name in a docstring or a signature leads to it."""

import ast
import inspect
import pkgutil
import re
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

from docutils import nodes, utils
from docutils.parsers.rst.states import Inliner
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.pycode import ModuleAnalyzer
from sphinx.util import logging
from sphinx.util.nodes import make_refnode

import holdfast

logger = logging.getLogger(__name__)


def public_modules() -> Iterator[ModuleType]:
    """Yield every module of Holdfast that users import."""
    for found in pkgutil.walk_packages(holdfast.__path__, "holdfast."):
        is_private = any(part.startswith("_") for part in found.name.split("."))
        if not is_private and not found.name.startswith("holdfast.lab.cli"):
            yield import_module(found.name)


def public_names(module: ModuleType) -> list[str]:
    """Return `__all__`, or the classes and functions that the module defines."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(value) or inspect.isfunction(value))
        and value.__module__ == module.__name__
    ]


def home(module: ModuleType, name: str) -> str:
    """Return the full name under which the API has `name`: of two packages that export it, one."""
    parts = getattr(getattr(module, name), "__module__", module.__name__).split(".")
    public = [part for part in parts if not part.startswith("_")]
    return ".".join([*public, name]) if public[0] == "holdfast" else f"{module.__name__}.{name}"


def adopt_comments(app: Sphinx) -> None:
    """Give packages the docstrings of data that they import from their private modules.

    Autodoc looks for the docstring of a constant in the module that is documented only.
    """
    for module in public_modules():
        analyzer = ModuleAnalyzer.for_module(module.__name__)
        docs = analyzer.find_attr_docs()
        for node in ast.parse(analyzer.code).body:
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("holdfast"):
                origin = ModuleAnalyzer.for_module(str(node.module)).find_attr_docs()
                for alias in node.names:
                    if ("", alias.name) in origin:
                        docs["", alias.name] = origin["", alias.name]


def name_or_code(
    role: str, rawtext: str, text: str, lineno: int, inliner: Inliner, *_: object
) -> tuple[list[nodes.Node], list[nodes.system_message]]:
    """Interpret single backticks: code, and a link if it is the name of a public class."""
    code = utils.unescape(text, restore_backslashes=True)
    literal = nodes.literal(rawtext, code)
    if not re.fullmatch(r"[A-Z]\w+(\.\w+)*", code):
        return [literal], []
    page = inliner.document.settings.env.docname
    xref = {"refdomain": "py", "reftype": "obj", "reftarget": code, "refdoc": page}
    return [pending_xref(rawtext, literal, **xref)], []


def keep_colons(
    app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]
) -> None:
    """Shield "The share: a number in (0, 1]" from napoleon, to which "The share" is a type."""
    if what in ("attribute", "data", "property"):
        lines[:0] = ["..", ""]  # an empty comment: napoleon reads types on the first line only


def check_names(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of each public name without an entry on a page, and drop the code of other packages."""
    code = vars(env)["_viewcode_modules"]
    for name in [name for name in code if not name.startswith("holdfast")]:
        del code[name]  # aliases such as `tuple[str, ...]` have brought it
    entries = env.domains.python_domain.objects
    for module in public_modules():
        for name in public_names(module):
            if not {f"{module.__name__}.{name}", home(module, name)} & entries.keys():
                logger.warning("%s.%s is on no page of the API", module.__name__, name)


def find_public_name(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, contnode: nodes.TextElement
) -> nodes.reference | None:
    """Resolve names of private modules, as in signatures, and short names of other packages."""
    if node.get("refdomain") != "py":
        return None
    entries = env.domains.python_domain.objects
    target = ".".join(part for part in node["reftarget"].split(".") if not part.startswith("_"))
    found = [target] if target in entries else []
    found = found or [n for n in entries if n.endswith(f".{target}") and "._" not in n]
    if len(found) != 1:
        return None
    entry = entries[found[0]]
    return make_refnode(
        app.builder, node["refdoc"], entry.docname, entry.node_id, contnode, found[0]
    )


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the steps."""
    app.add_role("name-or-code", name_or_code)
    app.connect("builder-inited", adopt_comments)
    app.connect("autodoc-process-docstring", keep_colons, priority=400)  # napoleon's is 500
    app.connect("env-check-consistency", check_names)
    app.connect("missing-reference", find_public_name)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
