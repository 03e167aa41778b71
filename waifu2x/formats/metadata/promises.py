"""Takes out of XMP what it promises of a file's other parts, which no result holds.

Google's Ultra HDR 1.1, Motion Photo 1.0, Depthmap and Photo Sphere metadata; Adobe's gain maps and
XMP Specification, part 3, 1.1.3.1 (HasExtendedXMP).
"""

from __future__ import annotations

import re

_ALL = rb"[\w.-]+"
_PROMISES = {
    b"http://ns.google.com/photos/1.0/container/": _ALL,
    b"http://ns.adobe.com/hdr-gain-map/1.0/": _ALL,
    b"http://ns.apple.com/HDRGainMap/1.0/": _ALL,
    b"http://ns.google.com/photos/1.0/depthmap/": _ALL,
    b"http://ns.google.com/photos/1.0/image/": _ALL,
    b"http://ns.google.com/photos/1.0/audio/": _ALL,
    b"http://ns.google.com/photos/dd/1.0/device/": _ALL,
    b"http://ns.google.com/photos/1.0/camera/": rb"(?:MotionPhoto|MicroVideo)\w*",
    b"http://ns.adobe.com/xmp/note/": rb"HasExtendedXMP",
}
"""Patterns of the names that promise something, by their namespace."""
_DECLARED = rb"""\bxmlns:([\w.-]+)\s*=\s*["']([^"'<]+)["']"""


def without(xmp: bytes) -> bytes:
    """Returns XMP without promises; the same object if there are none."""
    for prefix, namespace in dict(re.findall(_DECLARED, xmp)).items():
        names = _PROMISES.get(namespace)
        if names:
            xmp = _without(xmp, re.escape(prefix) + b":" + names)
    return xmp


def _without(xmp: bytes, name: bytes) -> bytes:
    """Returns XMP without the properties of these names, be they attributes or elements.

    An element that does not end, and what follows it, stays.
    """
    kept, at = list[bytes](), 0
    pattern = re.compile(
        rb"""<(%s)(?:[\s/][^<>]*)?>|\s%s\s*=\s*(?:"[^"<]*"|'[^'<]*')""" % (name, name)
    )
    while found := pattern.search(xmp, at):
        element, end = found[1], found.end()
        if element and not found[0].endswith(b"/>"):
            closing = b"</" + element + b">"
            end = xmp.find(closing, end) + len(closing)
            if end < found.end():
                break
        kept.append(xmp[at : found.start()])
        at = end
    return b"".join((*kept, xmp[at:])) if kept else xmp
