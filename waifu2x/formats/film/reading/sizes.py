"""Finds where pictures change their size within a film, and fits them to its first size.

Recordings of television change at every break, from one channel's size to another's. The film goes
on at the size that it began with: its encoder and most players know no other.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from waifu2x.errors import ImageError
from waifu2x.formats.film.description import (
    BT470BG,
    BT709,
    BT2020,
    SMPTE170M,
    SMPTE240M,
    Film,
    FilmColours,
    Pictures,
    PixelFormat,
)
from waifu2x.formats.film.library import library
from waifu2x.formats.film.pixels import frame_pixels
from waifu2x.formats.film.reading.describe import colours_of
from waifu2x.formats.film.reading.fields import configure, link, source_of
from waifu2x.formats.film.reading.opening import MAX_SIDE, new_decoder
from waifu2x.formats.film.reading.packets import Packets
from waifu2x.formats.film.reading.selection import MAX_CHANGES
from waifu2x.formats.film.reading.times import RESTARTED

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

_LOOKED_AT = 48
"""Places of a film, evenly spaced: about one in two minutes of an evening's recording."""
_MOST_PACKETS = 2000
"""Packets of pictures among which a keyframe is looked for."""

_MATRICES = {
    BT709: "bt709", 4: "fcc", BT470BG: "bt601", SMPTE170M: "bt601", SMPTE240M: "smpte240m",
    BT2020: "bt2020",
}  # fmt: skip
"""Names of FFmpeg's filter `scale`, by the numbers of H.273."""
_TRANSPARENT = PixelFormat("gbrap", 8, 1, 1, 4, is_rgb=True)
"""The format of palettes, with transparency."""
_ALIKE = Fraction(1, 50)
"""The difference between two proportions, as a fraction of one, that is no reason for bars."""


class SizeFrom(NamedTuple):
    """The size of pictures from a time of the film on, in seconds."""

    seconds: float
    width: int
    height: int


def sizes_of(
    container: InputContainer,
    film: Film,
    name: str,
    nbytes: int,
    on_packet: Callable[[], None] = lambda: None,
) -> tuple[SizeFrom, ...]:
    """Returns the sizes of pictures in the order of a film of `nbytes` bytes: usually one. What
    lasts less than a fiftieth of the film may be missing. Raises ImageError."""
    stream: Any = container.streams[film.pictures.index]
    seen: list[tuple[int, tuple[int, int]]] = []
    for number in range(_LOOKED_AT):
        with suppress(library().FFmpegError):
            if film.container in RESTARTED:  # whose times may repeat
                place = nbytes * number // _LOOKED_AT
                container.seek(place, unsupported_byte_offset=True)
            else:
                seconds = Fraction(film.seconds or 0) * number / _LOOKED_AT
                container.seek(int(seconds / stream.time_base), stream=stream)
            for packet in islice(container.demux(stream), _MOST_PACKETS):
                on_packet()
                if packet.is_keyframe and packet.size and packet.pos is not None:
                    size = _size(packet, stream, name)
                    seen += [] if size is None else [(packet.pos, size)]
                    break
    seen.sort()
    within = [(one[0], other[0]) for one, other in pairwise(seen) if one[1] != other[1]]
    found = [SizeFrom(0.0, film.pictures.width, film.pictures.height)]
    if not within:
        return tuple(found)
    container.seek(0, unsupported_byte_offset=film.container in RESTARTED)
    origin = Fraction(film.shift, 1_000_000)
    for packet in Packets(container, [stream]):
        on_packet()
        pos, pts = packet.pos, packet.pts
        if not packet.is_keyframe or pos is None or pts is None or len(found) > MAX_CHANGES:
            continue
        if any(first <= pos <= last for first, last in within):
            size = _size(packet, stream, name)
            if size is not None and size != found[-1][1:]:
                begin = max(Fraction(0), pts * stream.time_base - origin)
                found.append(SizeFrom(float(begin), *size))
    return tuple(found)


def _size(packet: Packet[Any], stream: Any, name: str) -> tuple[int, int] | None:
    """Returns width and height of a picture; None if it cannot be decoded by itself."""
    context = new_decoder(stream, name)
    frames = []
    with suppress(library().FFmpegError):
        frames = [*context.decode(packet), *context.decode(None)]
    return (frames[0].width, frames[0].height) if frames else None


class Fitting:
    """Makes each frame one of the film's size and format."""

    def __init__(self, pictures: Pictures, stream: VideoStream, name: str) -> None:
        """`name` stands for the film in messages."""
        self._pictures, self._stream, self._name = pictures, stream, name
        self._of: tuple[Any, ...] = ()
        """The properties of the frames that the graph is for."""
        self._graph: Any = None
        self._entry: Any = None

    def change(self, frame: VideoFrame) -> str:
        """Returns the size of a frame, and its samples where they are not the film's; empty for a
        frame like those of the film."""
        pictures = self._pictures
        size = f"{frame.width}x{frame.height}"
        pixels = frame_pixels(frame, self._name)
        is_palette = frame.format.name == "pal8" and pictures.pixels == _TRANSPARENT
        if pixels != pictures.pixels and not is_palette:
            return f"{size} {frame.format.name}"
        return "" if (frame.width, frame.height) == pictures.coded_size else size

    def fitted(self, frame: VideoFrame, *, is_shown: bool) -> VideoFrame:
        """Returns a frame of the film's size and format, with the times of `frame`. Pictures of
        other proportions get bars. Raises ImageError where samples would be lost of one that is
        shown, or where the picture is too large."""
        if not self.change(frame):
            return frame
        if is_shown or max(frame.width, frame.height) > MAX_SIDE:
            self._check(frame)
        pts, duration = frame.pts, frame.duration
        aspect = self._stream.codec_context.sample_aspect_ratio
        told = frame.colorspace, frame.color_range, aspect
        of = (frame.width, frame.height, frame.format.name, *told)
        if of != self._of:
            self._begin(frame, aspect or None)
            self._of = of
        frame.time_base = self._pictures.time_base
        self._entry.push(frame)
        made: VideoFrame = self._graph.pull()
        made.pts, made.duration = pts, duration
        return made

    def _check(self, frame: VideoFrame) -> None:
        film = self._pictures
        pixels = frame_pixels(frame, self._name)
        if not _holds(film.pixels, pixels) or max(frame.width, frame.height) > MAX_SIDE:
            raise ImageError(
                f"{self._name}: its pictures change from {film.width}x{film.height}"
                f" {film.pixels.name}"
                f" to {frame.width}x{frame.height} {frame.format.name} at "
                f"{float((frame.pts or 0) * film.time_base):.6g} s",
                "make two films, by --end and --start there",
            )

    def _begin(self, frame: VideoFrame, aspect: Fraction | None) -> None:
        film = self._pictures
        pixels = frame_pixels(frame, self._name)
        width, height = whole = film.coded_size
        shown = Fraction(frame.width, frame.height) * (aspect or 1)
        wanted = Fraction(*whole) * (film.aspect or 1)
        if abs(shown / wanted - 1) > _ALIKE:
            # A picture's proportions against those of the film decide where bars are.
            width = min(width, 2 * round(width * shown / wanted / 2) or 2)
            height = min(height, 2 * round(height * wanted / shown / 2) or 2)
        graph = library().filter.Graph()
        entry = source_of(graph, frame, film.time_base)
        scale = f"w={width}:h={height}:interl=-1:flags=bicubic+accurate_rnd+full_chroma_int"
        own = colours_of(self._stream, frame, pixels, film.colours.siting, self._name)
        link(
            graph,
            entry,
            ("scale", scale + _conversion(own, film.colours, pixels, film.pixels)),
            ("pad", f"w={whole[0]}:h={whole[1]}:x=trunc((ow-iw)/4)*2:y=trunc((oh-ih)/4)*2"),
            ("format", f"pix_fmts={film.pixels.name}"),
        )
        configure(graph, frame, self._name)
        self._graph, self._entry = graph, entry


def _conversion(
    own: FilmColours, film: FilmColours, pixels: PixelFormat, wanted: PixelFormat
) -> str:
    """Returns the options of `scale` that give samples the meaning of the film's."""
    found = ""
    if not pixels.is_rgb:
        found += f":in_color_matrix={_MATRICES[own.matrix]}:in_range={own.range}"
    if not wanted.is_rgb:
        found += f":out_color_matrix={_MATRICES[film.matrix]}:out_range={film.range}"
    return found


def _holds(film: PixelFormat, pixels: PixelFormat) -> bool:
    """Returns whether a format loses nothing of the samples of another."""
    return (
        film.planes >= pixels.planes
        and film.bits >= pixels.bits
        and film.columns <= pixels.columns
        and film.rows <= pixels.rows
        and (film.is_rgb or not pixels.is_rgb)
    )
