"""The packets of a film, past whatever is damaged in its container."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

from waifu2x.formats.film.library import library

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.packet import Packet
    from av.stream import Stream

_HOPELESS = 100
"""Errors in a row after which nothing more is expected."""

MAX_GAPS = 20
"""More gaps than that are not listed."""


class Gap(NamedTuple):
    """A stretch in which a stream has nothing."""

    start: Fraction
    """Seconds from the beginning."""
    length: Fraction
    """In seconds."""


class Packets:
    """The packets of streams, in the order of the file: an iterator that no damage ends.

    FFmpeg finds the next sound place after a damaged stretch by itself, and only its log tells of
    that.
    """

    def __init__(self, container: InputContainer, streams: Sequence[Stream]) -> None:
        self._container = container
        self._streams = streams
        self.damaged = 0
        """Places found so far at which the container is damaged."""

    def __iter__(self) -> Iterator[Packet[Any]]:
        """The packets that are not empty."""
        av = library()
        failures = 0
        packets = self._container.demux(self._streams)
        while failures < _HOPELESS:
            try:
                packet = self._next(packets)
            except av.FFmpegError:
                # It ends what it was called for, but not the file.
                failures += 1
                self.damaged += failures == 1
                packets = self._container.demux(self._streams)
                continue
            if packet is None:
                return
            failures = 0
            self.damaged += packet.is_corrupt
            if packet.size:
                yield packet

    def _next(self, packets: Iterator[Packet[Any]]) -> Packet[Any] | None:
        with complaints(self._container.format.name) as heard:
            try:
                return next(packets, None)
            finally:
                self.damaged += bool(heard())


@contextmanager
def complaints(demuxer: str) -> Iterator[Callable[[], int]]:
    """While it lasts, counts what a demuxer says is wrong.

    Decoders complain as well, in threads of their own: they are counted by their results.
    """
    log = library().logging
    quiet = log.get_level()
    with log.Capture(local=False) as messages:
        log.set_level(log.ERROR)
        try:
            yield lambda: sum(demuxer in name.split(",") for _, name, _ in messages)
        finally:
            log.set_level(quiet)
