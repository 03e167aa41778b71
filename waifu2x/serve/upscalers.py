"""Upscalers of one engine, by settings: kept, so that the next picture finds its networks compiled.
If memory is short, the engine drops networks by itself."""

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
from waifu2x.serve.job_settings import JobSettings
from waifu2x.system.lazy_dataclass import dataclass

_KEPT = 24
"""Unused upscalers that are kept."""


@dataclass(eq=False)
class _Kept:
    upscaler: Upscaler
    users: int = 0
    requests: dict[Output, FileRequest] = field(default_factory=dict)


class Upscalers:
    """Holds upscalers by settings. Threads may share it."""

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
        """Gives an upscaler for the length of the context. Raises Waifu2xError, ValueError."""
        key = _key(settings)
        kept = self._take(key, settings)
        try:
            yield kept.upscaler
        finally:
            self._give_back(key)

    def request(self, settings: JobSettings, source_extension: str) -> FileRequest:
        """Returns the request of a file for a driver; `release` ends its use. Raises Waifu2xError,
        ValueError."""
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
        """Ends the use of a `request`."""
        self._give_back(_key(settings))

    def notices(self, settings: JobSettings) -> tuple[str, ...]:
        """Returns the notices of an upscaler that is in use."""
        with self._lock:
            return self._kept[_key(settings)].upscaler.notices

    def clock(self) -> float:
        """Returns seconds of a clock that stands still while networks are compiled."""
        return self.engine.clock()

    def preparing(self) -> float | None:
        """Returns for how many seconds networks have been compiled now; None if none is."""
        return self.engine.clock.standing()

    def reopen(self) -> None:
        """Replaces an engine whose device has stopped working. Raises Waifu2xError; the next call
        tries again."""
        self.close()
        self.engine = self._open_engine()

    def close(self) -> None:
        """Closes all upscalers and the engine."""
        with self._lock:
            kept, self._kept = list(self._kept.values()), OrderedDict()
        self.engine.close()
        for each in kept:
            each.upscaler.close()

    def _take(self, key: tuple[Any, ...], settings: JobSettings) -> _Kept:
        # One at a time, so that two requests do not compile the same network twice.
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
