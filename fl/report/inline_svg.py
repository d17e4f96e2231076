"""SVG of matplotlib made fit to stand inside an HTML page, beside others."""

import re
from xml.etree import ElementTree

_SVG, _XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
_FONT = re.compile(r"font:\s*(?:[a-z]+\s+)*([\d.]+px)\s+[^;]*")
_REFERENCE = re.compile(r"url\(#([^)]*)\)")


def inline_svg(content: bytes, *, prefix: str, description: str) -> str:
    """The <svg> element of `content` (written by this program), for HTML.

    Ids get the prefix, because a page may have one of each only. It scales with the page (no width and height of its
    own), takes the page's font, and says `description` to readers who do not see it.
    """
    # Not from outside: matplotlib has just written it, and escapes the texts that it was given.
    root = ElementTree.fromstring(content)  # noqa: S314
    for parent in root.iter():
        for child in list(parent):
            if child.tag == f"{{{_SVG}}}metadata":
                parent.remove(child)
    safe = re.sub(r"[^A-Za-z0-9_-]", "-", prefix)
    for element in root.iter():
        _rename(element, safe)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("role", "img")
    root.set("aria-label", description)
    ElementTree.register_namespace("", _SVG)
    ElementTree.register_namespace("xlink", _XLINK)
    return ElementTree.tostring(root, encoding="unicode")


def _rename(element: ElementTree.Element, prefix: str) -> None:
    for name, value in list(element.attrib.items()):
        if name == "id":
            element.set(name, f"{prefix}-{value}")
        elif name == f"{{{_XLINK}}}href":
            element.set(name, f"#{prefix}-{value.removeprefix('#')}")
        else:
            shortened = _FONT.sub(r"font-size: \1", value) if name == "style" else value
            element.set(name, _REFERENCE.sub(rf"url(#{prefix}-\1)", shortened))
