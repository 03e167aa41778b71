"""Carries items from a source through some work to a sink.

It is the same for the one picture of a PNG, the frames of an animation, the pages of a document and
the files of an archive.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from typing import TypeVar

from waifu2x.backends import Progress, ignore, scaled
from waifu2x.imaging.streams import Sink, Source

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")
Work = Callable[[_Item, Progress], _Result]
"""Makes a result of an item. Several threads call it. Its progress adds up to 1, and raises to
stop."""


class StoppedError(Exception):
    """Raised by progress to end unwanted work."""


def flow(
    source: Source[_Item],
    work: Work[_Item, _Result],
    sink: Sink[_Result],
    *,
    in_flight: int = 1,
    workers: int | None = None,
    on_progress: Progress = ignore,
) -> None:
    """Carries every item of a source through `work` into a sink, in order, and closes both.

    `in_flight` items are between source and sink: the calling thread hands one to the sink, a
    thread works on each other, and one more is read ahead. With 1, the calling thread does all.
    With fewer `workers`, that many threads work, and the other items wait for them or for the sink.
    `on_progress` gets parts that add up to 1, from one thread at a time, if the source knows its
    count. Any error or interrupt ends all work and aborts the sink.
    """
    count = source.header.count
    if count is not None:
        in_flight = max(1, min(in_flight, count))
    share = scaled(on_progress, 1 / count) if count else ignore
    opened = False
    try:
        with (
            closing(source),
            closing(
                _in_order(iter(source), work, in_flight, workers or in_flight - 1, share)
            ) as results,
        ):
            for result in results:
                if not opened:
                    sink.open(source.header)
                    opened = True
                sink.add(result)
            if not opened:
                sink.open(source.header)
            sink.close()
    except BaseException:
        sink.abort()
        raise


def _in_order(
    items: Iterator[_Item],
    work: Callable[[_Item, Progress], _Result],
    in_flight: int,
    threads: int,
    on_progress: Progress,
) -> Generator[_Result]:
    """Yields the results in order. Closing it stops the work under way."""
    if in_flight == 1:
        for item in items:
            yield work(item, on_progress)
        return
    stopped, lock = threading.Event(), threading.Lock()

    def report(part: float) -> None:
        if stopped.is_set():
            raise StoppedError
        with lock:
            on_progress(part)

    def read() -> list[_Item]:
        return list(islice(items, 1))

    waiting: deque[Future[_Result]] = deque()
    workers = ThreadPoolExecutor(threads, thread_name_prefix="waifu2x-flow")
    reader = ThreadPoolExecutor(1, thread_name_prefix="waifu2x-read")
    try:
        unread: Exception | None = None
        reading = reader.submit(read)
        while True:
            try:
                found = reading.result()
            except Exception as error:
                unread = error  # after the errors of items before it
                break
            if not found:
                break
            waiting.append(workers.submit(work, found.pop(), report))
            reading = reader.submit(read)
            if len(waiting) == in_flight:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
        if unread is not None:
            raise unread
    finally:
        stopped.set()
        for pool in (reader, workers):
            pool.shutdown(cancel_futures=True)
