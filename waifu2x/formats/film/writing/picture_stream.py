"""The stream of pictures of a film that is written, without an encoder: whatever a container wants
to know of it is in the header of each part."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, NamedTuple

from waifu2x.formats.film.library import library
from waifu2x.formats.film.writing.encode import Shape

_NO_PICTURES = bytes.fromhex("1f43b675 83 e78100")
"""A cluster of Matroska without packets: FFmpeg takes no file for one that has none."""


class PictureTemplate(NamedTuple):
    """Where the parameters of a coded stream are found."""

    file: bytes | Path
    """Matroska: a part, or only the header of one."""
    extradata: bytes | None = None
    """What decoders have to know first; None: what the file says. They differ where packets do not
    come from Matroska."""


def template_of(header: bytes) -> PictureTemplate:
    """The parameters of a stream in Matroska of which only the header has been written."""
    return PictureTemplate(header + _NO_PICTURES)


def opened_part(file: bytes | Path) -> Any:
    """A part, or the header of one, open for reading: a context manager. Nothing is decoded, as
    FFmpeg does by itself to know what is in its header anyway."""
    opened = io.BytesIO(file) if isinstance(file, bytes) else f"file:{file}"
    unread = {"probesize": "32", "analyzeduration": "1"}
    return library().open(opened, "r", format="matroska", options=unread)


def add_pictures(out: Any, container: str, shape: Shape, template: PictureTemplate) -> Any:
    """Adds the stream of pictures to a container, whose extension is `container`."""
    with opened_part(template.file) as part:
        told: Any = part.streams.video[0]
        video = out.add_stream_from_template(told, opaque=True)
        own, context = told.codec_context, video.codec_context
        codec = shape.encoding.codec
        if template.extradata is not None:
            context.extradata = template.extradata
        if codec == "prores":
            # Its profile is its tag, which is all that its extradata are in Matroska.
            context.extradata, context.codec_tag = None, own.codec_tag
            if shape.encoding.pixels.planes == 4:
                context.bits_per_coded_sample = _WITH_ALPHA
    is_hevc = codec == "x265" or codec.startswith("hevc_")
    if is_hevc and container in ("mp4", "mov"):
        context.codec_tag = "hvc1"  # or Apple's players show nothing
    # Nothing decodes what a header alone describes: some of it would be unknown.
    context.height, context.width = shape.height, shape.width
    context.pix_fmt = shape.encoding.taken
    context.framerate = shape.rate
    if shape.aspect is not None:
        context.sample_aspect_ratio = shape.aspect
    video.time_base = shape.tick
    return video


_WITH_ALPHA = 32
"""Bits of a pixel by which QuickTime knows that it is transparent."""
