"""Makes runs of parts, in this process or elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from waifu2x.flows.film.frames.frame_device import FrameDevice, OnFrames, enlarge_run
from waifu2x.flows.film.parts.part_runs import FilmWork, PartRun, expected_parts
from waifu2x.flows.film.parts.part_sink import PartSink
from waifu2x.flows.film.reading.client import FilmReader


class RunMaker(Protocol):
    """Makes parts in this process, in others, or on other machines."""

    def __call__(self, runs: Sequence[PartRun], work: FilmWork) -> None:
        """Makes all parts of `runs` that have frames. Raises Waifu2xError; complete parts stay."""


class MakerHere:
    """Makes parts in this process."""

    def __init__(
        self,
        reader: FilmReader,
        device: FrameDevice,
        on_frames: OnFrames = lambda frames, computed: None,
    ) -> None:
        self._reader = reader
        self._device = device
        self._on_frames = on_frames

    def __call__(self, runs: Sequence[PartRun], work: FilmWork) -> None:
        for run in runs:
            make_run(self._reader, work, run, self._device, self._on_frames)


def make_run(
    reader: FilmReader,
    work: FilmWork,
    run: PartRun,
    device: FrameDevice,
    on_frames: OnFrames = lambda frames, computed: None,
) -> bool:
    """Makes a run of parts with a reader of the film; returns whether the end of the film was
    found. Raises ImageError, OutputError, BackendError."""
    expected = expected_parts(reader.film, work)
    until = expected if run.until is None else min(run.until, expected)
    sink = PartSink(work, reader.stages, until)
    return enlarge_run(reader, work, run, sink, device, on_frames)
