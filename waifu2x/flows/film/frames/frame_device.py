"""A device that enlarges the frames of a film, and the flow of frames through it, in stacks."""

from __future__ import annotations

import mmap
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from waifu2x.backends import Pin, Progress
from waifu2x.flows.film.frames.changed_areas import AreaFinder, AreaWork
from waifu2x.flows.film.frames.frame_source import EnlargedFrame, FrameSource, PlacedFrame, Planes
from waifu2x.flows.film.frames.kept_result import AreaMaker, CompletedFrames, ComputedFrame
from waifu2x.flows.film.parts.part_runs import FilmWork, PartRun
from waifu2x.flows.flow import flow
from waifu2x.formats.film.description import Film, PixelFormat
from waifu2x.formats.film.writing.encode import Shape
from waifu2x.imaging.streams import Sink
from waifu2x.system.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from waifu2x.flows.film.reading.client import FilmReader

Enlarge = Callable[[Sequence[Planes], Sequence[Planes]], Collection[int] | None]
"""Enlarges frames, given as planes in the film's format, into the same number of frames in the
encoder's format. For a network of several frames, the planes of one are those of all frames of its
window, the earliest first. Returns the numbers of frames that were computed again in wider numbers,
if any. Threads share it."""
OnFrames = Callable[[int, int], None]
"""Called by several threads with the number of new results, and how many of them the
network made."""
Stage = Literal["decoding", "network", "encoding"]
_PIXELS = 1 << 19
_MOST = 8
_ALIGNED = 64
"""Alignment of planes in bytes, the widest registers of a processor. As many bytes follow the last
plane, since encoders may read beyond a row. Otherwise planes are adjacent, so that a device copies
most frames in one transfer."""


@dataclass(frozen=True, eq=False)
class FrameDevice:
    """A device that enlarges frames, and how to feed it."""

    enlarge: Enlarge
    in_flight: int = 2
    """Stacks of frames under way."""
    stack: int = 1
    waiting: int = 0
    """Stacks whose results may wait besides, so that the device goes on while an encoder pauses."""
    pin: Callable[[NDArray[Any]], Pin] = lambda array: Pin()
    """`Backend.pin` of the device."""
    arithmetic: str = ""
    """The name of the backend and its arithmetic. Parts of another arithmetic differ."""
    is_gpu: bool = False
    described: str = ""
    frames: int = 1
    """Frames of the window that `enlarge` takes for each result."""
    areas: AreaWork | None = None
    """None if only whole frames can be enlarged."""


class Enlarging(Protocol):
    """Opens devices that enlarge frames. It can be sent to other processes and machines."""

    def opened(self, film: Film, shape: Shape) -> AbstractContextManager[FrameDevice]:
        """Opens a device while the context lasts. Raises BackendError, ModelError."""


class StageTimes(NamedTuple):
    """Seconds since a film was begun, and those during which each stage worked."""

    elapsed: float = 0.0
    decoding: float = 0.0
    network: float = 0.0
    encoding: float = 0.0

    def since(self, before: StageTimes) -> StageTimes:
        """Returns the difference from earlier times."""
        return StageTimes(*(now - then for now, then in zip(self, before, strict=True)))

    @property
    def slowest(self) -> Stage:
        """Returns the stage that waited least."""
        stages: dict[Stage, float] = {
            "network": self.network,
            "encoding": self.encoding,
            "decoding": self.decoding,
        }
        return max(stages, key=lambda stage: stages[stage])


class Stages:
    """The stages of a film that is being made. Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun = time.monotonic()
        self._spent: dict[Stage, float] = {"decoding": 0.0, "network": 0.0, "encoding": 0.0}
        self._active: dict[Stage, int] = dict.fromkeys(self._spent, 0)
        self._since: dict[Stage, float] = dict.fromkeys(self._spent, 0.0)

    @contextmanager
    def at_work(self, stage: Stage) -> Iterator[None]:
        """Counts the time of the context for a stage; overlapping ones count once."""
        with self._lock:
            if not self._active[stage]:
                self._since[stage] = time.monotonic()
            self._active[stage] += 1
        try:
            yield
        finally:
            with self._lock:
                self._active[stage] -= 1
                if not self._active[stage]:
                    self._spent[stage] += time.monotonic() - self._since[stage]

    def add(self, stage: Stage, seconds: float) -> None:
        """Adds seconds that were measured elsewhere."""
        with self._lock:
            self._spent[stage] += seconds

    def times(self) -> StageTimes:
        """Returns the times up to now."""
        with self._lock:
            now = time.monotonic()
            spent = {
                stage: seconds + (now - self._since[stage] if self._active[stage] else 0.0)
                for stage, seconds in self._spent.items()
            }
            return StageTimes(now - self._begun, **spent)


def enlarge_run(
    reader: FilmReader,
    work: FilmWork,
    run: PartRun,
    sink: Sink[Sequence[EnlargedFrame]],
    device: FrameDevice,
    on_frames: OnFrames,
) -> bool:
    """Enlarges the frames of a run in stacks, several of them under way, and gives the results to a
    sink. Returns whether the end of the film was found. Raises ImageError, OutputError,
    BackendError."""

    def enlarged(stack: Sequence[PlacedFrame], on_progress: Progress) -> Sequence[ComputedFrame]:
        whole = [placed for placed in stack if placed.areas is None]
        computed = sum(not placed.is_held for placed in stack)
        made: dict[PlacedFrame, ComputedFrame] = {}
        with reader.stages.at_work("network") if computed else nullcontext():
            planes = [memory.planes() for _ in whole]
            wide: Collection[int] = ()
            if whole:
                start = time.monotonic()
                wide = device.enlarge([placed.planes for placed in whole], planes) or ()
                if find is not None:
                    find.took(time.monotonic() - start, len(whole))
            for number, placed in enumerate(whole):
                made[placed] = ComputedFrame(placed, planes[number], number in wide)
            for placed in stack:
                if placed.areas is not None:
                    patches = maker(placed.frame.planes, placed.areas)
                    made[placed] = ComputedFrame(placed, None, patches=patches)
        on_frames(len(stack), computed)
        return [made[placed] for placed in stack]

    shape, pixels = work.shape, reader.film.pictures.pixels
    in_flight = device.in_flight + device.waiting
    ahead = in_flight * device.stack
    frames = FrameSource(reader, work, run, ahead, device.stack, frames=device.frames)
    height, width, _ = frames.header.extents[0]
    find = None
    if device.areas is not None:
        frames.find = find = AreaFinder(pixels, height, width, device.areas)
    maker = AreaMaker(device.areas, pixels, shape.encoding.pixels, shape.height // height)
    memory = FrameMemory(shape.encoding.pixels, shape.height, shape.width, device.pin)
    completed = CompletedFrames(sink, device.enlarge, maker, memory.planes)
    with closing(memory):
        flow(frames, enlarged, completed, in_flight=in_flight, workers=max(1, device.in_flight - 1))
    return frames.has_ended


def stack_size(height: int, width: int) -> int:
    """Returns how many frames of a size form a stack, since each call of a network has a fixed
    cost."""
    return max(1, min(_MOST, _PIXELS // max(1, height * width)))


class FrameMemory:
    """Page-locked planes for frames of one size. Threads may share it. The memory of a frame is
    reused once neither this program nor an encoder holds any of its planes."""

    def __init__(
        self,
        pixels: PixelFormat,
        height: int,
        width: int,
        pin: Callable[[NDArray[Any]], Pin] = lambda array: Pin(),
    ) -> None:
        """`pin` is `Backend.pin` of the device."""
        dtype = np.dtype(pixels.dtype)
        self._dtype, self._pin = dtype, pin
        self._places: list[tuple[int, tuple[int, int]]] = []
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
        """Returns planes of a frame, uninitialised: (rows, columns) each, C-contiguous."""
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
        """Unpins the memory, once no call uses it."""
        with self._lock:
            for pin in self._pins:
                pin.close()
            self._pins.clear()
