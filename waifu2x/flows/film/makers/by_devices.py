"""Makes the parts of a film on several devices, by a process for each.

A process that dies is replaced, and another one may make what its run still lacks; complete parts
stay.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from multiprocessing.connection import Connection
from typing import Any, Self

from waifu2x.errors import BackendError, ImageError
from waifu2x.flows.batch.worker import how_ended, start_context
from waifu2x.flows.film.frames.frame_device import Enlarging, OnFrames, StageTimes
from waifu2x.flows.film.makers import device_process
from waifu2x.flows.film.parts import manifest
from waifu2x.flows.film.parts.manifest import PartRecord
from waifu2x.flows.film.parts.part_runs import (
    FilmWork,
    PartRun,
    RunQueue,
    expected_parts,
    missing_runs,
    runs_within,
)
from waifu2x.flows.film.reading.client import FilmReader
from waifu2x.formats.film.writing.encode import Shape
from waifu2x.system.files import clear_folder
from waifu2x.system.lazy_dataclass import dataclass

_FRUITLESS = 2
"""Consecutive processes of a device without a part after which it is given up."""
_TRIES = 3
"""Processes lost on one part after which the part is to blame."""


class _LostError(Exception):
    """A process has ended; the text says how."""


class _BrokenError(_LostError):
    """The device of a process has failed; the text says why."""


@dataclass(eq=False)
class _Device:
    """A device and its present process."""

    name: str
    enlarging: Enlarging
    process: Any = None
    connection: Connection | None = None
    arithmetic: str = ""
    is_gpu: bool = False
    fruitless: int = 0
    told: tuple[int, int] = (0, 0)
    """Reported frames of its present run, and those that the network made."""
    sending: threading.Lock = field(default_factory=threading.Lock)


class MakerByDevices:
    """Makes parts by a process for each device, as long as the context lasts."""

    def __init__(
        self,
        reader: FilmReader,
        shape: Shape,
        devices: Sequence[tuple[str, Enlarging]],
        *,
        on_frames: OnFrames = lambda frames, computed: None,
        on_device: Callable[[str], None] = lambda described: None,
        on_news: Callable[[str], None] = lambda notice: None,
    ) -> None:
        """`reader` has the film open; `devices` are names for people, and how to open each.
        `on_device` is called with each device that is opened, `on_news` with messages, both by the
        thread that asks for parts."""
        self._reader = reader
        self._shape = shape
        self._devices = [_Device(name, enlarging) for name, enlarging in devices]
        self._on_frames = on_frames
        self._on_device = on_device
        self._on_news = on_news
        self._events: queue.SimpleQueue[device_process.FramesMade | str | BaseException | None] = (
            queue.SimpleQueue()
        )
        """Messages from the threads that follow processes; None is the end of one."""
        self._tries: Counter[int] = Counter()
        self._is_closed = False

    def __enter__(self) -> Self:
        """Opens all devices. Raises BackendError, ModelError, ImageError."""
        try:
            for device in self._devices:
                self._start(device)
            for device in self._devices:
                self._on_device(f"{device.name}: {self._opened_at_last(device)}")
            first = self._devices[0]
            for device in self._devices:
                if device.arithmetic != first.arithmetic:
                    raise BackendError(
                        f"{device.name} computes in {device.arithmetic}, {first.name} in "
                        f"{first.arithmetic}: choose by --backend and --precision"
                    )
        except BaseException:
            self.close()
            self._hang_up()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
        self._hang_up()

    @property
    def arithmetic(self) -> str:
        """Returns the arithmetic of all devices. Parts of another one would differ."""
        return self._devices[0].arithmetic

    @property
    def is_gpu(self) -> bool:
        return self._devices[0].is_gpu

    def __call__(self, runs: Sequence[PartRun], work: FilmWork) -> None:
        """Makes the parts of runs, as RunMaker. Raises BackendError if all devices have failed."""
        runs_left = RunQueue(runs, expected_parts(self._reader.film, work), len(self._devices))
        threads = [
            threading.Thread(
                target=self._serve,
                args=(device, runs_left, work),
                name=f"waifu2x-{device.name}",
                daemon=True,
            )
            for device in self._devices
            if device.fruitless < _FRUITLESS
        ]
        try:
            for thread in threads:
                thread.start()
            at_work = len(threads)
            while at_work:
                event = self._events.get()
                if event is None:
                    at_work -= 1
                elif isinstance(event, device_process.FramesMade):
                    self._tell(event)
                elif isinstance(event, str):
                    self._on_news(event)
                else:
                    raise event
        except BaseException:
            runs_left.stop()
            self.close()
            raise
        finally:
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
        if all(device.fruitless >= _FRUITLESS for device in self._devices):
            raise BackendError(
                "the processes of all devices end, see above: the parts that are complete stay"
            )

    def close(self) -> None:
        """Ends all processes at once."""
        self._is_closed = True
        for device in self._devices:
            self._end(device)

    def _hang_up(self) -> None:
        """Closes connections once no thread uses them, since their numbers may be reused."""
        for device in self._devices:
            if device.connection is not None:
                device.connection.close()
                device.connection = None
            if device.process is not None:
                device.process.close()
                device.process = None

    def _tell(self, made: device_process.FramesMade) -> None:
        self._on_frames(made.frames, made.computed)
        # As for one device: the number of devices must not change which stage is slowest.
        count = len(self._devices)
        for stage in ("decoding", "network", "encoding"):
            self._reader.stages.add(stage, made.spent._asdict()[stage] / count)

    # Each process is followed by a thread.

    def _serve(self, device: _Device, runs: RunQueue, work: FilmWork) -> None:
        try:
            while device.fruitless < _FRUITLESS and (run := runs.take()) is not None:
                before = self._parts(run, work)
                try:
                    has_ended = self._make(device, run, work)
                except _LostError as error:
                    if self._is_closed:
                        return
                    self._bury(device, run, work, error, before)
                    runs.give_back(self._left(run, work))
                else:
                    device.fruitless = 0
                    runs.done(has_ended=has_ended)
        except BaseException as error:
            self._events.put(error)
        finally:
            self._events.put(None)

    def _make(self, device: _Device, run: PartRun, work: FilmWork) -> bool:
        """Lets a process make a run; returns whether it found the end of the film. Raises
        _LostError."""
        if device.connection is None:
            self._start(device)
            self._opened(device)
        device.told = 0, 0
        with suppress(OSError), device.sending:
            assert device.connection is not None
            device.connection.send(device_process.MakeRun(run, work))
        while True:
            news = self._received(device)
            if not isinstance(news, device_process.FramesMade):
                return bool(news.has_ended)
            device.told = device.told[0] + news.frames, device.told[1] + news.computed
            self._events.put(news)

    def _bury(
        self,
        device: _Device,
        run: PartRun,
        work: FilmWork,
        why: _LostError,
        before: Collection[int],
    ) -> None:
        """Handles the end of a process. Raises ImageError for a part that has ended several."""
        self._end(device)
        clear_folder(work.folder)
        made = [told for number, told in self._parts(run, work).items() if number not in before]
        device.fruitless = 0 if made else device.fruitless + 1
        # Frames that were reported but lost are subtracted.
        frames = sum(len(told.encoded.pts) for told in made) - device.told[0]
        computed = sum(told.computed for told in made) - device.told[1]
        self._events.put(device_process.FramesMade(frames, computed, StageTimes()))
        left = self._left(run, work)
        if left and not isinstance(why, _BrokenError):
            number = left[0].first
            self._tries[number] += 1
            if self._tries[number] >= _TRIES:
                seconds = float(number * work.part_ticks * work.shape.tick)
                raise ImageError(
                    f"{work.source}: what comes after {seconds:g} s crashed {_TRIES} worker"
                    f" processes in a row: {why}"
                )
        is_gone = device.fruitless >= _FRUITLESS
        goes_on = "gets no more parts" if is_gone else "goes on in another process"
        self._events.put(f"{device.name}: {why}: {goes_on}")

    def _parts(self, run: PartRun, work: FilmWork) -> Mapping[int, PartRecord]:
        return manifest.all_recorded(work.folder, run.first, run.until)

    def _left(self, run: PartRun, work: FilmWork) -> Sequence[PartRun]:
        missing = missing_runs(self._parts(run, work), run.first, work.part_ticks).runs
        return runs_within(missing, run.first, run.until)

    def _start(self, device: _Device) -> None:
        context = start_context(device_process.__name__)
        device.connection, theirs = context.Pipe()
        arguments = theirs, self._reader.path, self._reader.film, self._shape, device.enlarging
        process = context.Process(target=device_process.work, args=arguments, name="waifu2x-device")
        with theirs:
            process.start()  # after an interrupt here it ends with the connection
        device.process = process
        if self._is_closed:
            self._end(device)

    def _opened(self, device: _Device) -> str:
        """Waits for the device; returns its description. Raises _LostError, also for another
        arithmetic."""
        news = self._received(device)
        assert isinstance(news, device_process.DeviceOpened)
        if device.arithmetic not in ("", news.arithmetic):
            raise _BrokenError(f"it computes in {news.arithmetic} now, not {device.arithmetic}")
        device.arithmetic, device.is_gpu = news.arithmetic, news.is_gpu
        return news.described

    def _opened_at_last(self, device: _Device) -> str:
        """Does the same, with one more process if the first is lost. Raises BackendError."""
        try:
            return self._opened(device)
        except _LostError:
            self._end(device)
            self._start(device)
        try:
            return self._opened(device)
        except _LostError as error:
            raise BackendError(f"{device.name}: {error}") from error

    def _received(self, device: _Device) -> Any:
        """Returns the next message of a process. Raises _LostError if it has ended or its device
        has failed, and any other error that it reports."""
        try:
            assert device.connection is not None
            news = device.connection.recv()
        except (EOFError, OSError) as error:
            device.process.join()
            raise _LostError(f"its process {how_ended(device.process.exitcode)}") from error
        if isinstance(news, device_process.ProcessFailed):
            if isinstance(news.error, BackendError) and device.arithmetic:
                raise _BrokenError(str(news.error))
            raise news.error
        return news

    def _end(self, device: _Device) -> None:
        if device.process is not None:
            device.process.kill()
            device.process.join()
        if device.connection is not None and not self._is_closed:
            device.connection.close()
            device.connection = None
