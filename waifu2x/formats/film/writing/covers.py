"""Covers and fonts: what is attached to a film."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from waifu2x.formats.film.description import OtherStream

if TYPE_CHECKING:
    from av.stream import Stream

CoverOf = Callable[["Stream"], bytes]
"""Reads the picture of a cover."""


def attach(out: Any, told: OtherStream, picture: bytes) -> None:
    """Adds a cover as an attached file, which Matroska has covers as."""
    tags = dict(told.tags)
    is_png = told.codec == "png"
    out.add_attachment(
        tags.get("filename", "cover.png" if is_png else "cover.jpg"),
        tags.get("mimetype", "image/png" if is_png else "image/jpeg"),
        picture,
    )


def cover_from_file(stream: Any) -> bytes:
    """The picture of a cover, of a film that can be sought in and stands at its beginning."""
    packets = stream.container.demux(stream)
    data = next((bytes(packet) for packet in packets if packet.size), b"")
    stream.container.seek(0)
    return data
