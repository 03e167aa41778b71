"""Devices of a batch that fail."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from waifu2x.backends.reference.backend import NumpyBackend
from waifu2x.errors import DeviceError
from waifu2x.flows.batch.by_fleet import SessionOpening
from waifu2x.flows.fleet.task import Tell, Workplace
from waifu2x.formats.write import FileSink
from waifu2x.imaging.enlarger import Enlarger
from waifu2x.imaging.streams import Header
from waifu2x.system.lazy_dataclass import dataclass

DEADLY = "deadly.png"


@dataclass(frozen=True)
class OddOpening:
    """Opens a session whose device is of a kind:

    - `dies` on the picture deadly.png, every time;
    - `dies-after` it has given the result of that picture its name, once: a file in the folder
      `marks` remembers;
    - `broken`: stops working with its first picture, in each of its processes;
    - `never-opens`: its process ends before it is there;
    - `other-backend`: it is one of another backend.

    Codec workers have to be threads for it: their processes are as they always are.
    """

    session: SessionOpening
    kind: str
    marks: Path

    @contextmanager
    def opened(self, tell: Tell) -> Iterator[Workplace]:
        """The session."""
        if self.kind == "never-opens":
            os._exit(1)
        opened, closed = FileSink.open, FileSink.close

        def die(sink: FileSink, header: Header) -> None:
            if sink.path.name == DEADLY:
                os._exit(1)
            opened(sink, header)

        def die_after(sink: FileSink) -> None:
            closed(sink)
            if sink.path.name == DEADLY and not (self.marks / "died").exists():
                (self.marks / "died").touch()
                os._exit(1)

        def broken(self: Enlarger, *rest: Any, **named: Any) -> Any:
            raise DeviceError("the device fell off the bus")

        if self.kind == "other-backend":
            NumpyBackend.name = "other"
        elif self.kind == "dies":
            FileSink.open = die  # type: ignore[method-assign, assignment]
        elif self.kind == "dies-after":
            FileSink.close = die_after  # type: ignore[method-assign, assignment]
        elif self.kind == "broken":
            Enlarger.picture = broken  # type: ignore[method-assign]
        with self.session.opened(tell) as place:
            yield place
