"""Files that are no pages keep their place: a page's link to a record leads to its copy."""

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
        """Replace every download by a link to the same relative path."""
        for node in list(self.document.findall(addnodes.download_reference)):
            link = nodes.reference(refuri=node["reftarget"], file=node["reftarget"], internal=True)
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
