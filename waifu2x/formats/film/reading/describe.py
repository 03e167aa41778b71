"""Describes a film by its header and its first frame."""

from __future__ import annotations

import io
import struct
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from waifu2x.errors import ImageError
from waifu2x.formats.film.description import (
    BT709,
    BT2020,
    HLG,
    MATRICES,
    PQ,
    RGB,
    SMPTE170M,
    UNSPECIFIED,
    ChromaSiting,
    CroppedEdges,
    Film,
    FilmColours,
    OtherStream,
    Pictures,
    PixelFormat,
    Range,
    seconds_of,
)
from waifu2x.formats.film.library import library
from waifu2x.formats.film.pixels import FULL_RANGE, frame_pixels
from waifu2x.formats.film.reading.opening import MAX_RATE, MAX_SIDE, decoder_of
from waifu2x.formats.film.reading.times import RESTARTED
from waifu2x.formats.film.writing.matroska import elements
from waifu2x.formats.metadata import profiles
from waifu2x.imaging.picture import Hdr

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.sidedata.sidedata import SideDataContainer
    from av.stream import Stream
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

STEREO_TAG = "stereo_mode"
"""The tag that FFmpeg makes of Matroska's field, and the field of the tag."""
HD_LINES = 720
"""Height from which a film without a named matrix is taken for BT.709."""
_OTHER_MATRICES = {
    8: "YCgCo",
    10: "BT.2020 of constant luminance",
    12: "of derived constant luminance",
    13: "of derived constant luminance",
    14: "ICtCp",
    15: "IPT",
}
"""Names of the matrices of H.273 that are no plain product."""
_DEFAULT = 1
"""FFmpeg's disposition of a stream that players choose by themselves."""
_ATTACHED_PICTURE = 0x400
"""FFmpeg's disposition of a cover."""
_PREFERRED = 5_000_000
"""Pixels that a file's own preference counts for where the program ffmpeg chooses a stream."""
_NOT_READ = 48
"""FFmpeg's way to discard all of a stream."""
_HORIZONTAL, _VERTICAL, _ADDED_TYPE, _ADDED_DATA = 0x55B7, 0x55B8, 0x41E7, 0x41ED
_CROPS = 0x54BB, 0x54AA, 0x54CC, 0x54DD
"""Pixels to crop: top, bottom, left, right."""
_SITINGS: dict[tuple[int, int], ChromaSiting] = {
    (1, 2): "left",
    (1, 1): "topleft",
    (2, 2): "center",
}
"""By Matroska's numbers: 1 is at the first pixel, 2 is half way to the second."""
_PARENTS = {
    0x18538067,  # segment
    0x1654AE6B,  # tracks
    0xAE,  # track
    0xE0,  # video
    0x55B0,  # colour
    0x41E4,  # what is added to packets
}
_DOLBY_VISION = (b"dvcC", b"dvvC", b"dvwC")


def main_stream(container: InputContainer, name: str) -> VideoStream:
    """Returns the video stream that is the film. It is the one that the program ffmpeg takes, by
    size and disposition, except that a cover never is, and a single picture only where nothing
    moves. Raises ImageError if there is none."""
    found = [
        stream
        for stream in container.streams.video
        if not int(stream.disposition) & _ATTACHED_PICTURE
    ]
    if not found:
        raise ImageError(f"{name}: it has no pictures to enlarge, only sound or a cover")
    return max(found, key=_preference)  # the first of equals


def _preference(stream: VideoStream) -> tuple[bool, int]:
    context = stream.codec_context
    if context is None:  # its codec is unknown to FFmpeg
        return False, 0
    preferred = _PREFERRED * (int(stream.disposition) & _DEFAULT)
    return not _is_single(stream), context.width * context.height + preferred


def _is_single(stream: VideoStream) -> bool:
    """Returns whether a stream is known to be of one picture, as thumbnails are."""
    if stream.frames:
        return stream.frames == 1
    seconds = seconds_of(dict(stream.metadata).get("DURATION", ""))
    if stream.duration is not None and stream.time_base is not None:
        seconds = float(stream.duration * stream.time_base)
    return seconds > 0 and round(seconds * _rate(stream)) <= 1


def describe(
    container: InputContainer,
    stream: VideoStream,
    first: VideoFrame,
    siting: ChromaSiting | None,
    seekable: bool,
    name: str,
) -> Film:
    """Describes a film whose first frame has been decoded. `siting` is the position of chroma, if
    the bytes of the file tell it. Raises ImageError for what is out of bounds."""
    others = tuple(_other(one) for one in container.streams if one.index != stream.index)
    restarted = container.format.name in RESTARTED  # an hour means nothing there
    return Film(
        container.format.name,
        None if container.duration is None else container.duration / 1_000_000,
        container.start_time or 0 if restarted else 0,
        seekable,
        _pictures(stream, first, siting, name),
        others,
        len(container.chapters()),
        tuple(sorted(container.metadata.items())),
    )


def _other(stream: Stream) -> OtherStream:
    codec = ""
    if stream.type in ("video", "audio", "subtitle"):
        # Streams of codecs without a decoder have no context.
        context = getattr(stream, "codec_context", None)
        codec = context.name if context is not None else ""
    elif stream.type == "attachment":
        codec = stream.metadata.get("mimetype", "")
    elif stream.type == "data":
        codec = stream.name or ""
    disposition = int(stream.disposition)
    return OtherStream(
        stream.index,
        stream.type,
        codec,
        stream.type == "video" and bool(disposition & _ATTACHED_PICTURE),
        _tags(stream),
        disposition,
        int(stream.discard) >= _NOT_READ,
    )


def _tags(stream: Stream) -> tuple[tuple[str, str], ...]:
    tags = dict(stream.metadata)
    if "name" in tags:
        tags.setdefault("title", tags.pop("name"))
    return tuple(sorted(tags.items()))


def _picture_tags(stream: VideoStream, stereo: str) -> tuple[tuple[str, str], ...]:
    """Returns the tags of the pictures, among them how they are a stereo picture, if they are."""
    tags = dict(_tags(stream))
    tags.setdefault(STEREO_TAG, stereo)
    if tags[STEREO_TAG] in ("", "mono"):
        del tags[STEREO_TAG]
    return tuple(sorted(tags.items()))


def _pictures(
    stream: VideoStream, first: VideoFrame, siting: ChromaSiting | None, name: str
) -> Pictures:
    if not (0 < first.width <= MAX_SIDE and 0 < first.height <= MAX_SIDE):
        raise ImageError(f"{name}: {first.width}x{first.height} pixels are more than are read")
    rate = _rate(stream)
    if stream.time_base is None or stream.time_base <= 0:
        raise ImageError(f"{name}: it has no times: it is damaged")
    pixels = frame_pixels(first, name)
    context = stream.codec_context
    _name_all_side_data()
    # PyAV's stubs name another class than its frames have.
    side_data = cast("SideDataContainer", first.side_data)
    hdr, lost, matrix, stereo = _side_data(side_data)
    header = header_of(stream)
    colours = colours_of(stream, first, pixels, siting or header.siting, name)
    if colours.primaries == colours.transfer == UNSPECIFIED:
        colours, unsaid = _profiled(colours, side_data, pixels.planes)
        lost += unsaid
    if header.dolby_vision is not None:
        if header.dolby_vision.is_needed:
            raise ImageError(
                f"{name}: its colours are of Dolby Vision, profile {header.dolby_vision.profile}, "
                "and mean nothing without it: it is not supported"
            )
        lost = tuple(dict.fromkeys(("Dolby Vision", *lost)))
    aspect = stream.sample_aspect_ratio
    crop = _crop(header.crop, pixels, first)
    return Pictures(
        stream.index,
        context.name,
        decoder_of(stream),
        first.height - crop.top - crop.bottom,
        first.width - crop.left - crop.right,
        pixels,
        stream.time_base,
        rate,
        stream.frames or None,
        aspect if aspect is not None and aspect > 0 else None,
        first.rotation,
        matrix,
        colours,
        hdr,
        lost,
        first.interlaced_frame or 2 <= int(context.field_order) <= 5,
        _picture_tags(stream, stereo),
        int(stream.disposition),
        crop,
    )


def _crop(told: CroppedEdges, pixels: PixelFormat, first: VideoFrame) -> CroppedEdges:
    """Returns what a container crops, from whole samples of chroma on; nothing if it leaves
    nothing, or has never seen such frames."""
    top, left = told.top - told.top % pixels.rows, told.left - told.left % pixels.columns
    crop = told._replace(top=top, left=left)
    is_sound = top + crop.bottom < first.height and left + crop.right < first.width
    return crop if is_sound else CroppedEdges()


def _rate(stream: VideoStream) -> Fraction:
    for rate in (stream.average_rate, stream.guessed_rate):
        if rate is not None and 0 < rate <= MAX_RATE:
            return Fraction(rate)
    return Fraction(25)


def colours_of(
    stream: VideoStream,
    first: VideoFrame,
    pixels: PixelFormat,
    told_siting: ChromaSiting | None,
    name: str,
) -> FilmColours:
    """Returns the meaning of a frame's samples, which have the layout `pixels`. `told_siting` is
    the position of chroma where the file tells it. Raises ImageError for a matrix that is not
    supported."""
    context = stream.codec_context
    assumed: list[Literal["matrix", "range", "siting"]] = []

    def told(of_frame: int, of_stream: int) -> int:
        # The stream has the numbers that only the container tells.
        return int(of_frame) if int(of_frame) != UNSPECIFIED else int(of_stream)

    matrix = told(first.colorspace, context.colorspace)
    span: Range = "limited"
    code = int(first.color_range) or int(context.color_range)
    if pixels.is_rgb:
        matrix, span = RGB, "full"
    elif code == 2 or first.format.name in FULL_RANGE:
        span = "full"
    elif code == 0:
        assumed.append("range")
    if matrix == UNSPECIFIED or (matrix == RGB and not pixels.is_rgb):
        matrix = BT709 if first.height >= HD_LINES else SMPTE170M
        assumed.append("matrix")
    if matrix not in MATRICES:
        told_as = _OTHER_MATRICES.get(matrix, f"matrix {matrix} of H.273")
        raise ImageError(f"{name}: its colours are {told_as}, which is not supported")
    siting = None
    if pixels.planes >= 3 and (pixels.columns, pixels.rows) != (1, 1):
        siting = told_siting
        if siting is None:
            is_420 = pixels.rows == 2
            siting = "left"
            if context.name == "mjpeg":
                siting = "center"
            elif matrix == BT2020 and is_420:
                siting = "topleft"
            assumed.append("siting")
    return FilmColours(
        matrix,
        span,
        told(first.color_primaries, context.color_primaries),
        told(first.color_trc, context.color_trc),
        siting or "left",
        tuple(assumed),
    )


def _profiled(
    colours: FilmColours, found: SideDataContainer, planes: int
) -> tuple[FilmColours, tuple[str, ...]]:
    """Returns the colours that a profile, as of PNG, has by the numbers of H.273; a profile of
    other colours is lost, in words."""
    profile = next((bytes(one) for one in found if one.type.name == "ICC_PROFILE"), None)
    if profile is None:
        return colours, ()
    points = profiles.code_points_of(profile, 1 if planes == 1 else 3)
    if points is None:
        return colours, ("the colour profile",)
    return replace(colours, primaries=points.primaries, transfer=points.transfer), ()


class _SideData(NamedTuple):
    """Facts that come with a frame."""

    hdr: Hdr | None
    lost: tuple[str, ...]
    """Names of what no encoder keeps."""
    matrix: tuple[int, ...] | None
    stereo: str
    """Matroska's word for the arrangement of a stereo picture; empty for a plain one."""


def _side_data(found: SideDataContainer) -> _SideData:
    primaries: tuple[Fraction, ...] = ()
    luminance: tuple[Fraction, ...] = ()
    light: tuple[Fraction, Fraction] | None = None
    matrix: tuple[int, ...] | None = None
    lost: list[str] = []
    stereo = ""
    for one in found:
        kind, data = one.type.name, bytes(one)
        if kind == "MASTERING_DISPLAY_METADATA" and len(data) >= 88:
            *numbers, has_primaries, has_luminance = struct.unpack("=22i", data[:88])
            values = [
                Fraction(top, bottom) if bottom else Fraction(0)
                for top, bottom in zip(numbers[::2], numbers[1::2], strict=True)
            ]
            primaries = tuple(values[:8]) if has_primaries else ()
            luminance = tuple(values[8:]) if has_luminance else ()
        elif kind == "CONTENT_LIGHT_LEVEL" and len(data) >= 8:
            most, mean = struct.unpack("=2I", data[:8])
            light = Fraction(most), Fraction(mean)
        elif kind == "DISPLAYMATRIX" and len(data) >= 36:
            matrix = struct.unpack("=9i", data[:36])
        elif kind == "STEREO3D" and len(data) >= 8:
            arrangement, flags = struct.unpack("=2i", data[:8])
            stereo = _STEREO.get(arrangement, ("", ""))[flags & 1]
        elif kind in _LOST and _LOST[kind] not in lost:
            lost.append(_LOST[kind])
    hdr = Hdr(primaries, luminance, light) if primaries or luminance or light else None
    return _SideData(hdr, tuple(lost), matrix, stereo)


_STEREO = {
    1: ("left_right", "right_left"),
    2: ("top_bottom", "bottom_top"),
    4: ("checkerboard_lr", "checkerboard_rl"),
    6: ("row_interleaved_lr", "row_interleaved_rl"),
    7: ("col_interleaved_lr", "col_interleaved_rl"),
}
"""Matroska's words for FFmpeg's arrangements of stereo pictures, and for the reversed ones."""

_LOST = {
    "DOVI_RPU_BUFFER": "Dolby Vision",
    "DOVI_METADATA": "Dolby Vision",
    "DYNAMIC_HDR_PLUS": "HDR10+",
    "DYNAMIC_HDR_VIVID": "HDR Vivid",
    "A53_CC": "closed captions",
    "SPHERICAL": "the projection of a spherical picture",
}


def _name_all_side_data() -> None:
    """Lets PyAV tell a frame's side data where one has no name there, such as EXIF: it would raise
    ValueError for all of them."""
    from av.sidedata import sidedata

    kinds: Any = sidedata.Type

    def unnamed(cls: Any, value: object) -> Any:
        made: Any = object.__new__(cls)
        made._name_, made._value_ = f"NUMBER_{value}", value
        return made

    kinds._missing_ = classmethod(unnamed)


def is_hdr(colours: FilmColours) -> bool:
    """Returns whether the samples are PQ or HLG, which networks were not made for."""
    return colours.transfer in (PQ, HLG)


class DolbyVision(NamedTuple):
    """The Dolby Vision of a film."""

    profile: int
    base: int
    """Meaning of the pictures without it: 0 none, 1 HDR10, 2 SDR, 4 HLG."""

    @property
    def is_needed(self) -> bool:
        """Returns whether the pictures have no meaning without it."""
        return self.profile == 5 or (self.profile == 10 and self.base == 0)


class StreamHeader(NamedTuple):
    """Facts of a film's header that PyAV does not tell."""

    siting: ChromaSiting | None = None
    dolby_vision: DolbyVision | None = None
    crop: CroppedEdges = CroppedEdges()


def header_of(stream: VideoStream) -> StreamHeader:
    """Returns the facts about the pictures that Matroska's header can hold. FFmpeg writes such a
    header for the stream, into memory."""
    av = library()
    written = io.BytesIO()
    try:
        with av.open(written, "w", format="matroska") as container:
            container.add_stream_from_template(stream, opaque=True)
            container.start_encoding()
            header = written.getvalue()
    except (av.FFmpegError, ValueError):  # a codec that Matroska does not know
        return StreamHeader()
    found: dict[int, bytes] = {}
    _walk(header, 0, len(header), found)
    sides = (int.from_bytes(found.get(number, b"")) for number in (_HORIZONTAL, _VERTICAL))
    told = found.get(_ADDED_DATA, b"")
    vision = None
    if found.get(_ADDED_TYPE) in _DOLBY_VISION and len(told) > 4:
        vision = DolbyVision(told[2] >> 1, told[4] >> 4)
    crop = CroppedEdges(*(int.from_bytes(found.get(number, b"")) for number in _CROPS))
    return StreamHeader(_SITINGS.get((next(sides), next(sides))), vision, crop)


def _walk(data: bytes, at: int, end: int, found: dict[int, bytes]) -> None:
    for one in elements(data, at, end):
        if one.number in _PARENTS:
            _walk(data, one.start, one.end, found)
        elif one.number in (_HORIZONTAL, _VERTICAL, _ADDED_TYPE, _ADDED_DATA, *_CROPS):
            found[one.number] = data[one.start : one.end]
