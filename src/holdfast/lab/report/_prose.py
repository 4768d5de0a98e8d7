"""Notes: paragraphs with a blank line between them, in which `code` and **bold** are all the markup there is."""

import re
from typing import Literal

Span = tuple[Literal["text", "code", "bold"], str]

_MARKED = re.compile(r"`([^`\n]+)`|\*\*(?=\S)(.+?)(?<=\S)\*\*", re.DOTALL)


def paragraphs(text: str) -> list[list[Span]]:
    """The parts of a note, to be escaped by whoever writes them out.

    Example:
        >>> paragraphs("One **bold** word.")
        [[('text', 'One '), ('bold', 'bold'), ('text', ' word.')]]
    """
    return [_spans(" ".join(part.split())) for part in re.split(r"\n\s*\n", text) if part.strip()]


def _spans(text: str) -> list[Span]:
    spans: list[Span] = []
    end = 0
    for found in _MARKED.finditer(text):
        if found.start() > end:
            spans.append(("text", text[end : found.start()]))
        spans.append(("code", found[1]) if found[1] else ("bold", found[2]))
        end = found.end()
    return [*spans, ("text", text[end:])] if end < len(text) else spans
