"""Makes the parts of a film by the workers of a fleet: each reads the film and writes parts itself.

When a worker is lost, another one makes what its run still lacks; complete parts stay.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from waifu2x.errors import BackendError, ClusterError, ImageError, Waifu2xError
from waifu2x.flows.film.frames.frame_device import Enlarging, FrameDevice, OnFrames, StageTimes
from waifu2x.flows.film.makers.run_maker import make_run
from waifu2x.flows.film.parts import part_files
from waifu2x.flows.film.parts.part_runs import (
    FilmWork,
    PartRun,
    RunQueue,
    expected_parts,
    missing_runs,
    runs_within,
)
from waifu2x.flows.film.reading.client import FilmReader
from waifu2x.flows.fleet.messages import Broken, Done, Opened, Order
from waifu2x.flows.fleet.processes import may_start_processes
from waifu2x.flows.fleet.progress import Advances
from waifu2x.flows.fleet.supervisor import Fleet
from waifu2x.flows.fleet.task import Left, Tell
from waifu2x.formats.film.description import Film
from waifu2x.formats.film.writing.encode import Shape
from waifu2x.system.lazy_dataclass import dataclass

MOST = 6
"""Parts of a run by a worker of a cluster, whose progress is known only at its end."""
PARTS_STAY = "the parts that are complete stay"


@dataclass(frozen=True)
class FramesMade:
    """Frames that were made, those among them that the network made, and the time it took."""

    frames: int = 0
    computed: int = 0
    spent: StageTimes = StageTimes()

    def __add__(self, other: FramesMade) -> FramesMade:
        spent = (one + more for one, more in zip(self.spent, other.spent, strict=True))
        return FramesMade(
            self.frames + other.frames, self.computed + other.computed, StageTimes(*spent)
        )


@dataclass(frozen=True)
class FilmOpening:
    """Opens a film and a device for its frames."""

    source: Path
    film: Film
    shape: Shape
    enlarging: Enlarging
    identity: Mapping[str, str] | None = None
    """The identity of the film's file, for workers that may see another one."""

    @contextmanager
    def opened(self, tell: Tell) -> Iterator[_FilmPlace]:
        """Opens both, as `Opening`."""
        self._check()
        with (
            self.enlarging.opened(self.film, self.shape) as device,
            FilmReader(self.source, device.pin, start=self.film.start) as reader,
        ):
            yield _FilmPlace(reader, device, tell)

    def _check(self) -> None:
        """Raises ClusterError where the film cannot be read or is another one."""
        if not may_start_processes():
            raise ClusterError(
                "it may not start processes, and films are read by one",
                "start it with `DASK_DISTRIBUTED__WORKER__DAEMON=False dask worker`",
            )
        if self.identity is None:
            return
        try:
            identity = part_files.source_identity(self.source)
        except OSError as error:
            raise _unseen(self.source) from error
        if identity != self.identity:
            raise ClusterError(f"{self.source}: it sees another file there")


def _unseen(path: Path) -> ClusterError:
    return ClusterError(f"{path}: it does not see this", "use paths that all machines share")


class _FilmPlace:
    """Makes runs of parts, one after the other."""

    def __init__(self, reader: FilmReader, device: FrameDevice, tell: Tell) -> None:
        self.opened = Opened(device.described, device.arithmetic, device.is_gpu)
        self._reader = reader
        self._device = device
        self._tell = tell
        self._advances = Advances(tell)
        self._before = StageTimes()
        self._lock = threading.Lock()

    def begin(self, order: Order) -> None:
        """Makes a run. Raises ImageError, OutputError, ClusterError."""
        with self._lock:
            self._begin(order)

    def _begin(self, order: Order) -> None:
        run, work = order.work
        if not work.folder.is_dir():
            raise _unseen(work.folder)
        self._before = self._reader.stages.times()
        try:
            has_ended = make_run(
                self._reader, work, run, self._device, partial(self._count, order.number)
            )
        except BackendError as error:
            self._tell(Broken(str(error)))
            return
        self._count(order.number, 0, 0)
        self._advances.tell()
        self._tell(Done(order.number, has_ended))

    def _count(self, number: int, frames: int, computed: int) -> None:
        times = self._reader.stages.times()
        spent, self._before = times.since(self._before), times
        self._advances.add(number, FramesMade(frames, computed, spent))

    def withdraw(self) -> Sequence[int]:
        """Returns nothing: no run waits."""
        return ()


class _RunTask:
    """A run of parts."""

    weight = 1.0

    def __init__(self, maker: MakerByFleet, runs: RunQueue, run: PartRun, work: FilmWork) -> None:
        self._maker = maker
        self._runs = runs
        self._run = run
        self._film = work
        self.folder = work.folder
        self.key = run.first
        self.work = run, work
        self.made = FramesMade()
        """The reported part."""

    def left(self) -> Left:
        """Returns runs of the parts that are missing, and counts the frames of the others."""
        run, film = self._run, self._film
        there = part_files.all_recorded(film.folder, run.first, run.until)
        # Frames that were reported but lost are subtracted.
        frames = sum(len(told.encoded.pts) for told in there.values()) - self.made.frames
        computed = sum(told.computed for told in there.values()) - self.made.computed
        self._maker.tell(self, FramesMade(frames, computed))
        if any(told.following is None for told in there.values()):
            self._runs.end()
        missing = missing_runs(there, run.first, film.part_ticks).runs
        left = runs_within(missing, run.first, run.until)
        return Left([_RunTask(self._maker, self._runs, one, film) for one in left], bool(there))

    def done(self, outcome: bool) -> bool:
        """Notes whether the end of the film was found."""
        if outcome:
            self._runs.end()
        return outcome

    def failed(self, why: str, *, is_blamed: bool) -> Any:
        """Raises ImageError for a run that is to blame, and BackendError or ClusterError."""
        if is_blamed:
            seconds = float(self._run.first * self._film.part_ticks * self._film.shape.tick)
            raise ImageError(f"{self._film.source}: what comes after {seconds:g} s {why}")
        raise self._maker.refused(f"{why}, see above")


class MakerByFleet:
    """Makes parts by an open fleet, whose workers have a FilmOpening."""

    def __init__(
        self,
        reader: FilmReader,
        fleet: Fleet,
        on_frames: OnFrames = lambda frames, computed: None,
        most: int | None = None,
    ) -> None:
        """`reader` has the film open. No run has more than `most` parts."""
        self._reader = reader
        self._fleet = fleet
        self._on_frames = on_frames
        self._most = most
        self._count = max(1, len(fleet.workers))
        fleet.hooks = replace(fleet.hooks, on_progress=self.tell)

    def __call__(self, runs: Sequence[PartRun], work: FilmWork) -> None:
        """Makes the parts of runs, as RunMaker. Raises BackendError or ClusterError if no worker is
        left."""
        expected = expected_parts(self._reader.film, work)
        left = RunQueue(runs, expected, self._count, self._most)
        tasks: Iterable[_RunTask] = (_RunTask(self, left, run, work) for run in left)
        for _ in self._fleet.run(tasks):
            pass

    def refused(self, why: str) -> Waifu2xError:
        """Returns the error of a film that cannot be made on."""
        policy = self._fleet.policy
        return policy.error(why, policy.resume)

    def tell(self, task: _RunTask, made: FramesMade) -> None:
        """Counts frames that were made."""
        task.made += made
        self._on_frames(made.frames, made.computed)
        # As for one device: the number of devices must not change which stage is slowest.
        for stage in ("decoding", "network", "encoding"):
            self._reader.stages.add(stage, made.spent._asdict()[stage] / self._count)
