"""Leaves room for the index of an mp4 or mov before its packets, and turns its subtitles off.

FFmpeg knows the index only after all packets, and would move them all to make room. It has players
show the first subtitles, unless others are the default.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any

from waifu2x.formats.film.writing.encode import Encoded
from waifu2x.formats.film.writing.header import FilmPlan, cover_from_file
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from av.container import InputContainer

_MOST = 1 << 30
"""A size larger than the index of any film."""
_ENABLED = 1
_OF_PICTURE = 8 + 8 + 4 + 4 + 1
"""Bytes of the length, delay and size of a picture, and of the numbers of keyframes and others."""
_OF_PACKET = 8 + 4
"""Bytes of the length and size of any other packet."""
_OF_CHUNK = 12 + 8
"""Bytes of the count and place of packets that lie together."""
_LARGEST = 8
"""Packets of sound that lie together at least, unless a picture comes between."""
_OF_CHAPTER = 400
_OF_TAG = 64
_OF_STREAM = 4096
_SHORTEST = {"truehd": 40, "mlp": 40}
"""Samples of a packet, where FFmpeg does not tell."""
_USUAL = 480


def turn_off(file: IO[bytes], tracks: Collection[int]) -> None:
    """Lets players show these tracks, by their numbers in the file, only on request. Raises
    OSError."""
    start, size = _index(file)
    file.seek(start)
    index = file.read(size)
    for kind, begin, end in _boxes(index, 0, len(index)):
        if kind != b"trak":
            continue
        for inner, at, _ in _boxes(index, begin, end):
            if inner == b"tkhd":
                # A version, three bytes of flags, two times, and the number of the track.
                number = at + 4 + (16 if index[at] == 1 else 8)
                if int.from_bytes(index[number : number + 4]) in tracks:
                    file.seek(start + at + 3)
                    file.write(bytes([index[at + 3] & ~_ENABLED]))


def _index(file: IO[bytes]) -> tuple[int, int]:
    """Returns position and size of the content of the index; size 0 if there is none."""
    at = 0
    while True:
        file.seek(at)
        head = file.read(16)
        size, header = int.from_bytes(head[:4]), 8
        if size == 1:
            size, header = int.from_bytes(head[8:16]), 16
        if len(head) < 8 or size < header:
            return at, 0
        if head[4:8] == b"moov":
            return at + header, min(size - header, _MOST)
        at += size


def _boxes(data: bytes, at: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    while at + 8 <= end:
        size = int.from_bytes(data[at : at + 4])
        if size < 8:
            return
        yield data[at + 4 : at + 8], at + 8, min(at + size, end)
        at += size


@dataclass(frozen=True)
class CountedPackets:
    """The packets of a film, counted or estimated."""

    pictures: int
    others: Mapping[int, int]
    """By the index of the stream in the source."""
    texts: frozenset[int]
    covers: int
    """Bytes of covers, which lie in the index."""

    def counted(self, others: Mapping[int, int]) -> CountedPackets:
        """Returns the larger of these numbers and `others`."""
        found = {index: max(count, others.get(index, 0)) for index, count in self.others.items()}
        return CountedPackets(self.pictures, found, self.texts, self.covers)

    def room(self, plan: FilmPlan) -> int:
        """Returns the most bytes that the index takes."""
        film = plan.film
        tags = [*film.tags, *film.pictures.tags, *(tag for one in film.others for tag in one.tags)]
        size = self.covers + sum(_OF_TAG + 4 * (len(key) + len(text)) for key, text in tags)
        size += _OF_CHAPTER * film.chapters + _OF_STREAM * (2 + len(self.others))
        size += (_OF_PICTURE + _OF_CHUNK) * self.pictures
        for index, count in self.others.items():
            if index in self.texts:  # each may be followed by one that shows nothing
                size += 2 * count * (_OF_PACKET + _OF_CHUNK)
            else:
                chunks = min(count, self.pictures + 1 + count // _LARGEST)
                size += count * _OF_PACKET + chunks * _OF_CHUNK
        return size


def expected_packets(
    source: InputContainer, plan: FilmPlan, parts: Sequence[Encoded]
) -> CountedPackets:
    """Estimates the packets of a film by its source, which stands at its beginning."""
    pts = [time for part in parts for time in part.pts]
    shown = float((pts[-1] - pts[0]) * plan.shape.tick) + 10
    whole = max(plan.film.seconds or 0, 1)
    share = min(1, shown / whole) if plan.cut.start or plan.cut.end is not None else 1
    seconds = shown if plan.cut.start or plan.cut.end is not None else max(shown, whole)
    described = {one.index: one for one in plan.film.others}
    others: dict[int, int] = {}
    texts = set()
    covers = 0
    for one in plan.streams.taken:
        told, stream = described[one.index], source.streams[one.index]
        if told.is_cover:
            covers += len(cover_from_file(stream))
            continue
        if told.kind == "subtitle":
            texts.add(one.index)
        count = _told_count(stream, dict(told.tags))
        expected = seconds * _rate(stream) if count is None else count * share
        others[one.index] = round(expected * 1.05) + 200
    return CountedPackets(len(pts), others, frozenset(texts), covers)


def _told_count(stream: Any, tags: Mapping[str, str]) -> int | None:
    told = next((text for key, text in tags.items() if key.startswith("NUMBER_OF_FRAMES")), "")
    if told.isdecimal() and len(told) < 10:
        return int(told)
    return stream.frames or None


def _rate(stream: Any) -> float:
    if stream.type != "audio":
        return 1.0
    context = stream.codec_context
    samples = context.frame_size or _SHORTEST.get(context.name, _USUAL)
    return float(min(context.sample_rate / samples, 2000))
