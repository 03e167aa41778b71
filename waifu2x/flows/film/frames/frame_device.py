"""A device that enlarges the frames of a film, and the flow of frames through it, in stacks."""

from __future__ import annotations

import mmap
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends import Pin, Progress
from waifu2x.flows.film.frames.frame_streams import EnlargedFrame, Planes, Step
from waifu2x.flows.film.frames.stages import Stages
from waifu2x.flows.flow import Work, flow
from waifu2x.formats.film.description import Film, PixelFormat
from waifu2x.formats.film.writing.encode import Shape
from waifu2x.imaging.streams import Header, Sink, Source
from waifu2x.system.lazy_dataclass import dataclass

Enlarge = Callable[[Sequence[Planes], Sequence[Planes]], None]
"""Enlarges frames, given as planes in the film's format: writes each result into planes of the
encoder's format, as many as there are frames. Threads share it."""
OnFrames = Callable[[int, int], None]
"""Told how many more frames there are results for, and how many of them the network made. It is
called by several threads."""
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
_PIXELS = 1 << 19
"""Pixels of the frames of a stack."""
_MOST = 8
_ALIGNED = 64
"""Bytes that planes begin at a multiple of: the widest registers of a processor. As many follow
the last one, since encoders may read beyond a row. Nothing else lies between planes: those of most
sizes come from a device in one copy."""


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


def stack_size(height: int, width: int) -> int:
    """How many frames of a size a device is given at a time."""
    return max(1, min(_MOST, _PIXELS // max(1, height * width)))


class StackedSource(Generic[_Item]):
    """The items of a source, several at a time: a source of a flow."""

    def __init__(self, source: Source[_Item], size: int) -> None:
        self._source = source
        self._size = size
        self.header = source.header

    def __iter__(self) -> Iterator[Sequence[_Item]]:
        """Tuples of `size` items, the last one perhaps of less."""
        stack: list[_Item] = []
        for item in self._source:
            stack.append(item)
            if len(stack) == self._size:
                yield tuple(stack)
                stack = []
        if stack:
            yield tuple(stack)

    def close(self) -> None:
        """Closes the source."""
        self._source.close()


class StackedSink(Generic[_Result]):
    """Hands the results of stacks to a sink one by one: a sink of a flow."""

    def __init__(self, sink: Sink[_Result]) -> None:
        self._sink = sink

    def open(self, header: Header) -> None:
        """Begins. Raises OutputError."""
        self._sink.open(header)

    def add(self, result: Iterable[_Result]) -> None:
        """Takes the results of a stack. Raises OutputError."""
        for one in result:
            self._sink.add(one)

    def close(self) -> None:
        """Completes the output. Raises OutputError."""
        self._sink.close()

    def abort(self) -> None:
        """Leaves nothing behind."""
        self._sink.abort()


class FrameMemory:
    """Planes of frames of one size, page-locked for a device. Threads may share it.

    The memory of a frame is used again once nobody holds any of its planes: neither here nor an
    encoder, which keeps some for as long as it needs them.
    """

    def __init__(
        self,
        pixels: PixelFormat,
        height: int,
        width: int,
        pin: Callable[[NDArray[Any]], Pin] = lambda array: Pin(),
    ) -> None:
        """`pin` is the device's, `Backend.pin`."""
        dtype = np.dtype(pixels.dtype)
        self._dtype, self._pin = dtype, pin
        self._places: list[tuple[int, tuple[int, int]]] = []
        """Where each plane begins, and its shape."""
        begin = 0
        for shape in pixels.shapes(height, width):
            self._places.append((begin, shape))
            nbytes = shape[0] * shape[1] * dtype.itemsize
            begin += -(-nbytes // _ALIGNED) * _ALIGNED
        self._size = begin + _ALIGNED
        self._lock = threading.Lock()
        self._pins: list[Pin] = []
        self._free: deque[mmap.mmap] = deque()
        """The garbage collector puts memory here, at any time."""

    def planes(self) -> list[NDArray[Any]]:
        """Planes of a frame, uninitialised: (rows, columns) each, C-contiguous."""
        try:
            memory = self._free.popleft()
        except IndexError:
            memory = mmap.mmap(-1, self._size)
            with self._lock:
                self._pins.append(self._pin(np.frombuffer(memory, np.uint8)))
        whole = np.frombuffer(memory, np.uint8)
        # Views of it keep `whole` alive, and with it the memory.
        weakref.finalize(whole, self._free.append, memory).atexit = False
        size = self._dtype.itemsize
        return [
            whole[begin : begin + rows * columns * size].view(self._dtype).reshape(rows, columns)
            for begin, (rows, columns) in self._places
        ]

    def close(self) -> None:
        """Ends the registration of its memory with the device: no call uses it any more."""
        with self._lock:
            for pin in self._pins:
                pin.close()
            self._pins.clear()
