"""Decodes the pictures of a film: all of them, with their own times."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from waifu2x.errors import ImageError
from waifu2x.formats.film import frame_files, y4m
from waifu2x.formats.film.deinterlacing import Deinterlacing, deinterlaced
from waifu2x.formats.film.describe import decoder_of, describe, main_stream
from waifu2x.formats.film.description import Film
from waifu2x.formats.film.library import library
from waifu2x.formats.film.opening import MAX_SECONDS, beginning
from waifu2x.formats.film.packets import MAX_GAPS, Gap, Packets
from waifu2x.formats.film.pixels import pixel_format
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.frame import VideoFrame

_UNTIL_FIRST = 2000
"""Packets within which there must be a frame."""
_MOST_KEPT = 256 << 20
"""Bytes of other streams between two pictures: what can be read only once keeps them."""
_EARLIER = 2
"""Seconds before the place that is wanted, to find a keyframe whose references are all there."""
_FRAMED = ("matroska", "mov")
_ONE_EACH = ("h264", "hevc", "ffv1", "prores", "dnxhd", "mjpeg", "png", "vp9")
"""Containers and codecs of which each packet is one picture."""


@dataclass(frozen=True)
class Selection:
    """Which frames are wanted, and how."""

    start: Fraction = Fraction(0)
    """Seconds from the film's beginning."""
    end: Fraction | None = None
    first: int | None = None
    """The time in ticks from which on frames are wanted. The one before, if there is one, comes
    first, unwanted: it tells whether a search has found the right place."""
    until: int | None = None
    """The time in ticks from which on they are not wanted any more. The first of those comes last,
    unwanted: it tells what follows."""
    is_sought: bool = True
    """Whether `first` is sought in the film, or come to by decoding all that is before it."""
    deinterlacing: Deinterlacing = "off"


class Decoded(NamedTuple):
    """A frame, with a time of its own that is later than that of the frame before it."""

    frame: VideoFrame
    pts: int
    """In ticks of the film, from its beginning where its times mean nothing."""
    duration: int
    """In ticks; 0 where the film does not say."""
    is_wanted: bool = True
    """False of the frame before the first one wanted, and of the one after the last."""
    damaged: int = 0
    """Packets that could not be decoded up to now."""
    moved: int = 0
    """Frames up to this one whose time was moved."""


class Ending(NamedTuple):
    """What was found only while a film was decoded."""

    frames: int = 0
    damaged: int = 0
    """Packets and frames that could not be decoded as they were meant, and places at which the
    container is damaged."""
    moved: int = 0
    """Frames whose time was not after that of the frame before, or no film's, and was moved."""
    seconds: Fraction = Fraction(0)
    """Where the last frame ends."""
    is_short: bool = False
    """Whether it ends before the film says it does."""
    gaps: tuple[Gap, ...] = ()
    """The first stretches without frames, of a film that is damaged: else they are meant so."""


class _CodedPictures:
    """Counts the packets of pictures that are to be shown."""

    def __init__(self) -> None:
        self.number = 0
        self._waiting: list[int | None] = []
        """Times of packets before the first picture."""
        self._first: int | None = None

    def add(self, packet: Packet[Any]) -> None:
        """Counts one, unless it is shown before the first picture: what it needs is not there."""
        if packet.is_discard:
            return
        if self._first is None:
            self._waiting.append(packet.pts)
        else:
            self._count(packet.pts)

    def begin(self, frames: Sequence[VideoFrame]) -> None:
        """Hears of the pictures that have come."""
        if self._first is None and frames:
            self._first = -1 if frames[0].pts is None else frames[0].pts
            for pts in self._waiting:
                self._count(pts)
            self._waiting.clear()

    def _count(self, pts: int | None) -> None:
        assert self._first is not None
        self.number += pts is None or pts >= self._first


class Reader:
    """The pictures of a film that is open."""

    def __init__(
        self,
        container: InputContainer,
        file: IO[bytes],
        name: str,
        on_packet: Callable[[], None] = lambda: None,
        complaints: int = 0,
        *,
        keeps_others: bool = False,
        times: Sequence[int] | None = None,
    ) -> None:
        """Decodes the first frame. `on_packet` is called for each packet; `complaints` there were
        when the film was opened, which reads some of it.

        With `keeps_others`, packets of all other streams are read with those of the pictures and
        kept in `others` for whoever calls `frames`. `times` are those of frames that have none of
        their own, in ticks of `frame_files`. Raises ImageError.
        """
        self._on_packet = on_packet
        self._container = container
        self._name = name
        self._stream = main_stream(container, name)
        self._context = self._new_context()
        kinds = ("video", "audio", "subtitle") if keeps_others else ()
        read = [one for one in container.streams if one is self._stream or one.type in kinds]
        self._packets = Packets(container, read)
        self._feed = iter(self._packets)
        self.others: deque[Packet[Any]] = deque()
        """Packets of other streams, in the order of the file."""
        self._times = times
        self._coded = _CodedPictures()
        self._complaints = complaints
        self._damaged = 0
        self._following: int | None = None
        """When the next frame is due, in ticks."""
        self._gaps: list[Gap] = []
        self._waiting = self._decode()
        seekable = file.seekable()
        first = next(self._waiting, None)
        if first is None:
            raise ImageError(f"{name}: none of its pictures can be decoded")
        self._first: VideoFrame | None = first
        self._delay: int | None = first.dts if container.format.name == "avi" else None
        """AVI has no times of showing, only an order of coding: what its frames are late by."""
        is_raw = container.format.name == "yuv4mpegpipe"
        siting = y4m.told_siting(beginning(file)) if is_raw else None
        film = describe(container, self._stream, first, siting, seekable, name)
        self.film: Film = film if times is None else _timed_by_file(film, times)
        self.ending = Ending()

    def frames(self, selection: Selection) -> Iterator[Decoded]:
        """The frames that are wanted. Can be done once.

        `ending` is right when they are over. Raises ImageError where the pictures change.
        """
        pictures = self.film.pictures
        tick = tick_of(self.film, selection.deinterlacing)
        origin = self.film.shift / Fraction(1_000_000)
        start = _ticks(selection.start, tick)
        if not self.film.seekable and selection.first is not None:
            raise ImageError(f"{self._name}: cannot be sought in, so nothing can be resumed")
        if selection.first is not None:
            if selection.is_sought:
                self._seek(selection.first * tick + origin)
        elif start > 0 and self.film.seekable:
            self._seek(selection.start + origin)
        last: int | None = None
        count = moved = 0
        length = _ticks(1 / pictures.rate, tick) or 1
        held: Decoded | None = None
        end = 0
        frames = (
            deinterlaced(self._from_here(), self._stream, pictures.rate, selection.deinterlacing)
            if self._times is None
            else ((frame, tick) for frame in self._from_here())
        )
        for frame, pts, duration, is_told in _timed(frames, origin, tick, length):
            moved += not is_told
            if last is not None and pts <= last:
                pts, moved = last + 1, moved + is_told
            last = pts
            self._watch(pts, duration or length, length, tick)
            if selection.end is not None and pts * tick >= selection.end:
                break
            if pts < start:
                continue
            if selection.first is None or pts >= selection.first:
                # Before that, frames may lack what they were made of.
                self._damaged += int(frame.is_corrupt)
            now = Decoded(frame, pts, duration, True, self._damaged + self._packets.damaged, moved)
            if selection.first is not None and pts < selection.first:
                held = now
                continue
            if held is not None:
                yield held._replace(is_wanted=False)
                held = None
            if selection.until is not None and pts >= selection.until:
                yield now._replace(is_wanted=False)
                break
            count += 1
            end = pts + (duration or length)
            yield now
        else:
            if held is not None:
                yield held._replace(is_wanted=False)
            is_all = selection.first is None and not start
            whole = selection.deinterlacing != "ivtc"
            self._tell(count, moved, end * tick, whole=whole, is_all=whole and is_all)
            return
        self._tell(count, moved, end * tick, whole=False, is_all=False)

    def _watch(self, pts: int, duration: int, length: int, tick: Fraction) -> None:
        """Notes a stretch without frames before this one, which is longer than one."""
        begun, self._following = self._following, pts + duration
        if begun is not None and pts - begun > length and len(self._gaps) < MAX_GAPS:
            self._gaps.append(Gap(begun * tick, (pts - begun) * tick))

    @property
    def complaints(self) -> int:
        """How often something was wrong in the container so far."""
        return self._complaints + self._packets.damaged

    def read_on(self, until: Fraction) -> None:
        """Goes on to read packets of other streams up to a time in seconds of the film."""
        until += self.film.shift / Fraction(1_000_000)
        for packet in self._feed:
            self._on_packet()
            if packet.stream_index != self._stream.index:
                self.others.append(packet)
            base = packet.time_base
            if packet.dts is not None and base is not None and packet.dts * base > until:
                return

    def _tell(self, count: int, moved: int, end: Fraction, *, whole: bool, is_all: bool) -> None:
        film = self.film
        claimed = film.seconds or 0
        # The end of the longest stream counts for a container, so a bit less is no damage.
        is_short = whole and self._damaged_end(float(end), claimed)
        damaged = self._damaged + self._packets.damaged
        if self._gaps or is_short:  # else they were about nothing that counts
            damaged += self._complaints
        pictures = film.pictures
        if is_all and film.container == "avi" and pictures.codec != "mpeg4":
            # Its frames have no times that could be missing, only a number. That of MPEG-4 counts
            # some twice.
            damaged = max(damaged, int(count < (pictures.frames or 0)))
        elif is_all and film.container in _FRAMED and pictures.codec in _ONE_EACH:
            damaged = max(damaged, self._coded.number - count)
        gaps = tuple(self._gaps) if damaged else ()
        self.ending = Ending(count, damaged, moved, end, is_short, gaps)

    def _damaged_end(self, end: float, claimed: float) -> bool:
        pictures = self.film.pictures
        stream = self._stream
        if stream.duration is not None and stream.duration > 0:
            claimed = float((stream.duration + (stream.start_time or 0)) * pictures.time_base)
            claimed -= self.film.shift / 1e6
        elif pictures.frames is not None:
            claimed = float(pictures.frames / pictures.rate)
        else:
            tags = dict(pictures.tags)
            claimed = _seconds(tags.get("DURATION", "")) or claimed
        near = 3 / float(pictures.rate)
        # Other containers' claims are of their longest stream, or were copied from another file.
        return end < claimed - (near if self.film.container in ("avi", "mov") else max(1.0, near))

    def _from_here(self) -> Iterator[VideoFrame]:
        first = [] if self._first is None else [self._first]
        self._first = None
        pictures = self.film.pictures
        for number, frame in enumerate(chain(first, self._waiting)):
            if self._times is not None:
                if number == len(self._times):
                    return  # a file that holds two pictures
                frame.pts, frame.duration = self._times[number], 0
            if self._delay is not None:
                frame.pts = None if frame.dts is None else frame.dts - self._delay
            if (frame.width, frame.height) != (pictures.width, pictures.height):
                raise ImageError(
                    f"{self._name}: its pictures change from {pictures.width}x{pictures.height} "
                    f"to {frame.width}x{frame.height}: cut it there with --start and --end"
                )
            if pixel_format(frame.format.name, self._name) != pictures.pixels:
                raise ImageError(
                    f"{self._name}: its pictures change from {pictures.pixels.name} to "
                    f"{frame.format.name}: cut it there with --start and --end"
                )
            yield frame

    def _seek(self, seconds: Fraction) -> None:
        """Goes to a keyframe some time before, by the file's own times."""
        av = library()
        tick = self.film.pictures.time_base
        pts = _ticks(seconds - _EARLIER, tick)
        if pts <= (self._stream.start_time or 0):
            return  # from the beginning, where it stands
        with suppress(av.FFmpegError):  # it stands at the beginning still
            self._container.seek(pts, stream=self._stream, backward=True)
            self._waiting.close()
            self._context = self._new_context()
            self._first = None
            self.others.clear()
            self._feed = iter(self._packets)
            self._waiting = self._decode()

    def _new_context(self) -> Any:
        """A decoder with all cores, that knows nothing of what was decoded before."""
        own: Any = self._stream.codec_context
        decoder = decoder_of(self._stream)
        if decoder != own.name:
            context = library().CodecContext.create(decoder, "r")
            context.extradata = own.extradata
        else:
            context = own
            if context.is_open:
                context.flush_buffers()
        if not context.is_open:
            context.thread_type = "AUTO"
        return context

    def _decode(self) -> Any:
        av = library()
        fruitless = kept = 0
        for packet in chain(self._feed, [None]):
            if packet is not None:
                self._on_packet()
                if packet.stream_index != self._stream.index:
                    self.others.append(packet)
                    kept += packet.size
                    if kept > _MOST_KEPT:
                        raise ImageError(
                            f"{self._name}: {kept >> 20} MiB of other streams come before a picture"
                        )
                    continue
                self._coded.add(packet)
            try:
                frames = self._context.decode(packet)  # None flushes it
            except av.error.EOFError:
                return
            except av.FFmpegError:
                self._damaged += 1
                frames = []
            self._coded.begin(frames)
            fruitless, kept = (0, 0) if frames else (fruitless + 1, kept)
            if fruitless > _UNTIL_FIRST:
                raise ImageError(f"{self._name}: {fruitless} packets in a row give no picture")
            yield from frames


def _timed_by_file(film: Film, times: Sequence[int]) -> Film:
    """A film whose frames have times from a file of their own."""
    told = replace(
        film.pictures,
        time_base=frame_files.TICK,
        rate=frame_files.rate_of(times),
        frames=len(times),
    )
    return replace(film, pictures=told)


def tick_of(film: Film, deinterlacing: Deinterlacing) -> Fraction:
    """Seconds of a tick of decoded frames."""
    tick = film.pictures.time_base
    return tick / 2 if deinterlacing == "field" else tick


def _timed(
    frames: Iterator[tuple[VideoFrame, Fraction]], origin: Fraction, tick: Fraction, length: int
) -> Iterator[tuple[VideoFrame, int, int, bool]]:
    """Frames with their times and durations in ticks, and whether their times can be true. Each
    comes with the seconds of its own."""
    following = 0
    first = _ticks(origin, tick)
    is_plain = first * tick == origin
    most = MAX_SECONDS // tick
    for frame, own in frames:
        duration = frame.duration or 0
        is_same = own == tick  # fractions take long
        if not is_same:
            duration = round(duration * own / tick)
        if frame.pts is None:
            pts = following
        elif is_plain and is_same:
            pts = frame.pts - first
        else:
            pts = round((frame.pts * own - origin) / tick)
        is_told = abs(pts) <= most
        pts = pts if is_told else following
        duration = duration if 0 <= duration <= most else 0
        following = pts + (duration or length)
        yield frame, pts, duration, is_told


def _ticks(seconds: Fraction, tick: Fraction) -> int:
    return -(-seconds // tick)


def _seconds(duration: str) -> float:
    """Seconds of Matroska's tag, as in 00:01:02.500000000; 0 for any other text."""
    try:
        hours, minutes, seconds = duration.split(":")
        return int(hours) * 3600 + int(minutes) * 60 + float(seconds)
    except ValueError:
        return 0.0
