"""Makes the parts of a film by the workers of a Dask cluster.

Files are not sent: all machines see the film and the folder of its parts. Dask makes a run again
elsewhere if its worker is lost; parts that were complete by then count and stay.
"""

from __future__ import annotations

import queue
import secrets
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from waifu2x.errors import ClusterError, ImageError, Waifu2xError
from waifu2x.flows.batch.cluster import LOOK_SECONDS, PATIENCE_SECONDS, workers_of
from waifu2x.flows.film.frames.frame_device import Enlarging, OnFrames
from waifu2x.flows.film.parts import part_files
from waifu2x.flows.film.parts.part_runs import FilmWork, PartRun, RunQueue, expected_parts
from waifu2x.flows.film.reading.client import FilmReader
from waifu2x.formats.film.writing.encode import Shape

if TYPE_CHECKING:
    from distributed import Client, Future

    from waifu2x.flows.film.makers.cluster_worker import RunMade, WorkerDevice

_MOST = 6
"""Parts of a run, whose progress is known only at its end."""
_AHEAD = 2
"""Runs that a worker has; one of them waits."""
_RESUME = "the parts that are complete stay: run again to go on"


class MakerByCluster:
    """Makes parts by a cluster. The end of the context cancels unfinished runs."""

    def __init__(
        self,
        client: Client,
        reader: FilmReader,
        shape: Shape,
        enlarging: Enlarging,
        *,
        on_frames: OnFrames = lambda frames, computed: None,
        on_device: Callable[[str], None] = lambda described: None,
        on_news: Callable[[str], None] = lambda notice: None,
    ) -> None:
        """`client` is connected; the rest is as for MakerByDevices, with one `enlarging` for all
        workers."""
        self._client = client
        self._reader = reader
        self._shape = shape
        self._enlarging = enlarging
        self._on_frames = on_frames
        self._on_device = on_device
        self._on_news = on_news
        self._name = f"waifu2x-{secrets.token_hex(8)}"
        self._sent: Future | None = None
        self._runs = 0
        self._flying: dict[Future, PartRun] = {}
        self._broken: set[str] = set()
        self.arithmetic = ""
        """The arithmetic of all workers. Parts of another one would differ."""
        self.is_gpu = False

    def __enter__(self) -> Self:
        """Opens the devices of all workers. Raises ClusterError."""
        from waifu2x.flows.film.makers.cluster_worker import FilmTask, device_of, kept

        source = Path(self._reader.path).absolute()
        task = FilmTask(
            self._name,
            source,
            part_files.source_identity(source),
            self._reader.film,
            self._shape,
            self._enlarging,
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about its size
            self._sent = self._client.submit(kept, task, key=f"{self._name}-film")
        opening = [
            self._client.submit(
                device_of, self._sent, key=f"{self._name}-{worker}", workers=[worker]
            )
            for worker in workers_of(self._client, _RESUME)
        ]
        found: list[WorkerDevice] = [self._result(future) for future in opening]
        for one in found:
            self._on_device(f"worker {one.worker}: {one.described}")
            if one.arithmetic != found[0].arithmetic:
                raise ClusterError(
                    f"worker {one.worker} computes in {one.arithmetic}, {found[0].worker} in "
                    f"{found[0].arithmetic}",
                    "choose by --backend and --precision",
                )
        self.arithmetic, self.is_gpu = found[0].arithmetic, found[0].is_gpu
        return self

    def __exit__(self, *exception: object) -> None:
        # A lost scheduler has forgotten them already.
        with suppress(Exception):
            self._client.cancel(list(self._flying), force=True)

    def __call__(self, runs: Sequence[PartRun], work: FilmWork) -> None:
        """Makes the parts of runs, as RunMaker. Raises ClusterError if the cluster is lost."""
        ended: queue.SimpleQueue[Future] = queue.SimpleQueue()
        expected = expected_parts(self._reader.film, work)
        left = RunQueue(runs, expected, max(1, len(workers_of(self._client, _RESUME))), _MOST)
        last_seen = time.monotonic()
        while True:
            workers = workers_of(self._client, _RESUME)
            usable = [worker for worker in workers if worker not in self._broken]
            if workers:
                last_seen = time.monotonic()
                if not usable:
                    raise ClusterError(f"no worker has a device left that works: {_RESUME}")
            elif time.monotonic() - last_seen > PATIENCE_SECONDS:
                raise ClusterError(f"no workers for {PATIENCE_SECONDS:.0f} seconds: {_RESUME}")
            while len(self._flying) < _AHEAD * len(usable):
                run = left.take_now()
                if run is None:
                    break
                self._send(run, work, usable, ended)
            if workers and not self._flying:
                return
            try:
                future = ended.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                continue
            run = self._flying.pop(future)
            made = self._made(future, run, work)
            if made is None:
                left.give_back(run)
            else:
                if made.has_ended:
                    left.end()
                self._on_frames(made.frames, made.computed)

    def _send(
        self, run: PartRun, work: FilmWork, usable: Sequence[str], ended: queue.SimpleQueue[Future]
    ) -> None:
        from waifu2x.flows.film.makers.cluster_worker import make_parts

        self._runs += 1
        key = f"{self._name}-{self._runs}"
        future = self._client.submit(
            make_parts,
            run,
            work,
            self._sent,
            self.arithmetic,
            key,
            key=key,
            workers=list(usable) if self._broken else None,
        )
        self._flying[future] = run
        future.add_done_callback(ended.put)

    def _made(self, future: Future, run: PartRun, work: FilmWork) -> RunMade | None:
        """Returns the result of a run; None if the device of its worker has failed."""
        from distributed import KilledWorker

        try:
            made: RunMade = self._result(future)
        except KilledWorker as error:
            seconds = float(run.first * work.part_ticks * work.shape.tick)
            raise ImageError(
                f"{work.source}: what comes after {seconds:g} s crashed several workers in a row",
                "use a smaller scale, or workers with more memory",
            ) from error
        if made.failure:
            if made.worker not in self._broken:
                self._broken.add(made.worker)
                self._on_news(f"worker {made.worker} gets no more parts: {made.failure}")
            return None
        return made

    def _result(self, future: Future) -> Any:
        from distributed import KilledWorker

        try:
            return future.result()
        except (Waifu2xError, KilledWorker):
            raise
        except ImportError as error:
            raise ClusterError(f"a worker lacks what it needs: {error}") from error
        except Exception as error:
            if future.status in ("cancelled", "lost"):
                raise ClusterError(f"lost the scheduler: {_RESUME}") from error
            raise
