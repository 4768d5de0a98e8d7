"""From matplotlib's SVG to a part of the page."""

import re
from xml.etree import ElementTree

from holdfast.lab.report._colors import with_variables

REFERENCE = re.compile(r"url\(#([^)]+)\)")


def page_svg(text: str, prefix: str) -> str:
    """The drawing without size, metadata and style sheet, in the page's letters and colours, with ids that begin with `prefix`.

    What has an id of the form `series-x` gets the attribute `data-series="x"` in its place; ids that nothing refers to go.
    """
    root = ElementTree.fromstring(text)
    for parent in list(root.iter()):
        for child in [child for child in parent if _name(child.tag) in ("metadata", "style")]:
            parent.remove(child)
    referred = {found for element in root.iter() for found in _references(element)}
    for element in root.iter():
        element.tag = _name(element.tag)
        element.attrib = dict(
            _attribute(key, value, prefix, referred)
            for key, value in element.attrib.items()
            if _name(key) != "id" or _is_kept(value, referred)
        )
        element.tail = None
        if element.text is not None and not element.text.strip():
            element.text = None
    root.attrib = {"viewBox": root.attrib["viewBox"], "aria-hidden": "true", "focusable": "false"}
    return ElementTree.tostring(root, encoding="unicode")


def _name(tag: str) -> str:
    return tag.rpartition("}")[2]


def _is_kept(value: str, referred: set[str]) -> bool:
    return value in referred or value.startswith("series-")


def _references(element: ElementTree.Element) -> list[str]:
    found = [match for value in element.attrib.values() for match in REFERENCE.findall(value)]
    return found + [
        value[1:]
        for key, value in element.attrib.items()
        if _name(key) == "href" and value.startswith("#")
    ]


def _attribute(key: str, value: str, prefix: str, referred: set[str]) -> tuple[str, str]:
    key = _name(key)
    if key == "id":
        return (
            ("id", f"{prefix}-{value}")
            if value in referred
            else ("data-series", value.removeprefix("series-"))
        )
    if key == "href" and value.startswith("#"):
        return key, f"#{prefix}-{value[1:]}"
    if key == "style":
        value = with_variables(re.sub(r"font-family: [^;]+; ?", "", value))
    if key == "d":
        value = re.sub(r"(\.\d\d)\d+", r"\1", " ".join(value.split()))
    return key, REFERENCE.sub(rf"url(#{prefix}-\1)", value)
