"""Devices, some of them odd, that enlarge the frames of films into squares."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from tests.flows.test_film_streams import twice
from waifu2x.errors import DeviceError
from waifu2x.flows.film.frames.frame_device import Enlarging, FrameDevice
from waifu2x.flows.film.frames.frame_source import Planes
from waifu2x.flows.film.makers.by_fleet import PARTS_STAY, FilmOpening
from waifu2x.flows.film.reading.client import FilmReader
from waifu2x.flows.film.request import PreparedFilm
from waifu2x.flows.fleet.process_worker import ProcessWorker
from waifu2x.flows.fleet.supervisor import SILENT, Fleet, Hooks, Policy
from waifu2x.system.lazy_dataclass import dataclass


@dataclass(frozen=True)
class Squares:
    """Enlarges each sample into a square of four, and, of a kind:

    - `dies` at its `at`-th frame, once: the file `mark` remembers;
    - `broken`: its device stops working with that frame, for good;
    - `deadly`: ends at each frame whose samples of luma add up to that number;
    - `other`: it computes in something else;
    - `changes`: dies as the first, and computes in something else then;
    - `never`: ends before it is there.
    """

    kind: str = ""
    at: int = 0
    mark: Path = Path()

    @contextmanager
    def opened(self, film: Any, shape: Any) -> Iterator[FrameDevice]:
        """The device."""
        if self.kind == "never":
            os._exit(1)
        count = 0

        def enlarge(frames: Sequence[Planes], results: Sequence[Planes]) -> None:
            nonlocal count
            count += 1
            if self.kind in ("dies", "changes") and count == self.at and not self.mark.exists():
                self.mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            if self.kind == "broken" and (count == self.at or self.mark.exists()):
                self.mark.touch()
                raise DeviceError("the device fell off the bus")
            if self.kind == "deadly" and frames[0][0].sum() == self.at:
                os._exit(1)
            twice(frames, results)

        is_other = self.kind == "other" or (self.kind == "changes" and self.mark.exists())
        name = "other" if is_other else "squares"
        yield FrameDevice(enlarge, arithmetic=name, described="squares")


@contextmanager
def fleet_of(
    reader: FilmReader, prepared: PreparedFilm, *devices: Enlarging, hooks: Hooks = SILENT
) -> Iterator[Fleet]:
    """An open process for each device, to make a film that a reader has open."""
    workers = [
        ProcessWorker(
            f"device {number}", FilmOpening(reader.path, reader.film, prepared.shape, device)
        )
        for number, device in enumerate(devices)
    ]
    with closing(Fleet(workers, Policy("parts", resume=PARTS_STAY), hooks)) as fleet:
        fleet.open()
        yield fleet
