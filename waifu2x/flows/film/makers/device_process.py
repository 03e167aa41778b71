"""A process with its own device, which makes runs of parts of one film.

It reads the film and writes parts itself: only orders and news pass between it and its parent. It
ends at once when the parent is gone.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

from waifu2x.errors import Waifu2xError
from waifu2x.flows.batch.worker import leave_signals
from waifu2x.flows.film.frames.frame_device import Enlarging, StageTimes
from waifu2x.flows.film.makers.run_maker import make_run
from waifu2x.flows.film.parts.part_runs import FilmWork, PartRun
from waifu2x.flows.film.reading.client import FilmReader
from waifu2x.formats.film.description import Film
from waifu2x.formats.film.writing.encode import Shape
from waifu2x.system.files import remove_unfinished

_TOLD_SECONDS = 0.1
"""Seconds between two messages about progress."""


class MakeRun(NamedTuple):
    """Make this run. None ends the process, as the end of the connection does."""

    run: PartRun
    work: FilmWork


# Messages to the parent:


class DeviceOpened(NamedTuple):
    arithmetic: str
    is_gpu: bool
    described: str


class FramesMade(NamedTuple):
    frames: int
    computed: int
    spent: StageTimes
    """Seconds since the last message."""


class RunDone(NamedTuple):
    has_ended: bool


class ProcessFailed(NamedTuple):
    error: BaseException


News = DeviceOpened | FramesMade | RunDone | ProcessFailed


def work(
    connection: Connection, source: Path, film: Film, shape: Shape, enlarging: Enlarging
) -> None:
    """Runs the process. It ignores SIGINT, SIGTERM and SIGHUP, which its parent handles."""
    leave_signals()
    starter = _Starter(connection)
    try:
        with (
            enlarging.opened(film, shape) as device,
            FilmReader(source, device.pin, start=film.start) as reader,
        ):
            starter.tell(DeviceOpened(device.arithmetic, device.is_gpu, device.described))
            while True:
                order = starter.next()
                told = _Told(starter, reader)
                has_ended = make_run(reader, order.work, order.run, device, told.add)
                told.tell()
                starter.tell(RunDone(has_ended))
    except Waifu2xError as error:
        starter.tell(ProcessFailed(error))
    except Exception as error:  # maybe of a library that the parent lacks
        starter.tell(ProcessFailed(RuntimeError(f"{type(error).__name__}: {error}")))
    starter.vanish()


class _Starter:
    """The parent, at the other end of the connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._orders: queue.SimpleQueue[MakeRun] = queue.SimpleQueue()
        threading.Thread(target=self._receive, name="waifu2x-orders", daemon=True).start()

    def next(self) -> MakeRun:
        return self._orders.get()

    def tell(self, news: News) -> None:
        """Sends news; ends the process if the parent is gone."""
        try:
            with self._lock:
                self._connection.send(news)
        except OSError:
            self.vanish()

    def vanish(self) -> None:
        try:
            remove_unfinished()
        finally:
            os._exit(0)

    def _receive(self) -> None:
        while True:
            try:
                order = self._connection.recv()
            except Exception:  # the parent is gone
                order = None
            if order is None:
                self.vanish()
            self._orders.put(order)


class _Told:
    """Counts frames and reports them now and then. Threads share it."""

    def __init__(self, starter: _Starter, reader: FilmReader) -> None:
        self._starter = starter
        self._stages = reader.stages
        self._lock = threading.Lock()
        self._frames = self._computed = 0
        self._before = self._stages.times()
        self._at = time.monotonic()

    def add(self, frames: int, computed: int) -> None:
        with self._lock:
            self._frames += frames
            self._computed += computed
            is_due = time.monotonic() - self._at >= _TOLD_SECONDS
        if is_due:
            self.tell()

    def tell(self) -> None:
        """Reports what was not yet reported."""
        times = self._stages.times()
        with self._lock:
            news = FramesMade(self._frames, self._computed, times.since(self._before))
            self._frames = self._computed = 0
            self._before, self._at = times, time.monotonic()
        self._starter.tell(news)
