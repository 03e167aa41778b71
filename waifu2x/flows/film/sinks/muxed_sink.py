"""Results that are encoded and written beside the streams of their film, as they come."""

from __future__ import annotations

from pathlib import Path

from waifu2x.flows.film.frames.steps import Planes, Step
from waifu2x.flows.film.reading.client import FilmReader
from waifu2x.flows.film.request import PreparedFilm
from waifu2x.flows.film.sinks.frame_sink import FrameSink
from waifu2x.formats.film.description import Cut
from waifu2x.formats.film.writing.live_writing import LiveEncoder


class MuxedSink(FrameSink):
    """Encodes results here, and has the process that reads the film write it."""

    def __init__(
        self, reader: FilmReader, prepared: PreparedFilm, target: Path | int, cut: Cut
    ) -> None:
        """`target` is an existing file, or a descriptor. Raises OutputError, BrokenPipeError."""
        super().__init__(reader.stages)
        self._reader = reader
        self._encoder = LiveEncoder(prepared.shape)
        reader.begin_live(target, prepared.shape, prepared.plan, self._encoder.template, cut)

    def _write(self, step: Step, planes: Planes, *, is_held: bool) -> None:
        for coded in self._encoder.add(planes, step.frame.pts, step.frame.duration):
            self._reader.add_picture(coded)

    def close(self) -> None:
        """Completes the film. Raises OutputError, BrokenPipeError."""
        with self._stages.at_work("encoding"):
            for coded in self._encoder.flush():
                self._reader.add_picture(coded)
        self._encoder.close()
        self.lost = self._reader.finish_live()

    def abort(self) -> None:
        """Leaves what was written: nobody takes it for a film."""
        self._encoder.close()
