"""Code that pages link to, as pages: a script, a folder's settings, the citation."""

from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers import Parser
from sphinx.application import Sphinx

LANGUAGES = {".py": "python", ".sh": "bash", ".toml": "toml", ".cff": "yaml"}


class CodeParser(Parser):
    """Parses a file of code into a title and one highlighted block."""

    supported = ("code",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        """Fill `document` with the page."""
        path = Path(document["source"])
        name = str(path.relative_to(document.settings.env.srcdir))
        section = nodes.section(ids=[nodes.make_id(name)], names=[name])
        section += nodes.title(name, name)
        section += nodes.literal_block(inputstring, inputstring, language=LANGUAGES[path.suffix])
        document += section


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the parser for the suffixes of code."""
    for suffix in LANGUAGES:
        app.add_source_suffix(suffix, "code")
    app.add_source_parser(CodeParser)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
