"""Makes the films of the queue, one after the other, by the engine that makes the pictures.
Pictures come first: while there are any, frames go one by one, and take a quarter of the time."""

from __future__ import annotations

import logging
import shutil
import sqlite3
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from waifu2x.api import Upscaler
from waifu2x.errors import BackendError, ImageError, OutputError, Waifu2xError
from waifu2x.flows.film import automatic
from waifu2x.flows.film.frames.frame_device import Enlarge
from waifu2x.flows.film.frames.frame_enlarger import FrameEnlarger, device_of
from waifu2x.flows.film.frames.frame_source import Planes
from waifu2x.flows.film.makers.run_maker import MakerHere
from waifu2x.flows.film.making import make_film
from waifu2x.flows.film.reading.client import FilmReader
from waifu2x.flows.film.request import FilmJob, PreparedFilm, prepare
from waifu2x.flows.flow import StoppedError
from waifu2x.formats.film.description import Film
from waifu2x.formats.film.writing.codecs import keeps_transparency
from waifu2x.formats.film.writing.targets import ROOMIEST
from waifu2x.networks import model_set
from waifu2x.serve import film_remarks, names
from waifu2x.serve.film_frames import check_film, frame_count
from waifu2x.serve.job_results import JobResults
from waifu2x.serve.job_settings import JobSettings
from waifu2x.serve.jobs import JobRecord, Remarks
from waifu2x.serve.limits import FILM_SECONDS, ServiceLimits
from waifu2x.serve.queue import Queue
from waifu2x.serve.spool import Spool
from waifu2x.serve.upscalers import Upscalers

if TYPE_CHECKING:
    from waifu2x.flows.film.automatic import DecidedFilm
    from waifu2x.networks.model_set import ModelSet

_LOOK_SECONDS = 0.5
"""Between checks whether the server is ending."""
_PICTURES_SHARE = 3.0
"""The pause between frames while pictures wait, as a multiple of the last frame's time."""
_TELL_SECONDS = 0.1
"""Between reports of progress."""
_MEASURE_SECONDS = 10.0
"""Between measurements of the parts' size."""
_ENDING_SECONDS = 10.0
"""How long the server waits for a film when it ends."""
_log = logging.getLogger("waifu2x")


class FilmWorker:
    """Makes the films of the queue in a thread."""

    def __init__(
        self,
        queue: Queue,
        spool: Spool,
        upscalers: Upscalers,
        results: JobResults,
        limits: ServiceLimits,
        no_pictures: threading.Event,
    ) -> None:
        """`no_pictures` is set while no picture is under way."""
        self._queue = queue
        self._spool = spool
        self._upscalers = upscalers
        self._results = results
        self._limits = limits
        self._no_pictures = no_pictures
        self._stopped = threading.Event()
        self._unwanted = threading.Event()
        self._under_way = ""
        """The id of the film under way."""
        self._turn = threading.Lock()
        self._thread = threading.Thread(target=self._work, name="waifu2x-films", daemon=True)
        queue.on_cancelled.append(self._cancel)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Ends the work; the next start uses the finished parts of a film."""
        self._stopped.set()
        self._queue.wake()
        self._thread.join(_ENDING_SECONDS)

    def _work(self) -> None:
        while not self._stopped.is_set():
            try:
                record = self._queue.take(_LOOK_SECONDS, films=True)
            except sqlite3.Error:  # the disk is full, say
                self._stopped.wait(_LOOK_SECONDS)
                continue
            if record is None:
                continue
            self._unwanted.clear()
            self._under_way = record.id
            try:
                self._make(record)
            except Exception as error:  # a defect: the queue stays
                if not self._stopped.is_set():
                    _log.error("the work on a film was interrupted: %s", error)
                    self._results.fail(record, f"{record.name}: {error}")

    def _cancel(self, identity: str) -> None:
        if identity == self._under_way:
            self._unwanted.set()

    def _make(self, record: JobRecord) -> None:
        source = self._spool.source(record)
        made = self._spool.result(record, names.film_extension(record.name))
        try:
            if not self._queue.is_wanted(record):
                raise StoppedError
            pin = self._upscalers.engine.backend.pin
            with FilmReader(source, pin, self._check) as reader:
                check_film(reader.film, record.name, self._limits.max_pixels)
                made, prepared, remarks = self._made(record, reader, made)
        except StoppedError:
            if self._stopped.is_set():
                return
        except (Waifu2xError, ValueError, MemoryError, OSError) as error:
            if self._stopped.is_set():
                return
            known = error.sentence if isinstance(error, Waifu2xError) else str(error)
            self._results.fail(record, known or f"{record.name}: not enough memory")
            self._drop_parts(record)
        else:
            if self._queue.is_wanted(record):
                shape = prepared.shape
                size = shape.width, shape.height
                self._results.keep(record, made, size, remarks)
        if self._queue.find(record.id) is None or self._unwanted.is_set():
            self._drop_parts(record)
            self._results.drop(record, made)
        self._queue.measure(record.id)

    def _drop_parts(self, record: JobRecord) -> None:
        """Removes the parts of a job's result, whichever container it was to have."""
        for parts in self._spool.of(record.id).glob("result-*.parts"):
            shutil.rmtree(parts, ignore_errors=True)

    def _made(
        self, record: JobRecord, reader: FilmReader, target: Path
    ) -> tuple[Path, PreparedFilm, Remarks]:
        """Makes the film; returns its path, what was decided about it, and what to say of it."""
        settings, film = record.settings.of_film(), reader.film
        models = model_set.find(settings.model)
        decided, prepared = _prepared(reader, target, settings, models)
        if not decided.changes:
            raise ImageError(
                f"{record.name}: nothing to do", "give a noise level, or a larger size"
            )
        with Upscaler(engine=self._upscalers.engine, **decided.arguments) as upscaler:
            known = film_remarks.before(record.name, film, prepared, target.suffix[1:])
            known = replace(known, notices=(*upscaler.notices, *known.notices))
            self._queue.remark(record, known)
            device = device_of(FrameEnlarger(upscaler, film.pictures, prepared.shape), film)
            progress = _FilmCount(self._queue, record, film, prepared)
            maker = MakerHere(
                reader, replace(device, enlarge=self._polite(device.enlarge)), progress.add
            )
            deciding = automatic.deciding_settings(decided.arguments, models, device.arithmetic)
            job = replace(decided.job, has_long_parts=device.is_gpu, settings=deciding)
            made = make_film(maker, reader, job, prepared, on_resumed=progress.resume)
        return job.target, prepared, film_remarks.after(record.name, film, prepared, made, known)

    def _polite(self, enlarge: Enlarge) -> Enlarge:
        """Wraps `enlarge`: frames wait for pictures. The result raises StoppedError when the film
        was cancelled or the server ends."""
        engine = self._upscalers.engine
        name = engine.backend.name
        took = 0.0

        def enlarged(frames: Sequence[Planes], out: Sequence[Planes]) -> None:
            nonlocal took
            self._check()
            if self._no_pictures.is_set():
                enlarge(frames, out)
            else:
                with self._turn:
                    self._wait(_PICTURES_SHARE * took)
                    begun = time.monotonic()
                    enlarge(frames, out)
                    took = time.monotonic() - begun
            if engine.backend.name != name:
                # Frames by another arithmetic would differ within the film.
                raise BackendError(f"{name}: the device has stopped working", "try again")

        return enlarged

    def _wait(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._check()
            if self._no_pictures.wait(min(left, _LOOK_SECONDS)):
                return

    def _check(self) -> None:
        if self._stopped.is_set() or self._unwanted.is_set():
            raise StoppedError


def _prepared(
    reader: FilmReader, target: Path, settings: JobSettings, models: ModelSet
) -> tuple[DecidedFilm, PreparedFilm]:
    """Decides about a film. No user is there to say what may be left out, so another container is
    taken where that of `target` cannot hold all: the one that leaves out the fewest sounds, then
    the fewest streams. Raises Waifu2xError."""
    film = reader.film
    sounds = {stream.index for stream in film.others if stream.kind == "audio"}
    is_clear = film.pictures.pixels.planes == 4
    own = target.suffix[1:]
    found: list[tuple[DecidedFilm, PreparedFilm]] = []
    fault: OutputError | None = None
    for container in dict.fromkeys((own, *ROOMIEST)):
        if is_clear and not keeps_transparency(container):
            continue
        wanted = target.with_suffix(f".{container}")
        job = FilmJob(
            reader.path,
            wanted,
            settings.wish,
            drop_unsupported=True,
            deinterlacing=settings.deinterlacing,
            overwrite=True,
            to=settings.to,
        )
        try:
            decided = automatic.decided(film, job, settings.arguments(), models)
            found.append((decided, prepare(reader, decided.job, decided.height, decided.width)))
        except OutputError as error:
            fault = fault or error
            continue
        if not found[-1][1].plan.refused:
            break
    if not found:
        raise fault or OutputError(f"{target}: no container here holds such pictures")

    def lost(one: tuple[DecidedFilm, PreparedFilm]) -> tuple[int, int]:
        refused = [index for index, _ in one[1].plan.refused]
        return len(sounds.intersection(refused)), len(refused)

    return min(found, key=lost)


class _FilmCount:
    def __init__(self, queue: Queue, record: JobRecord, film: Film, prepared: PreparedFilm) -> None:
        self._queue = queue
        self._record = record
        self._shape = prepared.shape
        self._expected = frame_count(film)
        self._most = FILM_SECONDS * prepared.shape.rate
        self._lock = threading.Lock()
        self._resumed = 0
        self._done = 0
        self._told = self._measured = 0.0

    def resume(self, frames: int) -> None:
        self._resumed = self._done = frames

    def add(self, frames: int, computed: int) -> None:
        """Counts new frames. Raises ImageError for a film that does not end."""
        with self._lock:
            self._done += frames
            if self._done > self._most:
                raise ImageError(
                    f"{self._record.name}: it lasts more than {FILM_SECONDS // 3600} hours",
                    "use `waifu2x video`",
                )
            now = time.monotonic()
            is_measuring = now - self._measured >= _MEASURE_SECONDS
            is_telling = now - self._told >= _TELL_SECONDS and self._expected
            self._measured = now if is_measuring else self._measured
            self._told = now if is_telling else self._told
            done, resumed = self._done, self._resumed
        if is_measuring:
            self._queue.measure(self._record.id)
        if is_telling:
            part, before = done / self._expected, resumed / self._expected
            pixels = self._expected * self._shape.height * self._shape.width
            self._queue.advance(self._record, part, pixels, before)
