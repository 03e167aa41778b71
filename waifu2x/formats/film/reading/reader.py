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
from waifu2x.formats.film.description import ChromaSiting, Film
from waifu2x.formats.film.frame_files import FrameSequence
from waifu2x.formats.film.library import library
from waifu2x.formats.film.reading.decoding import Decoding
from waifu2x.formats.film.reading.describe import describe, main_stream
from waifu2x.formats.film.reading.fields import (
    Deinterlacing,
    deinterlaced,
    film_pictures,
    ticks_in_one,
)
from waifu2x.formats.film.reading.opening import beginning, y4m_siting
from waifu2x.formats.film.reading.packets import MAX_GAPS, FramePackets, Gap, Packets
from waifu2x.formats.film.reading.selection import (
    MAX_CHANGES,
    Change,
    Decoded,
    Ending,
    Selection,
    ends_early,
    missing_frames,
    tick_of,
    ticks,
)
from waifu2x.formats.film.reading.sizes import Fitting
from waifu2x.formats.film.reading.times import RESTARTED, Times

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.frame import VideoFrame

_EARLIER = 2
"""Seconds that seeking goes further back, to find a keyframe with all its references."""

_NEAR = 1
"""Seconds between the streams of a recording where it breaks off."""
_FOLLOWING = 32
"""Frames behind one that leaps to the end that show whether the film goes on before it."""


class Reader:
    """The pictures of a film that is open."""

    def __init__(
        self,
        container: InputContainer,
        file: IO[bytes] | FrameSequence,
        name: str,
        on_packet: Callable[[], None] = lambda: None,
        complaints: int = 0,
        *,
        keeps_others: bool = False,
    ) -> None:
        """Decodes the first frame. `on_packet` is called for each packet; `complaints` counts the
        faults found while the film was opened. With `keeps_others`, packets of all other streams
        are kept in `others`, for the caller of `frames` to remove. Raises ImageError."""
        self._container = container
        self._name = name
        self._stream = main_stream(container, name)
        packets: Packets | FramePackets
        if isinstance(file, FrameSequence):
            packets = FramePackets(file)
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
        self._kinds: deque[Change] = deque()
        """Changes of pictures that are decoded but not yet given out, with times of the film."""
        self._kind = ""
        self._joints: list[Fraction] = []
        """Seconds at which pictures change."""
        self._settled = 0
        """Incomplete packets that have been counted, or found to be whole."""
        self._sought: Fraction | None = None
        """Seconds that were sought: damage before is another selection's."""
        first = next(iter(self._decoding), None)
        if first is None:
            raise ImageError(f"{name}: none of its pictures can be decoded")
        self._first: VideoFrame | None = first
        self._begin = first.pts
        """The time of the first frame, as the film has it."""
        self._delay: int | None = first.dts if container.format.name == "avi" else None
        """Delay of the frames of AVI, which has an order of coding but no times of showing."""
        self._siting: ChromaSiting | None = None
        self._sequence = file if isinstance(file, FrameSequence) else None
        if not isinstance(file, FrameSequence) and container.format.name == "yuv4mpegpipe":
            self._siting = y4m_siting(beginning(file))
        self._seekable = file.seekable()
        self.film = self._described(first)
        """For another description, set it before `frames`, which gives all pictures its size."""
        self.ending = Ending()

    def _described(self, frame: VideoFrame) -> Film:
        film = describe(
            self._container, self._stream, frame, self._siting, self._seekable, self._name
        )
        return film if self._sequence is None else _timed_by(film, self._sequence)

    def film_from(self, start: Fraction) -> Film:
        """Describes the film by its first picture from `start` seconds on, or by the first of all
        where there is none. After it, this reader can give no frames. Raises ImageError."""
        tick = self.film.pictures.time_base
        self._go_to(Selection(start), tick)
        for frame in self._new_times().given(self._from_here()):
            if frame.pts is not None and frame.pts * tick >= start:
                return replace(self._described(frame), start=start)
        return self.film

    @property
    def others(self) -> deque[Packet[Any]]:
        """Returns the packets of other streams, in the order of the file."""
        return self._decoding.others

    @property
    def complaints(self) -> int:
        """Returns how many faults of the container were found so far."""
        return self._complaints + self._packets.damaged + len(self._packets.incomplete)

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
        held: deque[Decoded] = deque(maxlen=selection.neighbours)
        behind = 0
        changes: tuple[Change, ...] = ()
        shown = ""
        is_whole = True
        for frame in self._whole_pictures(times, selection):
            pts, duration = frame.pts, frame.duration or 0
            assert pts is not None  # Times gives each one
            leaps = self._watch(pts, duration or length, length, tick)
            ends = selection.until is not None and pts >= selection.until
            self._settle(pts * tick - (0 if ends else _NEAR))
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
            kind = self._kind_at(pts, how)
            is_before = selection.first is not None and pts < selection.first
            if kind != shown and not is_before and len(changes) < MAX_CHANGES:
                changes += (Change(pts, kind),)
            shown = kind
            now = Decoded(frame, pts, duration, True, damaged, times.moved, changes)
            if is_before:
                held.append(now)
                continue
            while held:
                yield held.popleft()._replace(is_wanted=False)
            if ends:
                yield now._replace(is_wanted=False)
                is_whole = False
                behind += 1
                if behind == selection.neighbours:
                    break
                continue
            count += 1
            end = pts + (duration or length)
            yield now
        while held:
            yield held.popleft()._replace(is_wanted=False)
        is_all = is_whole and selection.first is None and not start and how != "ivtc"
        self._tell(count, times.moved, end * tick, is_whole=is_whole, is_all=is_all)
        seen = tuple(one for one in changes if one.pts < end)
        self.ending = self.ending._replace(changes=seen)

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
        frames = self._fitted(times.given(self._from_here()), selection)
        if how != "ivtc":
            return deinterlaced(frames, tick, how, self._name, selection.order)
        begin = 0 if self._begin is None else self._begin - ticks(self._origin, tick)
        rate = self.film.pictures.rate
        return film_pictures(frames, tick, rate, begin, self._name, selection.order)

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
        self._settle(end)
        is_short = is_whole and self._packets.recordings == 1  # else its length means nothing
        is_short = is_short and ends_early(self.film, self._stream, float(end))
        damaged = self._corrupt + self._decoding.damaged
        if self._gaps or is_short:  # else they do not matter
            damaged += self._complaints
        if is_all:
            coded = self._decoding.coded.number
            damaged = max(damaged, missing_frames(self.film, self._stream, coded, count))
        gaps = tuple(self._gaps) if damaged else ()
        self.ending = Ending(count, damaged, moved, end, is_short, gaps)

    def _from_here(self) -> Iterator[VideoFrame]:
        first = [] if self._first is None else [self._first]
        self._first = None
        yield from chain(first, self._decoding)

    def _fitted(self, frames: Iterator[VideoFrame], selection: Selection) -> Iterator[VideoFrame]:
        """Yields the frames in the size and format of the film; notes where they have others."""
        fitting = Fitting(self.film.pictures, self._stream, self._name)
        self._kinds.clear()
        self._kind = kind = ""
        tick, end = self.film.pictures.time_base, selection.end
        for frame in frames:
            assert frame.pts is not None  # Times gives each one
            seconds = frame.pts * tick
            if (found := fitting.change(frame)) != kind:
                kind = found
                self._kinds.append(Change(frame.pts, kind))
                self._joints.append(seconds)
            is_shown = seconds >= selection.start and (end is None or seconds < end)
            yield fitting.fitted(frame, is_shown=is_shown)

    def _settle(self, until: Fraction) -> None:
        """Counts the incomplete packets before a time in seconds, except where pictures of another
        size show that another recording begins."""
        incomplete = self._packets.incomplete
        while self._settled < len(incomplete):
            time = incomplete[self._settled] - self._origin
            if time > until:
                return
            self._settled += 1
            if self._sought is not None and time < self._sought:
                continue
            self._corrupt += not any(abs(time - joint) <= _NEAR for joint in self._joints)

    def _kind_at(self, pts: int, how: Deinterlacing) -> str:
        """Returns how the picture at a time differs from those of the film; times have to rise."""
        while self._kinds and self._kinds[0].pts * ticks_in_one(how) <= pts:
            self._kind = self._kinds.popleft().to
        return self._kind

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
        self._sought = seconds - self._origin
        self._settled = 0
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


def _timed_by(film: Film, frames: FrameSequence) -> Film:
    times = frames.times
    told = replace(
        film.pictures,
        time_base=frame_files.TICK,
        rate=frame_files.rate_of(times),
        frames=len(times),
    )
    seconds = None if frames.end is None else float(frames.end * frame_files.TICK)
    return replace(film, container=frames.kind, seconds=seconds, pictures=told)
