"""Reads the pictures of a film: those that are wanted, each with its own time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from itertools import chain, islice
from typing import IO, TYPE_CHECKING, Any

from waifu2x.errors import ImageError
from waifu2x.formats.film import frame_files
from waifu2x.formats.film.description import Film
from waifu2x.formats.film.frame_files import FrameFiles
from waifu2x.formats.film.library import library
from waifu2x.formats.film.pixels import pixel_format
from waifu2x.formats.film.raw import y4m_siting
from waifu2x.formats.film.reading.clock import RESTARTED
from waifu2x.formats.film.reading.completeness import ends_early, missing_frames
from waifu2x.formats.film.reading.decoding import Decoding, PacketSource
from waifu2x.formats.film.reading.deinterlacing import deinterlaced, film_pictures
from waifu2x.formats.film.reading.describe import describe, main_stream
from waifu2x.formats.film.reading.frame_times import Times
from waifu2x.formats.film.reading.opening import beginning
from waifu2x.formats.film.reading.packets import MAX_GAPS, FramePackets, Gap, Packets
from waifu2x.formats.film.reading.selection import Decoded, Ending, Selection, tick_of, ticks

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.frame import VideoFrame

_EARLIER = 2
"""Seconds that seeking goes further back, to find a keyframe with all its references."""

_FOLLOWING = 32
"""Frames behind one that leaps to the end that show whether the film goes on before it."""


class Reader:
    """The pictures of a film that is open."""

    def __init__(
        self,
        container: InputContainer,
        file: IO[bytes] | FrameFiles,
        name: str,
        on_packet: Callable[[], None] = lambda: None,
        complaints: int = 0,
        *,
        keeps_others: bool = False,
        times: Sequence[int] = (),
    ) -> None:
        """Decodes the first frame. `on_packet` is called for each packet; `complaints` counts the
        faults found while the film was opened. With `keeps_others`, packets of all other streams
        are kept in `others`, for the caller of `frames` to remove. `times` are those of frames that
        are separate files, in ticks of `frame_files`. Raises ImageError."""
        self._container = container
        self._name = name
        self._stream = main_stream(container, name)
        packets: PacketSource
        if isinstance(file, FrameFiles):
            packets = FramePackets(file, times)
        else:
            kinds = ("video", "audio", "subtitle") if keeps_others else ()
            read = [one for one in container.streams if one is self._stream or one.type in kinds]
            packets = Packets(container, read)
        self._packets = packets
        self._decoding = Decoding(packets, self._stream, name, on_packet)
        self._complaints = complaints
        self._corrupt = 0
        self._following: int | None = None
        """The time at which the next frame is due, in ticks."""
        self._gaps: list[Gap] = []
        first = next(iter(self._decoding), None)
        if first is None:
            raise ImageError(f"{name}: none of its pictures can be decoded")
        self._first: VideoFrame | None = first
        self._begin = first.pts
        """The time of the first frame, as the film has it."""
        self._delay: int | None = first.dts if container.format.name == "avi" else None
        """Delay of the frames of AVI, which has an order of coding but no times of showing."""
        siting = None
        if not isinstance(file, FrameFiles) and container.format.name == "yuv4mpegpipe":
            siting = y4m_siting(beginning(file))
        film = describe(container, self._stream, first, siting, file.seekable(), name)
        self.film: Film = _timed_by_file(film, times) if times else film
        self.ending = Ending()

    @property
    def others(self) -> deque[Packet[Any]]:
        """Returns the packets of other streams, in the order of the file."""
        return self._decoding.others

    @property
    def complaints(self) -> int:
        """Returns how many faults of the container were found so far."""
        return self._complaints + self._packets.damaged

    def late_streams(self) -> int:
        """Returns how many streams have appeared since the film was opened."""
        return self._packets.late_streams()

    def frames(self, selection: Selection) -> Iterator[Decoded]:
        """Yields the frames of a selection, once. `ending` is complete after the last one. Raises
        ImageError where the pictures change."""
        pictures, how = self.film.pictures, selection.deinterlacing
        tick = tick_of(self.film, how)
        start = ticks(selection.start, tick)
        length = ticks(1 / pictures.rate, tick) or 1
        self._go_to(selection, tick)
        times = self._new_times()
        count = end = 0
        held: Decoded | None = None
        is_whole = True
        for frame in self._whole_pictures(times, selection):
            pts, duration = frame.pts, frame.duration or 0
            assert pts is not None  # Times gives each one
            leaps = self._watch(pts, duration or length, length, tick)
            if selection.end is not None and pts * tick >= selection.end:
                is_whole = False
                self._corrupt += leaps and self._comes_back(selection.end)
                break
            if pts < start:
                continue
            if selection.first is None or pts >= selection.first:
                # Earlier frames may lack their references.
                self._corrupt += int(frame.is_corrupt)
            damaged = self._corrupt + self._decoding.damaged
            now = Decoded(frame, pts, duration, True, damaged, times.moved)
            if selection.first is not None and pts < selection.first:
                held = now
                continue
            if held is not None:
                yield held._replace(is_wanted=False)
                held = None
            if selection.until is not None and pts >= selection.until:
                yield now._replace(is_wanted=False)
                is_whole = False
                break
            count += 1
            end = pts + (duration or length)
            yield now
        if held is not None:
            yield held._replace(is_wanted=False)
        is_all = is_whole and selection.first is None and not start and how != "ivtc"
        self._tell(count, times.moved, end * tick, is_whole=is_whole, is_all=is_all)

    def read_on(self, until: Fraction, sounds: Sequence[int]) -> None:
        """Reads packets of other streams up to a time in seconds of the film. Streams numbered
        `sounds` are read to their last packet before it. Raises ImageError."""
        self._decoding.read_on(until + self._origin, sounds)

    @property
    def _origin(self) -> Fraction:
        """Returns where the film's times begin, in seconds of the file."""
        return self.film.shift / Fraction(1_000_000)

    def _new_times(self) -> Times:
        tick = self.film.pictures.time_base
        length = ticks(1 / self.film.pictures.rate, tick) or 1
        return Times(self._origin, tick, length, self._delay)

    def _whole_pictures(self, times: Times, selection: Selection) -> Iterator[VideoFrame]:
        """Yields all remaining frames, with times in ticks of `tick_of`."""
        tick, how = self.film.pictures.time_base, selection.deinterlacing
        frames = times.given(self._from_here())
        if how != "ivtc":
            return deinterlaced(frames, tick, how, self._name)
        begin = 0 if self._begin is None else self._begin - ticks(self._origin, tick)
        return film_pictures(frames, tick, self.film.pictures.rate, begin, self._name)

    def _watch(self, pts: int, duration: int, length: int, tick: Fraction) -> bool:
        """Notes a gap before this frame; returns whether there is one."""
        begun, self._following = self._following, pts + duration
        if begun is None or pts - begun <= length:
            return False
        if len(self._gaps) < MAX_GAPS:
            self._gaps.append(Gap(begun * tick, (pts - begun) * tick))
        return True

    def _comes_back(self, end: Fraction) -> bool:
        """Returns whether the next frames come before `end` again. Then too many frames have leapt
        behind it, and what follows them is lost."""
        tick = self.film.pictures.time_base
        times = [frame.pts for frame in islice(self._decoding, _FOLLOWING)]
        return any(pts is not None and pts * tick - self._origin < end for pts in times)

    def _tell(self, count: int, moved: int, end: Fraction, *, is_whole: bool, is_all: bool) -> None:
        """Sets `ending`. `is_whole`: the end of the film was found; `is_all`: its beginning, too,
        and each frame is one of the film."""
        is_short = is_whole and self._packets.recordings == 1  # else its length means nothing
        is_short = is_short and ends_early(self.film, self._stream, float(end))
        damaged = self._corrupt + self._decoding.damaged
        if self._gaps or is_short:  # else they do not matter
            damaged += self._complaints
        if is_all:
            damaged = max(damaged, missing_frames(self.film, self._decoding.coded, count))
        gaps = tuple(self._gaps) if damaged else ()
        self.ending = Ending(count, damaged, moved, end, is_short, gaps)

    def _from_here(self) -> Iterator[VideoFrame]:
        first = [] if self._first is None else [self._first]
        self._first = None
        pictures = self.film.pictures
        for frame in chain(first, self._decoding):
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

    def _go_to(self, selection: Selection, tick: Fraction) -> None:
        if not self.film.seekable and selection.first is not None:
            raise ImageError(f"{self._name}: cannot be sought in, so nothing can be resumed")
        if selection.first is not None:
            if selection.is_sought:
                self._seek(selection.first * tick + self._origin)
        elif selection.start > 0 and self.film.seekable:
            self._seek(selection.start + self._origin)

    def _seek(self, seconds: Fraction) -> None:
        """Seeks a keyframe some time before `seconds`, by the times of the file."""
        seconds -= _EARLIER
        pts = ticks(seconds, self.film.pictures.time_base)
        if pts <= (self._stream.start_time or 0):
            return  # from the beginning, where it stands
        with suppress(library().FFmpegError):  # it stands at the beginning still
            if self.film.container in RESTARTED:
                # Times may repeat: only reading everything before tells which one it is.
                self._container.seek(0, unsupported_byte_offset=True)
                self._first = None
                self._decoding.restart(seconds)
            else:
                self._container.seek(pts, stream=self._stream, backward=True)
                self._first = None
                self._decoding.restart()


def _timed_by_file(film: Film, times: Sequence[int]) -> Film:
    told = replace(
        film.pictures,
        time_base=frame_files.TICK,
        rate=frame_files.rate_of(times),
        frames=len(times),
    )
    return replace(film, pictures=told)
