"""Files that are no pages keep their place: a page's link to a record leads to its copy."""

import os
import shutil
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform


class LinkedFiles(SphinxTransform):
    """Makes plain links of downloads, which would get a new name in a folder of their own."""

    default_priority = 400

    def apply(self, **_: Any) -> None:
        """Replace links to files that are no pages by links to the same relative path."""
        for node in list(self.document.findall(addnodes.download_reference)):
            self._link(node, node["reftarget"])
        # A test has the suffix of a page of code, but only examples are such pages.
        for reference in list(self.document.findall(addnodes.pending_xref)):
            target = reference["reftarget"]
            if reference.get("refdomain") == "doc" and target not in self.env.found_docs:
                path = next(self.env.srcdir.glob(f"{target}.*"))
                folder = self.env.doc2path(self.env.docname).parent
                self._link(reference, os.path.relpath(path, folder))

    def _link(self, node: nodes.Element, path: str) -> None:
        link = nodes.reference(refuri=path, file=path, internal=True)
        link += node.children
        node.replace_self(link)


def copy_files(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Copy what the page `docname` links to; a page of HTML comes with all of its folder."""
    folder = Path(docname).parent
    for node in doctree.findall(nodes.reference):
        if "file" not in node:
            continue
        path = (app.srcdir / folder / node["file"]).resolve()
        copy = app.outdir / path.relative_to(app.srcdir)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".html":
            shutil.copytree(path.parent, copy.parent, dirs_exist_ok=True)
        else:
            shutil.copyfile(path, copy)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register both steps."""
    app.add_transform(LinkedFiles)
    app.connect("doctree-resolved", copy_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
