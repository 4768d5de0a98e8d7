"""Notes: Markdown with paragraphs, lists, emphasis, code and links, without raw HTML."""

import re
from collections.abc import Iterable

from markdown_it import MarkdownIt
from markdown_it.token import Token

_PARSER = MarkdownIt("zero").enable(
    ["list", "backticks", "emphasis", "link", "escape", "entity", "newline"]
)

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~$<>-])")


def note_html(text: str) -> str:
    """Render a note as HTML.

    Example:
        >>> print(note_html("One **bold** word, <b>."), end="")
        <p>One <strong>bold</strong> word, &lt;b&gt;.</p>
    """
    tokens = _PARSER.parse(text)
    for child in (child for token in tokens for child in token.children or ()):
        if child.type == "text":
            child.content = child.content.replace(" %", "\N{NO-BREAK SPACE}%")
    return str(_PARSER.renderer.render(tokens, _PARSER.options, {}))


def note_markdown(text: str) -> str:
    """Write a note as Markdown in which only the markup above is active."""
    blocks: list[str] = []
    markers: list[str] = []
    for token in _PARSER.parse(text):
        if token.type == "list_item_open":
            markers.append(f"{token.info}{token.markup} ")
        elif token.type == "list_item_close":
            markers.pop()
        elif token.type == "inline":
            blocks.append("".join(markers) + _inline(token.children or ()))
            # Later paragraphs of an item are indented by the width of its marker.
            markers = [" " * len(marker) for marker in markers]
    return "\n\n".join(blocks)


def escaped(text: str) -> str:
    r"""Escape a text for one line of Markdown.

    Example:
        >>> print(escaped("<b> a_b & c"))
        \<b\> a\_b &amp; c
    """
    return _SPECIAL.sub(_escape, " ".join(text.split()).replace("&", "&amp;"))


def code(text: str) -> str:
    """Write a text as inline code of Markdown, whatever backticks it contains."""
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    line = re.sub(r"\s*\n\s*", " ", text)
    return f"{fence}{pad}{line}{pad}{fence}"


def _inline(tokens: Iterable[Token]) -> str:
    text, address = "", ""
    for token in tokens:
        address = str(token.attrGet("href") or address).replace("(", "%28").replace(")", "%29")
        if token.type == "text":
            # Escaping strips the spaces around a text, which separate it from the next.
            left, right = (" " * bool(re.search(end, token.content)) for end in (r"^\s", r"\S\s$"))
            text += left + escaped(token.content) + right
        elif token.type == "code_inline":
            text += code(token.content)
        elif token.type == "link_open":
            text = re.sub("!$", r"\\!", text) + "["  # a link, not an image
        else:
            marks = {"softbreak": " ", "hardbreak": "\\\n", "link_close": f"]({address})"}
            text += marks.get(token.type, token.markup)
    return text


def _escape(found: re.Match[str]) -> str:
    # Signs that are markup only at the start of a line stay as they are within one.
    is_inside = found.start() > 0 and found[1] in "()#+!-"
    return found[1] if is_inside else f"\\{found[1]}"
