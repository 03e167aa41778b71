"""Frames of an animation that are shown again, computed once."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future

from waifu2x.backends import Progress
from waifu2x.imaging.picture import Picture

_MOST = 16
"""Results that are kept for frames to come."""
_BUDGET = 256 << 20
"""Bytes of results that are kept; one is, however large."""


class Repeats:
    """Work on frames whose latest results are kept: the same frame again takes no work.

    Threads may share it.
    """

    def __init__(self, work: Callable[[Picture, Progress], Picture]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._results: OrderedDict[bytes, Future[Picture]] = OrderedDict()
        """By a frame's digest; those that were asked for last come last."""

    def __call__(self, frame: Picture, on_progress: Progress) -> Picture:
        """The result for a frame. Raises what the work raises."""
        digest = _digest(frame)
        with self._lock:
            found = self._results.pop(digest, None)
            result = found or Future()
            self._results[digest] = result
        if found is not None:
            picture = found.result()
            on_progress(1.0)
            return picture
        try:
            result.set_result(self._work(frame, on_progress))
        except BaseException as error:
            result.set_exception(error)
            raise
        with self._lock:
            self._forget()
        return result.result()

    def _forget(self) -> None:
        """Drops the results that were asked for longest ago, where they are too many bytes."""
        done = {
            digest: _nbytes(result.result())
            for digest, result in self._results.items()
            if result.done() and result.exception() is None
        }
        while len(done) > 1 and (len(done) > _MOST or sum(done.values()) > _BUDGET):
            oldest = next(iter(done))
            del done[oldest], self._results[oldest]


def _digest(picture: Picture) -> bytes:
    digest = hashlib.blake2b(picture.pixels.data, digest_size=16)
    if picture.alpha is not None:
        digest.update(picture.alpha.data)
    return digest.digest()


def _nbytes(picture: Picture) -> int:
    return picture.pixels.nbytes + (0 if picture.alpha is None else picture.alpha.nbytes)
