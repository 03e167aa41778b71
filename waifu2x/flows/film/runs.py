"""Makes runs of parts: by whoever has a reader of the film and something that enlarges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from waifu2x.backends import Pin, Progress
from waifu2x.flows.film.film_reader import FilmReader
from waifu2x.flows.film.frame_memory import FrameMemory
from waifu2x.flows.film.held import Duplicates
from waifu2x.flows.film.part_sink import PartSink
from waifu2x.flows.film.parts import EnlargedFrame, FrameSource, PartRun, Planes, Step
from waifu2x.flows.film.stacks import StackedSink, StackedSource
from waifu2x.flows.film.stages import Stages
from waifu2x.flows.flow import Work, flow
from waifu2x.formats.film.description import Film
from waifu2x.formats.film.encode import Shape
from waifu2x.formats.film.reader import Selection
from waifu2x.imaging.streams import Sink
from waifu2x.system.lazy_dataclass import dataclass

Enlarge = Callable[[Sequence[Planes], Sequence[Planes]], None]
"""Enlarges frames, given as planes in the film's format: writes each result into planes of the
encoder's format, as many as there are frames. Threads share it."""
OnFrames = Callable[[int, int], None]
"""Told how many more frames there are results for, and how many of them the network made. It is
called by several threads."""


@dataclass(frozen=True, eq=False)
class FrameDevice:
    """A device that enlarges the frames of a film, and how it likes to be fed."""

    enlarge: Enlarge
    in_flight: int = 2
    """Stacks of frames that are under way at a time."""
    stack: int = 1
    """Frames of a stack."""
    pin: Callable[[NDArray[Any]], Pin] = lambda array: Pin()
    """The device's, `Backend.pin`."""
    backend: str = ""
    """The backend's name: parts that others make would differ."""
    described: str = ""
    """The device, for people."""


class Enlarging(Protocol):
    """How frames are enlarged. It can be sent to other processes and machines."""

    def opened(self, film: Film, shape: Shape) -> AbstractContextManager[FrameDevice]:
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


class RunMaker(Protocol):
    """Who makes parts: this process, others, other machines."""

    def __call__(self, runs: Sequence[PartRun], work: FilmWork) -> None:
        """Makes all parts of some runs that have frames.

        The parts that are complete stay, whatever happens. Raises Waifu2xError.
        """
        ...


def _work_of(
    device: FrameDevice, memory: FrameMemory, stages: Stages, on_frames: OnFrames
) -> Work[Sequence[Step], Sequence[EnlargedFrame]]:
    """The work of a flow of stacks of frames."""

    def enlarged(steps: Sequence[Step], on_progress: Progress) -> Sequence[EnlargedFrame]:
        made = [None if step.is_held else memory.planes() for step in steps]
        frames = [step.frame.planes for step in steps if not step.is_held]
        if frames:
            with stages.at_work("network"):
                device.enlarge(frames, [planes for planes in made if planes is not None])
        on_frames(len(steps), len(frames))
        return [EnlargedFrame(step, planes) for step, planes in zip(steps, made, strict=True)]

    return enlarged


def expected_parts(film: Film, work: FilmWork) -> int:
    """The number of the part after the last, by what the film says of itself; 0 if nothing."""
    seconds = film.seconds or 0.0
    if work.selection.end is not None:
        seconds = min(seconds, float(work.selection.end))
    return -int(-seconds // float(work.part_ticks * work.shape.tick))


def make_run(
    reader: FilmReader,
    work: FilmWork,
    run: PartRun,
    device: FrameDevice,
    on_frames: OnFrames = lambda frames, computed: None,
) -> bool:
    """Makes a run of parts with a reader of the film; whether the end of the film was found.

    Raises ImageError, OutputError, BackendError.
    """
    frames = FrameSource(
        reader,
        work.selection,
        run,
        work.part_ticks,
        work.duplicates,
        device.in_flight * device.stack,
    )
    sink = PartSink(work.folder, work.shape, reader.stages)
    enlarge_frames(frames, sink, work.shape, reader.stages, device, on_frames)
    return frames.has_ended


def enlarge_frames(
    frames: FrameSource,
    sink: Sink[EnlargedFrame],
    shape: Shape,
    stages: Stages,
    device: FrameDevice,
    on_frames: OnFrames,
) -> None:
    """Enlarges frames by a device and gives the results to a sink, in stacks, several under way at
    a time.

    Raises ImageError, OutputError, BackendError.
    """
    memory = FrameMemory(shape.encoding.pixels, shape.height, shape.width, device.pin)
    with closing(memory):
        flow(
            StackedSource(frames, device.stack),
            _work_of(device, memory, stages, on_frames),
            StackedSink(sink),
            in_flight=device.in_flight,
        )


class MadeHere:
    """Makes parts by this process, one after the other."""

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
        """As RunMaker says."""
        for run in runs:
            make_run(self._reader, work, run, self._device, self._on_frames)
