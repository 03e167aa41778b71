"""Describes what a picture file holds, and what another format would keep of it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from waifu2x.formats import table
from waifu2x.formats.adapt import keeps_colours
from waifu2x.formats.metadata import code_points, icc, transfer
from waifu2x.formats.metadata.jpeg_quality import JpegQuality, quality_of
from waifu2x.formats.read import content, open_content
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Description:
    """The content of a picture file, and what a result would keep of it."""

    format: str
    width: int
    height: int
    """Both of the picture once it is upright."""
    colours: str
    """`grey` or `RGB`, as it is computed."""
    palette: bool
    """Whether the file holds indices of a palette."""
    bits: int
    """Bits of a sample; 32 is float."""
    transparent: bool
    """Whether any pixel is transparent."""
    pictures: int
    """The number of frames or pages; the other fields describe the first."""
    profile: str | None
    """The name of its colour profile."""
    code_points: str | None
    """The name of its colours, where the file says them by the numbers of ITU-T H.273."""
    metadata: tuple[str, ...]
    """Kinds of metadata that are there."""
    parts: tuple[str, ...]
    """Kinds of what the file holds besides these pictures, which no result has."""
    kept: tuple[str, ...]
    lost: tuple[str, ...]
    """Kinds of content that a result in the format asked for keeps, and that it does not."""
    notices: tuple[str, ...]
    """Parts of the file that cannot be read, each a clause without a full stop."""
    jpeg: JpegQuality | None = None
    """How good a JPEG is; None for other formats."""


def describe(path: Path, extension: str) -> Description:
    """Describes the pictures in a file, and what they lose in the format of `extension`.

    Raises ImageError for a file that cannot be read, and for one that is not supported.
    """
    form = table.of(extension)
    with closing(open_content(content(path), str(path))) as source:
        header, timed = source.header, source.first()
        notices = {*header.notices, *timed.notices}
        for further in source:
            notices |= {*further.notices}
    first = timed.picture
    height, width, planes = first.pixels.shape
    bits = first.depth
    said = transfer.kinds(first.metadata)
    colours = first.colours
    every = "animation" if header.animated else "pages"
    held: dict[str, bool] = {kind: kind in form.keeps for kind in sorted(said)}
    keeps = keeps_colours(first, form)
    if colours.code_points:
        held["code points"] = keeps
    if colours.icc_profile:
        held["profile"] = keeps
    if colours.hdr:
        held["HDR10"] = "HDR10" in form.keeps
    if first.transparent:
        held["transparency"] = form.alpha
    count = header.count or 1
    if count > 1:
        held[every] = form.frames == every
    if bits > 8:
        held[f"{bits} bits"] = bits <= max(form.depths)
    held |= dict.fromkeys(sorted(header.parts), False)
    return Description(
        format=header.format,
        width=width,
        height=height,
        colours="grey" if planes == 1 else "RGB",
        palette=header.palette,
        bits=bits,
        transparent=first.transparent,
        pictures=count,
        profile=icc.name_of(colours.icc_profile) if colours.icc_profile else None,
        code_points=code_points.name_of(colours.code_points) if colours.code_points else None,
        metadata=tuple(sorted(said)),
        parts=tuple(sorted(header.parts)),
        kept=tuple(kind for kind, kept in held.items() if kept),
        lost=tuple(kind for kind, kept in held.items() if not kept),
        notices=tuple(sorted(notices)),
        jpeg=quality_of(header.jpeg) if header.jpeg else None,
    )
