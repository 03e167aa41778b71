"""Finds where pictures change their size within a film, by looking at a few of its keyframes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from waifu2x.formats.film.description import Film
from waifu2x.formats.film.library import library
from waifu2x.formats.film.reading.clock import RESTARTED
from waifu2x.formats.film.reading.opening import new_decoder
from waifu2x.formats.film.reading.packets import Packets
from waifu2x.formats.film.reading.selection import MAX_CHANGES

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet

_LOOKED_AT = 48
"""Places of a film, evenly spaced: about one in two minutes of an evening's recording."""
_MOST_PACKETS = 2000
"""Packets of pictures among which a keyframe is looked for."""


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
