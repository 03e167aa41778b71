"""ComicInfo.xml, the description of a comic in its archive: what of it holds for a larger one.

The elements are those of <https://anansi-project.github.io/docs/comicinfo/documentation>.
"""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree
from xml.parsers import expat

_LARGEST = 1 << 20
"""Bytes of a file from a stranger that are read."""
_PAGE = re.compile(rb"<Page\s[^>]*>")
_SIZES = ("ImageSize", "ImageWidth", "ImageHeight")
_SIZE = re.compile(rf"""\s+({"|".join(_SIZES)})\s*=\s*("[^"]*"|'[^']*')""".encode())
_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)
"""Names of elements and attributes that are kept: none of a namespace."""


def is_comic_info(name: str) -> bool:
    """Returns whether a member of an archive is its description, by its name."""
    return name.lower() == "comicinfo.xml"


def without_sizes(content: bytes) -> bytes:
    """Returns a description without the pages' sizes, which the result's pages do not have. All
    other bytes stay."""
    return _PAGE.sub(lambda page: _SIZE.sub(b"", page[0]), content)


def rewritten(content: bytes) -> bytes | None:
    """Returns a stranger's description written anew: plain elements with their text, and the pages,
    without their sizes. Returns None if it is damaged, is another document, or is too large."""
    root = _parsed(content) if len(content) <= _LARGEST else None
    if root is None or root.tag != "ComicInfo":
        return None
    made = ElementTree.Element("ComicInfo")
    for found in root:
        if found.tag == "Pages":
            pages = ElementTree.SubElement(made, "Pages")
            for page in found.iterfind("Page"):
                ElementTree.SubElement(pages, "Page", _kept(page.attrib))
        elif _NAME.fullmatch(found.tag):
            ElementTree.SubElement(made, found.tag).text = found.text
    ElementTree.indent(made)
    written: bytes = ElementTree.tostring(made, encoding="utf-8", xml_declaration=True)
    return written


def _kept(attributes: dict[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in attributes.items()
        if _NAME.fullmatch(name) and name not in (*_SIZES, "xmlns")
    }


class _DoctypeError(Exception):
    """Ends the reading of a document that could define entities."""


def _parsed(content: bytes) -> ElementTree.Element | None:
    def refuse(*_: Any) -> None:
        raise _DoctypeError

    builder, parser = ElementTree.TreeBuilder(), expat.ParserCreate()
    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.data
    try:
        parser.Parse(content, True)
        return builder.close()
    except (expat.ExpatError, _DoctypeError, LookupError, ValueError):
        return None
