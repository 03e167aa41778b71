"""A device that enlarges the frames of a film, and the flow of frames through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from typing import Any, Protocol

from numpy.typing import NDArray

from waifu2x.backends import Pin, Progress
from waifu2x.flows.film.frames.frame_memory import FrameMemory
from waifu2x.flows.film.frames.stacks import StackedSink, StackedSource
from waifu2x.flows.film.frames.stages import Stages
from waifu2x.flows.film.frames.steps import EnlargedFrame, Planes, Step
from waifu2x.flows.flow import Work, flow
from waifu2x.formats.film.description import Film
from waifu2x.formats.film.writing.encode import Shape
from waifu2x.imaging.streams import Sink, Source
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
    arithmetic: str = ""
    """What it computes in, with the backend's name: parts that others make otherwise differ."""
    is_gpu: bool = False
    described: str = ""
    """The device, for people."""


class Enlarging(Protocol):
    """How frames are enlarged. It can be sent to other processes and machines."""

    def opened(self, film: Film, shape: Shape) -> AbstractContextManager[FrameDevice]:
        """Opens a device, for as long as the context lasts. Raises BackendError, ModelError."""
        ...


def enlarge_frames(
    frames: Source[Step],
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
