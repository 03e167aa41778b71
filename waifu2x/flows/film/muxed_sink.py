"""Results that are encoded and written beside the streams of their film, as they come."""

from __future__ import annotations

from pathlib import Path

from waifu2x.flows.film.film_reader import FilmReader
from waifu2x.flows.film.parts import EnlargedFrame, Planes
from waifu2x.flows.film.request import PreparedFilm
from waifu2x.formats.film.live_encode import LiveEncoder
from waifu2x.formats.film.muxing import Cut
from waifu2x.imaging.streams import Header


class MuxedSink:
    """Encodes results here, and has the process that reads the film write it: a sink of a flow."""

    def __init__(
        self, reader: FilmReader, prepared: PreparedFilm, target: Path | int, cut: Cut
    ) -> None:
        """`target` is an existing file, or a descriptor. Raises OutputError, BrokenPipeError."""
        self._reader = reader
        self._encoder = LiveEncoder(prepared.shape)
        self._last: Planes = ()
        self.frames = self.computed = 0
        """Frames written in all, and those that the network made."""
        self.lost: tuple[str, ...] = ()
        """What is missing in the streams that are copied, each a clause."""
        self.notices: tuple[str, ...] = ()
        reader.begin_live(target, prepared.shape, prepared.plan, self._encoder.extradata, cut)

    def open(self, header: Header) -> None:
        """It has begun: other streams are copied from the first frame on."""

    def add(self, result: EnlargedFrame) -> None:
        """Encodes a frame. Raises OutputError."""
        frame = result.step.frame
        try:
            if result.planes is not None:
                self._last = result.planes
                self.computed += 1
            with self._reader.stages.at_work("encoding"):
                for coded in self._encoder.add(self._last, frame.pts, frame.duration):
                    self._reader.add_picture(coded)
            self.frames += 1
        finally:
            frame.release()

    def close(self) -> None:
        """Completes the film. Raises OutputError, BrokenPipeError."""
        with self._reader.stages.at_work("encoding"):
            for coded in self._encoder.flush():
                self._reader.add_picture(coded)
        self._encoder.close()
        self.lost = self._reader.finish_live()

    def abort(self) -> None:
        """Leaves what was written: nobody takes it for a film."""
        self._encoder.close()
