"""Upscalers of one engine, by what is asked for: kept, so that the next picture finds its networks
compiled. Where memory is short, the engine drops networks by itself."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import Any

from waifu2x.api import Upscaler
from waifu2x.backends.engine.engine import Engine
from waifu2x.flows.batch.assignments import FileRequest
from waifu2x.flows.batch.driver import calls_at_once
from waifu2x.flows.jobs import Output
from waifu2x.serve.request import JobSettings
from waifu2x.system.lazy_dataclass import dataclass

_KEPT = 24
"""Upscalers that are kept though nobody uses them."""


@dataclass(eq=False)
class _Kept:
    """An upscaler, and how many use it."""

    upscaler: Upscaler
    users: int = 0
    requests: dict[Output, FileRequest] = field(default_factory=dict)


class Upscalers:
    """Upscalers by settings. Threads may share it."""

    def __init__(self, open_engine: Callable[[], Engine], max_pixels: int) -> None:
        """Opens the engine. Raises Waifu2xError."""
        self._open_engine = open_engine
        self.engine = open_engine()
        self._max_pixels = max_pixels
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._kept: OrderedDict[tuple[Any, ...], _Kept] = OrderedDict()

    @contextmanager
    def opened(self, settings: JobSettings) -> Iterator[Upscaler]:
        """An upscaler for the length of the context. Raises Waifu2xError, ValueError."""
        key = _key(settings)
        kept = self._take(key, settings)
        try:
            yield kept.upscaler
        finally:
            self._give_back(key)

    def request(self, settings: JobSettings, source_extension: str) -> FileRequest:
        """What a driver is told of a file, until `release`. Raises Waifu2xError, ValueError."""
        output = settings.output(source_extension)
        key = _key(settings)
        kept = self._take(key, settings)
        with self._lock:
            if output not in kept.requests:
                at_once = calls_at_once(self.engine)
                made = FileRequest(kept.upscaler, output, self._max_pixels, at_once)
                kept.requests[output] = made
            return kept.requests[output]

    def release(self, settings: JobSettings) -> None:
        """Tells that a file is finished that `request` was called for."""
        self._give_back(_key(settings))

    def reopen(self) -> None:
        """Takes another engine for the one whose device has stopped working. Raises Waifu2xError,
        and tries again at the next call."""
        self.close()
        self.engine = self._open_engine()

    def close(self) -> None:
        """Closes all, and the engine."""
        with self._lock:
            kept, self._kept = list(self._kept.values()), OrderedDict()
        self.engine.close()
        for each in kept:
            each.upscaler.close()

    def _take(self, key: tuple[Any, ...], settings: JobSettings) -> _Kept:
        # One at a time: two that ask for the same at once are not to compile it twice.
        with self._opening:
            with self._lock:
                found = self._kept.get(key)
            if found is None:
                found = _Kept(Upscaler(engine=self.engine, **settings.arguments()))
            with self._lock:
                self._kept[key] = found
                self._kept.move_to_end(key)
                found.users += 1
                return found

    def _give_back(self, key: tuple[Any, ...]) -> None:
        with self._lock:
            if key in self._kept:
                self._kept[key].users -= 1
            unused = [name for name, each in self._kept.items() if not each.users]
            closed = [self._kept.pop(name) for name in unused[: max(0, len(unused) - _KEPT)]]
        for each in closed:
            each.upscaler.close()


def _key(settings: JobSettings) -> tuple[Any, ...]:
    return tuple(settings.arguments().values())
