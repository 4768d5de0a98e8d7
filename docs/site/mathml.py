"""Formulas as MathML, which browsers draw themselves: no script and no font to load."""

import re
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


def visit_math(self: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line."""
    self.body.append(_mathml(node, as_block=False))
    raise nodes.SkipNode


def visit_math_block(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula of its own."""
    self.body.append(f'<div class="math-block">{_mathml(node, as_block=True)}</div>')
    raise nodes.SkipNode


def _mathml(node: nodes.Element, *, as_block: bool) -> str:
    # The converter of docutils knows `\ldots` and `\cdots` only.
    formula = " ".join(node.astext().replace(r"\dots", r"\ldots").split())
    # Bars and brackets are no pairs here, so that one with an exponent would grow by itself.
    return re.sub("<mo>([‖⟨⟩])", r'<mo stretchy="false">\1', tex2mathml(formula, as_block=as_block))


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
