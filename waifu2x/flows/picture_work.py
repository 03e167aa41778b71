"""Prepares the pictures of a file for an output, and enlarges each: repeated frames only once."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from waifu2x.backends import Progress, ignore
from waifu2x.errors import ImageError
from waifu2x.flows.jobs import Identity, Output, Reserve
from waifu2x.formats import table
from waifu2x.formats.adapt import Adapter, check_result, finish
from waifu2x.formats.base import DecodedFile
from waifu2x.formats.limits import MAX_PIXELS
from waifu2x.formats.metadata.profiles import in_srgb_tone
from waifu2x.formats.preview import Preview, previews
from waifu2x.imaging.enlarger import Enlarger
from waifu2x.imaging.picture import Picture
from waifu2x.imaging.streams import Extent, Header, Timed
from waifu2x.system.lazy_dataclass import dataclass
from waifu2x.system.stopwatch import Stopwatch

_KEPT_RESULTS = 16
"""The most results that are kept for later frames."""
_KEPT_BYTES = 256 << 20
"""The most bytes of them; one result is always kept."""


class Repeats:
    """Keeps the latest results of work on frames, so that a repeated frame is free. Threads may
    share it."""

    def __init__(self, work: Callable[[Picture, Progress], Picture]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._results: OrderedDict[bytes, Future[Picture]] = OrderedDict()
        """By the digests of frames, in the order of their latest use."""

    def __call__(self, frame: Picture, on_progress: Progress) -> Picture:
        """Returns the result for a frame. Raises what the work raises."""
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
        """Drops the least recently used results beyond the limits."""
        done = {
            digest: _nbytes(result.result())
            for digest, result in self._results.items()
            if result.done() and result.exception() is None
        }
        while len(done) > 1 and (len(done) > _KEPT_RESULTS or sum(done.values()) > _KEPT_BYTES):
            oldest = next(iter(done))
            del done[oldest], self._results[oldest]


def _digest(picture: Picture) -> bytes:
    digest = hashlib.blake2b(picture.pixels.data, digest_size=16)
    if picture.alpha is not None:
        digest.update(picture.alpha.data)
    return digest.digest()


def _nbytes(picture: Picture) -> int:
    return picture.pixels.nbytes + (0 if picture.alpha is None else picture.alpha.nbytes)


@dataclass(frozen=True)
class WorkOptions:
    """How one file is worked on, and who hears of it."""

    max_pixels: int = MAX_PIXELS
    """The most pixels of a picture."""
    reserve: Reserve = lambda content: nullcontext()
    in_flight: int = 1
    """Pictures of the file between its decoder and its encoder."""
    alone: bool = True
    """Whether no other files are worked on: then small results are encoded by all cores, too, and
    the enlarger is opened while a large file is decoded."""
    sources: frozenset[Identity] = frozenset()
    """Inputs, which are never replaced."""
    check: Callable[[Header], None] = lambda header: None
    """Called with the header of the source before all else; it may raise."""
    on_size: Callable[[int, int], None] = lambda height, width: None
    """Called before the work: rows of all results together, and columns of the first."""
    on_progress: Progress = ignore
    on_notice: Callable[[str], None] = lambda notice: None
    """Called with a clause for each thing that the output does not keep."""


class PreparedSource:
    """The pictures of a file, checked and adapted for an output."""

    def __init__(
        self,
        source: DecodedFile,
        network: Enlarger,
        output: Output,
        name: str,
        target: str,
        spent: Stopwatch,
        options: WorkOptions,
    ) -> None:
        """`name` and `target` stand for input and output in messages. `options.on_notice` hears of
        losses, with the first picture or when they show; `spent` gets the seconds of `decode` and
        `prepare`. Raises ImageError if a picture would grow more than 32 times."""
        self._source = source
        self._network = network
        self._form = table.of(output.extension)
        self._adapter = Adapter(self._form, output.options, output.quality)
        self._target = target
        self._on_notice = options.on_notice
        self._spent = spent
        self.sizes = _result_sizes(network, source.header, name)
        """Rows and columns of results, for each extent in the file's header."""
        kept, self._uncounted = self._adapter.header(source.header)
        extents = tuple(
            _grown(extent, size) for extent, size in zip(kept.extents, self.sizes, strict=False)
        )
        self.header = replace(kept, extents=extents)
        """The header of the results."""
        count = self.header.count
        self._checked: set[tuple[tuple[int, int, int], int]] = set()
        """Shapes of results, and bytes of their samples."""
        self._at_once = min(options.in_flight + 1, count or options.in_flight + 1)

    def __iter__(self) -> Iterator[Timed]:
        """Yields the pictures, once. Raises ImageError, and OutputError for one that the output
        cannot hold."""
        pictures = iter(self._source)
        read = 0
        while read != self.header.count:
            with self._spent("decode"):
                timed = next(pictures, None)
            if timed is None:
                return
            with self._spent("prepare"):
                timed = self._fitted(timed)
            yield timed
            del timed  # before there is another one
            read += 1

    def close(self) -> None:
        self._source.close()

    def _fitted(self, timed: Timed) -> Timed:
        """Returns a picture as the output can hold it."""
        picture, notices = self._adapter.picture(timed.picture)
        found = list(timed.notices)
        if timed.index == 0:
            found = [*sorted({*self._source.header.notices, *found}), *self._uncounted]
        notices = self._adapter.untold(found) + notices
        height, width, planes = picture.pixels.shape
        size = self._network.result_size(height, width)
        planes += picture.alpha is not None
        shape, itemsize = (*size, planes), picture.pixels.dtype.itemsize
        if (shape, itemsize) not in self._checked:
            # For later pictures, the free memory excludes those under way.
            at_once = 1 if self._checked else self._at_once
            check_result(self._form, shape, itemsize, self._target, at_once)
            self._checked.add((shape, itemsize))
        for notice in notices:
            self._on_notice(notice)
        duration = timed.duration if self.header.animated else None
        return Timed(picture, duration, index=timed.index)


def _result_sizes(network: Enlarger, header: Header, name: str) -> list[tuple[int, int]]:
    """Returns rows and columns of results for the extents in a header."""
    try:
        return [network.result_size(height, width) for height, width, _ in header.extents]
    except ImageError as error:
        raise error.of(name) from error


def _grown(extent: Extent, size: tuple[int, int]) -> Extent:
    """Returns the extent of a result, with bytes in proportion."""
    area = max(extent.height * extent.width, 1)
    return Extent(*size, extent.nbytes * size[0] * size[1] // area)


class PictureWork:
    """Makes the result of each picture. Threads may share it."""

    def __init__(
        self, network: Enlarger, output: Output, spent: Stopwatch, *, animated: bool
    ) -> None:
        """`animated`: pictures are frames; repeated ones are computed once."""
        self._network = network
        self._output = output
        self._form = table.of(output.extension)
        self._spent = spent
        self._result = Repeats(self._made) if animated else self._made
        self.previews: tuple[Preview, ...] = ()
        """Previews of the first picture, if wanted, once it is done."""
        self.recomputed = 0
        """Pictures computed again in fp32; repeated frames count once."""
        self._counting = threading.Lock()

    def __call__(self, timed: Timed, on_progress: Progress) -> Timed:
        """Returns the result of a picture. Raises ModelError, BackendError."""
        result = self._result(timed.picture, on_progress)
        if timed.index == 0 and self._output.preview_side:
            shown = self._network.shown(*timed.picture.pixels.shape[:2])
            made = previews(timed.picture, result, shown, self._output.preview_side)
            self.previews = (made,)
        return replace(timed, picture=result)

    def _made(self, picture: Picture, on_progress: Progress) -> Picture:
        work = partial(
            self._network.picture,
            on_progress=on_progress,
            stopwatch=self._spent,
            on_recomputed=self._count_recomputed,
        )
        return finish(in_srgb_tone(picture, work))

    def _count_recomputed(self) -> None:
        with self._counting:
            self.recomputed += 1
