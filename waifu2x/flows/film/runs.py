"""Makes runs of parts: by whoever has a reader of the film and something that enlarges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from waifu2x.backends import Progress
from waifu2x.flows.film.film_reader import FilmReader
from waifu2x.flows.film.held import Duplicates
from waifu2x.flows.film.parts import EnlargedFrame, FrameSource, PartRun, PartSink, Planes, Step
from waifu2x.flows.flow import flow
from waifu2x.formats.film.description import Film
from waifu2x.formats.film.encode import Shape
from waifu2x.formats.film.reader import Selection
from waifu2x.system.lazy_dataclass import dataclass

Enlarge = Callable[[Planes], Planes]
"""Makes the planes of a result, in the encoder's format, of those of a frame. Threads share it."""
OnFrames = Callable[[int, int], None]
"""Told how many more frames there are results for, and how many of them the network made. It is
called by several threads."""


class Enlarging(Protocol):
    """How frames are enlarged. It can be sent to other processes and machines."""

    def opened(self, film: Film, shape: Shape) -> AbstractContextManager[Enlarge]:
        """Opens a device, for as long as the context lasts. Raises BackendError, ModelError."""
        ...


@dataclass(frozen=True)
class FilmWork:
    """What all parts of a film have in common. It can be sent to other processes and machines."""

    source: Path
    folder: Path
    """Where the parts go."""
    shape: Shape
    selection: Selection
    part_ticks: int
    """How long a part is, in ticks of the film."""
    duplicates: Duplicates
    in_flight: int = 2
    """Frames between the reader and the encoder at a time."""


class RunMaker(Protocol):
    """Who makes parts: this process, others, other machines."""

    def __call__(self, runs: Sequence[PartRun], work: FilmWork) -> None:
        """Makes all parts of some runs that have frames.

        The parts that are complete stay, whatever happens. Raises Waifu2xError.
        """
        ...


def make_run(
    reader: FilmReader,
    work: FilmWork,
    run: PartRun,
    enlarge: Enlarge,
    on_frames: OnFrames = lambda frames, computed: None,
) -> bool:
    """Makes a run of parts with a reader of the film; whether the end of the film was found.

    Raises ImageError, OutputError, BackendError.
    """
    def enlarged(step: Step, on_progress: Progress) -> EnlargedFrame:
        planes = None if step.is_held else enlarge(step.frame.planes)
        on_frames(1, 0 if step.is_held else 1)
        return EnlargedFrame(step, planes)

    frames = FrameSource(
        reader, work.selection, run, work.part_ticks, work.duplicates, work.in_flight
    )
    flow(frames, enlarged, PartSink(work.folder, work.shape), in_flight=work.in_flight)
    return frames.has_ended


class MadeHere:
    """Makes parts by this process, one after the other."""

    def __init__(
        self,
        reader: FilmReader,
        enlarge: Enlarge,
        on_frames: OnFrames = lambda frames, computed: None,
    ) -> None:
        self._reader = reader
        self._enlarge = enlarge
        self._on_frames = on_frames

    def __call__(self, runs: Sequence[PartRun], work: FilmWork) -> None:
        """As RunMaker says."""
        for run in runs:
            make_run(self._reader, work, run, self._enlarge, self._on_frames)
